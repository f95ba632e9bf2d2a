/* manifest.json of a checkpoint: what was trained, how far, and which file holds which elements.
 * Elements are counted through the whole model (zm_stage_tensor.global_offset), so nothing in it
 * depends on the plan that wrote it, and any plan can read it. shared/FORMATS.md has the fields. */
#ifndef EXECUTOR_MANIFEST_H
#define EXECUTOR_MANIFEST_H

#include "executor/run.h"

#define ZX_MANIFEST_FORMAT "zexec-checkpoint"
#define ZX_MANIFEST_VERSION 1
#define ZX_MANIFEST_NAME "manifest.json"

/* A file holds three arrays of its elements, each float32, one behind the other. */
typedef enum zx_array {
    ZX_ARRAY_WEIGHTS,
    ZX_ARRAY_FIRST_MOMENTS,
    ZX_ARRAY_SECOND_MOMENTS,
    ZX_N_ARRAYS
} zx_array;

extern const char *const zx_array_names[ZX_N_ARRAYS];

typedef struct zx_manifest_file {
    const char *name; /* in the checkpoint's folder */
    zs_shard elements;
    int64_t size_bytes; /* ZX_N_ARRAYS * elements.count * 4 */
    uint32_t crc32;     /* of the whole file, as zlib computes it */
} zx_manifest_file;

typedef struct zx_manifest {
    const char *place; /* file name for messages */
    zm_model model;
    int64_t n_params;
    int64_t step;                  /* training steps done */
    int64_t n_updates;             /* of the optimizer */
    zx_run_options options;        /* n_threads is not kept */
    int64_t n_tokens, n_sequences; /* 0: of weights alone, which any run may take up */
    int seq_len;
    int64_t position; /* samples taken of the endless stream (executor/data.h) */
    int n_files;
    zx_manifest_file *files; /* ascending, they tile [0, n_params) */
} zx_manifest;

/* In arena. Everything that can be wrong in the text is ZS_ERR_INPUT with the place: names that
 * leave the folder, sizes that do not fit the elements, gaps, overlaps. */
ZS_MUST_CHECK bool zx_manifest_parse(zx_manifest *out, zs_arena *arena, const zs_json *root,
                                     zs_error *err);
/* Also compares the file's bytes with the checksum in its last lines. */
ZS_MUST_CHECK bool zx_manifest_load(zx_manifest *out, zs_arena *arena, const char *folder,
                                    zs_error *err);

void zx_manifest_write(zs_json_writer *w, const char *key, const zx_manifest *manifest);
ZS_MUST_CHECK bool zx_manifest_save(const zx_manifest *manifest, const char *folder, zs_error *err);

/* The model of a plan is the checkpoint's in every field but its name and dropout; else
 * ZS_ERR_INPUT names the field and both values. */
ZS_MUST_CHECK bool zx_manifest_check_model(const zx_manifest *manifest, const zm_model *model,
                                           zs_error *err);

/* A run that goes on sees each sequence when it is due: same seed, order and data. */
ZS_MUST_CHECK bool zx_manifest_check_data(const zx_manifest *manifest,
                                          const zx_run_options *options, const zx_data *data,
                                          zs_error *err);

/* Settings that may change on the way but seldom should: text lists those that differ
 * ("--lr 0.001, now 0.0003; ..."), empty when none does. */
void zx_manifest_changes(char *text, size_t size, const zx_manifest *manifest,
                         const zx_run_options *options);

#endif
