/* Patterns: the possible stages of one batching. A pattern fixes kind, blocks, GPUs by class, ZeRO
 * level and recompute; samples and shards inside it are solved in closed form. For counts c_k and
 * room_k = M_k - repl:
 *     shards exist   <=>  sum_k c_k room_k >= shard + u act_w  and  b_i act_w <= room_k for each i
 *     comp <= limit  <=>  u is a sum of samples b_i with tau_k(b_i) <= limit
 * act_w grows with the micro-batches w in flight, so a pattern has a largest w that it survives,
 * and one choice of GPUs may give several patterns: a faster one that survives less. */
#ifndef PLANNER_PATTERN_H
#define PLANNER_PATTERN_H

#include "planner/deadline.h"
#include "planner/group.h"

typedef struct zp_pattern {
    zp_kind kind;
    int n_blocks;
    int zero;
    bool recompute;
    int group;     /* index into groups */
    bool relaxed;  /* of a relaxed group: only for bounds */
    int in_flight; /* W: the largest number of micro-batches in flight it survives */
    double time_ms;
    double sync_ms;
} zp_pattern;

typedef struct zp_patterns {
    int n;
    int capacity;
    zp_pattern *items;
    bool stopped; /* by the deadline: the list is not complete */
} zp_patterns;

/* The largest number of stages, and of micro-batches in flight on a first or middle stage. */
int zp_pattern_max_stages(const zp_problem *problem);
int zp_pattern_max_in_flight(const zp_problem *problem, const zp_batching *batching);

/* All patterns with at most these times, without dominated ones: p is left out when a q of the same
 * kind has no fewer blocks, no more GPUs of any class, no larger times, and survives no less
 * (blocks are covered, not partitioned: a stage with fewer blocks is never slower). in_flight is at
 * most zp_pattern_max_in_flight, which means any number. Close them with zp_patterns_close. */
ZS_MUST_CHECK bool zp_patterns_find(zp_patterns *out, const zp_problem *problem,
                                    const zp_groups *groups, const zp_batching *batching,
                                    double max_time_ms, double max_sync_ms,
                                    const zp_deadline *deadline, zs_error *err);
ZS_MUST_CHECK bool zp_patterns_push(zp_patterns *patterns, const zp_pattern *pattern,
                                    zs_error *err);
void zp_patterns_close(zp_patterns *patterns);

/* The stage of a pattern with n_blocks (at most the pattern's) and in_flight micro-batches (at most
 * the pattern's): samples of least comp, as even as that allows, and shard shares in proportion to
 * free memory. In arena. */
ZS_MUST_CHECK bool zp_pattern_stage(zp_stage *out, zs_arena *arena, const zp_problem *problem,
                                    const zp_groups *groups, const zp_pattern *pattern,
                                    const zp_batching *batching, int n_blocks, int in_flight,
                                    zs_error *err);

#endif
