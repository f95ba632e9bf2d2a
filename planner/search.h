/* Finds the assignment of least step time: for each batching, boxes over the bottleneck max t_s and
 * the sync time; in a box the relaxation of the master program (master.h) over the patterns of
 * groups that are listed and those that pricing finds (pricing.h), and in a narrow one the integer
 * program over all patterns that can be part of something better. Three passes: groups of one class
 * for a good plan soon; all groups; on large clusters, where these are restricted, a bound for what
 * they leave out. Every answer is recomputed by zp_evaluate before it becomes the incumbent. */
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include "planner/problem.h"

/* Rounding that is allowed on memory: 1 KiB. */
#define ZP_SEARCH_TOLERANCE_GIB 1e-6

typedef struct zp_search_options {
    double time_limit_ms;     /* 0: none */
    double gap;               /* stop when (best - bound) / best is at most this; 0: prove within
                                 the tolerance of GLPK, 1e-7 */
    bool whole_nodes;         /* stages of several kinds of GPUs consist of whole nodes also on a
                                 small cluster, as they do on one of more than 64 GPUs */
    const volatile int *stop; /* set by a signal handler: end with the best so far; may be NULL */
    const zp_solution *incumbent; /* a plan to start from; the result is never slower; may be NULL;
                                     its stages stay valid as long as the result */
    /* May be NULL; is told now and then the best step time so far (infinity: none) and the bound
     * for the groups that are searched. */
    void (*progress)(void *context, double step_ms, double bound_ms);
    void *context;
} zp_search_options;

/* ZS_ERR_INFEASIBLE when no assignment exists: the message gives the first limit in numbers
 * (need, have, missing). In arena. */
ZS_MUST_CHECK bool zp_search(zp_solution *out, zs_arena *arena, const zp_problem *problem,
                             const zp_search_options *options, zs_error *err);

#endif
