/* How long each instruction of a plan takes: computations by rank and samples, what a send moves,
 * what collectives move and over which links. The simulator plays a schedule with it.
 *
 *   forward     of a rank's b samples: blocks f[b], embedding, head, as the profile has them; where
 *               a micro-batch smaller than the planned one leaves a rank a size that the profile
 *               does not offer, the next larger one that it offers
 *   backward    the same for backward, and the forward pass of the blocks again under recompute
 *   ZeRO        gathers and reductions of layers are part of the passes; what levels 2 and 3 move
 *               in a micro-batch (3 gathers before both passes, 2 and 3 reduce in the backward
 *               pass; counted as one ring over the stage's parameters, without the latencies of
 *               single layers) lengthens its passes by what the plan's overlap share o of their
 *               compute c does not hide, as in problem.h: max(0, traffic - o c), rank by rank;
 *               under 1F1B over both passes together, since gathers come early and reductions
 *               trail, and then divided as the traffic is; under GPipe pass by pass
 *   step        AdamW reads weight, gradient and both moments of the rank's shard and writes weight
 *               and moments; bf16 reads and writes master weights and writes bf16 weights: 28 bytes
 *               a parameter in both, over the memory bandwidth in gpus.h. A GPU that is not there
 *               steps in no time.
 *   send        boundary bytes of its samples
 *   collective  a ring in rank order, bound by its slowest link. Over each link go all shards but
 *               that of the rank behind it, so the busiest carries all but the smallest shard;
 *               n - 1 latencies (Chan et al., Collective communication: theory, practice, and
 *               experience, CCPE 2007, sec. 4). Unequal shards go as one broadcast or reduction
 *               each, in one group; padding to the largest shard would move n - 1 times that.
 *               reduce_grads moves gradients at ZeRO 1 (2 and 3 did it before), gather_params
 *               weights at 1 and 2; the tied pair the embedding matrix between its owners on stage
 *               0 and the last stage
 *   grad_norm   one number over a tree, there and back: 2 ceil(log2 n) latencies (the same, sec. 3)
 */
#ifndef PLANNER_TIMING_H
#define PLANNER_TIMING_H

#include "models/model.h"
#include "planner/what_if.h"
#include "shared/schedule.h"

/* Links are numbered: out of and into rank r's GPU inside its node 2r and 2r + 1; out of and into
 * the NIC of node k 2 n_ranks + 2k and one more. */
typedef struct zp_hop {
    int link;
    int weight; /* how often the transfer uses it */
} zp_hop;

typedef struct zp_ring {
    int first[2], end[2]; /* members: two ranges of ranks, the second empty but for the tied pair */
    double bytes;         /* over each hop, in all steps together */
    double latency_ms;    /* of all steps together */
    int n_hops;
    const zp_hop *hops; /* each link once */
} zp_ring;

typedef struct zp_rank_timing {
    int node;
    int n_samples;      /* of the largest micro-batch */
    double *forward_ms; /* [0..n_samples] */
    double *backward_ms;
    double step_ms;
} zp_rank_timing;

typedef struct zp_timing {
    int n_ranks, n_stages, n_links;
    double boundary_bytes; /* of one sample, either way */
    zp_rank_timing *ranks;
    double *link_bytes_per_ms; /* by link */
    double *intra_latency_ms;  /* by node */
    double *nic_latency_ms;
    zp_ring *rings; /* [op * n_stages + stage]; what all ranks share is at stage 0 */
} zp_timing;

/* ZS_ERR_INPUT when the profile lacks a GPU type or does not offer a rank's samples. The plan has
 * passed zp_recheck_plan or will; the model is the plan's. In arena. */
ZS_MUST_CHECK bool zp_timing_build(zp_timing *out, zs_arena *arena, const zs_plan *plan,
                                   const zm_model *model, const zp_what_if *what_if, zs_error *err);

/* The two links from one rank to another, and the latency between them. */
void zp_timing_route(zp_hop hops[2], double *latency_ms, const zp_timing *timing, int from, int to);

#endif
