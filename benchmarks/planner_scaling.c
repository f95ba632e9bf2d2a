/* How good the planner is after how long: instances of 16 to 10240 GPUs with the best known step
 * times, and random clusters. For moments in CPU seconds of this process: the gap between the plan
 * and the bound found by then, and how far the plan is from the best known one. */
#include "planner/deadline.h"
#include "planner/search.h"
#include "tests/support/check.h"
#include "tests/support/instance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const double moments_s[] = {0.3, 1, 3, 10, 30};

enum { N_MOMENTS = sizeof moments_s / sizeof moments_s[0] };

typedef struct recorder {
    double start_s;
    double step_ms[N_MOMENTS], bound_ms[N_MOMENTS]; /* at each moment */
    double limit_s;
    volatile int stop;
} recorder;

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void record(void *context, double step_ms, double bound_ms)
{
    recorder *r = context;
    double now_s = cpu_s() - r->start_s;
    for (int i = 0; i < N_MOMENTS; i++)
        if (now_s <= moments_s[i]) {
            r->step_ms[i] = step_ms;
            r->bound_ms[i] = bound_ms;
        }
    if (now_s > r->limit_s)
        r->stop = 1;
}

static void print_gap(double step_ms, double bound_ms)
{
    if (isfinite(step_ms) && bound_ms > 0)
        printf(" %7.3f%%", 100 * (1 - bound_ms / step_ms));
    else
        printf(" %8s", "-");
}

static void measure(const char *name, const zp_problem *p, double best_ms, double limit_s,
                    double gap)
{
    zs_arena *arena;
    zs_error err;
    zp_solution solution;
    recorder r = {.limit_s = limit_s};
    int n_gpus = 0;
    for (int k = 0; k < p->n_classes; k++)
        n_gpus += p->classes[k].n_nodes * p->classes[k].gpus_per_node;
    for (int i = 0; i < N_MOMENTS; i++)
        r.step_ms[i] = INFINITY;
    if (!zs_arena_open(&arena, &err))
        exit(1);
    const zp_search_options options = {
        .gap = gap, .stop = &r.stop, .progress = record, .context = &r};
    double start_ms = zp_deadline_now_ms();
    r.start_s = cpu_s();
    bool found = zp_search(&solution, arena, p, &options, &err);
    double took_s = cpu_s() - r.start_s, wall_s = (zp_deadline_now_ms() - start_ms) * 1e-3;
    printf("%-12s %5d %2d %3d", name, n_gpus, p->n_classes, p->n_blocks);
    if (!found) {
        printf(" %s\n", err.message);
    } else {
        record(&r, solution.step_ms, solution.groups_bound_ms);
        for (int i = 0; i < N_MOMENTS; i++)
            print_gap(r.step_ms[i], r.bound_ms[i]);
        print_gap(solution.step_ms, solution.lower_bound_ms);
        printf(" %10.1f", solution.step_ms);
        if (best_ms > 0)
            printf(" %+7.3f%%", 100 * (solution.step_ms / best_ms - 1));
        else
            printf(" %8s", "");
        printf(" %6.2f %6.2f %5d\n", took_s, wall_s, (int)solution.n_solves);
    }
    fflush(stdout);
    zs_arena_close(&arena);
}

static void print_header(void)
{
    printf("%-12s %5s %2s %3s", "instance", "GPUs", "K", "L");
    for (int i = 0; i < N_MOMENTS; i++)
        printf("   %4gs  ", moments_s[i]);
    printf(" %8s %10s %8s %6s %6s %5s\n", "any", "step ms", "to best", "CPU s", "wall s", "ILPs");
}

int main(int argc, char **argv)
{
    double limit_s = 30, gap = 5e-4;
    zs_arena *arena;
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    print_header();
    for (int i = 1; i < argc; i++) {
        instance in;
        if (strcmp(argv[i], "--limit") == 0 && i + 1 < argc) {
            limit_s = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--gap") == 0 && i + 1 < argc) {
            gap = strtod(argv[++i], NULL);
        } else if (!instance_load(&in, arena, argv[i], &err)) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        } else {
            measure(in.name, &in.problem, in.best_ms, limit_s, gap);
        }
    }
    zs_arena_close(&arena);
    return 0;
}
