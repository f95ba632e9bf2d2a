/* Weights from a checkpoint to one safetensors file, and back. One process does it, with a buffer
 * of a fixed size: models that no machine here could train can be converted. */
#ifndef EXECUTOR_CONVERT_WEIGHTS_H
#define EXECUTOR_CONVERT_WEIGHTS_H

#include "executor/checkpoint_folder.h"

typedef struct zx_convert_weights_result {
    char path[ZX_CHECKPOINT_PATH_SIZE]; /* what was written */
    char from[ZX_CHECKPOINT_PATH_SIZE]; /* what was read */
    int64_t n_params;
} zx_convert_weights_result;

/* dir: a checkpoint, or a folder of them, of which the newest is taken; all its files are verified.
 * out: a name that ends in .safetensors. */
ZS_MUST_CHECK bool zx_convert_checkpoint(zx_convert_weights_result *result, const char *dir,
                                         const char *out, zs_error *err);

/* Makes out/step-00000000 with moments 0, which any run may take up (n_tokens 0 in its manifest).
 * model: NULL: the config.json beside the file. A checkpoint that is there is not replaced. */
ZS_MUST_CHECK bool zx_convert_safetensors(zx_convert_weights_result *result, const char *file,
                                          const char *model, const char *out, zs_error *err);

#endif
