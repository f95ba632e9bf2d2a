/* Random problems and clusters: every baseline keeps its own rule, is accepted by zp_evaluate at
 * the time it says, and is never faster than our plan, whether the search is complete or was
 * stopped; where there is no plan at all there is no baseline either. */
#include "planner/build.h"
#include "planner/compare.h"
#include "planner/estimate.h"
#include "planner/evaluate.h"
#include "tests/support/check.h"
#include "tests/support/random_problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int n_feasible[ZP_N_BASELINES], n_infeasible[ZP_N_BASELINES], n_impossible;

static bool is_even(int a, int b)
{
    return a - b <= 1 && b - a <= 1;
}

/* Are blocks, GPUs, samples and shards as equal as the rule says? */
static void check_rule(const zp_baseline *b, zp_baseline_kind kind, uint64_t seed)
{
    const zp_solution *s = &b->solution;
    const zp_stage *first = &s->stages[0];
    const bool equal_stages = kind == ZP_BASELINE_EVEN || kind == ZP_BASELINE_MIXED;
    const bool one_stage = kind == ZP_BASELINE_ZERO3 || kind == ZP_BASELINE_ZERO3_FAIR;
    CHECK(!one_stage || s->n_stages == 1, "seed %" PRIu64 ": %d stages", seed, s->n_stages);
    for (int i = 0; i < s->n_stages; i++) {
        const zp_stage *stage = &s->stages[i];
        const int zero = stage->zero;
        CHECK(!equal_stages || (is_even(stage->n_blocks, first->n_blocks) &&
                                stage->n_members == first->n_members && zero == 1),
              "seed %" PRIu64 ": %s, stage %d", seed, b->name, i);
        CHECK(!one_stage || zero == 3, "seed %" PRIu64 ": %s: ZeRO-%d", seed, b->name, zero);
        CHECK(kind != ZP_BASELINE_PIPELINE || stage->n_members == 1, "seed %" PRIu64, seed);
        CHECK(kind != ZP_BASELINE_GROUPS || zero == 2, "seed %" PRIu64, seed);
        for (int j = 0; j < stage->n_members; j++) {
            const zp_member *member = &stage->members[j];
            if (kind != ZP_BASELINE_ZERO3_FAIR)
                CHECK_NEAR(member->shard_share, 1.0 / stage->n_members, 1e-12);
            if (kind != ZP_BASELINE_ZERO3_FAIR && kind != ZP_BASELINE_GROUPS)
                CHECK(is_even(member->samples, s->batching.micro_batch / stage->n_members),
                      "seed %" PRIu64 ": %s: %d samples of %d", seed, b->name, member->samples,
                      s->batching.micro_batch);
        }
    }
}

static void check_baselines(const zp_comparison *c, zs_arena *arena, const zp_problem *p,
                            uint64_t seed)
{
    zs_error err;
    for (int i = 0; i < ZP_N_BASELINES; i++) {
        const zp_baseline *b = &c->baselines[i];
        zp_cost cost;
        if (!b->feasible) {
            n_infeasible[i]++;
            CHECK(b->why_not && *b->why_not, "seed %" PRIu64 ": %s has no reason", seed, b->name);
            CHECK(zp_compare_speed_up(c, (zp_baseline_kind)i) == 0, "seed %" PRIu64, seed);
            continue;
        }
        n_feasible[i]++;
        check_rule(b, (zp_baseline_kind)i, seed);
        if (!CHECK(zp_evaluate(&cost, arena, p, &b->solution.batching, b->solution.stages,
                               b->solution.n_stages, false, ZP_SEARCH_TOLERANCE_GIB, &err),
                   "seed %" PRIu64 ": %s: %s", seed, b->name, err.message))
            continue;
        CHECK_NEAR(cost.step_ms, b->solution.step_ms, 1e-12);
        CHECK(b->memory_share > 0 && b->memory_share <= 1 + 1e-5 && b->bubble_share >= 0 &&
                  b->bubble_share < 1,
              "seed %" PRIu64 ": %s: memory %g, bubble %g", seed, b->name, b->memory_share,
              b->bubble_share);
        CHECK(c->ours.step_ms <= cost.step_ms * (1 + 1e-12),
              "seed %" PRIu64 ": %s takes %.9g ms, ours %.9g", seed, b->name, cost.step_ms,
              c->ours.step_ms);
        CHECK(c->ours.lower_bound_ms <= cost.step_ms * (1 + 1e-7),
              "seed %" PRIu64 ": %s takes %.9g ms, bound %.9g", seed, b->name, cost.step_ms,
              c->ours.lower_bound_ms);
        CHECK(zp_compare_speed_up(c, (zp_baseline_kind)i) >= 1 - 1e-12, "seed %" PRIu64, seed);
    }
}

static void check_problem(uint64_t seed)
{
    zs_arena *arena;
    zs_error err;
    random_problem r;
    const zp_search_options options = {0};
    zp_comparison c;
    zp_solution alone, seeded;
    random_problem_fill(&r, seed, RANDOM_MEDIUM);
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (zp_compare(&c, arena, &r.problem, &options, &err)) {
        check_baselines(&c, arena, &r.problem, seed);
        /* The search finds it without being told. */
        if (CHECK(zp_search(&alone, arena, &r.problem, &options, &err), "seed %" PRIu64 ": %s",
                  seed, err.message))
            CHECK_NEAR(alone.step_ms, c.ours.step_ms, 1e-6);
        if (CHECK(zp_baselines_search(&seeded, arena, &r.problem, &options, &err),
                  "seed %" PRIu64 ": %s", seed, err.message))
            CHECK(seeded.step_ms == c.ours.step_ms && !seeded.time_limit,
                  "seed %" PRIu64 ": %.9g ms from solve, %.9g from compare", seed, seeded.step_ms,
                  c.ours.step_ms);
    } else {
        zp_baseline baselines[ZP_N_BASELINES];
        n_impossible++;
        CHECK(err.code == ZS_ERR_INFEASIBLE, "seed %" PRIu64 ": %s", seed, err.message);
        if (CHECK(zp_baselines_build(baselines, NULL, arena, &r.problem, NULL, &err),
                  "seed %" PRIu64 ": %s", seed, err.message))
            CHECK(!zp_baselines_best(baselines), "seed %" PRIu64, seed);
    }
    zs_arena_close(&arena);
}

/* Clusters of up to 192 GPUs of up to 4 types; the search has almost no time. */
static void check_cluster(uint64_t seed)
{
    static const char *const types[] = {"A100-80", "A100-40", "A10", "L4", "RTX-3090", "H100"};
    static const char *const models[] = {"gpt2-124m", "gpt2-1558m", "llama-7b", "llama-13b"};
    check_rng rng = check_rng_from(seed);
    char line[256] = "";
    const int n_types = (int)check_rng_int(&rng, 1, 4);
    for (int i = 0; i < n_types; i++) {
        const size_t length = strlen(line);
        snprintf(line + length, sizeof line - length, "%s%dx(%dx%s)", i > 0 ? "+" : "",
                 (int)check_rng_int(&rng, 1, 6), 1 << check_rng_int(&rng, 0, 3),
                 types[check_rng_int(&rng, 0, 5)]);
    }
    zs_arena *arena;
    zs_error err;
    zs_cluster cluster;
    zm_model model;
    zs_profile profile;
    zs_job job;
    zp_built built;
    zp_comparison c;
    const zp_search_options options = {.time_limit_ms = 30};
    zs_job_set_defaults(&job);
    job.global_batch = check_rng_int(&rng, 16, 256);
    job.seq_len = 1024;
    job.precision = ZS_BF16;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (CHECK(zs_cluster_load(&cluster, arena, line, &err) &&
                  zm_model_load(&model, arena, models[check_rng_int(&rng, 0, 3)], &err) &&
                  zp_estimate(&profile, arena, &cluster, &model, job.precision, job.seq_len, 64,
                              &err) &&
                  zp_build(&built, arena, &cluster, &model, &job, &profile, &err),
              "seed %" PRIu64 ": %s", seed, err.message)) {
        if (zp_compare(&c, arena, &built.problem, &options, &err))
            check_baselines(&c, arena, &built.problem, seed);
        else
            CHECK(err.code == ZS_ERR_INFEASIBLE || strstr(err.message, "time limit"),
                  "seed %" PRIu64 ": %s", seed, err.message);
    }
    zs_arena_close(&arena);
}

int main(void)
{
    check_seeds(check_problem, 1, 400);
    check_seeds(check_cluster, 5001, 30);
    if (!getenv("CHECK_SEED")) {
        CHECK(n_impossible >= 10, "%d problems without a plan", n_impossible);
        for (int i = 0; i < ZP_N_BASELINES; i++)
            CHECK(n_feasible[i] >= 30 && n_infeasible[i] >= 10, "baseline %d: %d feasible, %d not",
                  i, n_feasible[i], n_infeasible[i]);
    }
    return check_done();
}
