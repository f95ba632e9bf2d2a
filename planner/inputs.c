#include "planner/inputs.h"
#include "planner/build.h"
#include "planner/estimate.h"
#include "shared/log.h"

#include <string.h>

/* "1,2,3" -> zero_stages[1..3]. */
static bool parse_zero(bool zero_stages[4], const char *text, zs_error *err)
{
    bool given[4] = {false};
    const char *p = text;
    for (;;) {
        if (*p < '1' || *p > '3' || (p[1] != ',' && p[1] != 0) || given[*p - '0'])
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "--zero is \"%s\", expected levels 1, 2, 3 such as \"1\" or \"1,3\"",
                           text);
        given[*p - '0'] = true;
        if (p[1] == 0)
            break;
        p += 2;
    }
    memcpy(zero_stages, given, sizeof given);
    return true;
}

/* A path inside a job file, seen from where the program runs: names of presets, one-line clusters,
 * "-" and absolute paths stay as they are. */
static bool resolve(const char **path, zs_arena *arena, const char *job_path, zs_error *err)
{
    const char *slash = strrchr(job_path, '/');
    const size_t length = *path ? strlen(*path) : 0;
    const bool is_file = length > 5 && strcmp(*path + length - 5, ".json") == 0;
    if (!is_file || !slash || (*path)[0] == '/')
        return true;
    *path = zs_arena_printf(arena, err, "%.*s/%s", (int)(slash - job_path), job_path, *path);
    return *path != NULL;
}

static bool load_job_file(zs_job *job, const char **cluster, const char **model,
                          const char **profile, zs_arena *arena, const char *path, zs_error *err)
{
    const zs_json *root = NULL;
    return zs_json_load(&root, arena, path, err) &&
           zs_job_parse(job, cluster, model, profile, root, err) &&
           resolve(cluster, arena, path, err) && resolve(model, arena, path, err) &&
           resolve(profile, arena, path, err);
}

static void override_int(int *value, const zs_options *o, const char *name)
{
    if (zs_options_is_set(o, name))
        *value = (int)zs_options_int(o, name);
}

static bool override_job(zs_job *job, const zs_options *o, zs_error *err)
{
    if (zs_options_is_set(o, "batch"))
        job->global_batch = zs_options_int(o, "batch");
    override_int(&job->seq_len, o, "seq");
    override_int(&job->n_stages, o, "stages");
    override_int(&job->max_micro_batch, o, "max-micro-batch");
    override_int(&job->max_gpus_per_stage, o, "max-gpus-per-stage");
    if (zs_options_is_set(o, "precision"))
        job->precision = strcmp(zs_options_string(o, "precision"), "bf16") == 0 ? ZS_BF16 : ZS_FP32;
    if (zs_options_is_set(o, "recompute")) {
        const char *choice = zs_options_string(o, "recompute");
        job->recompute = strcmp(choice, "auto") == 0   ? ZS_RECOMPUTE_AUTO
                         : strcmp(choice, "none") == 0 ? ZS_RECOMPUTE_NONE
                                                       : ZS_RECOMPUTE_FULL;
    }
    if (zs_options_is_set(o, "context"))
        job->context_bytes = zs_options_bytes(o, "context");
    if (zs_options_is_set(o, "reserve"))
        job->reserve_bytes = zs_options_bytes(o, "reserve");
    if (zs_options_is_set(o, "overlap-zero"))
        job->overlap_zero = zs_options_double(o, "overlap-zero");
    if (zs_options_is_set(o, "overlap-send"))
        job->overlap_send = zs_options_double(o, "overlap-send");
    return !zs_options_is_set(o, "zero") ||
           parse_zero(job->zero_stages, zs_options_string(o, "zero"), err);
}

static bool override_path(const char **path, const zs_options *o, const char *name, bool required,
                          zs_error *err)
{
    if (zs_options_is_set(o, name))
        *path = zs_options_string(o, name);
    if (!*path && required)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--%s is missing (or \"%s\" in a --job file)", name,
                       name);
    return true;
}

/* Everything but the job, which is complete. */
static bool load_files(zp_inputs *inputs, zs_arena *arena, const char *cluster, const char *model,
                       const char *profile, zs_error *err)
{
    if (!zs_job_check(&inputs->job, err) ||
        !zs_cluster_load(&inputs->cluster, arena, cluster, err) ||
        !zm_model_load(&inputs->model, arena, model, err) ||
        !zm_model_check_seq_len(&inputs->model, inputs->job.seq_len, err))
        return false;
    if (profile)
        return zs_profile_load(&inputs->profile, arena, profile, err);
    zs_log_warn("no --profile: layer times are estimated from public GPU data");
    return zp_estimate(&inputs->profile, arena, &inputs->cluster, &inputs->model,
                       inputs->job.precision, inputs->job.seq_len,
                       zp_build_max_micro_batch(&inputs->job), err);
}

bool zp_inputs_load(zp_inputs *out, zs_arena *arena, const zs_options *options, zs_error *err)
{
    zp_inputs inputs = {0};
    const char *cluster = NULL, *model = NULL, *profile = NULL;
    const char *job_path = zs_options_string(options, "job");
    zs_job_set_defaults(&inputs.job);
    if (job_path && !load_job_file(&inputs.job, &cluster, &model, &profile, arena, job_path, err))
        return false;
    if (!override_job(&inputs.job, options, err) ||
        !override_path(&cluster, options, "cluster", true, err) ||
        !override_path(&model, options, "model", true, err) ||
        !override_path(&profile, options, "profile", false, err) ||
        !load_files(&inputs, arena, cluster, model, profile, err))
        return false;
    *out = inputs;
    return true;
}

bool zp_inputs_load_job(zp_inputs *out, zs_arena *arena, const char *path, zs_error *err)
{
    zp_inputs inputs = {0};
    const char *cluster = NULL, *model = NULL, *profile = NULL;
    zs_job_set_defaults(&inputs.job);
    if (!load_job_file(&inputs.job, &cluster, &model, &profile, arena, path, err))
        return false;
    if (!cluster || !model)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: $: \"%s\" is missing", path,
                       cluster ? "model" : "cluster");
    if (!load_files(&inputs, arena, cluster, model, profile, err))
        return false;
    *out = inputs;
    return true;
}
