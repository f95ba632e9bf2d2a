/* This rank's part of the model: the layers of its stage with flattened parameters and gradients,
 * the activations of micro-batches in flight by slot, and the buffers that are sent and received.
 * All memory is allocated by zx_stage_open. What waits for what, so that no buffer is overwritten
 * too early, is the schedule's business (shared/schedule.h):
 *   slot       token ids, the input, what each block keeps, the output; free after its backward
 *   dout, din  gradients of the stage's output and input; two of each, by micro_batch & 1
 * Under recompute a slot keeps the blocks' inputs only, and one workspace holds the activations of
 * the block whose backward runs.
 *
 * What is stored depends on the ZeRO level; a last stage that shares the embedding with the first
 * has a whole copy of it, and of its gradient, at every level:
 *   level   params                gathered              grads
 *   1       all, the copy         -                     all, the copy's
 *   2       all, the copy         -                     one layer's, the copy's
 *   3       the shard, the copy   layer k in the        one layer's, the copy's
 *                                 buffer k & 1
 * The layers' tensors point to where they are when the layer computes. */
#ifndef EXECUTOR_STAGE_H
#define EXECUTOR_STAGE_H

#include "executor/layers.h"
#include "shared/plan.h"

typedef struct zx_slot {
    int32_t *tokens;   /* (B,T) on the first stage, else NULL */
    int32_t *targets;  /* (B,T) on the last stage, else NULL */
    zx_real **streams; /* [n_blocks + 1] of (B,T,C): input of each block, then the output */
    zx_real **acts;    /* [n_blocks]; under recompute all the same */
} zx_slot;

/* One layer of the stage. Where layers share a buffer, its own parameters come first, then the
 * matrix that a tied head borrows from the embedding of its own stage. */
typedef struct zx_layer {
    int64_t first, count; /* in the stage's flattened parameters */
    int64_t n_borrowed;   /* elements; they are the first of the stage */
    zx_tensors params, grads;
} zx_layer;

typedef struct zx_stage {
    const zm_model *model;
    zx_backend *backend;
    int stage;
    int first_block, n_blocks;
    bool first, last; /* has the embedding, has the head */
    bool recompute;
    bool defers_head; /* in training the head runs when its gradient is due: one set of logits
                         serves all micro-batches in flight */
    int zero_stage;   /* 1 where one rank is the whole stage */
    int seq_len;
    int max_samples; /* of a micro-batch on this rank; 0 if it never computes */

    int64_t n_params; /* the plan's */
    int64_t n_copy;   /* elements of the copy of a tied embedding; 0: none */
    zs_shard shard;   /* of this rank: the plan's */
    int n_tensors;
    const zm_stage_tensor *tensors;
    int n_layers;
    zx_layer *layers;           /* embedding, blocks, head, as far as they are here */
    int64_t n_buffered;         /* elements of the largest layer with what it borrows */
    zx_real *params;            /* level 1, 2: n_params; level 3: shard.count; then the copy */
    zx_real *grads;             /* level 1: n_params; level 2, 3: n_buffered; then the copy's */
    zx_real *gathered[2];       /* level 3: n_buffered each */
    zx_real *copy, *copy_grads; /* NULL without a copy */

    int n_slots;
    zx_slot *slots;
    zx_real *dout[2], *din[2]; /* (B,T,C); NULL where nothing uses them */
    zx_real *head_acts;
    zx_real *scratch;
    zs_memory memory; /* what is allocated, by purpose; the optimizer adds its own */
} zx_stage;

/* Allocates for micro-batches of at most the plan's samples for this rank and n_slots in flight.
 * Parameters are the initial values of the model under this seed: each a function of its index in
 * the whole model, so that every plan starts equal; n_threads draw them. Pointers into arena and
 * backend; the backend's close frees its part. */
ZS_MUST_CHECK bool zx_stage_open(zx_stage *out, zs_arena *arena, zx_backend *backend,
                                 const zs_plan *plan, const zm_model *model, int rank, int n_slots,
                                 uint64_t seed, int n_threads, zs_error *err);

/* Where a received row of samples goes, or a sent one lies: first_sample counts from the rank's own
 * first. */
zx_real *zx_stage_input(const zx_stage *stage, int slot, int first_sample);
zx_real *zx_stage_output(const zx_stage *stage, int slot, int first_sample);
zx_real *zx_stage_output_grad(const zx_stage *stage, int micro_batch, int first_sample);
zx_real *zx_stage_input_grad(const zx_stage *stage, int micro_batch, int first_sample);

/* The part of a tensor that this rank stores between steps: its elements [part->first, +
 * part->count), counted from the tensor's first. */
zx_real *zx_stage_stored(const zx_stage *stage, zs_shard *part, const zm_stage_tensor *tensor);

#endif
