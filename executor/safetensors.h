/* Weights as one safetensors file with Hugging Face's names, written by all ranks together:
 *
 *     every rank   zx_safetensors_build      the same table everywhere
 *     rank 0       zx_safetensors_create     PATH.tmp of full size with its header; barrier
 *     every rank   zx_safetensors_write      its own elements; barrier
 *     rank 0       zx_safetensors_publish    flush, rename to PATH
 *
 * Format: safetensors, README.md, "Format": the header's size (u64), a JSON object padded with
 * blanks to a multiple of 8, then the tensors without gaps; all little-endian. Tensors are fp32 in
 * C order and sorted by name; a tied head is stored once, as the embedding. Our layout of each
 * tensor is Hugging Face's, so nothing is transposed. */
#ifndef EXECUTOR_SAFETENSORS_H
#define EXECUTOR_SAFETENSORS_H

#include "models/layers.h"

typedef struct zx_safetensors_tensor {
    const char *name;
    int64_t first;       /* global offset of its first element (zm_stage_tensor) */
    int64_t count;       /* elements */
    int64_t begin_bytes; /* of its first element, from the start of the file */
} zx_safetensors_tensor;

typedef struct zx_safetensors {
    const char *header; /* with the size in front */
    int64_t header_bytes;
    int64_t file_bytes;
    int64_t n_params;
    int n_tensors;
    const zx_safetensors_tensor *tensors; /* ascending by first; they tile [0, n_params) */
} zx_safetensors;

/* In arena. */
ZS_MUST_CHECK bool zx_safetensors_build(zx_safetensors *out, zs_arena *arena, const zm_model *model,
                                        zs_error *err);

/* Replaces a PATH.tmp that is there. Failures of this and the next two are ZS_ERR_RUNTIME and name
 * the file. */
ZS_MUST_CHECK bool zx_safetensors_create(const zx_safetensors *s, const char *path, zs_error *err);

/* Writes elements [first, first + count) of the model, in global offsets, and flushes them. A
 * stage's flattened parameters without the shared copy are one such range, so a shard is one call:
 * first is the global offset of the stage's first tensor plus shard.first. */
ZS_MUST_CHECK bool zx_safetensors_write(const zx_safetensors *s, const char *path,
                                        const float *values, int64_t first, int64_t count,
                                        zs_error *err);

ZS_MUST_CHECK bool zx_safetensors_publish(const zx_safetensors *s, const char *path, zs_error *err);

/* Removes PATH.tmp, for when some rank failed. */
void zx_safetensors_discard(const char *path);

#endif
