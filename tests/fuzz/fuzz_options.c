/* Any command line, one argument a line, is refused with a message or leaves values in range. */
#include "shared/options.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* clang-format off */
static const zs_option options[] = {
    {"batch", 'b', ZS_OPTION_INT, "N", "8", 1, 1048576, NULL, "Samples."},
    {"overlap", 0, ZS_OPTION_DOUBLE, "X", "0.7", 0, 1, NULL, "Share."},
    {"output", 'o', ZS_OPTION_STRING, "FILE", "-", 0, 0, NULL, "Where to."},
    {"precision", 0, ZS_OPTION_CHOICE, NULL, "bf16", 0, 0, "fp32|bf16", "Precision."},
    {"reserve", 0, ZS_OPTION_BYTES, "SIZE", "1GiB", 0, 0, NULL, "Kept free."},
    {"time-limit", 't', ZS_OPTION_MS, "TIME", "10s", 0, 0, NULL, "Stop."},
    {"verbose", 'v', ZS_OPTION_FLAG, NULL, NULL, 0, 0, NULL, "Say more."},
};
/* clang-format on */
static const zs_command command = {
    "solve", "PLAN", 1, 3, "find a plan", "", options, (int)(sizeof options / sizeof options[0])};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX_ARGUMENTS = 64 };
    zs_arena *arena = NULL;
    zs_error err = {0};
    FUZZ_CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    char *text = zs_arena_strndup(arena, (const char *)data, size, &err), *argv[MAX_ARGUMENTS];
    FUZZ_CHECK(text != NULL, "%s", err.message);
    int argc = 0;
    for (char *at = text; at && argc < MAX_ARGUMENTS;) {
        argv[argc++] = at;
        at = strchr(at, '\n');
        if (at)
            *at++ = 0;
    }
    zs_options *o = NULL;
    bool help = false;
    if (!zs_options_parse(&o, &help, arena, &command, argc, argv, &err)) {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.code == ZS_ERR_INPUT, "%s", err.message);
    } else {
        const int64_t batch = zs_options_int(o, "batch");
        const double overlap = zs_options_double(o, "overlap");
        FUZZ_CHECK(batch >= 1 && batch <= 1048576, "%lld", (long long)batch);
        FUZZ_CHECK(overlap >= 0 && overlap <= 1, "%g", overlap);
        FUZZ_CHECK(zs_options_bytes(o, "reserve") >= 0 && zs_options_ms(o, "time-limit") >= 0,
                   "a negative quantity");
        FUZZ_CHECK(help || zs_options_n_arguments(o) >= 1, "too few arguments");
    }
    zs_arena_close(&arena);
    return 0;
}
