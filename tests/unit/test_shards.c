#include "shared/shards.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>

static void test_divide(void)
{
    zs_shard s[4];
    zs_error err;
    CHECK(zs_shards_divide(s, (double[]){0.7, 0.3}, 2, 10, &err), "%s", err.message);
    CHECK(s[0].first == 0 && s[0].count == 7 && s[1].first == 7 && s[1].count == 3, "70/30");

    CHECK(zs_shards_divide(s, (double[]){0.5, 0, 0.5, 0}, 4, 7, &err), "%s", err.message);
    CHECK(s[1].count == 0 && s[3].count == 0, "weight 0 has an empty shard");
    CHECK(s[0].count + s[2].count == 7, "zeros inside and at the end");

    CHECK(zs_shards_divide(s, (double[]){1. / 3, 1. / 3, 1. / 3}, 3, 0, &err), "%s", err.message);
    CHECK(s[2].first == 0 && s[2].count == 0, "no parameters");

    const int64_t large = INT64_MAX;
    CHECK(zs_shards_divide(s, (double[]){0.1, 0.2, 0.7}, 3, large, &err), "%s", err.message);
    CHECK(s[2].first + s[2].count == large, "beyond 2^53");
}

static void test_divide_refuses(void)
{
    zs_shard s[2];
    zs_error err;
    CHECK_FAILS(zs_shards_divide(s, (double[]){0.5, 0.4}, 2, 10, &err), &err, ZS_ERR_INPUT,
                "weights sum to 0.9");
    CHECK_FAILS(zs_shards_divide(s, (double[]){0.5, 0.5 + 2e-9}, 2, 10, &err), &err, ZS_ERR_INPUT,
                "weights sum to");
    CHECK_FAILS(zs_shards_divide(s, (double[]){1.5, -0.5}, 2, 10, &err), &err, ZS_ERR_INPUT,
                "weight of rank 0 is 1.5");
    CHECK_FAILS(zs_shards_divide(s, (double[]){1, -1e-12}, 2, 10, &err), &err, ZS_ERR_INPUT,
                "weight of rank 1");
    CHECK_FAILS(zs_shards_divide(s, (double[]){1, NAN}, 2, 10, &err), &err, ZS_ERR_INPUT,
                "weight of rank 1 is nan");
    CHECK_FAILS(zs_shards_divide(s, (double[]){1}, 0, 10, &err), &err, ZS_ERR_INPUT, "0 ranks");
    CHECK_FAILS(zs_shards_divide(s, (double[]){1}, 1, -1, &err), &err, ZS_ERR_INPUT,
                "-1 parameters");
}

static void test_check(void)
{
    zs_error err;
    CHECK(zs_shards_check((zs_shard[]){{0, 700}, {700, 0}, {700, 324}}, 3, 1024, &err), "%s",
          err.message);
    CHECK_FAILS(zs_shards_check((zs_shard[]){{0, 700}, {700, 300}}, 2, 1024, &err), &err,
                ZS_ERR_INPUT, "cover 1000 of 1024 parameters");
    CHECK_FAILS(zs_shards_check((zs_shard[]){{0, 700}, {800, 224}}, 2, 1024, &err), &err,
                ZS_ERR_INPUT, "[700, 800) are in no shard");
    CHECK_FAILS(zs_shards_check((zs_shard[]){{0, 700}, {600, 424}}, 2, 1024, &err), &err,
                ZS_ERR_INPUT, "rank 1 begins at 600, expected 700");
    CHECK_FAILS(zs_shards_check((zs_shard[]){{0, -1}, {0, 1}}, 2, 1, &err), &err, ZS_ERR_INPUT,
                "rank 0 has first 0, count -1");
    CHECK_FAILS(
        zs_shards_check((zs_shard[]){{0, INT64_MAX}, {INT64_MAX, INT64_MAX}}, 2, INT64_MAX, &err),
        &err, ZS_ERR_INPUT, "rank 1");
}

static void test_intersect(void)
{
    zs_shard s = zs_shards_intersect((zs_shard){10, 20}, 25, 100);
    CHECK(s.first == 25 && s.count == 5, "[%" PRId64 ", +%" PRId64 ")", s.first, s.count);
    s = zs_shards_intersect((zs_shard){10, 20}, 0, 100);
    CHECK(s.first == 10 && s.count == 20, "inside");
    CHECK(zs_shards_intersect((zs_shard){10, 20}, 30, 5).count == 0, "touching");
    CHECK(zs_shards_intersect((zs_shard){10, 20}, 0, 10).count == 0, "before");
    CHECK(zs_shards_intersect((zs_shard){10, 0}, 0, 100).count == 0, "empty");
}

static void check_cut(const int *planned, int n_ranks, int n_samples, const int *expected)
{
    int cut[9];
    zs_samples_cut(cut, planned, n_ranks, n_samples);
    CHECK(cut[0] == 0 && cut[n_ranks] == n_samples, "ends %d, %d", cut[0], cut[n_ranks]);
    for (int rank = 0; rank < n_ranks; rank++)
        CHECK(cut[rank + 1] - cut[rank] == expected[rank], "n %d, rank %d: %d, expected %d",
              n_samples, rank, cut[rank + 1] - cut[rank], expected[rank]);
}

/* Micro-batches 3+3+2 of a global batch of 8, under several plans for 3 samples; then others. */
static void test_cut(void)
{
    check_cut((int[]){3}, 1, 3, (int[]){3});
    check_cut((int[]){3}, 1, 2, (int[]){2});
    check_cut((int[]){2, 1}, 2, 3, (int[]){2, 1});
    check_cut((int[]){2, 1}, 2, 2, (int[]){1, 1});       /* quotas 1.33, 0.67 */
    check_cut((int[]){1, 1, 1}, 3, 2, (int[]){1, 1, 0}); /* equal: lowest rank first */
    check_cut((int[]){0, 3}, 2, 2, (int[]){0, 2});
    check_cut((int[]){2, 0, 1}, 3, 1, (int[]){1, 0, 0});
    check_cut((int[]){4, 2, 2}, 3, 5, (int[]){3, 1, 1}); /* 2.5, 1.25, 1.25 */
    check_cut((int[]){4, 2, 2}, 3, 0, (int[]){0, 0, 0});
    check_cut((int[]){1000000, 1000000, 1}, 3, 1000000, (int[]){500000, 500000, 0});
}

int main(void)
{
    test_divide();
    test_divide_refuses();
    test_check();
    test_intersect();
    test_cut();
    return check_done();
}
