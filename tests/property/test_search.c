/* Random small problems. The search finds the optimum that trying every assignment finds, and
 * agrees on what is infeasible; twice the same bits; more memory is never slower; the order of
 * equal classes does not matter; its plan is accepted by zp_evaluate at the time it says. */
#include "planner/evaluate.h"
#include "planner/exhaustive.h"
#include "planner/search.h"
#include "tests/support/check.h"
#include "tests/support/random_problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int n_feasible, n_infeasible, n_whole_nodes;

/* Solutions of the same problem are equal in every number. */
static bool same_solution(const zp_solution *a, const zp_solution *b)
{
    bool same = memcmp(&a->step_ms, &b->step_ms, sizeof a->step_ms) == 0 &&
                memcmp(&a->lower_bound_ms, &b->lower_bound_ms, sizeof a->lower_bound_ms) == 0 &&
                a->n_stages == b->n_stages && a->batching.micro_batch == b->batching.micro_batch &&
                a->n_nodes == b->n_nodes;
    for (int s = 0; same && s < a->n_stages; s++) {
        const zp_stage *x = &a->stages[s], *y = &b->stages[s];
        same = x->n_blocks == y->n_blocks && x->zero == y->zero && x->recompute == y->recompute &&
               x->intra == y->intra && x->n_members == y->n_members;
        for (int i = 0; same && i < x->n_members; i++)
            same =
                x->members[i].class == y->members[i].class &&
                x->members[i].samples == y->members[i].samples &&
                memcmp(&x->members[i].shard_share, &y->members[i].shard_share, sizeof(double)) == 0;
    }
    return same;
}

static double search_ms(zs_arena *arena, const zp_problem *p, uint64_t seed)
{
    zp_search_options options = {0};
    zp_solution solution;
    zs_error err;
    if (zp_search(&solution, arena, p, &options, &err))
        return solution.step_ms;
    CHECK(err.code == ZS_ERR_INFEASIBLE, "seed %" PRIu64 ": %s", seed, err.message);
    return INFINITY;
}

static void check_against_exhaustive(uint64_t seed)
{
    zs_arena *arena;
    zs_error err;
    random_problem r;
    zp_search_options options = {0};
    zp_solution solution, again;
    zp_cost cost;
    double by_batching[RANDOM_MAX_BATCHINGS], expected = INFINITY;
    random_problem_fill(&r, seed, RANDOM_SMALL);
    const zp_problem *p = &r.problem;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (!CHECK(zp_exhaustive(by_batching, p, &err), "seed %" PRIu64 ": %s", seed, err.message))
        goto end;
    for (int i = 0; i < p->n_batchings; i++)
        expected = fmin(expected, by_batching[i]);
    if (!zp_search(&solution, arena, p, &options, &err)) {
        n_infeasible++;
        CHECK(err.code == ZS_ERR_INFEASIBLE && !isfinite(expected),
              "seed %" PRIu64 ": expected %g, got: %s", seed, expected, err.message);
        CHECK(strncmp(err.message, "no feasible plan: ", 18) == 0, "seed %" PRIu64 ": %s", seed,
              err.message);
        goto end;
    }
    n_feasible++;
    CHECK_NEAR(solution.step_ms, expected, 1e-7);
    CHECK(solution.lower_bound_ms <= solution.step_ms &&
              solution.lower_bound_ms >= solution.step_ms * (1 - 1e-6) && !solution.time_limit,
          "seed %" PRIu64 ": bound %.9g of %.9g", seed, solution.lower_bound_ms, solution.step_ms);
    if (CHECK(zp_evaluate(&cost, arena, p, &solution.batching, solution.stages, solution.n_stages,
                          false, 1e-6, &err),
              "seed %" PRIu64 ": %s", seed, err.message))
        CHECK_NEAR(cost.step_ms, solution.step_ms, 1e-12);
    if (CHECK(zp_search(&again, arena, p, &options, &err), "seed %" PRIu64 ": %s", seed,
              err.message))
        CHECK(same_solution(&solution, &again), "seed %" PRIu64, seed);

    /* As on large clusters: fewer groups, and a bound for all of them. */
    options.whole_nodes = true;
    if (!zp_search(&again, arena, p, &options, &err)) {
        CHECK(err.code == ZS_ERR_INFEASIBLE, "seed %" PRIu64 ": %s", seed, err.message);
    } else {
        CHECK(again.lower_bound_ms <= expected * (1 + 1e-9) &&
                  again.lower_bound_ms <= again.groups_bound_ms &&
                  again.step_ms >= expected * (1 - 1e-7),
              "seed %" PRIu64 ": whole nodes, bound %.9g of %.9g, any GPUs %.9g", seed,
              again.lower_bound_ms, again.step_ms, expected);
        CHECK(again.groups_bound_ms >= again.step_ms * (1 - 1e-6) && !again.time_limit,
              "seed %" PRIu64 ": whole nodes, bound %.9g of %.9g", seed, again.groups_bound_ms,
              again.step_ms);
        n_whole_nodes += again.step_ms > expected * (1 + 1e-6);
    }
end:
    zs_arena_close(&arena);
}

static void check_memory_and_order(uint64_t seed)
{
    zs_arena *arena;
    zs_error err;
    random_problem r;
    random_problem_fill(&r, seed, RANDOM_MEDIUM);
    zp_problem changed = r.problem;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    double base_ms = search_ms(arena, &r.problem, seed);
    for (int k = 0; k < changed.n_classes; k++)
        changed.classes[k].memory_gib *= 1 + 0.3 * k;
    double more_ms = search_ms(arena, &changed, seed);
    CHECK(more_ms <= base_ms * (1 + 1e-7) || (isinf(more_ms) && isinf(base_ms)),
          "seed %" PRIu64 ": %.9g ms with more memory, %.9g before", seed, more_ms, base_ms);

    changed = r.problem;
    for (int k = 0; k < changed.n_classes; k++)
        changed.classes[k] = r.problem.classes[changed.n_classes - 1 - k];
    double turned_ms = search_ms(arena, &changed, seed);
    CHECK(fabs(turned_ms - base_ms) <= 1e-7 * base_ms || (isinf(turned_ms) && isinf(base_ms)),
          "seed %" PRIu64 ": %.9g ms with classes in reverse, %.9g before", seed, turned_ms,
          base_ms);
    zs_arena_close(&arena);
}

int main(void)
{
    check_seeds(check_against_exhaustive, 1, 1500);
    if (!getenv("CHECK_SEED"))
        CHECK(n_feasible >= 100 && n_infeasible >= 20, "%d feasible, %d infeasible", n_feasible,
              n_infeasible);
    fprintf(stderr, "%d feasible, %d infeasible; %d slower in whole nodes\n", n_feasible,
            n_infeasible, n_whole_nodes);
    check_seeds(check_memory_and_order, 1001, 60);
    return check_done();
}
