#include "shared/shards.h"
#include "tests/support/check.h"

#include <inttypes.h>

enum { MAX_RANKS = 64 };

/* Whatever the weights, every parameter is in exactly one shard, and no shard is further than one
 * parameter from its ideal ends. */
static void check_exact_cover(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    const int n_ranks = (int)check_rng_int(&rng, 1, MAX_RANKS);
    const int64_t n_params = check_rng_int(&rng, 0, INT64_C(1000000000000));
    double weights[MAX_RANKS];
    zs_shard shards[MAX_RANKS];
    zs_error err;
    check_rng_weights(&rng, weights, n_ranks);
    if (!CHECK(zs_shards_divide(shards, weights, n_ranks, n_params, &err), "seed %" PRIu64 ": %s",
               seed, err.message))
        return;

    int64_t end = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        CHECK(shards[rank].first == end && shards[rank].count >= 0,
              "seed %" PRIu64 ": rank %d at %" PRId64, seed, rank, end);
        CHECK(weights[rank] > 0 || shards[rank].count == 0,
              "seed %" PRIu64 ": rank %d holds %" PRId64 " with weight 0", seed, rank,
              shards[rank].count);
        const double off = (double)shards[rank].count - weights[rank] * (double)n_params;
        CHECK(off > -1.01 && off < 1.01, "seed %" PRIu64 ": rank %d is off by %g", seed, rank, off);
        end += shards[rank].count;
    }
    CHECK(end == n_params, "seed %" PRIu64 ": covers %" PRId64, seed, end);
    CHECK(zs_shards_check(shards, n_ranks, n_params, &err), "seed %" PRIu64 ": %s", seed,
          err.message);
}

/* A cut gives every rank its quota rounded down or up, never more than planned, the ups go to the
 * largest remainders, and the planned size gives planned itself. */
static void check_largest_remainder(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    const int n_ranks = (int)check_rng_int(&rng, 1, MAX_RANKS);
    int planned[MAX_RANKS], cut[MAX_RANKS + 1];
    int64_t total = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        planned[rank] = (int)check_rng_int(&rng, 0, 9);
        total += planned[rank];
    }
    if (total == 0)
        total = planned[0] = 1;
    const int n_samples = (int)check_rng_int(&rng, 0, total);
    zs_samples_cut(cut, planned, n_ranks, n_samples);

    CHECK(cut[0] == 0 && cut[n_ranks] == n_samples, "seed %" PRIu64 ": ends %d, %d of %d", seed,
          cut[0], cut[n_ranks], n_samples);
    int64_t least_up = total, largest_down = -1;
    for (int rank = 0; rank < n_ranks; rank++) {
        const int64_t product = (int64_t)planned[rank] * n_samples;
        const int64_t up = cut[rank + 1] - cut[rank] - product / total;
        CHECK((up == 0 || up == 1) && cut[rank + 1] - cut[rank] <= planned[rank],
              "seed %" PRIu64 ": rank %d has %d of %d", seed, rank, cut[rank + 1] - cut[rank],
              planned[rank]);
        const int64_t remainder = product % total;
        if (up == 1 && remainder < least_up)
            least_up = remainder;
        if (up == 0 && remainder > largest_down)
            largest_down = remainder;
        if (up == 1)
            CHECK(remainder != largest_down, "seed %" PRIu64 ": rank %d before a lower one", seed,
                  rank);
    }
    CHECK(largest_down <= least_up,
          "seed %" PRIu64 ": remainder %" PRId64 " is left, %" PRId64 " served", seed, largest_down,
          least_up);

    zs_samples_cut(cut, planned, n_ranks, (int)total);
    for (int rank = 0; rank < n_ranks; rank++)
        CHECK(cut[rank + 1] - cut[rank] == planned[rank], "seed %" PRIu64 ": planned size", seed);
}

int main(void)
{
    check_seeds(check_exact_cover, 1, 2000);
    check_seeds(check_largest_remainder, 1, 2000);
    return check_done();
}
