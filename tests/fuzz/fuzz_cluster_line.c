/* Any text is refused with a message, or is a cluster whose file is the same cluster. */
#include "shared/cluster.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    zs_arena *arena = NULL;
    zs_json_writer *w = NULL;
    const zs_json *root = NULL;
    zs_cluster cluster, again;
    zs_error err = {0};
    FUZZ_CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    const char *line = zs_arena_strndup(arena, (const char *)data, size, &err);
    FUZZ_CHECK(line, "%s", err.message);
    if (zs_cluster_parse_line(&cluster, arena, line, &err)) {
        const char *text = NULL;
        size_t text_size = 0;
        FUZZ_CHECK(zs_json_writer_open(&w, &err), "%s", err.message);
        zs_cluster_write(w, NULL, &cluster);
        FUZZ_CHECK(zs_json_writer_text(w, &text, &text_size, &err) &&
                       zs_json_parse(&root, arena, text, text_size, "again", &err) &&
                       zs_cluster_parse(&again, arena, root, &err),
                   "%s: %s", err.message, line);
        FUZZ_CHECK(cluster.n_nodes == again.n_nodes &&
                       zs_cluster_n_devices(&cluster) == zs_cluster_n_devices(&again),
                   "%s", line);
        zs_json_writer_close(&w);
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.code == ZS_ERR_INPUT, "%s", err.message);
    }
    zs_arena_close(&arena);
    return 0;
}
