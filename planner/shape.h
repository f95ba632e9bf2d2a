/* The inner problem of a pattern: for a kind of stage with n blocks, how fast can a group of GPUs
 * take a micro-batch, and how many samples fit. A limit on comp is given by its rank among the
 * sorted values of all tau_k(b), so a search over limits is a bisection over whole numbers. */
#ifndef PLANNER_SHAPE_H
#define PLANNER_SHAPE_H

#include "planner/pattern.h"

/* tau_k(b) of one (kind, blocks, recompute). In arena. */
typedef struct zp_shape {
    int n_classes;
    int micro_batch;
    int b_most; /* the largest size that is offered, at most the micro-batch */
    int n_ranks;
    double *limit_ms; /* [rank], ascending, finite */
    double *tau_ms;   /* [class][0..b_most]; infinity where not offered */
    int *most;        /* [class][rank]: the largest b with tau_k(b) <= limit */
    int *unbroken;    /* [class][rank]: the largest b such that 1..b all are */
} zp_shape;

/* Memory of one (kind, blocks, recompute, ZeRO level, in flight). */
typedef struct zp_room {
    double room_gib[ZP_MAX_CLASSES]; /* M - repl; negative: cannot be a member */
    int most[ZP_MAX_CLASSES];        /* samples whose activations fit; -1: cannot be a member */
    double needed_gib;               /* shard + u act: to be covered by the sum of room */
    double act_gib;
    double shard_gib;
} zp_room;

/* Without ranks of limits above max_limit_ms. In arena. */
ZS_MUST_CHECK bool zp_shape_build(zp_shape **out, zs_arena *arena, const zp_problem *problem,
                                  zp_kind kind, int n_blocks, bool recompute, int micro_batch,
                                  double max_limit_ms, zs_error *err);
void zp_room_set(zp_room *out, const zp_problem *problem, int zero, zp_kind kind, int n_blocks,
                 bool recompute, int micro_batch, int in_flight);

/* Can the group take exactly the micro-batch with comp <= limit_ms[rank]? */
bool zp_shape_fits(const zp_shape *shape, const zp_room *room, const zp_group *group, int rank);

/* The least rank that fits, given one that does. */
int zp_shape_least_rank(const zp_shape *shape, const zp_room *room, const zp_group *group,
                        int rank);

/* The largest rank whose limit is at most limit_ms, or -1. */
int zp_shape_rank(const zp_shape *shape, double limit_ms);

/* Traffic of a group per micro-batch and after the last one, not hidden. */
double zp_shape_traffic_ms(const zp_problem *problem, int zero, zp_kind kind, int n_blocks,
                           const zp_group *group);
double zp_shape_sync_ms(const zp_problem *problem, int zero, zp_kind kind, int n_blocks,
                        const zp_group *group);

/* t_s = max(comp, (1 - overlap_zero) comp + traffic), and its inverse: the largest comp with t_s at
 * most max_time_ms, or a negative number. */
double zp_shape_time_ms(const zp_problem *problem, const zp_shape *shape, int rank,
                        double traffic_ms);
double zp_shape_comp_limit(const zp_problem *problem, double max_time_ms, double traffic_ms);

/* Samples of each class's GPUs (in the order of classes, n_gpus numbers) that sum to the
 * micro-batch within the limit: near the share that each one's largest number gives. false:
 * impossible. */
bool zp_shape_samples(int *samples, const zp_shape *shape, const zp_room *room,
                      const zp_group *group, int rank);

#endif
