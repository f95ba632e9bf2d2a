/* Measured (or estimated) times of layers on GPU types. zexec measures them, zplan reads them. */
#ifndef SHARED_PROFILE_H
#define SHARED_PROFILE_H

#include "shared/gpus.h"
#include "shared/json.h"

#define ZS_PROFILE_FORMAT "zplan-profile"
#define ZS_PROFILE_VERSION 1

typedef enum zs_layer_kind {
    ZS_LAYER_EMBEDDING,
    ZS_LAYER_BLOCK,
    ZS_LAYER_HEAD, /* final norm, projection to the vocabulary, loss */
    ZS_N_LAYER_KINDS
} zs_layer_kind;

extern const char *const zs_layer_kind_names[ZS_N_LAYER_KINDS]; /* "embedding", "block", "head" */

typedef struct zs_profile_point {
    int samples;        /* of a micro-batch, >= 1; ascending inside an entry */
    bool out_of_memory; /* measured, did not fit: times are 0, and no larger size has times */
    double forward_ms;
    double backward_ms;
} zs_profile_point;

typedef struct zs_profile_entry {
    const char *device_type; /* in the spelling of gpus when it is there */
    zs_layer_kind kind;
    zs_precision precision;
    int seq_len;
    int n_points;
    zs_profile_point *points;
} zs_profile_entry;

typedef struct zs_profile {
    const char *model;  /* name of the model that was measured */
    bool estimated;     /* from public GPU data, not measured */
    const char *source; /* how the times came about, for people */
    int n_entries;
    zs_profile_entry *entries;
} zs_profile;

ZS_MUST_CHECK bool zs_profile_load(zs_profile *out, zs_arena *arena, const char *path,
                                   zs_error *err);
ZS_MUST_CHECK bool zs_profile_parse(zs_profile *out, zs_arena *arena, const zs_json *object,
                                    zs_error *err);
void zs_profile_write(zs_json_writer *w, const char *key, const zs_profile *profile);

/* NULL when there is none. */
const zs_profile_entry *zs_profile_find(const zs_profile *profile, const char *device_type,
                                        zs_layer_kind kind, zs_precision precision, int seq_len);

/* Times of one micro-batch of `samples` (>= 1). Linear between the two measured neighbours, never
 * beyond the largest measured one that fits, never below the smallest: then false is returned (no
 * error: the size is not offered). With one point only that size is offered. *interpolated is
 * false where the size itself was measured. */
bool zs_profile_time(double *forward_ms, double *backward_ms, bool *interpolated,
                     const zs_profile_entry *entry, int samples);

#endif
