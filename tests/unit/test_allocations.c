/* Each reader and writer, with its k-th allocation failing for every k: it says so and gives back
 * what it took (the address sanitizer watches), and with enough memory it works. The linker sends
 * the allocations of the libraries here (--wrap). */
#include "models/model.h"
#include "planner/simulate.h"
#include "shared/cluster.h"
#include "shared/options.h"
#include "shared/plan.h"
#include "shared/schedule.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <stdlib.h>
#include <string.h>

static int64_t countdown; /* the allocation that brings it to 0 fails */

static bool fails_now(void)
{
    return countdown > 0 && --countdown == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_cJSON_ParseWithLength(const char *text, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_cJSON_ParseWithLength(const char *text, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails_now() ? NULL : __real_realloc(old, size);
}

/* cJSON is a shared library: its allocations count as one. */
void *__wrap_cJSON_ParseWithLength(const char *text, size_t size)
{
    return fails_now() ? NULL : __real_cJSON_ParseWithLength(text, size);
}

static const char *golden, *saved; /* folder that is read, file that is written */

static const char *golden_path(zs_arena *arena, const char *name, zs_error *err)
{
    return zs_arena_printf(arena, err, "%s/%s", golden, name);
}

static bool load_plan(zs_arena *arena, zs_error *err)
{
    zs_plan plan;
    zs_schedule schedule;
    const char *path = golden_path(arena, "two-stages/plan.json", err);
    return path && zs_plan_load(&plan, arena, path, err) && zs_plan_save(&plan, saved, err) &&
           zs_schedule_build(&schedule, arena, &plan, true, err) &&
           zs_schedule_check(&schedule, &plan, err);
}

static bool simulate(zs_arena *arena, zs_error *err)
{
    zs_plan plan;
    zm_model model;
    zp_what_if what_if;
    zp_simulation simulation;
    const char *path = golden_path(arena, "two-stages/plan.json", err);
    if (!path || !zs_plan_load(&plan, arena, path, err) ||
        !zm_model_parse(&model, arena, plan.model, plan.model_name, err) ||
        !zp_what_if_parse(&what_if, arena, &plan.cluster, "nic half, link 30%", err) ||
        !zp_simulate(&simulation, arena, &plan, &model, &what_if, err) ||
        !zp_simulate_fill(&plan, &model, err))
        return false;
    FILE *out = fopen(saved, "w");
    if (!out)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot be opened", saved);
    const bool ok = zs_timeline_print(out, &simulation.timeline, err);
    fclose(out);
    return ok && zs_timeline_save_csv(&simulation.timeline, saved, err) &&
           zs_timeline_save_trace(&simulation.timeline, saved, err);
}

static bool load_model(zs_arena *arena, zs_error *err)
{
    zm_model model;
    zs_json_writer *w = NULL;
    const char *path = golden_path(arena, "models/gpt2.json", err);
    if (!path || !zm_model_load(&model, arena, path, err) || !zs_json_writer_open(&w, err))
        return false;
    zm_model_write(w, NULL, &model);
    const bool ok = zs_json_writer_save(w, saved, err);
    zs_json_writer_close(&w);
    return ok;
}

static bool load_cluster(zs_arena *arena, zs_error *err)
{
    zs_cluster line, file;
    const char *path = golden_path(arena, "two-stages/cluster.json", err);
    return path && zs_cluster_load(&file, arena, path, err) &&
           zs_cluster_load(&line, arena, "512x(8xA100-80G)@25Gb/s", err);
}

static bool parse_options(zs_arena *arena, zs_error *err)
{
    static const zs_option options[] = {
        {"batch", 'b', ZS_OPTION_INT, "N", "8", 1, 64, NULL, "Samples."}};
    static const zs_command command = {"solve", "PLAN", 0, 5000, "", "", options, 1};
    static char word[] = "plan.json";
    char *argv[5000];
    for (int i = 0; i < 5000; i++)
        argv[i] = word;
    zs_options *o = NULL;
    bool help = false;
    return zs_options_parse(&o, &help, arena, &command, 5000, argv, err);
}

static void check_every_failure(const char *what, bool (*run)(zs_arena *arena, zs_error *err))
{
    bool ok = false;
    int64_t k = 1;
    for (; !ok && k < 10000; k++) {
        zs_arena *arena = NULL;
        zs_error err = {0};
        countdown = k;
        ok = zs_arena_open(&arena, &err) && run(arena, &err);
        const bool reached = countdown == 0;
        countdown = 0;
        zs_arena_close(&arena);
        if (!CHECK(ok || (err.code == ZS_ERR_RUNTIME && err.message[0]),
                   "%s: allocation %lld: code %d, \"%s\"", what, (long long)k, (int)err.code,
                   err.message) ||
            !CHECK(ok != reached, "%s: allocation %lld failed unnoticed", what, (long long)k))
            return;
    }
    CHECK(ok && k > 2, "%s: %lld allocations", what, (long long)k);
}

int main(int argc, char **argv)
{
    golden = argc > 1 ? argv[1] : "tests/golden";
    saved = check_path("saved.json");
    check_every_failure("cluster", load_cluster);
    check_every_failure("model", load_model);
    check_every_failure("options", parse_options);
    check_every_failure("plan", load_plan);
    check_every_failure("simulation", simulate);
    return check_done();
}
