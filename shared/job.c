#include "shared/job.h"

#include <inttypes.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define GIB(n) ((int64_t)(n) << 30)

enum { MAX_BATCH = 1048576, MAX_SEQ_LEN = 1048576, MAX_STAGES = 65536, MAX_GPUS = 65536 };

/* 1 PiB, far above any device; keeps sums of memory terms inside 63 bits. */
static const int64_t max_memory_bytes = INT64_C(1) << 50;

static const char *const recompute_names[] = {"auto", "none", "full"};

static const char *const job_keys[] = {"format",
                                       "version",
                                       "cluster",
                                       "model",
                                       "profile",
                                       "global_batch",
                                       "seq_len",
                                       "precision",
                                       "zero_stages",
                                       "recompute",
                                       "n_stages",
                                       "max_micro_batch",
                                       "max_gpus_per_stage",
                                       "context",
                                       "context_bytes",
                                       "reserve",
                                       "reserve_bytes",
                                       "overlap_zero",
                                       "overlap_send"};

void zs_job_set_defaults(zs_job *job)
{
    *job = (zs_job){.precision = ZS_FP32,
                    .zero_stages = {false, true, true, true},
                    .recompute = ZS_RECOMPUTE_AUTO,
                    .context_bytes = GIB(1),
                    .reserve_bytes = GIB(1),
                    .overlap_zero = 0.7,
                    .overlap_send = 0.7};
}

static bool parse_zero_stages(bool zero_stages[4], const zs_json *object, zs_error *err)
{
    const zs_json *list = zs_json_find(object, "zero_stages");
    if (!list)
        return true;
    int n = 0;
    if (!zs_json_is_array(&n, list, 1, 3, err))
        return false;
    bool given[4] = {false};
    for (int i = 0; i < n; i++) {
        int64_t stage = 0;
        const zs_json *item = zs_json_item(list, i);
        if (!zs_json_int(&stage, item, 1, 3, err))
            return false;
        if (given[stage])
            return zs_json_fail(item, err, "%d is listed twice", (int)stage);
        given[stage] = true;
    }
    for (int stage = 0; stage < 4; stage++)
        zero_stages[stage] = given[stage];
    return true;
}

static bool parse_int(int *out, const zs_json *object, const char *key, int min, int max,
                      zs_error *err)
{
    int64_t value = *out;
    if (!zs_json_opt_int(&value, object, key, min, max, err))
        return false;
    *out = (int)value;
    return true;
}

static bool parse_memory(int64_t *out, const zs_json *object, const char *stem, zs_error *err)
{
    if (!zs_json_opt_bytes(out, object, stem, err))
        return false;
    if (*out > max_memory_bytes)
        return zs_json_fail(object, err, "%s of %" PRId64 " bytes, expected at most %" PRId64, stem,
                            *out, max_memory_bytes);
    return true;
}

bool zs_job_parse(zs_job *job, const char **cluster, const char **model, const char **profile,
                  const zs_json *object, zs_error *err)
{
    zs_job parsed = *job;
    const char *inputs[3] = {NULL, NULL, NULL};
    int precision = (int)parsed.precision, recompute = (int)parsed.recompute;
    if (!zs_json_check_format(object, ZS_JOB_FORMAT, ZS_JOB_VERSION, err) ||
        !zs_json_only_keys(object, job_keys, COUNT(job_keys), err) ||
        !zs_json_opt_string(&inputs[0], object, "cluster", err) ||
        !zs_json_opt_string(&inputs[1], object, "model", err) ||
        !zs_json_opt_string(&inputs[2], object, "profile", err) ||
        !zs_json_opt_int(&parsed.global_batch, object, "global_batch", 1, MAX_BATCH, err) ||
        !parse_int(&parsed.seq_len, object, "seq_len", 1, MAX_SEQ_LEN, err) ||
        !zs_json_opt_choice(&precision, object, "precision", zs_precision_names, ZS_N_PRECISIONS,
                            err) ||
        !parse_zero_stages(parsed.zero_stages, object, err) ||
        !zs_json_opt_choice(&recompute, object, "recompute", recompute_names,
                            COUNT(recompute_names), err) ||
        !parse_int(&parsed.n_stages, object, "n_stages", 0, MAX_STAGES, err) ||
        !parse_int(&parsed.max_micro_batch, object, "max_micro_batch", 0, MAX_BATCH, err) ||
        !parse_int(&parsed.max_gpus_per_stage, object, "max_gpus_per_stage", 0, MAX_GPUS, err) ||
        !parse_memory(&parsed.context_bytes, object, "context", err) ||
        !parse_memory(&parsed.reserve_bytes, object, "reserve", err) ||
        !zs_json_opt_double(&parsed.overlap_zero, object, "overlap_zero", 0, 1, err) ||
        !zs_json_opt_double(&parsed.overlap_send, object, "overlap_send", 0, 1, err))
        return false;
    parsed.precision = (zs_precision)precision;
    parsed.recompute = (zs_recompute)recompute;
    *job = parsed;
    if (cluster)
        *cluster = inputs[0];
    if (model)
        *model = inputs[1];
    if (profile)
        *profile = inputs[2];
    return true;
}

static bool in_range(int64_t value, int64_t min, int64_t max, const char *field, const char *option,
                     zs_error *err)
{
    if (value >= min && value <= max)
        return true;
    return ZS_FAIL(err, ZS_ERR_INPUT, "%s (%s) is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                   field, option, value, min, max);
}

static bool is_share(double value, const char *field, const char *option, zs_error *err)
{
    if (value >= 0 && value <= 1)
        return true;
    return ZS_FAIL(err, ZS_ERR_INPUT, "%s (%s) is %g, expected 0 to 1", field, option, value);
}

bool zs_job_check(const zs_job *job, zs_error *err)
{
    if (job->global_batch == 0)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "global_batch (--batch) is missing or 0, expected the samples of one step, "
                       "1 to %d",
                       MAX_BATCH);
    if (job->seq_len == 0)
        return ZS_FAIL(
            err, ZS_ERR_INPUT,
            "seq_len (--seq) is missing or 0, expected the tokens of one sample, 1 to %d",
            MAX_SEQ_LEN);
    if (!in_range(job->global_batch, 1, MAX_BATCH, "global_batch", "--batch", err) ||
        !in_range(job->seq_len, 1, MAX_SEQ_LEN, "seq_len", "--seq", err) ||
        !in_range((int64_t)job->precision, 0, ZS_N_PRECISIONS - 1, "precision", "--precision",
                  err) ||
        !in_range((int64_t)job->recompute, 0, COUNT(recompute_names) - 1, "recompute",
                  "--recompute", err) ||
        !in_range(job->n_stages, 0, MAX_STAGES, "n_stages", "--stages", err) ||
        !in_range(job->max_micro_batch, 0, MAX_BATCH, "max_micro_batch", "--max-micro-batch",
                  err) ||
        !in_range(job->max_gpus_per_stage, 0, MAX_GPUS, "max_gpus_per_stage",
                  "--max-gpus-per-stage", err) ||
        !in_range(job->context_bytes, 0, max_memory_bytes, "context_bytes", "--context", err) ||
        !in_range(job->reserve_bytes, 0, max_memory_bytes, "reserve_bytes", "--reserve", err) ||
        !is_share(job->overlap_zero, "overlap_zero", "--overlap-zero", err) ||
        !is_share(job->overlap_send, "overlap_send", "--overlap-send", err))
        return false;
    if (!job->zero_stages[1] && !job->zero_stages[2] && !job->zero_stages[3])
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "zero_stages (--zero) is empty, expected at least one of 1, 2, 3");
    return true;
}

void zs_job_write(zs_json_writer *w, const char *key, const zs_job *job)
{
    zs_json_begin_object(w, key);
    zs_json_put_string(w, "format", ZS_JOB_FORMAT);
    zs_json_put_int(w, "version", ZS_JOB_VERSION);
    zs_json_put_int(w, "global_batch", job->global_batch);
    zs_json_put_int(w, "seq_len", job->seq_len);
    zs_json_put_string(w, "precision", zs_precision_names[job->precision]);
    zs_json_begin_array(w, "zero_stages");
    for (int stage = 1; stage <= 3; stage++)
        if (job->zero_stages[stage])
            zs_json_put_int(w, NULL, stage);
    zs_json_end_array(w);
    zs_json_put_string(w, "recompute", recompute_names[job->recompute]);
    zs_json_put_int(w, "n_stages", job->n_stages);
    zs_json_put_int(w, "max_micro_batch", job->max_micro_batch);
    zs_json_put_int(w, "max_gpus_per_stage", job->max_gpus_per_stage);
    zs_json_put_int(w, "context_bytes", job->context_bytes);
    zs_json_put_int(w, "reserve_bytes", job->reserve_bytes);
    zs_json_put_double(w, "overlap_zero", job->overlap_zero);
    zs_json_put_double(w, "overlap_send", job->overlap_send);
    zs_json_end_object(w);
}
