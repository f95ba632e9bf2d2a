/* A plan is refused with a message, or it can be written and read again, and its schedule passes
 * the checks of schedules. */
#include "shared/plan.h"
#include "shared/schedule.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

enum { MAX_RANKS = 64, MAX_MICRO_BATCHES = 64 }; /* of a schedule that is built here */

static const char *print(zs_arena *arena, const zs_plan *plan)
{
    zs_json_writer *w = NULL;
    const char *text = NULL;
    size_t size = 0;
    zs_error err = {0};
    FUZZ_CHECK(zs_json_writer_open(&w, &err), "%s", err.message);
    FUZZ_CHECK(zs_plan_write(w, plan, &err), "%s", err.message);
    FUZZ_CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message);
    const char *copy = zs_arena_strndup(arena, text, size, &err);
    FUZZ_CHECK(copy != NULL, "%s", err.message);
    zs_json_writer_close(&w);
    return copy;
}

static void check_plan(zs_arena *arena, const zs_plan *plan)
{
    zs_plan again = {0};
    zs_schedule schedule = {0};
    zs_error err = {0};
    FUZZ_CHECK(zs_plan_check(plan, &err), "%s", err.message);
    const char *text = print(arena, plan);
    FUZZ_CHECK(zs_plan_parse(&again, arena, fuzz_parse(arena, text), &err), "%s\n%s", err.message,
               text);
    const char *second = print(arena, &again);
    FUZZ_CHECK(strcmp(text, second) == 0, "%s\nbecame\n%s", text, second);
    if (zs_plan_n_ranks(plan) > MAX_RANKS || plan->n_micro_batches > MAX_MICRO_BATCHES)
        return;
    FUZZ_CHECK(zs_schedule_build(&schedule, arena, plan, true, &err), "%s\n%s", err.message, text);
    FUZZ_CHECK(zs_schedule_check(&schedule, plan, &err), "%s\n%s", err.message, text);
    FUZZ_CHECK(zs_schedule_build_eval(&schedule, arena, plan, 1, &err), "%s\n%s", err.message,
               text);
    FUZZ_CHECK(zs_schedule_check(&schedule, plan, &err), "%s\n%s", err.message, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const zs_json *root = NULL;
    zs_plan plan = {0};
    zs_error err = {0};
    zs_arena *arena = fuzz_open(&root, data, size);
    if (root && !zs_plan_parse(&plan, arena, root, &err))
        fuzz_check_error(&err);
    else if (root)
        check_plan(arena, &plan);
    zs_arena_close(&arena);
    return 0;
}
