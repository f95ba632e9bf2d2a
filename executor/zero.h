/* ZeRO stage 1 over uneven shards (Rajbhandari et al., ZeRO, SC 2020, sec. 5.1): every rank of a
 * stage has all its parameters and gradients; the sum of the gradients, the moments and the update
 * of an element are its owner's alone. One map says who owns what, and reduce, gather, norm,
 * update and digest all read it.
 *
 * The map has segments of the stage's flattened parameters, each with a group of ranks and the
 * number of elements that each of them owns, in order:
 *   own   the stage's parameters, among the ranks of the stage
 *   tied  the embedding that the first and the last of several stages share, among the ranks of
 *         both: its owners are those of the first stage, ranks of the last own nothing of it. So
 *         one reduce-scatter adds both uses, and moments exist once. It is not part of own. */
#ifndef EXECUTOR_ZERO_H
#define EXECUTOR_ZERO_H

#include "executor/comm.h"
#include "executor/stage.h"

typedef enum zx_segment_kind { ZX_SEGMENT_OWN, ZX_SEGMENT_TIED, ZX_N_SEGMENTS } zx_segment_kind;

typedef struct zx_segment {
    zx_group *group;        /* NULL: nothing to exchange, one rank or no part in it */
    int64_t first;          /* of the segment in this rank's stored parameters */
    int n_ranks;            /* of the group */
    int64_t *counts;        /* owned elements by rank of the group */
    int64_t *displacements; /* their place in the segment */
    zs_shard owned;         /* by this rank, in its stored parameters */
    zx_real *owned_grads;   /* [owned.count]: summed over the group after reduce */
} zx_segment;

typedef struct zx_zero {
    zx_comm *comm;
    zx_stage *stage;
    zs_shard shard;        /* this rank's, of the plan: owned by tied, then by own */
    zx_real *owned_params; /* [shard.count]: wherever the rank stores what it owns */
    zx_segment segments[ZX_N_SEGMENTS];
} zx_zero;

/* The map alone: counts, displacements and what rank owns of a segment; false when the rank takes
 * no part in it. ranks[plan's ranks] receives the global ranks of the group. In arena. */
bool zx_zero_map(zx_segment *out, int *ranks, const zs_plan *plan, const zm_model *model, int rank,
                 zx_segment_kind kind, int64_t *counts, int64_t *displacements);

/* Opens groups (first all stages', in order, then that of the shared embedding) and allocates the
 * owned gradients where a group has several ranks. */
ZS_MUST_CHECK bool zx_zero_open(zx_zero *out, zs_arena *arena, zx_comm *comm, zx_stage *stage,
                                const zs_plan *plan, int rank, zs_error *err);
void zx_zero_close(zx_zero *zero);

/* Sums the stage's gradients of a segment into the owners' owned_grads. */
ZS_MUST_CHECK bool zx_zero_reduce(zx_zero *zero, zx_segment_kind kind, zs_error *err);

/* Brings the owners' parameters of a segment to all its ranks. */
ZS_MUST_CHECK bool zx_zero_gather(zx_zero *zero, zx_segment_kind kind, zs_error *err);

/* *sum: of the squares of this rank's owned gradients. */
ZS_MUST_CHECK bool zx_zero_sum_of_squares(zx_zero *zero, double *sum, zs_error *err);

/* Sum modulo 2^64, over the parameters that this rank owns, of a hash of (index in the model,
 * bits): added over all ranks it names the parameters whatever the plan. */
ZS_MUST_CHECK bool zx_zero_digest(zx_zero *zero, zs_arena *arena, uint64_t *digest, zs_error *err);

#endif
