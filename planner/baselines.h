/* What people do without a planner, and what other planners for mixed clusters can express: plans
 * by simple rules under the same cost model. Each rule is tuned over everything it leaves open
 * (micro-batch, number of stages, GPUs per stage, which types take part and in what order, ZeRO
 * level where it has a choice, recompute), so that what a comparison shows is the rule and not a
 * bad setting. Every plan is an assignment of the problem, judged by zp_evaluate. */
#ifndef PLANNER_BASELINES_H
#define PLANNER_BASELINES_H

#include "planner/deadline.h"
#include "planner/search.h"

typedef enum zp_baseline_kind {
    ZP_BASELINE_EVEN,       /* equal blocks, GPUs and samples; ZeRO-1 */
    ZP_BASELINE_LAYERS,     /* blocks by the speed of each stage */
    ZP_BASELINE_ZERO3,      /* one stage, ZeRO-3, equal samples and shards */
    ZP_BASELINE_ZERO3_FAIR, /* one stage, ZeRO-3, samples by speed, shards by free memory */
    ZP_BASELINE_PIPELINE,   /* one GPU per stage, blocks by speed */
    ZP_BASELINE_GROUPS,     /* ZeRO-2 groups of nodes in a pipeline, blocks by speed, even shards */
    ZP_BASELINE_MIXED,      /* equal blocks, stages of mixed types, equal samples on all GPUs */
    ZP_N_BASELINES
} zp_baseline_kind;

typedef struct zp_baseline {
    const char *name; /* "even split" */
    const char *like; /* whose plans have this form: "Megatron-LM" */
    bool feasible;
    zp_solution solution; /* batching, stages, step_ms; when feasible */
    double bubble_share;  /* as zp_evaluate_bubble_share */
    double memory_share;  /* largest share of a GPU's usable memory */
    const char *why_not;  /* not feasible: what the nearest miss needs, has, misses */
} zp_baseline;

/* *stopped (may be NULL): the deadline (may be NULL) passed before everything was tried. In arena.
 */
ZS_MUST_CHECK bool zp_baselines_build(zp_baseline out[ZP_N_BASELINES], bool *stopped,
                                      zs_arena *arena, const zp_problem *problem,
                                      const zp_deadline *deadline, zs_error *err);

/* The fastest feasible one, or NULL. */
const zp_baseline *zp_baselines_best(const zp_baseline baselines[ZP_N_BASELINES]);

/* The search, started from the best baseline, so that no rule is faster than its plan. Looking for
 * baselines takes at most a part of the time limit. As zp_search otherwise. */
ZS_MUST_CHECK bool zp_baselines_search(zp_solution *out, zs_arena *arena, const zp_problem *problem,
                                       const zp_search_options *options, zs_error *err);

#endif
