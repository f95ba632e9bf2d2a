/* FLOPs and bytes of layers: what roofline estimates and the planner's memory rule are made of. */
#ifndef MODELS_COST_H
#define MODELS_COST_H

#include "models/layers.h"
#include "shared/gpus.h"

/* Bytes per parameter. bf16 keeps fp32 master weights; fp32 trains in place. */
typedef struct zm_state_bytes {
    int weights;   /* fp32 4, bf16 2 */
    int gradients; /* fp32 4, bf16 2 */
    int optimizer; /* two moments 8, and master weights under bf16: 12 */
} zm_state_bytes;

zm_state_bytes zm_cost_state(zs_precision precision);

/* Floating-point operations of the matrix products for one sample of T = seq_len tokens; a
 * multiply-add is 2. Element-wise work is bound by memory and counted in bytes alone, so the
 * embedding has none.
 *   forward    2 T per weight of a matrix (all but embeddings and vectors), and in a block two
 *              attention products (scores, output) of T (T + 1) C: the causal half
 *   backward   twice that for the matrices (gradients of input and weight), and five attention
 *              products: scores again, gradients of probabilities, q, k, v (Dao et al.,
 *              FlashAttention, NeurIPS 2022, alg. 4)
 * The work a model needs, as MFU counts it, has four products in backward, not five. */
double zm_cost_forward_flops(const zm_model *model, zs_layer_kind kind, int seq_len);
double zm_cost_backward_flops(const zm_model *model, zs_layer_kind kind, int seq_len);

/* Bytes moved to and from device memory, for the roofline: every operation reads its inputs and
 * writes its outputs once, weights once per micro-batch. */
double zm_cost_forward_bytes(const zm_model *model, zs_layer_kind kind, int seq_len, int samples,
                             zs_precision precision);
double zm_cost_backward_bytes(const zm_model *model, zs_layer_kind kind, int seq_len, int samples,
                              zs_precision precision);

/* Bytes that a block keeps per sample of a micro-batch in flight: the table of layers.h and the
 * block's input. */
int64_t zm_cost_block_act_bytes(const zm_model *model, int seq_len, zs_precision precision);
/* What one rank needs for backward beside them, per sample of a micro-batch. */
int64_t zm_cost_scratch_bytes(const zm_model *model, int seq_len, zs_precision precision);
/* The (T,C) input of a block: what crosses a stage boundary, and what recompute keeps. */
int64_t zm_cost_boundary_bytes(const zm_model *model, int seq_len, zs_precision precision);
/* Logits and loss workspace of the head: fp32 logits (T,V) and the head's own activations. */
int64_t zm_cost_logits_bytes(const zm_model *model, int seq_len, zs_precision precision);

#endif
