/* A profile is refused with a message, or its times are finite at every size that it offers and its
 * normal form reads back to itself. */
#include "shared/profile.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static void write(zs_json_writer *w, const void *document)
{
    zs_profile_write(w, NULL, document);
}

static void check_times(const zs_profile_entry *entry)
{
    static const int sizes[] = {1, 2, 3, 5, 8, 1000, 1048576, 2147483647};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        double forward_ms = -1, backward_ms = -1;
        bool interpolated = false;
        if (zs_profile_time(&forward_ms, &backward_ms, &interpolated, entry, sizes[i]))
            FUZZ_CHECK(forward_ms >= 0 && backward_ms >= 0 && isfinite(forward_ms + backward_ms),
                       "%d samples take %g and %g ms", sizes[i], forward_ms, backward_ms);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const zs_json *root = NULL;
    zs_profile profile = {0}, again = {0};
    zs_error err = {0};
    zs_arena *arena = fuzz_open(&root, data, size);
    if (root && !zs_profile_parse(&profile, arena, root, &err)) {
        fuzz_check_error(&err);
    } else if (root) {
        for (int i = 0; i < profile.n_entries; i++)
            check_times(&profile.entries[i]);
        const char *text = fuzz_print(arena, write, &profile);
        FUZZ_CHECK(zs_profile_parse(&again, arena, fuzz_parse(arena, text), &err), "%s\n%s",
                   err.message, text);
        const char *second = fuzz_print(arena, write, &again);
        FUZZ_CHECK(strcmp(text, second) == 0, "%s\nbecame\n%s", text, second);
    }
    zs_arena_close(&arena);
    return 0;
}
