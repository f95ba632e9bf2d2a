/* Reading safetensors files, strictly (README.md of safetensors, "Format"): every byte of the file
 * belongs to the header or to exactly one tensor. What a header claims is compared with the file's
 * size before anything is allocated or read, so no file can ask for more memory than it has bytes.
 * All faults are ZS_ERR_INPUT and name the file and the tensor. */
#ifndef EXECUTOR_SAFETENSORS_FILE_H
#define EXECUTOR_SAFETENSORS_FILE_H

#include "shared/arena.h"

#include <stdint.h>

enum { ZX_SAFETENSORS_MAX_DIMS = 8 };
#define ZX_SAFETENSORS_MAX_HEADER_BYTES INT64_C(100000000) /* that of the reference reader */

typedef enum zx_dtype {
    ZX_DTYPE_F64,
    ZX_DTYPE_F32,
    ZX_DTYPE_F16,
    ZX_DTYPE_BF16,
    ZX_DTYPE_I64, /* from here on: known, but no weights */
    ZX_DTYPE_I32,
    ZX_DTYPE_I16,
    ZX_DTYPE_I8,
    ZX_DTYPE_U64,
    ZX_DTYPE_U32,
    ZX_DTYPE_U16,
    ZX_DTYPE_U8,
    ZX_DTYPE_BOOL,
    ZX_DTYPE_F8_E4M3,
    ZX_DTYPE_F8_E5M2,
    ZX_N_DTYPES
} zx_dtype;

typedef struct zx_safetensors_entry {
    const char *name;
    zx_dtype dtype;
    int n_dims;
    const int64_t *shape;
    int64_t count;       /* elements */
    int64_t begin_bytes; /* of its first element, from the start of the file */
    int64_t size_bytes;
} zx_safetensors_entry;

typedef struct zx_safetensors_file {
    const char *path; /* the caller's text */
    int fd;
    int64_t file_bytes;
    int n_entries;
    zx_safetensors_entry *entries; /* by name */
} zx_safetensors_file;

/* Entries are in arena. */
ZS_MUST_CHECK bool zx_safetensors_open(zx_safetensors_file *out, zs_arena *arena, const char *path,
                                       zs_error *err);
void zx_safetensors_close(zx_safetensors_file *file);

/* The checks of a header alone, of a file of file_bytes; for zx_safetensors_open and tests. header:
 * what follows the eight bytes of its size. */
ZS_MUST_CHECK bool zx_safetensors_parse(zx_safetensors_entry **out, int *n, zs_arena *arena,
                                        const char *header, size_t header_bytes, int64_t file_bytes,
                                        const char *path, zs_error *err);

const zx_safetensors_entry *zx_safetensors_find(const zx_safetensors_file *file, const char *name);

/* Elements [first, first + n) of a tensor as float; from a wider type rounded to nearest. */
ZS_MUST_CHECK bool zx_safetensors_read(float *values, const zx_safetensors_file *file,
                                       const zx_safetensors_entry *entry, int64_t first, int64_t n,
                                       zs_error *err);

#endif
