/* ZeRO shards: how the ranks that replicate a stage divide its parameters. Shards may be
 * uneven: a rank with less memory holds less (Rajbhandari et al., ZeRO, SC 2020, sec. 5).
 * And the same for samples: how the ranks of a stage divide a micro-batch. */
#ifndef SHARED_SHARDS_H
#define SHARED_SHARDS_H

#include "shared/error.h"

#include <stdint.h>

typedef struct zs_shard {
    int64_t first; /* index of its first parameter */
    int64_t count; /* number of parameters; 0 on a rank that holds none */
} zs_shard;

/* Divides n_params among n_ranks in proportion to weights, each in [0, 1], sum 1 within
 * 1e-9; other weights are ZS_ERR_INPUT. shards[rank] come in rank order and cover
 * [0, n_params) exactly. A weight of 0 gives an empty shard. */
ZS_MUST_CHECK bool zs_shards_divide(zs_shard *shards, const double *weights, int n_ranks,
                                    int64_t n_params, zs_error *err);

/* Shards in rank order, no gap, no overlap, total n_params; else ZS_ERR_INPUT saying what is
 * wrong ("cover 1000 of 1024 parameters"). */
ZS_MUST_CHECK bool zs_shards_check(const zs_shard *shards, int n_ranks, int64_t n_params,
                                   zs_error *err);

/* The part of shard that lies in [first, first + count); an empty range when they do not meet. */
zs_shard zs_shards_intersect(zs_shard shard, int64_t first, int64_t count);

/* Cuts a micro-batch of n_samples among n_ranks in proportion to planned[rank] (>= 0, sum >=
 * n_samples >= 0, sum >= 1) by largest remainder, lowest rank first among equals; a micro-batch of
 * the planned size gets planned itself. cut[rank] is the first sample of the rank, cut[n_ranks] is
 * n_samples. No rank gets more than planned. */
void zs_samples_cut(int *cut, const int *planned, int n_ranks, int n_samples);

#endif
