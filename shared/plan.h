/* The plan: the contract between zplan and zexec (FORMATS.md, section "Plan"). */
#ifndef SHARED_PLAN_H
#define SHARED_PLAN_H

#include "shared/cluster.h"
#include "shared/job.h"
#include "shared/profile.h"
#include "shared/shards.h"

#define ZS_PLAN_FORMAT "zplan-plan"
#define ZS_PLAN_VERSION 1

typedef enum zs_schedule_kind {
    ZS_SCHEDULE_1F1B,
    ZS_SCHEDULE_GPIPE,
    ZS_N_SCHEDULES
} zs_schedule_kind;

extern const char *const zs_schedule_names[ZS_N_SCHEDULES]; /* "1f1b", "gpipe" */

enum { ZS_PLAN_N_STATUSES = 3 };

/* of a certificate: "optimal", "time_limit", "feasible" (not from the solver) */
extern const char *const zs_plan_status_names[ZS_PLAN_N_STATUSES];

typedef struct zs_range {
    int first; /* first block */
    int end;   /* one past the last block */
} zs_range;

/* Predicted peak of one rank by purpose; total is their sum. */
#define ZS_MEMORY_TERMS(TERM)                                                                      \
    TERM(weights) /* parameters of the stage, replicated or gathered part + own shard */           \
    TERM(gradients)                                                                                \
    TERM(optimizer)     /* AdamW moments and master weights of the own shard */                    \
    TERM(activations)   /* of all micro-batches in flight, and the recompute workspace */          \
    TERM(logits)        /* logits and loss workspace of the head */                                \
    TERM(communication) /* send and receive buffers, gather buffers */                             \
    TERM(context)                                                                                  \
    TERM(reserve)

typedef struct zs_memory {
#define TERM(name) int64_t name##_bytes;
    ZS_MEMORY_TERMS(TERM)
#undef TERM
} zs_memory;

int64_t zs_memory_total(const zs_memory *memory);

typedef struct zs_plan_rank {
    int node;          /* index into the cluster */
    int gpu;           /* index into the node's devices */
    int samples;       /* of the planned micro-batch; may be 0 */
    bool interpolated; /* predicted: the times of `samples` lie between measured sizes */
    zs_shard shard;    /* of the stage's flattened parameters */
    zs_memory memory;  /* predicted */
} zs_plan_rank;

typedef struct zs_plan_stage {
    zs_range forward;  /* blocks whose forward pass runs here */
    zs_range backward; /* the same range in this version */
    int zero_stage;    /* 1, 2, 3 */
    bool recompute;    /* full: only block inputs are kept */
    int64_t n_params;  /* of the stage, flattened: embedding first, then blocks, then head; a tied
                          head that is not on the embedding's stage owns no projection matrix */
    int n_ranks;
    zs_plan_rank *ranks;
    double
        micro_batch_ms; /* predicted: t_s, slowest rank, sends and exposed ZeRO traffic included */
    double sync_ms;     /* predicted: after the last micro-batch */
} zs_plan_stage;

typedef struct zs_plan_unused {
    int node;
    int gpu;
    const char *reason;
} zs_plan_unused;

typedef struct zs_certificate {
    const char *status;    /* one of zs_plan_status_names */
    double objective_ms;   /* closed-form step time of this plan */
    double lower_bound_ms; /* no plan of the searched space is faster; 0 if none is known */
    double gap;            /* (objective - bound) / objective, >= 0; 1 if none is known; checked
                              within 1e-6 */
    const char *searched;  /* what was searched, for people */
    const char *solver;    /* "GLPK 5.0" */
    int64_t n_solves;      /* integer programs solved */
    int64_t n_nodes;       /* branch-and-bound nodes of the solver */
} zs_certificate;

typedef struct zs_plan {
    /* inputs, complete, so that the plan can be checked and rehearsed alone */
    zs_cluster cluster;
    zs_job job;
    zs_profile profile;
    const zs_json *model; /* the model's normal form; models/model.h parses it */
    const char *model_name;
    int n_blocks;

    zs_schedule_kind schedule;
    int n_micro_batches;
    int *micro_batches; /* samples of each; the largest is the planned size; sum = global batch */
    int n_stages;
    zs_plan_stage *stages;
    int n_unused;
    zs_plan_unused *unused;

    double step_ms;           /* predicted, closed form */
    double simulated_step_ms; /* predicted by playing the schedule; 0: not simulated */
    double bubble_share;      /* predicted share of the step that a stage waits, mean over stages */
    zs_certificate certificate;
} zs_plan;

/* Loads and checks. In arena. Messages name the file and the JSON path. */
ZS_MUST_CHECK bool zs_plan_load(zs_plan *out, zs_arena *arena, const char *path, zs_error *err);
ZS_MUST_CHECK bool zs_plan_parse(zs_plan *out, zs_arena *arena, const zs_json *root, zs_error *err);

/* Every rule that needs no model: stages contiguous, ordered, cover [0, n_blocks) once; each device
 * in exactly one place (a stage or unused); samples of each stage sum to the largest micro-batch;
 * micro-batches sum to the global batch; shards cover n_params; bf16 only where the device has it;
 * ranges; predictions and certificate consistent. The first broken rule is
 * named with its place ("$.stages[2].shards: ..."). */
ZS_MUST_CHECK bool zs_plan_check(const zs_plan *plan, zs_error *err);

/* Writes the whole file; plan->model is written as it is. Equal plans give equal bytes, and what
 * was written reads back to the same plan. */
ZS_MUST_CHECK bool zs_plan_write(zs_json_writer *w, const zs_plan *plan, zs_error *err);
ZS_MUST_CHECK bool zs_plan_save(const zs_plan *plan, const char *path, zs_error *err);

/* Samples of the largest micro-batch: what the samples of each stage's ranks sum to. */
int zs_plan_micro_batch(const zs_plan *plan);

/* Ranks are numbered stage by stage: stage 0's first. */
int zs_plan_n_ranks(const zs_plan *plan);
int zs_plan_first_rank(const zs_plan *plan, int stage);
int zs_plan_stage_of(const zs_plan *plan, int rank);
const zs_plan_rank *zs_plan_rank_at(const zs_plan *plan, int rank);

/* Micro-batches that are in flight at most on `stage`: min(m, S - stage) under 1F1B, m under GPipe.
 */
int zs_plan_in_flight(const zs_plan *plan, int stage);

#endif
