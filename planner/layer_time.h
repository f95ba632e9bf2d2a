/* Times of layers on a GPU type by samples of a micro-batch, from a profile, as the tables that the
 * assignment problem works with. */
#ifndef PLANNER_LAYER_TIME_H
#define PLANNER_LAYER_TIME_H

#include "shared/job.h"
#include "shared/profile.h"

typedef struct zp_layer_times {
    int b_max; /* largest size that is offered for all layer kinds */
    /* [0 .. b_max]; [0] is 0; infinity where a size is not offered */
    double *block_forward_ms;
    double *block_backward_ms;
    double *embedding_ms; /* forward + backward */
    double *head_ms;
    bool *interpolated; /* some time of that size was not measured itself */
} zp_layer_times;

/* Tables for a GPU type at the job's precision and sequence length, up to max_samples. ZS_ERR_INPUT
 * when the profile has no entry for it (naming GPU type and layer kind, and what there is) or
 * offers no size at all. In arena. */
ZS_MUST_CHECK bool zp_layer_times_build(zp_layer_times *out, zs_arena *arena,
                                        const zs_profile *profile, const char *device_type,
                                        zs_precision precision, int seq_len, int max_samples,
                                        zs_error *err);

/* Logs a warning for each pair of neighbouring points where more samples take less time: it names
 * the entry and the pair. */
void zp_layer_time_warn(const zs_profile *profile);

#endif
