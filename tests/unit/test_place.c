/* Solutions made by hand: which device each group gets, and that all of a plan's numbers agree. */
#include "planner/estimate.h"
#include "planner/place.h"
#include "planner/recheck.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static zs_arena *arena;

static bool make(zp_inputs *out, zp_built *built, const char *line, const char *model,
                 int64_t batch, zs_error *err)
{
    zs_job_set_defaults(&out->job);
    out->job.global_batch = batch;
    out->job.seq_len = 64;
    return zs_cluster_load(&out->cluster, arena, line, err) &&
           zm_model_load(&out->model, arena, model, err) &&
           zp_estimate(&out->profile, arena, &out->cluster, &out->model, ZS_FP32, 64, (int)batch,
                       err) &&
           zp_build(built, arena, &out->cluster, &out->model, &out->job, &out->profile, err);
}

/* A stage of n GPUs of one class that takes u samples: as even as can be, more samples first. */
static zp_stage one_class(int n_blocks, int class, int n, bool intra, int u)
{
    zs_error err;
    zp_member *members = ZS_NEW(arena, zp_member, n, &err);
    for (int i = 0; members && i < n; i++)
        members[i] = (zp_member){class, u / n + (i < u % n), 1.0 / n};
    return (zp_stage){
        .n_blocks = n_blocks, .zero = 1, .intra = intra, .n_members = n, .members = members};
}

static const char *devices_of(const zs_plan *plan, int stage)
{
    static char text[256];
    text[0] = 0;
    for (int i = 0; i < plan->stages[stage].n_ranks; i++) {
        const zs_plan_rank *rank = &plan->stages[stage].ranks[i];
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d.%d", i ? " " : "",
                 rank->node, rank->gpu);
    }
    return text;
}

static void test_groups_onto_nodes(void)
{
    zp_inputs inputs;
    zp_built built;
    zs_plan plan;
    zs_error err;
    if (!CHECK(make(&inputs, &built, "2x(4xA100-80)+1x(8xV100-32)", "gpt2-bytes", 10, &err), "%s",
               err.message))
        return;
    /* the mixed group lists V100s between A100s: ranks keep the members' order */
    zp_member mixed[] = {{0, 2, 0.5}, {1, 1, 0.125}, {0, 0, 0.25}, {1, 0, 0.125}};
    zp_stage stages[] = {
        one_class(1, 0, 2, true, 3),
        {.n_blocks = 2, .zero = 2, .n_members = 4, .members = mixed},
        one_class(1, 0, 4, true, 3),
        one_class(2, 1, 4, true, 3),
    };
    const zp_solution solution = {.batching = {.micro_batch = 3, .n_micro_batches = 4},
                                  .n_stages = 4,
                                  .stages = stages,
                                  .step_ms = 1,
                                  .lower_bound_ms = 0.1,
                                  .groups = "any GPUs",
                                  .groups_bound_ms = 0.1,
                                  .time_limit = true};
    if (!CHECK(zp_place(&plan, arena, &inputs, &built, &solution, &err), "%s", err.message))
        return;
    CHECK_STRING(devices_of(&plan, 2), "0.0 0.1 0.2 0.3");
    CHECK_STRING(devices_of(&plan, 0), "1.0 1.1");
    CHECK_STRING(devices_of(&plan, 1), "1.2 2.4 1.3 2.5");
    CHECK_STRING(devices_of(&plan, 3), "2.0 2.1 2.2 2.3");
    CHECK(plan.stages[1].ranks[0].samples == 2 && plan.stages[1].ranks[1].samples == 1,
          "samples stay with their member");
    const int64_t n_params = plan.stages[1].n_params;
    CHECK(n_params == zm_stage_n_params(&inputs.model, 1, 3), "%" PRId64, n_params);
    CHECK(llabs(plan.stages[1].ranks[1].shard.count - n_params / 8) <= 1, "an eighth");
    CHECK(plan.micro_batches[0] == 3 && plan.micro_batches[1] == 3 && plan.micro_batches[2] == 2 &&
              plan.micro_batches[3] == 2,
          "10 is 3, 3, 2, 2");
    if (CHECK(plan.n_unused == 2, "%d", plan.n_unused)) {
        CHECK(plan.unused[0].node == 2 && plan.unused[0].gpu == 6, "first unused");
        CHECK_STRING(plan.unused[0].reason, "the best plan found uses 6 of 8 V100-32");
    }
    CHECK_STRING(plan.certificate.status, "time_limit");
    CHECK_NEAR(plan.certificate.objective_ms, plan.step_ms, 0);
    CHECK(plan.certificate.gap >= 0 && plan.certificate.gap <= 1, "%g", plan.certificate.gap);
    CHECK(plan.bubble_share > 0 && plan.bubble_share < 1, "%g", plan.bubble_share);

    zp_recheck recheck;
    CHECK(zp_recheck_plan(&recheck, arena, &plan, &err), "%s", err.message);
    const char *what = "";
    CHECK(!zp_recheck_differs(&what, arena, &plan, &recheck), "%s", what);
    /* in flight: min(m, S - s) micro-batches */
    const zp_memory_rule *rule = &built.memory;
    CHECK(recheck.memory[0].activations_bytes ==
              2 * (4 * (rule->act_bytes + rule->boundary_bytes + rule->ids_bytes) +
                   rule->scratch_bytes),
          "stage 0 has 4 in flight: %" PRId64, recheck.memory[0].activations_bytes);
    CHECK(recheck.memory[2].activations_bytes ==
              2 * (3 * (2 * rule->act_bytes + rule->boundary_bytes) + rule->scratch_bytes),
          "stage 1 has 3 in flight: %" PRId64, recheck.memory[2].activations_bytes);

    plan.step_ms *= 1.0001;
    CHECK(zp_recheck_differs(&what, arena, &plan, &recheck), "a changed prediction");
}

static void test_bad_plans(void)
{
    zp_inputs inputs;
    zp_built built;
    zs_plan plan;
    zp_recheck recheck;
    zs_error err;
    if (!CHECK(make(&inputs, &built, "1x(2xT4)", "tiny", 4, &err), "%s", err.message))
        return;
    zp_stage stages[] = {one_class(2, 0, 1, true, 4), one_class(2, 0, 1, true, 4)};
    const zp_solution solution = {.batching = {.micro_batch = 4, .n_micro_batches = 1},
                                  .n_stages = 2,
                                  .stages = stages,
                                  .groups = "any GPUs"};
    if (!CHECK(zp_place(&plan, arena, &inputs, &built, &solution, &err), "%s", err.message))
        return;

    plan.stages[0].n_params++;
    CHECK_FAILS(zp_recheck_plan(&recheck, arena, &plan, &err), &err, ZS_ERR_INPUT, "n_params");
    plan.stages[0].n_params--;

    zs_device *device = &plan.cluster.nodes[0].devices[1];
    const int64_t memory_bytes = device->memory_bytes;
    const int64_t need = zs_memory_total(&plan.stages[1].ranks[0].memory);
    device->memory_bytes = need - 1;
    CHECK_FAILS(zp_recheck_plan(&recheck, arena, &plan, &err), &err, ZS_ERR_INFEASIBLE,
                "missing 1 B");
    CHECK(strstr(err.message, "rank 1 of stage 1") != NULL, "%s", err.message);
    device->memory_bytes = need;
    CHECK(zp_recheck_plan(&recheck, arena, &plan, &err), "exactly enough: %s", err.message);
    device->memory_bytes = memory_bytes;

    plan.job.seq_len = 129;
    CHECK_FAILS(zp_recheck_plan(&recheck, arena, &plan, &err), &err, ZS_ERR_INPUT, "");
    plan.job.seq_len = 64;
    plan.job.zero_stages[1] = false;
    CHECK_FAILS(zp_recheck_plan(&recheck, arena, &plan, &err), &err, ZS_ERR_INPUT, "ZeRO-1");
}

/* Groups that fit by count fit into nodes when their sizes are chain pieces; the time that the
 * placed plan gets is that of the groups as they were priced. */
static void check_packing(uint64_t seed)
{
    static const int nodes_of[] = {1, 2, 4, 6, 8, 12};
    check_rng rng = check_rng_from(seed);
    const int g = nodes_of[check_rng_int(&rng, 0, 5)];
    const int n_nodes = (int)check_rng_int(&rng, 1, 4);
    zp_inputs inputs;
    zp_built built;
    zs_plan plan;
    zs_error err;
    const char *line = zs_arena_printf(arena, &err, "%dx(%dxT4)", n_nodes, g);
    if (!CHECK(make(&inputs, &built, line, "gpt2-124m", 2, &err), "%s", err.message))
        return;
    zp_stage stages[12];
    int n_stages = 0, left = n_nodes * g;
    while (n_stages < 12 && left > 0) {
        const int n = (int)check_rng_int(&rng, 1, left < g ? left : g);
        stages[n_stages] = one_class(1, 0, n, true, 2);
        stages[n_stages].intra = zp_problem_is_chain_piece(n, g);
        n_stages++;
        left -= n;
    }
    stages[n_stages - 1].n_blocks = inputs.model.n_blocks - (n_stages - 1);
    const zp_solution solution = {.batching = {.micro_batch = 2, .n_micro_batches = 1},
                                  .n_stages = n_stages,
                                  .stages = stages,
                                  .groups = "any GPUs"};
    if (!CHECK(zp_place(&plan, arena, &inputs, &built, &solution, &err), "seed %" PRIu64 ": %s",
               seed, err.message))
        return;
    for (int s = 0; s < n_stages; s++) {
        for (int i = 1; stages[s].intra && i < stages[s].n_members; i++)
            CHECK(plan.stages[s].ranks[i].node == plan.stages[s].ranks[0].node,
                  "seed %" PRIu64 ": stage %d is spread", seed, s);
    }
    zp_cost cost;
    if (CHECK(zp_evaluate(&cost, arena, &built.problem, &solution.batching, stages, n_stages, false,
                          0, &err),
              "seed %" PRIu64 ": %s", seed, err.message))
        CHECK(plan.step_ms <= cost.step_ms * (1 + 1e-12), "seed %" PRIu64 ": %g, priced %g", seed,
              plan.step_ms, cost.step_ms);
}

int main(void)
{
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_groups_onto_nodes();
    test_bad_plans();
    check_seeds(check_packing, 1, 100);
    zs_arena_close(&arena);
    return check_done();
}
