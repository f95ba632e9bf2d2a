/* Training from files: loads and checks everything a run reads, then runs it on this rank. */
#ifndef EXECUTOR_TRAIN_H
#define EXECUTOR_TRAIN_H

#include "executor/run.h"
#include "executor/weights.h"

typedef struct zx_train_options {
    const char *plan_path;
    const char *data_path;
    const char *eval_path; /* NULL: no evaluation */
    const char *out;       /* folder of metrics.jsonl; NULL: none */
    const char *save;      /* weights behind the last step, .safetensors; NULL: none */
    const char *init;      /* weights to start from, .safetensors; NULL: random ones */
    const char *resume;    /* folder of checkpoints, or one of them; NULL: start anew */
    const char *backend;
    zx_data_dtype dtype;
    int64_t n_steps;
    int64_t eval_every; /* steps, and before the first; 0: behind the last one only */
    int64_t log_every;
    int64_t save_every; /* steps between checkpoints in out; 0: none */
    int64_t keep_last;  /* checkpoints that stay; 0: all */
    int n_threads;      /* of each rank; 0: its share of the cores */
    zx_run_options run;
} zx_train_options;

/* What the options name, loaded and checked. */
typedef struct zx_train_inputs {
    const zx_train_options *options;
    zs_plan plan;
    zm_model model;
    uint64_t plan_digest;
    zx_data data;
    zx_weights init; /* file.fd 0: none */
    zx_data eval;    /* map NULL: no evaluation */
    const zx_backend_ops *backend;
} zx_train_inputs;

/* Everything that can be refused before ranks are started is refused here: plan, model, schedule,
 * token files, combinations of options, places that are to be written. In arena, but for the token
 * files: close. */
ZS_MUST_CHECK bool zx_train_load(zx_train_inputs *out, zs_arena *arena,
                                 const zx_train_options *options, zs_error *err);
void zx_train_close(zx_train_inputs *inputs);

/* The whole run on this rank of comm. *stopped: it was told to stop (executor/stop.h) and saved the
 * step that it was at; main then exits with ZX_STOP_STATUS. */
ZS_MUST_CHECK bool zx_train(bool *stopped, const zx_train_inputs *inputs, zx_comm *comm,
                            zs_error *err);

#endif
