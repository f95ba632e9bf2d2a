/* Any text is refused with a message or gives factors above 0; the whole input is one text. */
#include "planner/what_if.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

static void check_factors(const double *factors, int n)
{
    for (int i = 0; i < n; i++)
        FUZZ_CHECK(factors[i] > 0 && isfinite(factors[i]), "factor %d is %g", i, factors[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    zs_arena *arena = NULL;
    zs_error err = {0};
    zs_cluster cluster;
    zp_what_if what_if;
    if (!zs_arena_open(&arena, &err))
        return 0;
    const char *text = zs_arena_strndup(arena, (const char *)data, size, &err);
    if (text && zs_cluster_parse_line(&cluster, arena, "2x(2xA100-80G)+1x(1xT4)", &err)) {
        if (zp_what_if_parse(&what_if, arena, &cluster, text, &err)) {
            check_factors(what_if.time_factor, zs_cluster_n_devices(&cluster));
            check_factors(what_if.nic_factor, cluster.n_nodes);
            check_factors(what_if.intra_factor, cluster.n_nodes);
        } else {
            fuzz_check_error(&err);
        }
    }
    zs_arena_close(&arena);
    return 0;
}
