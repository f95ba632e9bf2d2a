/* The search finds the proven optimum of each instance in tests/golden/ilp: for every micro-batch
 * size and overall; and comes near the best known plan of those in large/. */
#include "planner/evaluate.h"
#include "planner/search.h"
#include "tests/support/check.h"
#include "tests/support/instance.h"

#include <math.h>
#include <string.h>

static const char *folder;

static void check_instance(const char *name)
{
    zs_arena *arena;
    zs_error err;
    instance in;
    zp_cost cost;
    zp_solution solution;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    const char *path = zs_arena_printf(arena, &err, "%s/ilp/%s.json", folder, name);
    if (!CHECK(path && instance_load(&in, arena, path, &err), "%s", err.message))
        goto end;
    if (CHECK(zp_evaluate(&cost, arena, &in.problem, &in.plan_batching, in.plan_stages,
                          in.n_plan_stages, false, 0.01, &err),
              "%s: %s", name, err.message))
        CHECK_NEAR(cost.step_ms, in.best_ms, 1e-6);

    zp_search_options options = {0};
    zp_problem one = in.problem;
    one.n_batchings = 1;
    for (int i = 0; i < in.problem.n_batchings; i++) {
        one.batchings = &in.problem.batchings[i];
        bool found = zp_search(&solution, arena, &one, &options, &err);
        if (!isfinite(in.batching_ms[i])) {
            CHECK(!found && err.code == ZS_ERR_INFEASIBLE, "%s: %s", name, err.message);
            continue;
        }
        if (!CHECK(found, "%s, u %d: %s", name, one.batchings->micro_batch, err.message))
            continue;
        CHECK_NEAR(solution.step_ms, in.batching_ms[i], 1e-6);
        CHECK(!solution.time_limit && solution.lower_bound_ms <= solution.step_ms &&
                  solution.lower_bound_ms >= solution.step_ms * (1 - 1e-6),
              "%s, u %d: bound %.9g of %.9g", name, one.batchings->micro_batch,
              solution.lower_bound_ms, solution.step_ms);
    }
    if (CHECK(zp_search(&solution, arena, &in.problem, &options, &err), "%s: %s", name,
              err.message)) {
        CHECK_NEAR(solution.step_ms, in.best_ms, 1e-6);
        CHECK(solution.batching.micro_batch == in.plan_batching.micro_batch, "%s: u %d", name,
              solution.batching.micro_batch);
    }
end:
    zs_arena_close(&arena);
}

/* Large instances, to 1 %: not slower than the best known plan by more, and no bound above it. */
static void check_large(const char *name)
{
    zs_arena *arena;
    zs_error err;
    instance in;
    zp_cost cost;
    zp_solution solution;
    const zp_search_options options = {.gap = 0.01};
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    const char *path = zs_arena_printf(arena, &err, "%s/ilp/large/%s.json", folder, name);
    if (CHECK(path && instance_load(&in, arena, path, &err), "%s", err.message) &&
        CHECK(zp_search(&solution, arena, &in.problem, &options, &err), "%s: %s", name,
              err.message)) {
        CHECK(solution.step_ms <= 1.0102 * in.best_ms && !solution.time_limit,
              "%s: %.9g, best known %.9g", name, solution.step_ms, in.best_ms);
        CHECK(solution.groups_bound_ms >= 0.9899 * solution.step_ms &&
                  solution.groups_bound_ms <= in.best_ms * (1 + 1e-6) &&
                  solution.lower_bound_ms <= solution.groups_bound_ms &&
                  solution.lower_bound_ms >= 0.9 * solution.step_ms,
              "%s: bounds %.9g and %.9g of %.9g", name, solution.groups_bound_ms,
              solution.lower_bound_ms, solution.step_ms);
        if (CHECK(zp_evaluate(&cost, arena, &in.problem, &solution.batching, solution.stages,
                              solution.n_stages, false, 1e-6, &err),
                  "%s: %s", name, err.message))
            CHECK_NEAR(cost.step_ms, solution.step_ms, 1e-12);
    }
    zs_arena_close(&arena);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 1;
    folder = argv[1];
    for (int i = 2; i < argc; i++)
        check_instance(argv[i]);
    static const char *const large[] = {"m16a", "m32a", "m32b",  "m64a", "m64b",
                                        "l128", "l256", "l256b", "x1024"};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        check_large(large[i]);
    return check_done();
}
