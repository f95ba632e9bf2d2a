#include "shared/shards.h"

#include <inttypes.h>
#include <math.h>

bool zs_shards_divide(zs_shard *shards, const double *weights, int n_ranks, int64_t n_params,
                      zs_error *err)
{
    if (n_ranks < 1)
        return ZS_FAIL(err, ZS_ERR_INPUT, "shards: %d ranks, expected 1 or more", n_ranks);
    if (n_params < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "shards: %" PRId64 " parameters, expected 0 or more",
                       n_params);
    double sum = 0;
    int last_holder = -1;
    for (int rank = 0; rank < n_ranks; rank++) {
        /* written so that NaN fails too */
        if (!(weights[rank] >= 0 && weights[rank] <= 1))
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "shards: weight of rank %d is %g, expected a value in [0, 1]", rank,
                           weights[rank]);
        sum += weights[rank];
        if (weights[rank] > 0)
            last_holder = rank;
    }
    if (fabs(sum - 1) > 1e-9)
        return ZS_FAIL(err, ZS_ERR_INPUT, "shards: weights sum to %.12g, expected 1", sum);

    /* Rounding the running sum instead of each weight keeps the cover exact: neighbours share
     * their boundary. The last rank that holds anything ends at n_params whatever the rounding. */
    double running = 0;
    int64_t end = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        running += weights[rank];
        const int64_t first = end;
        const double ideal = running * (double)n_params;
        if (rank >= last_holder || ideal >= (double)n_params)
            end = n_params;
        else if (weights[rank] > 0 && llround(ideal) > first)
            end = llround(ideal);
        shards[rank] = (zs_shard){.first = first, .count = end - first};
    }
    return true;
}

bool zs_shards_check(const zs_shard *shards, int n_ranks, int64_t n_params, zs_error *err)
{
    int64_t end = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        const zs_shard s = shards[rank];
        if (s.first < 0 || s.count < 0 || s.count > INT64_MAX - s.first)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "rank %d has first %" PRId64 ", count %" PRId64
                           ", expected both 0 or more",
                           rank, s.first, s.count);
        if (s.first > end)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "gap before rank %d: parameters [%" PRId64 ", %" PRId64
                           ") are in no shard",
                           rank, end, s.first);
        if (s.first < end)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "rank %d begins at %" PRId64 ", expected %" PRId64
                           " where the rank before it ends",
                           rank, s.first, end);
        end += s.count;
    }
    if (end != n_params)
        return ZS_FAIL(err, ZS_ERR_INPUT, "cover %" PRId64 " of %" PRId64 " parameters", end,
                       n_params);
    return true;
}

zs_shard zs_shards_intersect(zs_shard shard, int64_t first, int64_t count)
{
    const int64_t shard_end = shard.first + shard.count;
    const int64_t begin = shard.first > first ? shard.first : first;
    const int64_t end = shard_end < first + count ? shard_end : first + count;
    return (zs_shard){.first = begin, .count = end > begin ? end - begin : 0};
}

/* Ranks whose remainder is at least `least`. */
static int n_remainders_from(const int *planned, int n_ranks, int64_t n_samples, int64_t total,
                             int64_t least)
{
    int n = 0;
    for (int rank = 0; rank < n_ranks; rank++)
        n += planned[rank] * n_samples % total >= least;
    return n;
}

void zs_samples_cut(int *cut, const int *planned, int n_ranks, int n_samples)
{
    int64_t total = 0;
    for (int rank = 0; rank < n_ranks; rank++)
        total += planned[rank];

    /* Quota of a rank is planned * n_samples / total; floors first, the samples left over go to
     * the largest remainders. As n_samples <= total, no quota exceeds planned, and one that is
     * rounded up does not either. */
    int64_t n_left = n_samples;
    for (int rank = 0; rank < n_ranks; rank++)
        n_left -= planned[rank] * (int64_t)n_samples / total;

    /* The least remainder that still gets a sample, by bisection: at least n_left ranks are from
     * `least` on, fewer from `above` on. */
    int64_t least = 0, above = total;
    while (above - least > 1) {
        const int64_t middle = least + (above - least) / 2;
        if (n_remainders_from(planned, n_ranks, n_samples, total, middle) >= n_left)
            least = middle;
        else
            above = middle;
    }
    int64_t n_equal = n_left - n_remainders_from(planned, n_ranks, n_samples, total, least + 1);

    cut[0] = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        const int64_t product = planned[rank] * (int64_t)n_samples;
        const int64_t remainder = product % total;
        int64_t samples = product / total;
        if (n_left > 0 && remainder > least)
            samples++;
        else if (n_left > 0 && remainder == least && n_equal > 0) {
            samples++;
            n_equal--;
        }
        cut[rank + 1] = cut[rank] + (int)samples;
    }
}
