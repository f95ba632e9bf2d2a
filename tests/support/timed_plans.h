/* Plans of plans.h made complete enough to be timed: cluster, model, profile, shards. */
#ifndef TESTS_SUPPORT_TIMED_PLANS_H
#define TESTS_SUPPORT_TIMED_PLANS_H

#include "models/model.h"
#include "tests/support/plans.h"

/* The cluster behind a plan's ranks and how long its GPUs take. */
typedef struct check_timing {
    int ranks_per_node; /* ranks fill node after node; 0: one node for all */
    double intra_bytes_per_s, nic_bytes_per_s;
    double intra_latency_ms, nic_latency_ms;
    const double *forward_ms; /* of each stage's GPUs: one block, for any number of samples */
    const double *backward_ms;
    double per_sample; /* times are (1 + per_sample (samples - 1)) times these */
    const char *gpu; /* type of all GPUs; NULL: "gpu 0" for stage 0 and so on, unknown to gpus.h */
    bool tied;
} check_timing;

/* Links that take no time, GPUs of unknown types. */
check_timing check_timing_free(const double *forward_ms, const double *backward_ms);

/* Fills the plan's cluster, profile, parameters and even shards, and returns its model: GPT-2 of as
 * many blocks, 4 channels, 32 words, samples of 8 tokens: 128 bytes of a sample cross a stage
 * boundary. With a GPU type given, times are those of stage 0. In arena. */
zm_model check_time_plan(zs_plan *plan, zs_arena *arena, const check_timing *timing);

#endif
