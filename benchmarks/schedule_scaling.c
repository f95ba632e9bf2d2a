/* How long a schedule takes to build and to check, against ranks and micro-batches. README.md says
 * how each number comes about. */
#include "shared/schedule.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_REPEATS = 5 };

typedef struct size {
    int n_stages, ranks_per_stage, n_micro_batches;
    zs_schedule_kind schedule;
} size;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Ranks of even stages take 2 samples each, those of odd stages 3 and 1 by turns, so that most
 * ranks exchange samples with more than one peer. */
static bool make_plan(zs_plan *out, zs_arena *arena, size shape, zs_error *err)
{
    zs_plan plan = {.schedule = shape.schedule,
                    .n_stages = shape.n_stages,
                    .n_blocks = shape.n_stages,
                    .n_micro_batches = shape.n_micro_batches};
    const int n_ranks = shape.ranks_per_stage;
    plan.stages = ZS_NEW(arena, zs_plan_stage, plan.n_stages, err);
    plan.micro_batches = ZS_NEW(arena, int, plan.n_micro_batches, err);
    if (!plan.stages || !plan.micro_batches)
        return false;
    for (int j = 0; j < plan.n_micro_batches; j++)
        plan.micro_batches[j] = 2 * n_ranks;
    for (int s = 0; s < plan.n_stages; s++) {
        zs_plan_stage *stage = &plan.stages[s];
        stage->n_ranks = n_ranks;
        stage->ranks = ZS_NEW(arena, zs_plan_rank, n_ranks, err);
        if (!stage->ranks)
            return false;
        for (int i = 0; i < n_ranks; i++)
            stage->ranks[i].samples = s % 2 == 0 || (i == n_ranks - 1 && i % 2 == 0) ? 2
                                      : i % 2 == 0                                   ? 3
                                                                                     : 1;
    }
    *out = plan;
    return true;
}

static int64_t n_instructions(const zs_schedule *schedule)
{
    int64_t n = 0;
    for (int rank = 0; rank < schedule->n_ranks; rank++)
        n += schedule->programs[rank].n_instructions;
    return n;
}

/* Prints one row: the best of the repeats. */
static bool measure(size shape, zs_error *err)
{
    double build_ms = 0, check_ms = 0;
    int64_t n = 0;
    for (int k = 0; k < N_REPEATS; k++) {
        zs_arena *arena = NULL;
        zs_plan plan;
        zs_schedule schedule;
        if (!zs_arena_open(&arena, err))
            return false;
        const double start = now_ms();
        bool ok = make_plan(&plan, arena, shape, err) &&
                  zs_schedule_build(&schedule, arena, &plan, true, err);
        const double built = now_ms();
        ok = ok && zs_schedule_check(&schedule, &plan, err);
        const double checked = now_ms();
        n = ok ? n_instructions(&schedule) : 0;
        zs_arena_close(&arena);
        if (!ok)
            return false;
        if (k == 0 || built - start < build_ms)
            build_ms = built - start;
        if (k == 0 || checked - built < check_ms)
            check_ms = checked - built;
    }
    printf("%-5s  %6d  %5d  %6d  %9lld  %9.2f  %9.2f  %10.2f  %10.2f\n",
           zs_schedule_names[shape.schedule], shape.n_stages,
           shape.n_stages * shape.ranks_per_stage, shape.n_micro_batches, (long long)n, build_ms,
           check_ms, (double)n / build_ms / 1e3, (double)n / check_ms / 1e3);
    return true;
}

int main(int argc, char **argv)
{
    static const size sizes[] = {
        {1, 8, 64, ZS_SCHEDULE_1F1B},     {8, 1, 64, ZS_SCHEDULE_1F1B},
        {8, 8, 64, ZS_SCHEDULE_1F1B},     {8, 8, 512, ZS_SCHEDULE_1F1B},
        {8, 8, 512, ZS_SCHEDULE_GPIPE},   {64, 1, 512, ZS_SCHEDULE_1F1B},
        {8, 32, 512, ZS_SCHEDULE_1F1B},   {10, 100, 512, ZS_SCHEDULE_1F1B},
        {2, 500, 512, ZS_SCHEDULE_GPIPE}, {1000, 1, 512, ZS_SCHEDULE_1F1B},
    };
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0; /* the first rows only */
    if (argc > 1 && !quick) {
        fprintf(stderr, "usage: schedule_scaling [--quick]\n");
        return ZS_ERR_INPUT;
    }
    printf(
        "kind   stages  ranks  m-bats  instructs   build_ms   check_ms   build_M/s   check_M/s\n");
    const size_t n_sizes = quick ? 4 : sizeof sizes / sizeof *sizes;
    for (size_t k = 0; k < n_sizes; k++) {
        zs_error err;
        if (!measure(sizes[k], &err)) {
            zs_error_print(stderr, "schedule_scaling", &err);
            return (int)err.code;
        }
        fflush(stdout);
    }
    return 0;
}
