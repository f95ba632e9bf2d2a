/* ZeRO over uneven shards (Rajbhandari et al., ZeRO, SC 2020, sec. 5): the sum of the gradients,
 * the moments and the update of an element are its owner's alone.
 *   level 1   every rank of a stage has all its parameters and gradients; gradients are summed
 *             once a step
 *   level 2   of gradients a rank has one layer's; they are added to their owners' sums when the
 *             layer's backward is done, in every micro-batch
 *   level 3   of parameters as well: the owners' parts are gathered before a layer's forward, and
 *             again before its backward
 * A stage of one rank runs as level 1. One map says who owns what, and gather, reduce, norm, update
 * and digest all read it.
 *
 * The map has segments of the stage's flattened parameters, each with a group of ranks and the
 * number of elements that each of them owns, in order:
 *   own       the stage's parameters, among the ranks of the stage
 *   tied      the embedding that the first and the last of several stages share, among the ranks
 *             of both: its owners are those of the first stage, ranks of the last own nothing of
 *             it. So one reduce-scatter adds both uses, and moments exist once. Not part of own.
 *   layers    levels 2 and 3: one layer each, among the ranks of the stage
 *   borrowed  levels 2 and 3: the embedding as a tied head on the same stage reads it */
#ifndef EXECUTOR_ZERO_H
#define EXECUTOR_ZERO_H

#include "executor/comm.h"
#include "executor/stage.h"

typedef enum zx_segment_kind { ZX_SEGMENT_OWN, ZX_SEGMENT_TIED, ZX_N_SEGMENTS } zx_segment_kind;

typedef struct zx_segment {
    zx_group *group; /* NULL: nothing to exchange, one rank or no part in it */
    int64_t first;   /* of the segment in the stage's flattened parameters; a copy of the shared
                        embedding lies behind them */
    int n_ranks;     /* of the group */
    int index;       /* of this rank in it */
    int64_t *counts; /* owned elements by rank of the group */
    int64_t *displacements; /* their place in the segment */
    zs_shard owned;         /* by this rank, in the stage's flattened parameters */
    zx_real *owned_grads;   /* [owned.count]: summed over the group after reduce */
} zx_segment;

typedef struct zx_zero {
    zx_comm *comm;
    zx_stage *stage;
    zs_shard shard;        /* this rank's, of the plan: owned by tied, then by own */
    zx_real *owned_params; /* [shard.count]: wherever the rank stores what it owns */
    zx_real *owned_grads;  /* levels 2 and 3: [shard.count], what all segments point into */
    zx_segment segments[ZX_N_SEGMENTS];
    zx_segment *layers; /* levels 2 and 3: [stage->n_layers] */
    zx_segment borrowed;
} zx_zero;

/* The map alone: counts, displacements and what rank owns of a segment; false when the rank takes
 * no part in it. ranks[plan's ranks] receives the global ranks of the group. In arena. */
bool zx_zero_map(zx_segment *out, int *ranks, const zs_plan *plan, const zm_model *model, int rank,
                 zx_segment_kind kind, int64_t *counts, int64_t *displacements);

/* The same for a range [first, first + count) of the stage's parameters among its ranks. */
void zx_zero_map_range(zx_segment *out, const zs_plan *plan, int rank, int64_t first, int64_t count,
                       int64_t *counts, int64_t *displacements);

/* Opens groups (first all stages', in order, then that of the shared embedding) and allocates the
 * owned gradients where a group has several ranks. */
ZS_MUST_CHECK bool zx_zero_open(zx_zero *out, zs_arena *arena, zx_comm *comm, zx_stage *stage,
                                const zs_plan *plan, int rank, zs_error *err);
void zx_zero_close(zx_zero *zero);

/* Before a step: gradients are 0. */
ZS_MUST_CHECK bool zx_zero_clear(zx_zero *zero, zs_error *err);

/* Once a step: sums the stage's gradients of a segment into the owners' owned_grads. Those of own
 * are there already at levels 2 and 3. */
ZS_MUST_CHECK bool zx_zero_reduce(zx_zero *zero, zx_segment_kind kind, zs_error *err);

/* Once a step: brings the owners' parameters of a segment to all ranks that store it whole. */
ZS_MUST_CHECK bool zx_zero_gather(zx_zero *zero, zx_segment_kind kind, zs_error *err);

/* For layer k of the stage, around its computation; each does nothing at lower levels. All ranks of
 * the stage call in the same order. gather (level 3): its parameters are in their buffer. clear (2,
 * 3): its gradients are 0. reduce (2, 3): they are added to the owners' owned_grads. */
ZS_MUST_CHECK bool zx_zero_gather_layer(zx_zero *zero, int k, zs_error *err);
ZS_MUST_CHECK bool zx_zero_clear_layer(zx_zero *zero, int k, zs_error *err);
ZS_MUST_CHECK bool zx_zero_reduce_layer(zx_zero *zero, int k, zs_error *err);

/* *sum: of the squares of this rank's owned gradients. */
ZS_MUST_CHECK bool zx_zero_sum_of_squares(zx_zero *zero, double *sum, zs_error *err);

/* Sum modulo 2^64, over the parameters that this rank owns, of a hash of (index in the model,
 * bits): added over all ranks it names the parameters whatever the plan. */
ZS_MUST_CHECK bool zx_zero_digest(zx_zero *zero, zs_arena *arena, uint64_t *digest, zs_error *err);

#endif
