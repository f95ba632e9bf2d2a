/* A run of a plan on one rank: opens what the rank needs, then walks its instruction list
 * (shared/schedule.h) once per training step or evaluation pass. Every instruction has one
 * function; sends and receives are asynchronous and an instruction waits only for what its list
 * says. Receives are posted ahead of compute as soon as their buffer is free.
 *
 * The loss of a step is the sum of -log p over all targets of the global batch, divided by their
 * number, which is known before the first backward; the gradient is that loss's. So no cut of the
 * batch into ranks and micro-batches changes either but for rounding. */
#ifndef EXECUTOR_RUN_H
#define EXECUTOR_RUN_H

#include "executor/data.h"
#include "executor/optimizer.h"
#include "executor/pass.h"
#include "shared/schedule.h"

typedef struct zx_run_options {
    zx_lr lr;
    double weight_decay, beta1, beta2, eps;
    double clip; /* largest norm of the gradient; 0: no clipping */
    uint64_t seed;
    zx_data_order order;
    int n_threads; /* of this rank, >= 1 */
} zx_run_options;

/* Of one training step; the same on all ranks. */
typedef struct zx_step_result {
    int64_t step; /* 1 for the first */
    double loss;
    double grad_norm; /* before clipping */
    double lr;
    int64_t n_tokens;
} zx_step_result;

/* One rank's list, ready to be walked. */
typedef struct zx_list {
    zs_schedule schedule;
    const zs_program *program;
    int *first_samples; /* of each micro-batch in the batch */
    int *own_first;     /* this rank's first sample in each micro-batch */
} zx_list;

/* Where the walk along a list stands. */
typedef struct zx_walk {
    const zx_list *list;
    zx_request **requests; /* outstanding transfers by instruction, else NULL */
    bool *posted;          /* receives by instruction */
    int current;           /* all instructions before it were run */
    int next_receive;      /* none before it is still to be posted */
    const zx_data *data;
    zx_data_order order;
    int64_t position; /* of the batch in the stream of samples */
    double scale;     /* 1 / targets of the batch */
    double loss_sum;  /* of this rank's targets */
} zx_walk;

typedef struct zx_run {
    zx_comm *comm;
    zx_backend *backend;
    const zs_plan *plan;
    const zm_model *model;
    zx_run_options options;
    zs_arena *arena; /* of this run */
    zx_list training;
    zx_list eval_whole; /* of a global batch */
    zx_list eval_last;  /* of the rest of the eval data; built when that is known */
    int n_eval_last;    /* its samples; 0: not built */
    zx_stage stage;
    zx_zero zero;
    zx_optimizer optimizer;
    zx_walk walk;
    int64_t n_steps;       /* done */
    int64_t position;      /* samples taken of the stream (executor/data.h) */
    bool stop;             /* some rank was told to stop (executor/stop.h); the same on all */
    bool diverged;         /* loss or norm is not finite: all ranks fail in the same step */
    zx_step_result result; /* of the step that runs */
} zx_run;

/* What a plan must be for this executor: fp32, forward and backward on the
 * same stage, parameters of each stage as the model's layers have them, sequences within the
 * position table. ZS_ERR_INPUT names the place in the plan. */
ZS_MUST_CHECK bool zx_run_check(const zs_plan *plan, const zm_model *model, zs_error *err);

/* backend, comm, plan, model must outlive the run. out must not move while it is open. */
ZS_MUST_CHECK bool zx_run_open(zx_run *out, zx_comm *comm, zx_backend *backend, const zs_plan *plan,
                               const zm_model *model, const zx_run_options *options, zs_error *err);
void zx_run_close(zx_run *run);

/* Collective: sets run->stop. Steps and evaluations do so by themselves. */
ZS_MUST_CHECK bool zx_run_agree_to_stop(zx_run *run, zs_error *err);

/* One training step on the next global batch of data. */
ZS_MUST_CHECK bool zx_run_step(zx_run *run, zx_step_result *result, const zx_data *data,
                               zs_error *err);

/* The mean loss over all sequences of data, in the file's order, the last batch being smaller. When
 * run->stop is set meanwhile it ends early and *loss is not to be used. */
ZS_MUST_CHECK bool zx_run_evaluate(zx_run *run, double *loss, const zx_data *data, zs_error *err);

/* A number for the values of all parameters, the same under every plan: zx_zero_digest summed over
 * all ranks. */
ZS_MUST_CHECK bool zx_run_digest(zx_run *run, uint64_t *digest, zs_error *err);

int64_t zx_run_global_batch(const zs_plan *plan);

#endif
