/* The gate on plan quality fails for each planted fault, and only then. */
#include "planner/bench.h"
#include "planner/place.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static FILE *sink;

static zp_quality cases[] = {
    {.name = "a", .step_ms = 100, .lower_bound_ms = 99.95, .n_solves = 10, .n_nodes = 200},
    {.name = "b", .step_ms = 7.5, .lower_bound_ms = 7.5, .n_solves = 0, .n_nodes = 0},
};
static const zp_qualities golden = {.n = 2, .items = cases};

/* Faults when the first case becomes this. */
static int faults(zp_quality changed)
{
    zp_quality items[] = {changed, cases[1]};
    const zp_qualities now = {.n = 2, .items = items};
    return zp_qualities_check(sink, &golden, &now);
}

static void test_changes(void)
{
    for (int i = 0; i < 20; i++)
        CHECK(faults(cases[0]) == 0, "unchanged");
    zp_quality q = cases[0];
    q.step_ms = 100.09;
    CHECK(faults(q) == 1, "0.09 %% slower, and a gap that grew by as much");
    q.lower_bound_ms = 100.04;
    CHECK(faults(q) == 0, "0.09 %% slower with the same gap");
    q.step_ms = 100.11;
    q.lower_bound_ms = 100.06;
    CHECK(faults(q) == 1, "0.11 %% slower");
    q.step_ms = 103;
    q.lower_bound_ms = 103;
    CHECK(faults(q) == 1, "3 %% slower");
    q = cases[0];
    q.step_ms = 99.96;
    CHECK(faults(q) == 0, "better");
    q.step_ms = q.lower_bound_ms = 3;
    CHECK(faults(q) == 1, "97 %% below, where nothing can be");
    q.step_ms = q.lower_bound_ms = 99.9;
    CHECK(faults(q) == 1, "just below the proven bound");
    q = cases[0];
    q.lower_bound_ms = 99.9;
    CHECK(faults(q) == 1, "twice the gap");
    q.lower_bound_ms = 101;
    CHECK(faults(q) == 1, "bound above the plan");

    q = cases[0];
    q.n_nodes = 220;
    q.n_solves = 11;
    CHECK(faults(q) == 0, "10 %% more effort");
    q.n_nodes = 221;
    CHECK(faults(q) == 1, "more nodes");
    q.n_solves = 12;
    CHECK(faults(q) == 2, "more nodes and programs");
}

static void test_what_is_no_figure(void)
{
    static const double no_figures[] = {NAN, INFINITY, -INFINITY, 0, -100};
    for (int i = 0; i < (int)(sizeof no_figures / sizeof *no_figures); i++) {
        zp_quality q = cases[0];
        q.step_ms = no_figures[i];
        CHECK(faults(q) == 1, "step time %g", no_figures[i]);
        q = cases[0];
        q.lower_bound_ms = no_figures[i];
        CHECK(faults(q) == 1, "bound %g", no_figures[i]);
    }
    zp_quality q = cases[0];
    q.failure = "no feasible plan";
    CHECK(faults(q) == 1, "no plan");
    q = cases[0];
    q.time_limit = true;
    CHECK(faults(q) == 1, "time limit");
}

static void test_missing(void)
{
    const zp_qualities first = {.n = 1, .items = cases}, none = {.n = 0, .items = cases};
    CHECK(zp_qualities_check(sink, &first, &golden) == 1, "an entry was deleted");
    CHECK(zp_qualities_check(sink, &golden, &first) == 1, "a case was not run");
    CHECK(zp_qualities_check(sink, &golden, &none) == 3, "nothing was run");
    CHECK(zp_qualities_check(sink, &none, &none) == 1, "nothing was compared");
}

static void check_file(const char *text, const char *expected)
{
    zs_arena *arena;
    zs_error err;
    zp_qualities list;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    const char *path = check_write_file("golden.json", text, strlen(text));
    CHECK_FAILS(zp_qualities_load(&list, arena, path, &err), &err, ZS_ERR_INPUT, expected);
    zs_arena_close(&arena);
}

#define HEAD "{\"format\": \"zplan-plan-quality\", \"version\": 1, \"gap\": 0, \"left_out\": [], "
#define ENTRY(step)                                                                                \
    "{\"name\": \"a\", \"step_ms\": " step                                                         \
    ", \"lower_bound_ms\": 7, \"n_solves\": 1, \"n_nodes\": 1}"

static void test_files(void)
{
    zs_arena *arena;
    zs_error err;
    zp_qualities list;
    check_file("", "golden.json");
    check_file("{}", "format");
    check_file(HEAD "\"cases\": []}", "$.cases");
    check_file("{\"format\": \"zplan-plan-quality\", \"version\": 1, \"gap\": 0, \"left_out\": []}",
               "cases");
    check_file(HEAD "\"cases\": [" ENTRY("NaN") "]}", "golden.json:1:");
    check_file(HEAD "\"cases\": [" ENTRY("null") "]}", "$.cases[0].step_ms");
    check_file(HEAD "\"cases\": [" ENTRY("0") "]}", "$.cases[0].step_ms");
    check_file(HEAD "\"cases\": [" ENTRY("6") "]}", "above step_ms");
    check_file(HEAD "\"cases\": [" ENTRY("8") ", " ENTRY("8") "]}", "twice");
    check_file(HEAD "\"cases\": [{\"name\": \"a\"}]}", "step_ms");

    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    static const char *left_out[] = {"c"};
    zp_qualities saved = golden;
    saved.gap = 0.001;
    saved.n_left_out = 1;
    saved.left_out = left_out;
    const char *path = check_path("golden.json");
    if (CHECK(zp_qualities_save(&saved, path, &err) && zp_qualities_load(&list, arena, path, &err),
              "%s", err.message)) {
        CHECK(list.gap == 0.001 && zp_qualities_leave_out(&list, "c") &&
                  !zp_qualities_leave_out(&list, "a"),
              "gap and left out");
        CHECK(zp_qualities_check(sink, &list, &golden) == 0, "read back");
    }
    zs_arena_close(&arena);
}

static bool as_json(const zs_json **out, zs_arena *arena, const zs_plan *plan, zs_error *err)
{
    zs_json_writer *w = NULL;
    const char *text;
    size_t size;
    if (!zs_json_writer_open(&w, err))
        return false;
    const bool ok = zs_plan_write(w, plan, err) && zs_json_writer_text(w, &text, &size, err) &&
                    zs_json_parse(out, arena, text, size, "plan", err);
    zs_json_writer_close(&w);
    return ok;
}

/* A plan of the planner, the plan of a baseline in its place, an old plan, an edited one. */
static void test_plans(const char *folder)
{
    zs_arena *arena;
    zs_error err;
    zp_inputs inputs;
    zp_built built;
    zp_comparison c;
    zs_plan plan;
    const zs_json *json;
    double step_ms = 0;
    const zp_search_options options = {0};
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    const char *path = zs_arena_printf(arena, &err, "%s/quickstart/job.json", folder);
    if (!CHECK(path && zp_inputs_load_job(&inputs, arena, path, &err) &&
                   zp_build(&built, arena, &inputs.cluster, &inputs.model, &inputs.job,
                            &inputs.profile, &err) &&
                   zp_compare(&c, arena, &built.problem, &options, &err) &&
                   zp_place(&plan, arena, &inputs, &built, &c.ours, &err) &&
                   as_json(&json, arena, &plan, &err) &&
                   zp_bench_measure(&step_ms, arena, &inputs, json, &err),
               "%s", err.message))
        goto end;
    CHECK_NEAR(step_ms, c.ours.step_ms, 1e-9);
    zp_quality good = {.name = "a", .step_ms = step_ms, .lower_bound_ms = c.ours.lower_bound_ms};
    const zp_qualities known = {.n = 1, .items = &good};

    zp_solution slow = c.ours;
    const zp_baseline *other = zp_baselines_best(c.baselines);
    slow.batching = other->solution.batching;
    slow.n_stages = other->solution.n_stages;
    slow.stages = other->solution.stages;
    zp_quality worse = good;
    const zp_qualities now = {.n = 1, .items = &worse};
    if (CHECK(zp_place(&plan, arena, &inputs, &built, &slow, &err) &&
                  as_json(&json, arena, &plan, &err) &&
                  zp_bench_measure(&worse.step_ms, arena, &inputs, json, &err),
              "%s", err.message))
        CHECK(worse.step_ms > 1.03 * step_ms && zp_qualities_check(sink, &known, &now) > 0,
              "a slower plan: %g ms against %g", worse.step_ms, step_ms);

    plan.step_ms = plan.certificate.objective_ms = step_ms;
    if (CHECK(as_json(&json, arena, &plan, &err), "%s", err.message))
        CHECK(!zp_bench_measure(&step_ms, arena, &inputs, json, &err), "a figure that was edited");

    /* The case has changed, the plan is that of before. */
    if (CHECK(zp_place(&plan, arena, &inputs, &built, &c.ours, &err) &&
                  as_json(&json, arena, &plan, &err),
              "%s", err.message)) {
        inputs.job.global_batch *= 2;
        CHECK_FAILS(zp_bench_measure(&step_ms, arena, &inputs, json, &err), &err, ZS_ERR_RUNTIME,
                    "other inputs");
    }
end:
    zs_arena_close(&arena);
}

int main(int argc, char **argv)
{
    sink = fopen("/dev/null", "w");
    if (!CHECK(sink && argc == 2, "usage: test_quality CASES"))
        return check_done();
    test_changes();
    test_what_is_no_figure();
    test_missing();
    test_files();
    test_plans(argv[1]);
    fclose(sink);
    return check_done();
}
