/* Time and memory of an explicit assignment, straight from the formulas of problem.h: the judge of
 * every answer of the solver, of plans written by hand, and of baselines. Nothing here is shared
 * with the search, so that the two check each other. */
#ifndef PLANNER_EVALUATE_H
#define PLANNER_EVALUATE_H

#include "planner/problem.h"

typedef struct zp_stage_cost {
    double compute_ms;     /* comp_s */
    double micro_batch_ms; /* t_s */
    double sync_ms;
    double *member_ms;         /* tau_i(b_i) by member */
    double *member_memory_gib; /* by member: repl + z shard + b act */
    double *member_free_gib;   /* M - member_memory */
} zp_stage_cost;

typedef struct zp_cost {
    double step_ms;
    zp_stage_cost *stages;
} zp_cost;

/* Fails with ZS_ERR_INPUT when the assignment breaks a rule (blocks, samples, shares that do not
 * sum to 1 within 1e-6, more GPUs than a class has, an intra group that is no chain piece, a size
 * that a class does not offer) and with ZS_ERR_INFEASIBLE when memory is short: the message gives
 * stage, GPU type, need, have and missing. tolerance_gib is allowed on memory (rounding). gpipe:
 * all micro-batches are in flight on every stage and T is the sum over both passes of
 * sum + (m - 1) max. In arena. */
ZS_MUST_CHECK bool zp_evaluate(zp_cost *out, zs_arena *arena, const zp_problem *problem,
                               const zp_batching *batching, const zp_stage *stages, int n_stages,
                               bool gpipe, double tolerance_gib, zs_error *err);

/* Mean over stages of the share of the step in which the stage neither takes a micro-batch nor
 * synchronises. */
double zp_evaluate_bubble_share(const zp_cost *cost, int n_stages, int n_micro_batches);

/* The largest share of its usable memory that a GPU needs. */
double zp_evaluate_memory_share(const zp_cost *cost, const zp_problem *problem,
                                const zp_stage *stages, int n_stages);

#endif
