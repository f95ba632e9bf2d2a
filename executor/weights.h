/* The weights of a model from a safetensors file with Hugging Face's names, with or without the
 * prefix of the language model ("transformer.", "model."), as one row of elements in the model's
 * order (zm_stage_tensor.global_offset). Shapes are those of transformers, so nothing is transposed
 * (models/layers.h). */
#ifndef EXECUTOR_WEIGHTS_H
#define EXECUTOR_WEIGHTS_H

#include "executor/safetensors_file.h"
#include "models/layers.h"
#include "shared/shards.h"

typedef struct zx_weights_tensor {
    const zx_safetensors_entry *entry;
    int64_t first; /* of the whole model */
} zx_weights_tensor;

typedef struct zx_weights {
    zx_safetensors_file file;
    int n_tensors;
    zx_weights_tensor *tensors; /* ascending, they tile the model */
} zx_weights;

/* Every tensor of the model is there with its shape, and no other but buffers that transformers
 * saves along (attn.bias, rotary_emb.inv_freq, ...) and, for a tied head, a lm_head.weight that is
 * equal to the embedding. Else ZS_ERR_INPUT names the tensor. In arena; close. */
ZS_MUST_CHECK bool zx_weights_open(zx_weights *out, zs_arena *arena, const char *path,
                                   const zm_model *model, zs_error *err);
void zx_weights_close(zx_weights *weights);

/* values: these elements of the whole model. */
ZS_MUST_CHECK bool zx_weights_read(float *values, const zx_weights *weights, zs_shard elements,
                                   zs_error *err);

#endif
