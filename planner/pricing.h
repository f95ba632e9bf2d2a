/* Groups that mix classes are too many to list. Pricing finds the patterns over them that a linear
 * program lacks: for given duals, the pattern of least reduced cost. For a kind of stage with n
 * blocks, a ZeRO level, a recompute choice, micro-batches in flight and a limit on comp that is a
 * covering knapsack with two rows,
 *     min  sum_k price_k c_k
 *     over sum_k c_k min(samples_k by time, by memory) >= u   and   sum_k c_k room_k >= shard + u
 * act whose linear relaxation bounds a depth-first search over the counts. Groups of one class are
 * listed (group.h) and not priced. */
#ifndef PLANNER_PRICING_H
#define PLANNER_PRICING_H

#include "planner/pattern.h"

typedef struct zp_pricer zp_pricer;

/* What a pattern pays and earns: its reduced cost is
 * time t + sync sync_ms + sum_k gpu[k] c_k - block n + place[kind][in_flight]. */
typedef struct zp_prices {
    double time;
    double sync; /* 0 in a master program */
    double block;
    double gpu[ZP_MAX_CLASSES];
    const double *place[ZP_N_KINDS]; /* [0..zp_pattern_max_in_flight] */
} zp_prices;

/* In arena; groups of several classes have whole nodes, or any counts. relaxed: the groups that are
 * not listed are all groups of any counts, and only their relaxations are looked for. Patterns with
 * a larger time than max_time_ms are never asked for. */
ZS_MUST_CHECK bool zp_pricer_build(zp_pricer **out, zs_arena *arena, const zp_problem *problem,
                                   const zp_batching *batching, bool whole_nodes, bool relaxed,
                                   double max_time_ms, zs_error *err);

/* The limits of the patterns that are looked for. */
typedef struct zp_pricing_limits {
    double max_time_ms;
    double max_sync_ms;
    const zp_deadline *deadline;
} zp_pricing_limits;

/* Appends to patterns (and their groups) for each kind and number of blocks the one of least
 * reduced cost, if that is below -tolerance. least[kind] is a lower bound on the reduced costs of
 * all patterns over several classes, at most -tolerance where nothing better is known. *stopped:
 * the deadline passed, the bounds do not hold. */
ZS_MUST_CHECK bool zp_pricer_find(double least[ZP_N_KINDS], bool *stopped, zp_patterns *patterns,
                                  zp_groups *groups, zp_pricer *pricer, const zp_prices *prices,
                                  double tolerance, const zp_pricing_limits *limits, zs_error *err);

/* The same for a single stage, of least n_micro_batches time + sync below max_step_ms; *least_ms
 * bounds that of all. */
ZS_MUST_CHECK bool zp_pricer_find_single(double *least_ms, zp_patterns *patterns, zp_groups *groups,
                                         zp_pricer *pricer, double max_step_ms,
                                         const zp_deadline *deadline, zs_error *err);

/* No pattern of more than one stage over several classes takes longer. */
void zp_pricer_most(double *max_time_ms, double *max_sync_ms, const zp_pricer *pricer);

/* Appends all patterns over several classes with a reduced cost of at most slack, but for dominated
 * ones. *complete is false when there are more than most, the search for them takes more than
 * max_steps, or the deadline passed. */
ZS_MUST_CHECK bool zp_pricer_list(bool *complete, zp_patterns *patterns, zp_groups *groups,
                                  zp_pricer *pricer, const zp_prices *prices, double slack,
                                  int most, int max_steps, const zp_pricing_limits *limits,
                                  zs_error *err);

#endif
