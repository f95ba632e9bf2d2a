/* The examples of FORMATS.md are what the programs read. */
#include "models/layers.h"
#include "shared/plan.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <stdlib.h>
#include <string.h>

static zs_arena *arena;

/* The plan's model is one, and its n_params are those of the model. */
static bool check_model(const zs_plan *plan, zs_error *err)
{
    zm_model model;
    if (!zm_model_parse(&model, arena, plan->model, plan->model_name, err))
        return false;
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        const int64_t n = zm_stage_n_params(&model, stage->forward.first, stage->forward.end);
        CHECK(stage->n_params == n, "stage %d: n_params %lld, expected %lld", s,
              (long long)stage->n_params, (long long)n);
    }
    return true;
}

/* Reads an example by what its "format" says; false with *err set if it is refused. */
static bool read_example(char *format, size_t format_size, const char *text, size_t size,
                         zs_error *err)
{
    const zs_json *root = NULL;
    const char *name = NULL;
    if (!zs_json_parse(&root, arena, text, size, "example", err) ||
        !zs_json_get_string(&name, root, "format", err))
        return false;
    snprintf(format, format_size, "%s", name);
    if (strcmp(name, ZS_CLUSTER_FORMAT) == 0) {
        zs_cluster cluster;
        return zs_cluster_parse(&cluster, arena, root, err);
    }
    if (strcmp(name, ZS_JOB_FORMAT) == 0) {
        zs_job job;
        zs_job_set_defaults(&job);
        return zs_job_parse(&job, NULL, NULL, NULL, root, err) && zs_job_check(&job, err);
    }
    if (strcmp(name, ZS_PROFILE_FORMAT) == 0) {
        zs_profile profile;
        return zs_profile_parse(&profile, arena, root, err);
    }
    if (strcmp(name, ZS_PLAN_FORMAT) == 0) {
        zs_plan plan;
        return zs_plan_parse(&plan, arena, root, err) && check_model(&plan, err);
    }
    zm_model model;
    return zm_model_parse(&model, arena, root, "example", err);
}

int main(int argc, char **argv)
{
    static const char *const expected[] = {ZS_CLUSTER_FORMAT, ZS_JOB_FORMAT, "zplan-model",
                                           ZS_PROFILE_FORMAT, ZS_PLAN_FORMAT};
    enum { N_EXPECTED = sizeof expected / sizeof *expected };
    zs_error err;
    if (argc < 2 || !zs_arena_open(&arena, &err))
        return 1;
    char *text =
        check_read_file(zs_arena_printf(arena, &err, "%s/../../shared/FORMATS.md", argv[1]), NULL);
    int n = 0;
    for (const char *at = text; at && (at = strstr(at, "\n```json\n"));) {
        at += strlen("\n```json\n");
        const char *end = strstr(at, "\n```");
        char format[64] = "";
        if (!CHECK(end, "example %d has no end", n))
            break;
        CHECK(read_example(format, sizeof format, at, (size_t)(end - at), &err), "example %d: %s",
              n, err.message);
        if (n < N_EXPECTED)
            CHECK_STRING(format, expected[n]);
        n++;
        at = end;
    }
    zs_plan plan;
    const char *golden = zs_arena_printf(arena, &err, "%s/two-stages/plan.json", argv[1]);
    CHECK(zs_plan_load(&plan, arena, golden, &err) && check_model(&plan, &err), "%s", err.message);
    CHECK(n == N_EXPECTED, "%d examples, expected %d", n, N_EXPECTED);
    free(text);
    zs_arena_close(&arena);
    return check_done();
}
