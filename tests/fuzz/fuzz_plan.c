/* Any document is refused with a message, or is a cluster, job, profile or plan that is written,
 * read and written again to the same bytes. */
#include "shared/plan.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* What one document was read as. */
typedef struct document {
    const char *format;
    zs_cluster cluster;
    zs_job job;
    zs_profile profile;
    zs_plan plan;
} document;

static bool read_document(document *out, zs_arena *arena, const zs_json *root, zs_error *err)
{
    if (!zs_json_is_object(root, err) || !zs_json_get_string(&out->format, root, "format", err))
        return false;
    if (strcmp(out->format, ZS_CLUSTER_FORMAT) == 0)
        return zs_cluster_parse(&out->cluster, arena, root, err);
    if (strcmp(out->format, ZS_JOB_FORMAT) == 0) {
        zs_job_set_defaults(&out->job);
        return zs_job_parse(&out->job, NULL, NULL, NULL, root, err);
    }
    if (strcmp(out->format, ZS_PROFILE_FORMAT) == 0)
        return zs_profile_parse(&out->profile, arena, root, err);
    return zs_plan_parse(&out->plan, arena, root, err);
}

static const char *write_document(const document *d, zs_arena *arena)
{
    zs_json_writer *w = NULL;
    const char *text = NULL;
    size_t size = 0;
    zs_error err = {0};
    FUZZ_CHECK(zs_json_writer_open(&w, &err), "%s", err.message);
    if (strcmp(d->format, ZS_CLUSTER_FORMAT) == 0)
        zs_cluster_write(w, NULL, &d->cluster);
    else if (strcmp(d->format, ZS_JOB_FORMAT) == 0) {
        if (d->job.global_batch > 0 && d->job.seq_len > 0)
            zs_job_write(w, NULL, &d->job);
        else
            zs_json_put_null(w, NULL); /* asks for options: has no normal form */
    } else if (strcmp(d->format, ZS_PROFILE_FORMAT) == 0)
        zs_profile_write(w, NULL, &d->profile);
    else
        FUZZ_CHECK(zs_plan_write(w, &d->plan, &err), "%s", err.message);
    FUZZ_CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message);
    const char *copy = zs_arena_strndup(arena, text, size, &err);
    FUZZ_CHECK(copy, "%s", err.message);
    zs_json_writer_close(&w);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    zs_arena *arena = NULL;
    zs_error err = {0};
    const zs_json *root = NULL;
    document d = {0}, again = {0};
    FUZZ_CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    if (zs_json_parse(&root, arena, (const char *)data, size, "input", &err) &&
        read_document(&d, arena, root, &err)) {
        const char *text = write_document(&d, arena);
        if (strcmp(text, "null\n") != 0) {
            FUZZ_CHECK(zs_json_parse(&root, arena, text, strlen(text), "again", &err) &&
                           read_document(&again, arena, root, &err),
                       "%s: %s", err.message, text);
            FUZZ_CHECK(strcmp(write_document(&again, arena), text) == 0, "%s", text);
        }
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.code == ZS_ERR_INPUT, "%s", err.message);
    }
    zs_arena_close(&arena);
    return 0;
}
