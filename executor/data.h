/* Token files, and which tokens a micro-batch holds. A file is memory-mapped and checked as a whole
 * before the first update. Layouts, all little-endian:
 *   llm.c      256 int32 of header (magic 20240520, version 1, number of tokens), uint16 ids
 *   llm.c, 32  the same with magic 20240801, version 7, uint32 ids
 *   raw        ids only; the caller names their width
 * N tokens hold floor((N - 1) / T) sequences; sequence q reads tokens qT .. qT + T, its targets are
 * the same shifted by one. */
#ifndef EXECUTOR_DATA_H
#define EXECUTOR_DATA_H

#include "shared/error.h"

#include <stdint.h>

enum { ZX_DATA_HEADER_INTS = 256 };
#define ZX_DATA_MAGIC_U16 20240520
#define ZX_DATA_MAGIC_U32 20240801
#define ZX_DATA_VERSION_U16 1
#define ZX_DATA_VERSION_U32 7

typedef enum zx_data_dtype { ZX_DATA_AUTO, ZX_DATA_U16, ZX_DATA_U32 } zx_data_dtype;
typedef enum zx_data_order { ZX_DATA_SHUFFLED, ZX_DATA_SEQUENTIAL } zx_data_order;

typedef struct zx_data {
    const char *path; /* the caller's text */
    void *map;
    int64_t map_bytes;
    const unsigned char *ids; /* inside map */
    int id_bytes;             /* 2 or 4 */
    int64_t n_tokens;
    int64_t n_sequences;
    int seq_len;
} zx_data;

/* Maps the file and checks all of it: size, header, byte order, and that each id is below n_vocab
 * (the message has byte offset, id and vocabulary size). dtype: ZX_DATA_AUTO for files with a
 * header; a raw file needs its width; a header that contradicts dtype is refused, so are a
 * vocabulary beyond 65536 with 16-bit ids and a file without one whole sequence. All faults are
 * ZS_ERR_INPUT. */
ZS_MUST_CHECK bool zx_data_open(zx_data *out, const char *path, zx_data_dtype dtype, int seq_len,
                                int n_vocab, zs_error *err);
void zx_data_close(zx_data *data);

/* The sequence at a position of the endless stream of samples: position k B + i is sample i of step
 * k (from 0) with global batch B. Epoch e = position / n_sequences takes every sequence once:
 * shuffled by (seed, e), or in the order of the file. A file with fewer sequences than a batch thus
 * repeats over epochs. */
int64_t zx_data_sequence(const zx_data *data, zx_data_order order, uint64_t seed, int64_t position);

/* tokens and targets (n,T), either may be NULL, of n samples from this position on. */
void zx_data_read(const zx_data *data, int32_t *tokens, int32_t *targets, zx_data_order order,
                  uint64_t seed, int64_t position, int n);

#endif
