/* The search ends when it is told to: by the time limit or by the flag of a signal handler, with a
 * plan that holds, a valid bound and the status. 16 GPUs of 4 types, 96 blocks, micro-batches of 1
 * to 16: far from proven within these times. */
#include "planner/deadline.h"
#include "planner/evaluate.h"
#include "planner/search.h"
#include "tests/support/check.h"

#include <math.h>
#include <signal.h>
#include <sys/time.h>

enum { MAX_SAMPLES = 16, N_TYPES = 4, N_BATCHINGS = 16 };

static volatile int stop;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

/* GPUs per node, memory and ms per block and sample of the types; a block of 0.4e9 parameters. */
static const struct {
    const char *gpu;
    int n_nodes, gpus_per_node;
    double memory_gib, block_ms, intra_gib_per_s, nic_gib_per_s;
} types[N_TYPES] = {{"A", 1, 4, 76, 11, 200, 12},
                    {"B", 2, 2, 37, 13, 150, 12},
                    {"C", 1, 4, 45, 29, 25, 6},
                    {"D", 4, 1, 60, 37, 12, 3}};

static double tables_ms[N_TYPES][4][MAX_SAMPLES + 1];
static zp_batching batchings[N_BATCHINGS];

static zp_problem make_problem(void)
{
    static const double repl[] = {0, 4, 2, 4}, shard[] = {0, 12, 14, 16};
    static const double volume[] = {0, 0, 2, 6}, sync[] = {0, 4, 2, 0};
    zp_problem p = {.n_blocks = 96,
                    .n_classes = N_TYPES,
                    .act_gib = 0.4,
                    .act_ckpt_gib = 0.02,
                    .logits_gib = 0.4,
                    .boundary_gib = 0.02,
                    .overlap_zero = 0.7,
                    .overlap_send = 0.7,
                    .recompute_none = true,
                    .recompute_full = true,
                    .min_stages = 1,
                    .max_stages = 16,
                    .n_batchings = N_BATCHINGS,
                    .batchings = batchings};
    for (int k = 0; k < N_TYPES; k++) {
        for (int b = 1; b <= MAX_SAMPLES; b++) {
            /* A little noise, so that no two choices are equal. */
            double ms = types[k].block_ms * (b + 0.3 + 0.01 * sin(7 * k + 3 * b));
            tables_ms[k][0][b] = ms / 3;
            tables_ms[k][1][b] = ms * 2 / 3;
            tables_ms[k][2][b] = ms / 10;
            tables_ms[k][3][b] = ms / 2;
        }
        p.classes[k] = (zp_class){.gpu = types[k].gpu,
                                  .n_nodes = types[k].n_nodes,
                                  .gpus_per_node = types[k].gpus_per_node,
                                  .memory_gib = types[k].memory_gib,
                                  .intra_gib_per_s = types[k].intra_gib_per_s,
                                  .nic_gib_per_s = types[k].nic_gib_per_s,
                                  .b_max = MAX_SAMPLES,
                                  .forward_ms = tables_ms[k][0],
                                  .backward_ms = tables_ms[k][1],
                                  .embed_ms = tables_ms[k][2],
                                  .head_ms = tables_ms[k][3]};
    }
    for (int level = 1; level <= 3; level++) {
        zp_zero *z = &p.zero[level];
        const double gib = 0.4 * 1e9 / 1073741824;
        z->allowed = true;
        for (int part = 0; part < ZP_N_PARTS; part++) {
            double share = part == ZP_PART_BLOCK ? 1 : part == ZP_PART_SINGLE ? 0.8 : 0.4;
            z->repl_gib[part] = repl[level] * gib * share;
            z->shard_gib[part] = shard[level] * gib * share;
            z->volume_gib[part] = volume[level] * gib * share;
            z->sync_volume_gib[part] = sync[level] * gib * share;
        }
    }
    for (int i = 0; i < N_BATCHINGS; i++)
        batchings[i] = (zp_batching){i + 1, (512 + i) / (i + 1)};
    return p;
}

static void check_limit(double limit_ms, double alarm_ms)
{
    zs_arena *arena;
    zs_error err;
    zp_solution solution;
    zp_cost cost;
    const zp_problem p = make_problem();
    zp_search_options options = {.time_limit_ms = limit_ms, .stop = &stop};
    double expected_ms = fmin(limit_ms > 0 ? limit_ms : INFINITY, alarm_ms);
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    stop = 0;
    if (isfinite(alarm_ms)) {
        long us = (long)(alarm_ms * 1000);
        struct itimerval timer = {.it_value = {us / 1000000, us % 1000000}};
        signal(SIGALRM, on_alarm);
        CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0, "setitimer");
    }
    double start_ms = zp_deadline_now_ms();
    bool found = zp_search(&solution, arena, &p, &options, &err);
    double took_ms = zp_deadline_now_ms() - start_ms;
    CHECK(took_ms <= expected_ms + 1000, "%g ms, expected %g", took_ms, expected_ms);
    if (CHECK(found, "%s", err.message)) {
        CHECK(solution.time_limit || took_ms < expected_ms, "status after %g ms", took_ms);
        CHECK(solution.lower_bound_ms > 0 && solution.lower_bound_ms <= solution.step_ms,
              "bound %g of %g", solution.lower_bound_ms, solution.step_ms);
        if (CHECK(zp_evaluate(&cost, arena, &p, &solution.batching, solution.stages,
                              solution.n_stages, false, 1e-6, &err),
                  "%s", err.message))
            CHECK_NEAR(cost.step_ms, solution.step_ms, 1e-12);
        fprintf(stderr, "%.0f ms: step %.1f ms, bound %.1f ms%s\n", took_ms, solution.step_ms,
                solution.lower_bound_ms, solution.time_limit ? ", stopped" : "");
    }
    zs_arena_close(&arena);
}

int main(void)
{
    check_limit(1000, INFINITY);
    check_limit(3000, INFINITY);
    check_limit(0, 700);
    return check_done();
}
