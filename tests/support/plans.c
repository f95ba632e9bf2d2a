#include "tests/support/plans.h"

#include <stdlib.h>
#include <string.h>

static void *must(void *pointer)
{
    if (!pointer) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return pointer;
}

static int count(const char *text, char c, size_t length)
{
    int n = 0;
    for (size_t i = 0; i < length; i++)
        n += text[i] == c;
    return n;
}

static const char *read_numbers(int *out, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        char *end = NULL;
        out[i] = (int)strtol(text, &end, 10);
        if (end == text) {
            fprintf(stderr, "check_plan: no number at \"%s\"\n", text);
            exit(1);
        }
        text = *end ? end + 1 : end;
    }
    return text;
}

static void set_shape(zs_plan *plan)
{
    plan->n_blocks = plan->n_stages;
    plan->job.global_batch = 0;
    for (int j = 0; j < plan->n_micro_batches; j++)
        plan->job.global_batch += plan->micro_batches[j];
    for (int s = 0; s < plan->n_stages; s++) {
        plan->stages[s].forward = plan->stages[s].backward = (zs_range){s, s + 1};
        plan->stages[s].zero_stage = 1;
    }
}

zs_plan check_plan(zs_arena *arena, const char *samples, const char *micro_batches,
                   zs_schedule_kind schedule)
{
    zs_error err;
    zs_plan plan = {.schedule = schedule};
    plan.n_micro_batches = 1 + count(micro_batches, '+', strlen(micro_batches));
    plan.micro_batches = must(ZS_NEW(arena, int, plan.n_micro_batches, &err));
    read_numbers(plan.micro_batches, plan.n_micro_batches, micro_batches);
    plan.n_stages = 1 + count(samples, '|', strlen(samples));
    plan.stages = must(ZS_NEW(arena, zs_plan_stage, plan.n_stages, &err));
    for (int s = 0; s < plan.n_stages; s++) {
        zs_plan_stage *stage = &plan.stages[s];
        stage->n_ranks = 1 + count(samples, '+', strcspn(samples, "|"));
        stage->ranks = must(ZS_NEW(arena, zs_plan_rank, stage->n_ranks, &err));
        int *of_ranks = must(ZS_NEW(arena, int, stage->n_ranks, &err));
        samples = read_numbers(of_ranks, stage->n_ranks, samples);
        for (int i = 0; i < stage->n_ranks; i++)
            stage->ranks[i].samples = of_ranks[i];
    }
    set_shape(&plan);
    return plan;
}

zs_plan check_rng_plan(check_rng *rng, zs_arena *arena, int max_stages, int max_ranks,
                       int max_micro_batches)
{
    zs_error err;
    zs_plan plan = {.schedule = (zs_schedule_kind)check_rng_int(rng, 0, ZS_N_SCHEDULES - 1)};
    const int planned = (int)check_rng_int(rng, 1, 6);
    const bool ragged = check_rng_int(rng, 0, 1);
    plan.n_micro_batches = (int)check_rng_int(rng, 1, max_micro_batches);
    plan.micro_batches = must(ZS_NEW(arena, int, plan.n_micro_batches, &err));
    for (int j = 0; j < plan.n_micro_batches; j++)
        plan.micro_batches[j] = j && ragged ? (int)check_rng_int(rng, 1, planned) : planned;
    plan.n_stages = (int)check_rng_int(rng, 1, max_stages);
    plan.stages = must(ZS_NEW(arena, zs_plan_stage, plan.n_stages, &err));
    for (int s = 0; s < plan.n_stages; s++) {
        zs_plan_stage *stage = &plan.stages[s];
        stage->n_ranks = (int)check_rng_int(rng, 1, max_ranks);
        stage->ranks = must(ZS_NEW(arena, zs_plan_rank, stage->n_ranks, &err));
        for (int k = 0; k < planned; k++)
            stage->ranks[check_rng_int(rng, 0, stage->n_ranks - 1)].samples++;
    }
    set_shape(&plan);
    for (int s = 0; s < plan.n_stages; s++)
        plan.stages[s].zero_stage = (int)check_rng_int(rng, 1, 3);
    return plan;
}

const char *check_plan_text(zs_arena *arena, const zs_plan *plan)
{
    zs_error err;
    char *text = must(zs_arena_strdup(arena, "", &err));
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_ranks; i++)
            text = must(zs_arena_printf(arena, &err, "%s%s%d", text,
                                        i   ? "+"
                                        : s ? "|"
                                            : "",
                                        plan->stages[s].ranks[i].samples));
    for (int j = 0; j < plan->n_micro_batches; j++)
        text = must(
            zs_arena_printf(arena, &err, "%s%c%d", text, j ? '+' : ' ', plan->micro_batches[j]));
    text = must(zs_arena_printf(arena, &err, "%s %s ", text,
                                plan->schedule == ZS_SCHEDULE_1F1B ? "1f1b" : "gpipe"));
    for (int s = 0; s < plan->n_stages; s++)
        text = must(
            zs_arena_printf(arena, &err, "%s%s%d", text, s ? "|" : "", plan->stages[s].zero_stage));
    return text;
}
