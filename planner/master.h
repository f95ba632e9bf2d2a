/* The master program: how many stages use each pattern. y_p counts the stages with pattern p; no
 * stage has an index. Columns are the patterns of a batching within limits on time and sync, so
 * that F = min sum_p t_p y_p over a box bounds the step time of every assignment in it. Positions
 * are nested intervals: stages can be put in order so that each survives its micro-batches in
 * flight exactly when the Hall rows hold; the order is first, middle by decreasing in_flight, last.
 */
#ifndef PLANNER_MASTER_H
#define PLANNER_MASTER_H

#include "planner/pricing.h"
#include "planner/solver.h"

typedef struct zp_master {
    const zp_problem *problem;
    zp_groups *groups;
    const zp_batching *batching;
    zp_patterns *patterns;
    const zp_solver *solver;
    const zp_deadline *deadline;
    zp_pricer *pricer; /* of the groups that are not listed; NULL: all are */
} zp_master;

/* What a relaxation is asked. Patterns that pricing finds obey the limits. */
typedef struct zp_relaxing {
    double max_time_ms;
    double max_sync_ms;
    double enough_ms; /* a bound of this much is good enough */
} zp_relaxing;

typedef struct zp_relaxation {
    zp_status status; /* optimal, no solution (proven), or stopped */
    double bound_ms;  /* on F: recomputed from the duals, valid whatever the solver said */
    int n;            /* of subset: what was given, then what pricing found */
    int *subset;
    double *reduced_ms; /* by column of the subset; optimal only */
    zp_prices prices;   /* of the bound, in ms; optimal only */
    double *place[ZP_N_KINDS];
} zp_relaxation;

typedef struct zp_selection {
    zp_status status; /* optimal, no solution, or stopped with or without a selection */
    double time_ms;   /* sum of t_p y_p, recomputed; infinity without a selection */
    int n_stages;
    int *chosen; /* pattern of each stage, in pipeline order */
    int64_t n_nodes;
} zp_selection;

/* subset: n indices of patterns, none of kind single. In arena. */
ZS_MUST_CHECK bool zp_master_relax(zp_relaxation *out, zs_arena *arena, const zp_master *master,
                                   const int *subset, int n, const zp_relaxing *relaxing,
                                   zs_error *err);

/* The best selection with F <= max_time_ms (infinity: any). max_nodes 0: no limit. In arena. Fails
 * with ZS_ERR_RUNTIME when no settings of the solver give an answer that holds. */
ZS_MUST_CHECK bool zp_master_select(zp_selection *out, zs_arena *arena, const zp_master *master,
                                    const int *subset, int n, double max_time_ms, int64_t max_nodes,
                                    zs_error *err);

/* Upper bound on the blocks that stages of these patterns can hold at once. */
ZS_MUST_CHECK bool zp_master_most_blocks(double *n_blocks, zs_arena *arena, const zp_master *master,
                                         const int *subset, int n, zs_error *err);

#endif
