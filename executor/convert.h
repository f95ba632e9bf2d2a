/* Makes token files. Text becomes byte-level ids (vocabulary 256) in llm.c's layout (data.h). */
#ifndef EXECUTOR_CONVERT_H
#define EXECUTOR_CONVERT_H

#include "shared/error.h"

#include <stdint.h>

enum { ZX_CONVERT_BYTE_VOCAB = 256 };

typedef struct zx_convert_result {
    int64_t n_tokens;
    int64_t n_held_back; /* tokens of the tail that went to the second file; 0 without a split */
    char path[4096];
    char held_back_path[4096]; /* "" without a split */
} zx_convert_result;

/* Reads the text file in and writes out ("x.bin"). With split in (0, 1) the last share of the
 * bytes, at least one, is held back: x.train.bin and x.val.bin are written instead. Each file
 * appears whole or not at all. An empty text, or more tokens than the header's count can say
 * (2^31 - 1), is ZS_ERR_INPUT. */
ZS_MUST_CHECK bool zx_convert_text(zx_convert_result *result, const char *in, const char *out,
                                   double split, zs_error *err);

#endif
