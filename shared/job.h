/* What is asked of a run: batch, sequence length, precision, what the planner may use. */
#ifndef SHARED_JOB_H
#define SHARED_JOB_H

#include "shared/gpus.h"
#include "shared/json.h"

#define ZS_JOB_FORMAT "zplan-job"
#define ZS_JOB_VERSION 1

typedef enum zs_recompute { ZS_RECOMPUTE_AUTO, ZS_RECOMPUTE_NONE, ZS_RECOMPUTE_FULL } zs_recompute;

typedef struct zs_job {
    int64_t global_batch; /* samples of one step; 1 .. 1048576 */
    int seq_len;          /* tokens of one sample; 1 .. 1048576 */
    zs_precision precision;
    bool zero_stages[4];    /* [1], [2], [3]: may be used; at least one */
    zs_recompute recompute; /* auto: the planner chooses per stage */
    int max_micro_batch;    /* samples; 0: no limit but global_batch */
    int n_stages;           /* 0: the planner chooses */
    int max_gpus_per_stage; /* 0: no limit; 1: pipeline only */
    int64_t context_bytes;  /* of each device: driver, CUDA context, libraries; default 1 GiB */
    int64_t reserve_bytes;  /* of each device: kept free for fragmentation; default 1 GiB */
    double overlap_zero;    /* share of compute that hides ZeRO traffic, [0, 1]; default 0.7 */
    double overlap_send;    /* share of a boundary send that is hidden, [0, 1]; default 0.7 */
} zs_job;

/* Defaults of everything but global_batch and seq_len, which become 0 (missing); fp32. */
void zs_job_set_defaults(zs_job *job);

/* Reads a job object over *job (which has defaults); keys that a job file shares with other inputs
 * ("cluster", "model", "profile": texts) are returned through the pointers, NULL when absent; the
 * pointers may be NULL. */
ZS_MUST_CHECK bool zs_job_parse(zs_job *job, const char **cluster, const char **model,
                                const char **profile, const zs_json *object, zs_error *err);

/* Ranges and combinations; the message names the field and its option. */
ZS_MUST_CHECK bool zs_job_check(const zs_job *job, zs_error *err);

void zs_job_write(zs_json_writer *w, const char *key, const zs_job *job);

#endif
