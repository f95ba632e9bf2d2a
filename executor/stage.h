/* This rank's part of the model: the layers of its stage with flattened parameters and gradients,
 * the activations of micro-batches in flight by slot, and the buffers that are sent and received.
 * All memory is allocated by zx_stage_open. What waits for what, so that no buffer is overwritten
 * too early, is the schedule's business (shared/schedule.h):
 *   slot       token ids, the input, what each block keeps, the output; free after its backward
 *   dout, din  gradients of the stage's output and input; two of each, by micro_batch & 1
 * Under recompute a slot keeps the blocks' inputs only, and one workspace holds the activations of
 * the block whose backward runs. */
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

typedef struct zx_stage {
    const zm_model *model;
    zx_backend *backend;
    int stage;
    int first_block, n_blocks;
    bool first, last; /* has the embedding, has the head */
    bool recompute;
    int seq_len;
    int max_samples; /* of a micro-batch on this rank; 0 if it never computes */

    int64_t n_params; /* the plan's */
    int64_t n_stored; /* and the copy of a tied embedding behind them */
    int n_tensors;
    const zm_stage_tensor *tensors;
    zx_real *params, *grads;              /* n_stored each */
    zx_tensors embedding, embedding_grad; /* on the first stage */
    zx_tensors *blocks, *block_grads;     /* [n_blocks] */
    zx_tensors head, head_grad;           /* on the last stage */

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

/* B samples of the slot through all layers. On the last stage the sum of the losses of all targets
 * is added to *loss_sum, either here or in backward: with several slots one set of logits serves
 * all, so the head runs when its gradient is due. training false: always here. scale: 1 / targets
 * of the global batch. */
ZS_MUST_CHECK bool zx_stage_forward(zx_stage *stage, double *loss_sum, int slot, int B,
                                    bool training, double scale, zs_error *err);

/* Adds the parameters' gradients of the slot's samples to grads. */
ZS_MUST_CHECK bool zx_stage_backward(zx_stage *stage, double *loss_sum, int slot, int micro_batch,
                                     int B, double scale, zs_error *err);

ZS_MUST_CHECK bool zx_stage_zero_grads(zx_stage *stage, zs_error *err);

#endif
