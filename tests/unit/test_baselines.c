/* Baselines against numbers that were computed elsewhere: by hand, and by another program for the
 * problems of tests/golden/ilp. */
#include "planner/baselines.h"
#include "tests/support/check.h"
#include "tests/support/instance.h"

#include <math.h>

/* Two GPUs, the second half as fast, no traffic, memory in plenty: 4 blocks, 4 samples. */
static void test_by_hand(void)
{
    static const double forward[][3] = {{0, 1, 2}, {0, 2, 4}},
                        backward[][3] = {{0, 2, 4}, {0, 4, 8}};
    static const double nothing[3] = {0};
    static const zp_batching batchings[] = {{1, 4}, {2, 2}};
    zp_problem p = {.n_blocks = 4,
                    .n_classes = 2,
                    .overlap_zero = 1,
                    .overlap_send = 1,
                    .recompute_none = true,
                    .min_stages = 1,
                    .max_stages = 2,
                    .n_batchings = 2,
                    .batchings = batchings};
    for (int k = 0; k < 2; k++)
        p.classes[k] = (zp_class){.gpu = k == 0 ? "fast" : "slow",
                                  .n_nodes = 1,
                                  .gpus_per_node = 1,
                                  .memory_gib = 10,
                                  .intra_gib_per_s = 10,
                                  .nic_gib_per_s = 10,
                                  .b_max = 2,
                                  .forward_ms = forward[k],
                                  .backward_ms = backward[k],
                                  .embed_ms = nothing,
                                  .head_ms = nothing};
    for (int level = 1; level <= 3; level++) {
        p.zero[level].allowed = level != 2;
        p.zero[level].shard_gib[ZP_PART_BLOCK] = 1;
    }
    zs_arena *arena;
    zs_error err;
    zp_baseline b[ZP_N_BASELINES];
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (!CHECK(zp_baselines_build(b, NULL, arena, &p, NULL, &err), "%s", err.message))
        goto end;
    /* Two equal stages: 6 + 12 + 3 x 12 = 54; the fast GPU alone: 4 x 12. */
    CHECK_NEAR(b[ZP_BASELINE_EVEN].solution.step_ms, 48, 1e-12);
    CHECK_NEAR(b[ZP_BASELINE_MIXED].solution.step_ms, 48, 1e-12);
    /* 3 blocks and 1: 9 + 6 + 3 x 9. */
    CHECK_NEAR(b[ZP_BASELINE_LAYERS].solution.step_ms, 42, 1e-12);
    CHECK_NEAR(b[ZP_BASELINE_PIPELINE].solution.step_ms, 42, 1e-12);
    /* One sample each: 2 x 24. */
    CHECK_NEAR(b[ZP_BASELINE_ZERO3].solution.step_ms, 48, 1e-12);
    CHECK_NEAR(b[ZP_BASELINE_ZERO3_FAIR].solution.step_ms, 48, 1e-12);
    CHECK(!b[ZP_BASELINE_GROUPS].feasible, "ZeRO-2 is not allowed");
    CHECK_STRING(b[ZP_BASELINE_GROUPS].why_not, "the job excludes its ZeRO level");
    CHECK(zp_baselines_best(b) == &b[ZP_BASELINE_LAYERS], "the best is another");

    /* The state of 4 blocks, 4 GiB, does not fit one GPU, nor 2 of them beside it. */
    p.classes[0].memory_gib = 1.5;
    p.classes[1].memory_gib = 1;
    if (!CHECK(zp_baselines_build(b, NULL, arena, &p, NULL, &err), "%s", err.message))
        goto end;
    CHECK(!zp_baselines_best(b), "something fits");
    CHECK_STRING(b[ZP_BASELINE_EVEN].why_not,
                 "no room: slow needs 2.00 GiB, has 1.00, missing 1.00 (stage 0 of 1, micro-batch "
                 "1, ZeRO-1, recompute none)");
end:
    zs_arena_close(&arena);
}

/* Known to a ms. */
static void check_instance(const char *path, zp_baseline_kind kind, double expected_ms)
{
    zs_arena *arena;
    zs_error err;
    instance in;
    zp_baseline b[ZP_N_BASELINES];
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (CHECK(instance_load(&in, arena, path, &err) &&
                  zp_baselines_build(b, NULL, arena, &in.problem, NULL, &err),
              "%s", err.message))
        CHECK(b[kind].feasible && fabs(b[kind].solution.step_ms - expected_ms) <= 0.5,
              "%s: %s takes %g ms, expected %g", path, b[kind].name, b[kind].solution.step_ms,
              expected_ms);
    zs_arena_close(&arena);
}

int main(int argc, char **argv)
{
    zs_error err;
    zs_arena *arena;
    test_by_hand();
    if (!CHECK(argc == 2, "usage: test_baselines GOLDEN") ||
        !CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return check_done();
    const char *i12 = zs_arena_printf(arena, &err, "%s/ilp/i12.json", argv[1]);
    const char *m16b = zs_arena_printf(arena, &err, "%s/ilp/m16b.json", argv[1]);
    const char *s8a = zs_arena_printf(arena, &err, "%s/ilp/s8a.json", argv[1]);
    check_instance(i12, ZP_BASELINE_EVEN, 15848);
    check_instance(i12, ZP_BASELINE_ZERO3_FAIR, 15904);
    check_instance(m16b, ZP_BASELINE_ZERO3_FAIR, 30467);
    check_instance(s8a, ZP_BASELINE_LAYERS, 793);
    zs_arena_close(&arena);
    return check_done();
}
