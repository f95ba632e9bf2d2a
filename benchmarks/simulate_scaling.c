/* How long the simulation of a plan takes and how much memory, against ranks and micro-batches.
 * README.md says how each number comes about. */
#include "planner/simulate.h"
#include "tests/support/timed_plans.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N_REPEATS = 3, GPUS_PER_NODE = 8 };

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
 * ranks exchange samples with more than one peer; eight GPUs share a NIC. */
static bool make_plan(zs_plan *out, zm_model *model, zs_arena *arena, size shape, zs_error *err)
{
    static const double forward_ms[] = {1}, backward_ms[] = {2};
    const check_timing timing = {.ranks_per_node = GPUS_PER_NODE,
                                 .intra_bytes_per_s = 1e6,
                                 .nic_bytes_per_s = 4e6,
                                 .intra_latency_ms = 0.001,
                                 .nic_latency_ms = 0.01,
                                 .forward_ms = forward_ms,
                                 .backward_ms = backward_ms,
                                 .per_sample = 1,
                                 .gpu = "V100-32",
                                 .tied = true};
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
        *stage = (zs_plan_stage){
            .forward = {s, s + 1}, .backward = {s, s + 1}, .zero_stage = 1, .n_ranks = n_ranks};
        stage->ranks = ZS_NEW(arena, zs_plan_rank, n_ranks, err);
        if (!stage->ranks)
            return false;
        for (int i = 0; i < n_ranks; i++)
            stage->ranks[i].samples = s % 2 == 0 || (i == n_ranks - 1 && i % 2 == 0) ? 2
                                      : i % 2 == 0                                   ? 3
                                                                                     : 1;
    }
    *model = check_time_plan(&plan, arena, &timing);
    *out = plan;
    return true;
}

/* One row of the table, the best of the repeats. */
static bool measure(size shape, zs_error *err)
{
    double prepare_ms = 0, simulate_ms = 0, step_ms = 0;
    int64_t n = 0;
    for (int k = 0; k < N_REPEATS; k++) {
        zs_arena *arena = NULL;
        zs_plan plan;
        zm_model model;
        zs_schedule schedule;
        zp_simulation simulation;
        if (!zs_arena_open(&arena, err))
            return false;
        bool ok = make_plan(&plan, &model, arena, shape, err);
        const double start = now_ms();
        ok = ok && zs_schedule_build(&schedule, arena, &plan, true, err) &&
             zs_schedule_check(&schedule, &plan, err);
        const double prepared = now_ms();
        ok = ok &&
             zp_simulate_schedule(&simulation, arena, &plan, &model, &schedule, NULL, true, err);
        const double simulated = now_ms();
        n = 0;
        for (int rank = 0; ok && rank < schedule.n_ranks; rank++)
            n += schedule.programs[rank].n_instructions;
        step_ms = ok ? simulation.step_ms : 0;
        zs_arena_close(&arena);
        if (!ok)
            return false;
        if (k == 0 || prepared - start < prepare_ms)
            prepare_ms = prepared - start;
        if (k == 0 || simulated - prepared < simulate_ms)
            simulate_ms = simulated - prepared;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%-5s  %6d  %5d  %6d  %9lld  %10.2f  %11.2f  %7.2f  %8.1f  %9.1f\n",
           zs_schedule_names[shape.schedule], shape.n_stages,
           shape.n_stages * shape.ranks_per_stage, shape.n_micro_batches, (long long)n, prepare_ms,
           simulate_ms, (double)n / simulate_ms / 1e3, (double)usage.ru_maxrss / 1024, step_ms);
    return true;
}

/* In a process of its own, so that the peak of memory is that of this row. */
static bool measure_alone(size shape)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        zs_error err;
        const bool ok = measure(shape, &err);
        if (!ok)
            zs_error_print(stderr, "simulate_scaling", &err);
        fflush(stdout);
        _exit(ok ? 0 : 1);
    }
    int status = 1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
    static const size sizes[] = {
        {1, 8, 64, ZS_SCHEDULE_1F1B},    {8, 1, 64, ZS_SCHEDULE_1F1B},
        {8, 8, 64, ZS_SCHEDULE_1F1B},    {8, 32, 64, ZS_SCHEDULE_1F1B},
        {16, 64, 64, ZS_SCHEDULE_1F1B},  {128, 8, 64, ZS_SCHEDULE_1F1B},
        {4, 256, 64, ZS_SCHEDULE_1F1B},  {16, 64, 64, ZS_SCHEDULE_GPIPE},
        {1024, 1, 64, ZS_SCHEDULE_1F1B}, {16, 64, 256, ZS_SCHEDULE_1F1B},
    };
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0; /* the first rows only */
    if (argc > 1 && !quick) {
        fprintf(stderr, "usage: simulate_scaling [--quick]\n");
        return ZS_ERR_INPUT;
    }
    printf("kind   stages  ranks  m-bats  instructs  prepare_ms  simulate_ms  sim_M/s  peak_MiB  "
           "step_ms\n");
    const size_t n_sizes = quick ? 4 : sizeof sizes / sizeof *sizes;
    for (size_t k = 0; k < n_sizes; k++)
        if (!measure_alone(sizes[k]))
            return ZS_ERR_RUNTIME;
    return 0;
}
