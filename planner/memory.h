/* Peak memory of a rank, by purpose. One set of constants serves both sides: zp_memory_of_rank adds
 * them up in bytes for a plan, zp_memory_fill_problem states them in GiB for the assignment
 * problem, so that what the problem calls feasible fits the device. */
#ifndef PLANNER_MEMORY_H
#define PLANNER_MEMORY_H

#include "models/cost.h"
#include "planner/problem.h"
#include "shared/plan.h"

/* Buffers for gradients at the stage's boundaries, each of the rank's samples: two for those of its
 * output and two for those of its input, so that one is filled or drained while the other is in
 * use; a first stage sends no gradient on and needs one of the latter, a last stage none of the
 * former. Activations are received into and sent from the stage's own inputs and outputs. */
enum { ZP_BOUNDARY_BUFFERS = 4 };

/* Gathered layers that ZeRO-3 holds at a time: the one in use and the next. */
enum { ZP_GATHERED_LAYERS = 2 };

typedef struct zp_memory_rule {
    zm_state_bytes state;             /* per parameter */
    int64_t part_params[ZP_N_PARTS];  /* owned parameters of one block, or of a kind's extra */
    int64_t layer_params[ZP_N_PARTS]; /* of the largest single layer in the part, with the matrix
                                         that a tied head borrows */
    int64_t tied_params;              /* copy of the embedding on a last stage that is not also the
                                         first: replicated weights and gradients, no moments */
    int64_t act_bytes;                /* per block and sample in flight */
    int64_t act_ckpt_bytes;           /* the same under recompute */
    int64_t ids_bytes;                /* per sample in flight where tokens or targets are */
    int64_t scratch_bytes;            /* per sample, for the backward pass of one block */
    int64_t logits_bytes;             /* per sample where the head is */
    int64_t boundary_bytes;           /* per sample and buffer */
} zp_memory_rule;

void zp_memory_rule_build(zp_memory_rule *out, const zm_model *model, int seq_len,
                          zs_precision precision);

/* Memory constants, volumes and collectives of the problem: zero (allowed excepted), act_gib,
 * act_ckpt_gib, output_gib, logits_gib, workspace_gib, boundary_gib. */
void zp_memory_fill_problem(zp_problem *problem, const zp_memory_rule *rule);

/* What the problem calls usable: device memory without context, reserve and the rounding of shards
 * to whole parameters. 0 when nothing is left. */
int64_t zp_memory_usable_bytes(int64_t device_bytes, const zs_job *job);

/* Where a rank stands, as far as its memory depends on it. */
typedef struct zp_memory_place {
    zp_kind kind;
    int n_blocks;
    int zero_stage; /* 1, 2, 3 */
    bool recompute;
    int in_flight;  /* micro-batches */
    int n_ranks;    /* of the stage */
    int samples;    /* of the rank in one micro-batch */
    zs_shard shard; /* of the stage's flattened parameters */
} zp_memory_place;

void zp_memory_of_rank(zs_memory *out, const zp_memory_rule *rule, const zp_memory_place *place,
                       const zs_job *job);

#endif
