/* The folder of one checkpoint and the files in it, for a single process; executor/checkpoint.h has
 * what all ranks do together. Failures to write are ZS_ERR_RUNTIME, what is wrong in a file that
 * is read is ZS_ERR_INPUT; both name the file. */
#ifndef EXECUTOR_CHECKPOINT_FOLDER_H
#define EXECUTOR_CHECKPOINT_FOLDER_H

#include "executor/manifest.h"

enum { ZX_CHECKPOINT_PATH_SIZE = 4096 };

/* DIR/step-00000100, or with temporary the name that it has until it is complete. */
ZS_MUST_CHECK bool zx_checkpoint_path(char out[ZX_CHECKPOINT_PATH_SIZE], const char *dir,
                                      int64_t step, bool temporary, zs_error *err);

/* Makes the temporary folder; one that is left from before is removed. */
ZS_MUST_CHECK bool zx_checkpoint_begin(const char *dir, int64_t step, zs_error *err);

/* Where the values of a rank are. */
typedef struct zx_checkpoint_values {
    zx_backend *backend;                /* that owns the arrays; NULL: host memory */
    const zx_real *arrays[ZX_N_ARRAYS]; /* [elements.count]; NULL: zeros */
    zs_shard elements;                  /* of the whole model, count >= 1 */
} zx_checkpoint_values;

/* Name and size of the file that holds these elements; in arena. */
ZS_MUST_CHECK bool zx_checkpoint_describe(zx_manifest_file *out, zs_arena *arena, zs_shard elements,
                                          uint32_t crc32, zs_error *err);

/* Writes and flushes that file; *crc32: of its contents. */
ZS_MUST_CHECK bool zx_checkpoint_write(uint32_t *crc32, const char *folder,
                                       const zx_checkpoint_values *values, zs_error *err);

/* Flushes the temporary folder and gives it its final name; a checkpoint of that name is replaced.
 */
ZS_MUST_CHECK bool zx_checkpoint_publish(const char *dir, int64_t step, zs_error *err);

/* Removes the temporary folder after a failure. */
void zx_checkpoint_discard(const char *dir, int64_t step);

/* Steps of the checkpoints in DIR, newest first, in arena. */
ZS_MUST_CHECK bool zx_checkpoint_list(int64_t **steps, int *n, zs_arena *arena, const char *dir,
                                      zs_error *err);

/* DIR holds manifest.json: it is a checkpoint itself. */
bool zx_checkpoint_is_one(const char *dir);

/* Of the checkpoints up to this step the n newest stay. What cannot be removed is said on the log.
 */
void zx_checkpoint_keep_last(const char *dir, int64_t step, int64_t n);

/* Size and checksum of one file are those of the manifest. */
ZS_MUST_CHECK bool zx_checkpoint_verify(const zx_manifest *manifest, const char *folder, int file,
                                        zs_error *err);

/* values (host): elements of one array, from the files that hold them. */
ZS_MUST_CHECK bool zx_checkpoint_read(zx_real *values, const zx_manifest *manifest,
                                      const char *folder, zx_array array, zs_shard elements,
                                      zs_error *err);

#endif
