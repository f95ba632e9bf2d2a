/* The master program believes nothing that it cannot check. A solver that lies in its first
 * settings is found out and asked again; one that always lies is refused. GLPK's own errors come
 * back as errors, and nothing of its text reaches stdout. */
#include "planner/master.h"
#include "tests/support/check.h"
#include "tests/support/random_problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* What the liar does with the answers of its first n_lies settings. */
typedef enum lie { DENY, BEND_DUALS, BEND_VALUES, ADD_ONE, STALL } lie;

static lie liar_lie;
static int liar_n_lies;

static bool lie_linear(zp_answer *answer, const zp_program *program, int setting,
                       const zp_deadline *deadline, zs_error *err)
{
    if (!zp_solver_glpk.solve_linear(answer, program, 0, deadline, err))
        return false;
    if (setting >= liar_n_lies)
        return true;
    if (liar_lie == DENY)
        answer->status = ZP_NO_SOLUTION;
    else if (liar_lie == STALL)
        answer->status = ZP_TROUBLE;
    else if (answer->status == ZP_OPTIMAL)
        for (int i = 0; i < program->n_rows; i++)
            answer->duals[i] = 1.3 * answer->duals[i] + (i % 2 ? 2 : -1);
    return true;
}

static bool lie_integer(zp_answer *answer, const zp_program *program, int setting,
                        int64_t max_nodes, const zp_deadline *deadline, zs_error *err)
{
    if (!zp_solver_glpk.solve_integer(answer, program, setting % 2, max_nodes, deadline, err))
        return false;
    if (setting >= liar_n_lies)
        return true;
    if (liar_lie == DENY || liar_lie == STALL) {
        answer->status = liar_lie == DENY ? ZP_NO_SOLUTION : ZP_TROUBLE;
        answer->has_values = false;
    } else if (answer->has_values) {
        for (int j = 0; j < program->n_columns; j++)
            answer->values[j] += liar_lie == ADD_ONE ? 1 : 0.4;
    }
    return true;
}

static const zp_solver liar = {
    .name = "liar", .n_settings = 4, .solve_linear = lie_linear, .solve_integer = lie_integer};

static int n_solved;

static void check_lies(const zp_master *honest, const int *subset, int n, uint64_t seed)
{
    static const lie lies[] = {DENY, BEND_DUALS, BEND_VALUES, ADD_ONE, STALL};
    zs_arena *arena;
    zs_error err;
    zp_relaxation truth, relaxed;
    zp_selection best, selected;
    zp_master master = *honest;
    const zp_relaxing relaxing = {INFINITY, INFINITY, INFINITY};
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (!CHECK(zp_master_relax(&truth, arena, honest, subset, n, &relaxing, &err), "%s",
               err.message) ||
        !CHECK(zp_master_select(&best, arena, honest, subset, n, INFINITY, 0, &err), "%s",
               err.message))
        goto end;
    master.solver = &liar;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        liar_lie = lies[i];
        liar_n_lies = 1;
        if (CHECK(zp_master_relax(&relaxed, arena, &master, subset, n, &relaxing, &err), "%s",
                  err.message) &&
            CHECK(relaxed.status == truth.status, "seed %" PRIu64 ", lie %d", seed, (int)i) &&
            truth.status == ZP_OPTIMAL)
            CHECK_NEAR(relaxed.bound_ms, truth.bound_ms, 1e-6);
        if (CHECK(zp_master_select(&selected, arena, &master, subset, n, INFINITY, 0, &err), "%s",
                  err.message))
            CHECK(selected.status == best.status, "seed %" PRIu64 ", lie %d", seed, (int)i);
        if (best.status == ZP_OPTIMAL)
            CHECK_NEAR(selected.time_ms, best.time_ms, 1e-6);
        /* Nothing but lies: a bound that is too low is a bound, a plan is not made up. */
        liar_n_lies = liar.n_settings;
        if (CHECK(zp_master_relax(&relaxed, arena, &master, subset, n, &relaxing, &err), "%s",
                  err.message) &&
            truth.status == ZP_OPTIMAL)
            CHECK(relaxed.status == ZP_OPTIMAL &&
                      relaxed.bound_ms <= truth.bound_ms * (1 + 1e-9) + 1e-9,
                  "seed %" PRIu64 ", lie %d: bound %g above %g", seed, (int)i, relaxed.bound_ms,
                  truth.bound_ms);
        if (best.status == ZP_OPTIMAL && (lies[i] == BEND_VALUES || lies[i] == STALL))
            CHECK_FAILS(zp_master_select(&selected, arena, &master, subset, n, INFINITY, 0, &err),
                        &err, ZS_ERR_RUNTIME, "liar gives no answer that holds");
    }
    if (truth.status == ZP_OPTIMAL && best.status == ZP_OPTIMAL) {
        n_solved++;
        CHECK(truth.bound_ms <= best.time_ms * (1 + 1e-9), "seed %" PRIu64, seed);
    }
end:
    zs_arena_close(&arena);
}

static void check_random(uint64_t seed)
{
    zs_arena *arena;
    zs_error err;
    random_problem r;
    zp_groups groups;
    zp_patterns patterns = {0};
    const zp_deadline never = {.end_ms = INFINITY};
    random_problem_fill(&r, seed, RANDOM_SMALL);
    const zp_problem *p = &r.problem;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (zp_pattern_max_stages(p) >= 2 &&
        CHECK(zp_groups_build(&groups, arena, p, ZP_MIX_ALL, &err), "%s", err.message) &&
        CHECK(zp_patterns_find(&patterns, p, &groups, &p->batchings[0], INFINITY, INFINITY, &never,
                               &err),
              "%s", err.message)) {
        int n = 0, *subset = ZS_NEW(arena, int, patterns.n, &err);
        for (int i = 0; subset && i < patterns.n; i++)
            if (patterns.items[i].kind != ZP_SINGLE)
                subset[n++] = i;
        const zp_master master = {p,      &groups, &p->batchings[0], &patterns, &zp_solver_glpk,
                                  &never, NULL};
        if (subset)
            check_lies(&master, subset, n, seed);
        zp_patterns_close(&patterns);
    }
    zs_arena_close(&arena);
}

/* An entry in a row that does not exist makes GLPK give up: an error, not the end of the process,
 * and the next program is solved. */
static void test_glpk_error(void)
{
    const zp_deadline never = {.end_ms = INFINITY};
    double row_min[] = {3}, row_max[] = {INFINITY}, cost[] = {2}, entry_value[] = {1};
    int column_start[] = {0, 1}, entry_row[] = {5};
    double values[1], duals[1];
    zp_program program = {1, 1, row_min, row_max, cost, column_start, entry_row, entry_value};
    zp_answer answer = {.values = values, .duals = duals};
    zs_error err;
    CHECK_FAILS(zp_solver_glpk.solve_linear(&answer, &program, 0, &never, &err), &err,
                ZS_ERR_RUNTIME, "GLPK");
    entry_row[0] = 0;
    for (int setting = 0; setting < zp_solver_glpk.n_settings; setting++) {
        if (CHECK(zp_solver_glpk.solve_linear(&answer, &program, setting, &never, &err), "%s",
                  err.message))
            CHECK(answer.status == ZP_OPTIMAL && values[0] == 3 && duals[0] == 2,
                  "setting %d: x %g, dual %g", setting, values[0], duals[0]);
        row_min[0] = 2.5;
        if (CHECK(zp_solver_glpk.solve_integer(&answer, &program, setting, 0, &never, &err), "%s",
                  err.message))
            CHECK(answer.status == ZP_OPTIMAL && values[0] == 3, "setting %d: x %g", setting,
                  values[0]);
        row_min[0] = 3;
    }
    /* -x >= 3 has no solution. */
    entry_value[0] = -1;
    if (CHECK(zp_solver_glpk.solve_integer(&answer, &program, 0, 0, &never, &err), "%s",
              err.message))
        CHECK(answer.status == ZP_NO_SOLUTION && !answer.has_values, "status %d",
              (int)answer.status);
}

int main(void)
{
    FILE *printed = tmpfile();
    int saved = dup(STDOUT_FILENO);
    if (!printed || saved < 0 || dup2(fileno(printed), STDOUT_FILENO) < 0)
        return CHECK_SKIP;
    test_glpk_error();
    check_seeds(check_random, 1, 60);
    CHECK(n_solved >= 15 || getenv("CHECK_SEED"), "%d problems with a solution", n_solved);
    fflush(stdout);
    CHECK(lseek(STDOUT_FILENO, 0, SEEK_END) == 0, "something was printed to stdout");
    dup2(saved, STDOUT_FILENO);
    return check_done();
}
