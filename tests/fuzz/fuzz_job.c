/* A job file is refused with a message or has a normal form that reads back to itself. */
#include "shared/job.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void write(zs_json_writer *w, const void *document)
{
    zs_job_write(w, NULL, document);
}

static bool parse(zs_job *job, const zs_json *root, zs_error *err)
{
    const char *cluster = NULL, *model = NULL, *profile = NULL;
    zs_job_set_defaults(job);
    return zs_job_parse(job, &cluster, &model, &profile, root, err) && zs_job_check(job, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const zs_json *root = NULL;
    zs_job job, again;
    zs_error err = {0};
    zs_arena *arena = fuzz_open(&root, data, size);
    if (root && !parse(&job, root, &err)) {
        fuzz_check_error(&err);
    } else if (root) {
        FUZZ_CHECK(job.global_batch >= 1 && job.seq_len >= 1, "batch or length");
        FUZZ_CHECK(job.context_bytes >= 0 && job.reserve_bytes >= 0, "negative bytes");
        const char *text = fuzz_print(arena, write, &job);
        FUZZ_CHECK(parse(&again, fuzz_parse(arena, text), &err), "%s\n%s", err.message, text);
        const char *second = fuzz_print(arena, write, &again);
        FUZZ_CHECK(strcmp(text, second) == 0, "%s\nbecame\n%s", text, second);
    }
    zs_arena_close(&arena);
    return 0;
}
