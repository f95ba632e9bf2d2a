/* Small problems whose answer is known by hand. */
#include "planner/evaluate.h"
#include "planner/search.h"
#include "tests/support/check.h"

#include <math.h>
#include <string.h>

enum { MAX_SAMPLES = 16 };

/* Tables of b * ms per block, half of it forward. */
static double tables_ms[4][MAX_SAMPLES + 1];
static const double no_ms[MAX_SAMPLES + 1];

static zp_class gpu_class(const char *gpu, int n, double memory_gib, double block_ms, int table)
{
    for (int b = 0; b <= MAX_SAMPLES; b++)
        tables_ms[table][b] = b * block_ms / 2;
    return (zp_class){.gpu = gpu,
                      .n_nodes = 1,
                      .gpus_per_node = n,
                      .memory_gib = memory_gib,
                      .intra_gib_per_s = INFINITY,
                      .nic_gib_per_s = INFINITY,
                      .b_max = MAX_SAMPLES,
                      .forward_ms = tables_ms[table],
                      .backward_ms = tables_ms[table],
                      .embed_ms = no_ms,
                      .head_ms = no_ms};
}

/* Pipeline only: one GPU a stage, no sharding, state_gib per block in all. */
static zp_problem pipeline_problem(int n_blocks, double state_gib, const zp_batching *batching)
{
    zp_problem p = {.n_blocks = n_blocks,
                    .recompute_none = true,
                    .min_stages = 1,
                    .max_stages = 64,
                    .max_gpus_per_stage = 1,
                    .n_batchings = 1,
                    .batchings = batching};
    p.zero[1].allowed = true;
    p.zero[1].repl_gib[ZP_PART_BLOCK] = state_gib / 4;
    p.zero[1].shard_gib[ZP_PART_BLOCK] = state_gib * 3 / 4;
    return p;
}

/* blocks: each stage with its GPU, NULL where several divisions are equally good. */
static void check_step(const zp_problem *p, double expected_ms, const char *blocks)
{
    zs_arena *arena;
    zs_error err;
    zp_solution solution;
    zp_search_options options = {0};
    char text[256] = "";
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (CHECK(zp_search(&solution, arena, p, &options, &err), "%s", err.message)) {
        CHECK_NEAR(solution.step_ms, expected_ms, 1e-12);
        for (int s = 0; s < solution.n_stages; s++) {
            const zp_stage *stage = &solution.stages[s];
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%d%s", s ? " " : "", stage->n_blocks,
                     p->classes[stage->members[0].class].gpu);
        }
        if (blocks)
            CHECK_STRING(text, blocks);
    }
    zs_arena_close(&arena);
}

static void check_no_plan(const zp_problem *p, const char *message)
{
    zs_arena *arena;
    zs_error err;
    zp_solution solution;
    zp_search_options options = {0};
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (CHECK_FAILS(zp_search(&solution, arena, p, &options, &err), &err, ZS_ERR_INFEASIBLE, ""))
        CHECK_STRING(err.message, message);
    zs_arena_close(&arena);
}

/* A fast GPU of 24 GiB and a slow one of 12 GiB with 1 GiB reserved, 4 blocks of 5 GiB. The step
 * takes the sum of the stages' times and m - 1 times the largest. */
static void test_mixed_gpus(void)
{
    static const zp_batching eight = {1, 8}, one = {1, 1};
    zp_problem p = pipeline_problem(4, 5, &eight);
    p.n_classes = 2;
    p.classes[0] = gpu_class("F", 1, 23, 1, 0);
    p.classes[1] = gpu_class("S", 1, 11, 2, 1);
    check_step(&p, 26, "3F 1S"); /* 3 + 2 + 7 * 3 */
    p.classes[1] = gpu_class("S", 1, 11, 10, 1);
    check_step(&p, 32, "4F"); /* 8 * 4 */
    p.classes[0] = gpu_class("F", 1, 11, 1, 0);
    p.classes[1] = gpu_class("S", 1, 11, 2, 1);
    check_step(&p, 34, "2F 2S"); /* 2 + 4 + 7 * 4 */
    p.classes[0] = gpu_class("F", 1, 23, 1, 0);
    p.batchings = &one;
    check_step(&p, 4, "4F");

    p = pipeline_problem(4, 8, &eight);
    p.n_classes = 2;
    p.classes[0] = gpu_class("F", 1, 23, 1, 0);
    p.classes[1] = gpu_class("S", 1, 11, 2, 1);
    check_no_plan(&p, "no feasible plan: the GPUs hold at most 3 of 4 blocks at once (micro-batch "
                      "1), 1 missing");
}

/* Equal GPUs, one stage each: the heaviest stage has n / S blocks rounded up. */
static void test_blocks_not_divisible(void)
{
    static const zp_batching batching = {1, 8};
    zp_problem p = pipeline_problem(30, 1, &batching);
    p.n_classes = 1;
    p.classes[0] = gpu_class("A", 4, 100, 1, 0);
    p.min_stages = p.max_stages = 4;
    check_step(&p, 30 + 7 * 8, NULL); /* the largest stage has 8 */
    p.n_blocks = 7;
    p.min_stages = p.max_stages = 2;
    check_step(&p, 7 + 7 * 4, NULL);
    p.n_blocks = 3;
    p.min_stages = p.max_stages = 4;
    check_no_plan(&p, "no feasible plan: 4 stages need a block each, the model has 3, 1 missing");
    p.n_blocks = 30;
    p.min_stages = p.max_stages = 5;
    check_no_plan(&p, "no feasible plan: 5 stages need a GPU each, 4 can run the model, 1 missing");
}

static void test_limits_in_numbers(void)
{
    static const zp_batching batching = {1, 1}, large = {64, 1};
    zp_problem p = pipeline_problem(2, 43.1, &batching);
    p.n_classes = 2;
    p.classes[0] = gpu_class("A100-40", 1, 40, 1, 0);
    p.classes[1] = gpu_class("T4", 4, 14, 4, 1);
    check_no_plan(&p, "no feasible plan: a block needs 43.1 GiB (ZeRO-1, micro-batch 1), the "
                      "largest GPU has 40.0 GiB (A100-40), 3.1 GiB missing");
    /* One GPU of 1 GiB and a model of 16. */
    p = pipeline_problem(1, 16, &batching);
    p.n_classes = 1;
    p.classes[0] = gpu_class("X", 1, 1, 1, 0);
    p.max_gpus_per_stage = 0;
    check_no_plan(&p, "no feasible plan: a block needs 16.0 GiB (ZeRO-1, micro-batch 1), the "
                      "largest GPU has 1.0 GiB (X), 15.0 GiB missing");
    /* Blocks fit, the model does not. */
    p = pipeline_problem(10, 5, &batching);
    p.n_classes = 2;
    p.classes[0] = gpu_class("A", 2, 10, 1, 0);
    p.classes[1] = gpu_class("B", 2, 6, 1, 1);
    check_no_plan(&p, "no feasible plan: 10 blocks need at least 50.0 GiB together (micro-batch "
                      "1), all 4 GPUs have 32.0 GiB, 18.0 GiB missing");
    p.classes[0].b_max = 0;
    p.classes[1].b_max = 0;
    check_no_plan(&p, "no feasible plan: none of the 2 GPU types can run the model");
    p.classes[0].b_max = MAX_SAMPLES;
    p.batchings = &large;
    check_no_plan(&p, "no feasible plan: the smallest micro-batch has 64 samples, all 2 GPUs "
                      "together take 32, 32 missing");
}

/* Sizes that are not offered: 3 samples on two GPUs that take 0, 2 or 3 go to one of them. */
static void test_sizes_not_offered(void)
{
    static const zp_batching batching = {3, 1};
    static const double sizes_ms[] = {0, INFINITY, 5, 30};
    zp_problem p = pipeline_problem(1, 1, &batching);
    p.max_gpus_per_stage = 0;
    p.n_classes = 1;
    p.classes[0] = gpu_class("A", 2, 100, 0, 0);
    p.classes[0].b_max = 3;
    p.classes[0].forward_ms = sizes_ms;
    check_step(&p, 30, "1A");
}

/* The class that cannot run is left alone, and a table may fall: 2 samples take less than 1. */
static void test_falling_table(void)
{
    static const zp_batching batching = {2, 4};
    static const double falling_ms[] = {0, 9, 5};
    zp_problem p = pipeline_problem(1, 1, &batching);
    p.max_gpus_per_stage = 0;
    p.n_classes = 2;
    p.classes[0] = gpu_class("none", 2, 100, 0, 0);
    p.classes[0].b_max = 0;
    p.classes[1] = gpu_class("A", 2, 100, 0, 1);
    p.classes[1].b_max = 2;
    p.classes[1].forward_ms = falling_ms;
    check_step(&p, 4 * 5, "1A");
}

/* An assignment by hand: what zp_evaluate accepts, refuses, and says. */
static void test_evaluate(void)
{
    static const zp_batching batching = {2, 3};
    zs_arena *arena;
    zs_error err;
    zp_cost cost;
    zp_problem p = pipeline_problem(4, 4, &batching);
    p.n_classes = 1;
    p.classes[0] = gpu_class("A", 4, 20, 2, 0);
    p.classes[0].intra_gib_per_s = 1;
    p.classes[0].nic_gib_per_s = 0.5;
    p.max_gpus_per_stage = 0;
    p.act_gib = 0.5;
    p.boundary_gib = 0.001;
    p.overlap_send = 0.5;
    p.zero[1].sync_volume_gib[ZP_PART_BLOCK] = 0.1;
    p.zero[1].sync_collectives = 2;
    p.classes[0].intra_latency_ms = 1;
    zp_member pair[] = {{0, 1, 0.5}, {0, 1, 0.5}}, alone[] = {{0, 2, 1}};
    zp_stage stages[] = {
        {.n_blocks = 3, .zero = 1, .intra = true, .n_members = 2, .members = pair},
        {.n_blocks = 1, .zero = 1, .intra = true, .n_members = 1, .members = alone}};
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (CHECK(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), "%s",
              err.message)) {
        /* 3 blocks * 2 ms + one send of 1 MiB-ish: half of 0.001 GiB over 0.5 / 4 GiB/s. */
        CHECK_NEAR(cost.stages[0].micro_batch_ms, 3 * 2 + 0.5 * 0.001 / 0.125 * 1000, 1e-12);
        /* 2 ms a sample and 8 ms not hidden take less than the link itself. */
        CHECK_NEAR(cost.stages[1].micro_batch_ms, 0.002 / 0.125 * 1000, 1e-12);
        /* Half of 3 * 0.1 GiB at 1 GiB/s and two latencies. */
        CHECK_NEAR(cost.stages[0].sync_ms, 150 + 2, 1e-12);
        CHECK_NEAR(cost.stages[1].sync_ms, 0, 1e-12);
        CHECK_NEAR(cost.step_ms, 10 + 16 + 2 * 16 + 152, 1e-12);
        /* 3 * 4 / 4 GiB replicated, half of 3 * 3 GiB, one sample, 3 blocks, 2 in flight. */
        CHECK_NEAR(cost.stages[0].member_memory_gib[0], 3 + 4.5 + 3, 1e-12);
        CHECK_NEAR(cost.stages[0].member_free_gib[1], 20 - 10.5, 1e-12);
        CHECK_NEAR(cost.stages[1].member_memory_gib[0], 4 + 2 * 0.5, 1e-12);
    }
    if (CHECK(zp_evaluate(&cost, arena, &p, &batching, stages, 2, true, 0, &err), "%s",
              err.message)) {
        /* Forward at least 8 and 2; backward 3 and at least 16. All three micro-batches in flight.
         */
        CHECK_NEAR(cost.step_ms, 8 + 2 + 2 * 8 + 3 + 16 + 2 * 16 + 152, 1e-12);
        CHECK_NEAR(cost.stages[1].member_memory_gib[0], 4 + 2 * 3 * 0.5, 1e-12);
    }
    p.classes[0].memory_gib = 10;
    CHECK_FAILS(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), &err,
                ZS_ERR_INFEASIBLE, "stage 0 needs 10.500 GiB on member 0");
    CHECK(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0.6, &err), "%s", err.message);
    p.classes[0].memory_gib = 20;
    pair[1].samples = 2;
    CHECK_FAILS(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), &err,
                ZS_ERR_INPUT, "stage 0: members take 3 samples, expected 2");
    pair[1].samples = 1;
    pair[1].shard_share = 0.6;
    CHECK_FAILS(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), &err,
                ZS_ERR_INPUT, "stage 0: shard shares sum to 1.1");
    pair[1].shard_share = 0.5;
    stages[1].n_blocks = 2;
    CHECK_FAILS(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), &err,
                ZS_ERR_INPUT, "stages have 5 blocks, expected 4");
    stages[1].n_blocks = 1;
    stages[1].zero = 3;
    CHECK_FAILS(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), &err,
                ZS_ERR_INPUT, "stage 1: ZeRO-3 is not allowed");
    stages[1].zero = 1;
    p.classes[0].gpus_per_node = 1;
    p.classes[0].n_nodes = 2;
    CHECK_FAILS(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), &err,
                ZS_ERR_INPUT, "stage 0: is said to be inside one node");
    stages[0].intra = false;
    CHECK_FAILS(zp_evaluate(&cost, arena, &p, &batching, stages, 2, false, 0, &err), &err,
                ZS_ERR_INPUT, "3 GPUs of A are used, there are 2");
    zs_arena_close(&arena);
}

static void test_check(void)
{
    static const zp_batching batching = {1, 1};
    zs_error err;
    const zp_problem good = pipeline_problem(1, 1, &batching);
    zp_problem p = good;
    p.n_classes = 1;
    p.classes[0] = gpu_class("A", 1, 1, 1, 0);
    CHECK(zp_problem_check(&p, &err), "%s", err.message);
    p.overlap_zero = 1.5;
    CHECK_FAILS(zp_problem_check(&p, &err), &err, ZS_ERR_INPUT, "overlap_zero is 1.5");
    p.overlap_zero = 0;
    p.classes[0].memory_gib = NAN;
    CHECK_FAILS(zp_problem_check(&p, &err), &err, ZS_ERR_INPUT, "classes[0]: memory_gib is nan");
    p.classes[0].memory_gib = 1;
    p.zero[1].allowed = false;
    CHECK_FAILS(zp_problem_check(&p, &err), &err, ZS_ERR_INPUT, "zero allows no level");
    p.zero[1].allowed = true;
    p.min_stages = 3;
    p.max_stages = 2;
    CHECK_FAILS(zp_problem_check(&p, &err), &err, ZS_ERR_INPUT, "min_stages is 3");
    CHECK(zp_problem_is_chain_piece(1, 6) && zp_problem_is_chain_piece(2, 6) &&
              zp_problem_is_chain_piece(6, 6) && !zp_problem_is_chain_piece(3, 6) &&
              !zp_problem_is_chain_piece(4, 6) && !zp_problem_is_chain_piece(8, 4) &&
              !zp_problem_is_chain_piece(0, 4),
          "chain pieces");
}

int main(void)
{
    test_check();
    test_evaluate();
    test_mixed_gpus();
    test_blocks_not_divisible();
    test_limits_in_numbers();
    test_sizes_not_offered();
    test_falling_table();
    return check_done();
}
