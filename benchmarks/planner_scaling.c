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

enum { MAX_SAMPLES = 64, N_TYPES = 8, MAX_BATCHINGS = 16 };

/* Memory that is usable, dense half-precision TFLOP/s, links in a node and of it in GB/s: data
 * sheets, rounded; the NICs are those of common machines. */
static const struct {
    const char *gpu;
    int gpus_per_node;
    double memory_gib, tflops, intra_gb_per_s, nic_gb_per_s;
} types[N_TYPES] = {
    {"H100-80G", 8, 75, 989, 350, 100},  {"A100-80G", 8, 76, 312, 200, 50},
    {"A100-40G", 8, 37, 312, 200, 25},   {"V100-32G", 8, 29.5, 125, 100, 12},
    {"V100-16G", 8, 14.5, 125, 100, 12}, {"RTX3090-24G", 4, 22, 71, 12, 6},
    {"T4-16G", 4, 13.8, 65, 8, 3},       {"L40S-48G", 8, 44, 362, 24, 25},
};

/* Transformers with sequences of 2048 tokens, 45 % of the peak, affine in the samples. */
typedef struct random_cluster {
    zp_problem problem;
    zp_batching batchings[MAX_BATCHINGS];
    double tables_ms[N_TYPES][4][MAX_SAMPLES + 1];
} random_cluster;

static void set_parts(double parts_gib[ZP_N_PARTS], double bytes, double block, double ends)
{
    const double gib = bytes * 1e9 / 1073741824;
    parts_gib[ZP_PART_BLOCK] = gib * block;
    parts_gib[ZP_PART_FIRST] = parts_gib[ZP_PART_LAST] = gib * ends;
    parts_gib[ZP_PART_SINGLE] = gib * 2 * ends;
}

static void fill_class(zp_class *c, double tables_ms[4][MAX_SAMPLES + 1], int type, double block,
                       double ends)
{
    const double per_sample_ms = 2 * block * 2048 / (0.45 * types[type].tflops);
    const double head_ms = 6 * ends * 2048 / (0.45 * types[type].tflops);
    for (int b = 1; b <= MAX_SAMPLES; b++) {
        tables_ms[0][b] = 0.3 + per_sample_ms * b;
        tables_ms[1][b] = 0.3 + 2 * per_sample_ms * b;
        tables_ms[2][b] = 0.1 + 0.02 * per_sample_ms * b;
        tables_ms[3][b] = 0.3 + head_ms * b;
    }
    *c = (zp_class){.gpu = types[type].gpu,
                    .gpus_per_node = types[type].gpus_per_node,
                    .memory_gib = types[type].memory_gib,
                    .intra_gib_per_s = types[type].intra_gb_per_s / 1.0737,
                    .nic_gib_per_s = types[type].nic_gb_per_s / 1.0737,
                    .b_max = MAX_SAMPLES,
                    .forward_ms = tables_ms[0],
                    .backward_ms = tables_ms[1],
                    .embed_ms = tables_ms[2],
                    .head_ms = tables_ms[3]};
}

/* About n_gpus GPUs of n_types types; the model grows with the cluster. */
static void fill_cluster(random_cluster *out, int n_gpus, int n_types, uint64_t seed)
{
    static const double bytes[4][4] = {{0, 4, 2, 4}, {0, 12, 14, 16}, {0, 0, 2, 6}, {0, 4, 2, 0}};
    static const double widths[] = {5120, 7168, 8192, 12288, 16384};
    static const int depths[] = {40, 60, 80, 96, 126};
    check_rng rng = check_rng_from(seed);
    memset(out, 0, sizeof *out);
    zp_problem *p = &out->problem;
    int size = n_gpus <= 128 ? 1 : n_gpus <= 512 ? 2 : n_gpus <= 2048 ? 3 : 4;
    size -= (int)check_rng_int(&rng, 0, 1);
    const double width = widths[size], block = 12 * width * width * 1e-9;
    const double ends = 32000 * width * 1e-9;
    p->n_blocks = depths[size];
    for (int level = 1; level <= 3; level++) {
        zp_zero *z = &p->zero[level];
        z->allowed = true;
        set_parts(z->repl_gib, bytes[0][level], block, ends);
        set_parts(z->shard_gib, bytes[1][level], block, ends);
        set_parts(z->volume_gib, bytes[2][level], block, ends);
        set_parts(z->sync_volume_gib, bytes[3][level], block, ends);
        if (level == 3)
            z->repl_gib[ZP_PART_SINGLE] = z->repl_gib[ZP_PART_FIRST];
    }
    const double tokens_gib = 2048 * width * 2 / 1073741824;
    p->act_gib = 17 * tokens_gib;
    p->act_ckpt_gib = p->boundary_gib = tokens_gib;
    p->logits_gib = 2048.0 * 32000 * 6 / 1073741824;
    p->overlap_zero = p->overlap_send = 0.7;
    p->recompute_none = p->recompute_full = true;
    p->min_stages = 1;
    p->max_stages = 32;
    bool used[N_TYPES] = {false};
    double shares[N_TYPES];
    check_rng_weights(&rng, shares, n_types);
    for (int k = 0; k < n_types; k++) {
        int type;
        do
            type = (int)check_rng_int(&rng, 0, N_TYPES - 1);
        while (used[type]);
        used[type] = true;
        fill_class(&p->classes[k], out->tables_ms[k], type, block, ends);
        int n = (int)((0.5 / n_types + 0.5 * shares[k]) * n_gpus / types[type].gpus_per_node);
        p->classes[k].n_nodes = n > 1 ? n : 1;
    }
    p->n_classes = n_types;
    int batch = 256;
    while (batch < 4 * n_gpus && batch < 16384)
        batch *= 2;
    for (int u = 1; u <= batch && p->n_batchings < MAX_BATCHINGS; u *= 2)
        out->batchings[p->n_batchings++] = (zp_batching){u, batch / u};
    p->batchings = out->batchings;
}

static void measure_random(int n_gpus, int n_types, uint64_t seed, double limit_s, double gap)
{
    static random_cluster cluster;
    char name[32];
    snprintf(name, sizeof name, "r%d-%d-%d", n_gpus, n_types, (int)seed);
    fill_cluster(&cluster, n_gpus, n_types, seed);
    measure(name, &cluster.problem, 0, limit_s, gap);
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
        } else if (strcmp(argv[i], "--random") == 0 && i + 3 < argc) {
            measure_random(atoi(argv[i + 1]), atoi(argv[i + 2]), strtoull(argv[i + 3], NULL, 10),
                           limit_s, gap);
            i += 3;
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
