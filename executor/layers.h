/* Forward and backward of each layer kind, in backend operations; the same code for every backend.
 * Parameters and gradients are pointers by role into the stage's flattened arrays. Gradients are
 * accumulated (+=) over micro-batches; the caller zeroes them once a step. */
#ifndef EXECUTOR_LAYERS_H
#define EXECUTOR_LAYERS_H

#include "executor/backend.h"
#include "models/layers.h"

/* A layer's tensors by role; NULL where the layer has none. */
typedef struct zx_tensors {
    zx_real *at[ZM_N_ROLES];
} zx_tensors;

/* Points the roles of one layer into flat, the stage's flattened array (parameters or gradients).
 */
void zx_layer_point(zx_tensors *out, zx_real *flat, const zm_stage_tensor *tensors, int n_tensors,
                    int layer);

/* Elements of a block's saved activations for B samples of T tokens (zm_block_act_floats), of the
 * scratch that any block call may use, and of the head's scratch (logits of all B T rows). */
int64_t zx_block_acts_size(const zm_model *model, int B, int T);
int64_t zx_block_scratch_size(const zm_model *model, int B, int T);
int64_t zx_head_acts_size(const zm_model *model, int B,
                          int T); /* norm output, mean, rstd, logits */

/* out (B,T,C). */
ZS_MUST_CHECK bool zx_embedding_forward(zx_backend *b, const zm_model *model, zx_real *out,
                                        const zx_tensors *params, const int32_t *tokens, int B,
                                        int T, zs_error *err);
ZS_MUST_CHECK bool zx_embedding_backward(zx_backend *b, const zm_model *model, zx_tensors *grads,
                                         const int32_t *tokens, const zx_real *dout, int B, int T,
                                         zs_error *err);

/* out, in (B,T,C), different memory; acts: zx_block_acts_size, kept for backward. */
ZS_MUST_CHECK bool zx_block_forward(zx_backend *b, const zm_model *model, zx_real *out,
                                    zx_real *acts, const zx_real *in, const zx_tensors *params,
                                    zx_real *scratch, int B, int T, zs_error *err);

/* din may be dout itself. */
ZS_MUST_CHECK bool zx_block_backward(zx_backend *b, const zm_model *model, zx_real *din,
                                     zx_tensors *grads, const zx_real *dout, const zx_real *acts,
                                     const zx_real *in, const zx_tensors *params, zx_real *scratch,
                                     int B, int T, zs_error *err);

/* Final norm, projection, loss. *loss_sum: sum over valid targets (host, after sync). With scale
 * != 0 (1 / valid targets of the global batch) acts then hold what zx_head_backward needs. */
ZS_MUST_CHECK bool zx_head_forward(zx_backend *b, const zm_model *model, double *loss_sum,
                                   zx_real *acts, const zx_real *in, const zx_tensors *params,
                                   const int32_t *targets, int B, int T, double scale,
                                   zs_error *err);
ZS_MUST_CHECK bool zx_head_backward(zx_backend *b, const zm_model *model, zx_real *din,
                                    zx_tensors *grads, const zx_real *acts, const zx_real *in,
                                    const zx_tensors *params, zx_real *scratch, int B, int T,
                                    zs_error *err);

#endif
