#include "planner/exhaustive.h"

#include <math.h>
#include <stdlib.h>

/* The same as the search's: rounding of sums must not decide. */
static const double TOLERANCE_GIB = 1e-9;

enum { MAX_CHOICES = 64 };

/* What a stage can cost: choices that no other one beats in both times. */
typedef struct stage_choices {
    bool known;
    int n;
    double time_ms[MAX_CHOICES];
    double sync_ms[MAX_CHOICES];
} stage_choices;

typedef struct gpu {
    int class;
    int node;
} gpu;

typedef struct enumeration {
    const zp_problem *problem;
    const zp_batching *batching;
    int n_gpus;
    gpu gpus[ZP_EXHAUSTIVE_MAX_GPUS];
    int n_stages;
    stage_choices *memo; /* [kind][n_blocks - 1][in_flight - 1][set of GPUs] of one batching */
    int max_in_flight;
    double best_ms;
} enumeration;

static void add_choice(stage_choices *c, double time_ms, double sync_ms)
{
    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (c->time_ms[i] <= time_ms && c->sync_ms[i] <= sync_ms)
            return;
    for (int i = 0; i < c->n; i++) {
        if (time_ms <= c->time_ms[i] && sync_ms <= c->sync_ms[i])
            continue;
        c->time_ms[n] = c->time_ms[i];
        c->sync_ms[n++] = c->sync_ms[i];
    }
    if (n == MAX_CHOICES)
        abort();
    c->time_ms[n] = time_ms;
    c->sync_ms[n] = sync_ms;
    c->n = n + 1;
}

static double member_ms(const zp_problem *p, const zp_class *c, zp_kind kind, int n, bool recompute,
                        int b)
{
    if (b == 0)
        return 0;
    int n_sends = kind == ZP_SINGLE ? 0 : kind == ZP_MIDDLE ? 2 : 1;
    double ms = n * (c->forward_ms[b] * (recompute ? 2 : 1) + c->backward_ms[b]);
    if (kind == ZP_FIRST || kind == ZP_SINGLE)
        ms += c->embed_ms[b];
    if (kind == ZP_LAST || kind == ZP_SINGLE)
        ms += c->head_ms[b];
    double link_ms = n_sends * p->boundary_gib * b * 1000 / (c->nic_gib_per_s / c->gpus_per_node);
    double exposed_ms = (1 - p->overlap_send) * link_ms;
    return (ms + exposed_ms > link_ms ? ms + exposed_ms : link_ms) + n_sends * c->send_latency_ms;
}

/* Least comp over all ways to give the samples left to the members from i on; free_gib and used_gib
 * sum over the members so far what is left for shards. */
static double least_comp(const enumeration *e, const int *members, int n_members, int i, int left,
                         double free_gib, zp_kind kind, int n, bool recompute, double repl_gib,
                         double shard_gib, double act_gib)
{
    if (i == n_members)
        return left == 0 && free_gib >= shard_gib - TOLERANCE_GIB ? 0 : INFINITY;
    const zp_class *c = &e->problem->classes[e->gpus[members[i]].class];
    double best = INFINITY;
    for (int b = 0; b <= left && b <= c->b_max; b++) {
        double own_gib = c->memory_gib - repl_gib - b * act_gib;
        double own_ms = member_ms(e->problem, c, kind, n, recompute, b);
        if (own_gib < -TOLERANCE_GIB || !isfinite(own_ms))
            continue;
        double rest = least_comp(e, members, n_members, i + 1, left - b, free_gib + own_gib, kind,
                                 n, recompute, repl_gib, shard_gib, act_gib);
        best = fmin(best, fmax(own_ms, rest));
    }
    return best;
}

/* Speed and latency of the links of a set of GPUs. */
static void set_link(const enumeration *e, const int *members, int n, double *gib_per_s,
                     double *latency_ms)
{
    bool one_node = true;
    *gib_per_s = INFINITY;
    *latency_ms = 0;
    for (int i = 0; i < n; i++) {
        const zp_class *c = &e->problem->classes[e->gpus[members[i]].class];
        one_node = one_node && e->gpus[members[i]].node == e->gpus[members[0]].node;
        *gib_per_s = fmin(*gib_per_s, fmin(c->intra_gib_per_s, c->nic_gib_per_s));
        *latency_ms = fmax(*latency_ms, fmax(c->intra_latency_ms, c->nic_latency_ms));
    }
    const zp_class *c = &e->problem->classes[e->gpus[members[0]].class];
    int g = c->gpus_per_node;
    if (one_node && (n == 1 || n == g || ((n == 2 || n == 4 || n == 8) && g % n == 0))) {
        *gib_per_s = c->intra_gib_per_s;
        *latency_ms = c->intra_latency_ms;
    }
}

static double traffic_ms(double volume_gib, int collectives, int n, double gib_per_s,
                         double latency_ms)
{
    if (n == 1 || volume_gib <= 0)
        return 0;
    return (n - 1.0) / n * volume_gib / gib_per_s * 1000 + collectives * (n - 1) * latency_ms;
}

static void find_choices(stage_choices *out, const enumeration *e, unsigned set, zp_kind kind,
                         int n, int in_flight)
{
    const zp_problem *p = e->problem;
    int members[ZP_EXHAUSTIVE_MAX_GPUS] = {0}, n_members = 0;
    for (int i = 0; i < e->n_gpus; i++)
        if (set >> i & 1) {
            if (p->classes[e->gpus[i].class].b_max == 0)
                return;
            members[n_members++] = i;
        }
    if (p->max_gpus_per_stage > 0 && n_members > p->max_gpus_per_stage)
        return;
    double gib_per_s, latency_ms;
    set_link(e, members, n_members, &gib_per_s, &latency_ms);
    for (int zero = 1; zero <= 3; zero++)
        for (int recompute = 0; recompute <= 1; recompute++) {
            if (!p->zero[zero].allowed || !(recompute ? p->recompute_full : p->recompute_none))
                continue;
            double act_gib =
                in_flight * (n * (recompute ? p->act_ckpt_gib : p->act_gib) + p->output_gib) +
                (recompute ? p->act_gib : 0) + p->workspace_gib +
                (kind == ZP_LAST || kind == ZP_SINGLE ? p->logits_gib : 0);
            double comp = least_comp(e, members, n_members, 0, e->batching->micro_batch, 0, kind, n,
                                     recompute, zp_problem_repl_gib(p, zero, kind, n),
                                     zp_problem_shard_gib(p, zero, kind, n), act_gib);
            if (!isfinite(comp))
                continue;
            double zero_ms =
                traffic_ms(zp_problem_volume_gib(p, zero, kind, n), p->zero[zero].collectives,
                           n_members, gib_per_s, latency_ms);
            double sync_ms =
                traffic_ms(zp_problem_sync_volume_gib(p, zero, kind, n),
                           p->zero[zero].sync_collectives, n_members, gib_per_s, latency_ms);
            add_choice(out, fmax(comp, (1 - p->overlap_zero) * comp + zero_ms), sync_ms);
        }
}

static const stage_choices *choices_of(enumeration *e, unsigned set, zp_kind kind, int n,
                                       int in_flight)
{
    size_t at = (size_t)kind;
    at = at * (size_t)e->problem->n_blocks + (size_t)(n - 1);
    at = at * (size_t)e->max_in_flight + (size_t)(in_flight - 1);
    stage_choices *c = &e->memo[(at << e->n_gpus) + set];
    if (!c->known)
        find_choices(c, e, set, kind, n, in_flight);
    c->known = true;
    return c;
}

/* Tries every stage s on GPUs of the free set with the blocks left, then the stages behind it. */
static void try_stage(enumeration *e, int s, unsigned free_set, int blocks_left, double sum_ms,
                      double max_ms, double max_sync_ms)
{
    const int m = e->batching->n_micro_batches;
    if (s == e->n_stages) {
        e->best_ms = fmin(e->best_ms, sum_ms + (m - 1) * max_ms + max_sync_ms);
        return;
    }
    int in_flight = m < e->n_stages - s ? m : e->n_stages - s;
    bool last = s == e->n_stages - 1;
    for (unsigned set = free_set; set != 0; set = (set - 1) & free_set)
        for (int n = last ? blocks_left : 1; n <= blocks_left - (e->n_stages - 1 - s); n++) {
            const stage_choices *c =
                choices_of(e, set, zp_problem_kind(s, e->n_stages), n, in_flight);
            for (int i = 0; i < c->n; i++) {
                double sum = sum_ms + c->time_ms[i];
                double max = fmax(max_ms, c->time_ms[i]);
                double sync = fmax(max_sync_ms, c->sync_ms[i]);
                if (sum + (m - 1) * max + sync < e->best_ms)
                    try_stage(e, s + 1, free_set & ~set, blocks_left - n, sum, max, sync);
            }
        }
}

static bool solve_batching(double *best_ms, enumeration *e, zs_error *err)
{
    const zp_problem *p = e->problem;
    e->max_in_flight = e->n_gpus;
    size_t n_memo = ((size_t)ZP_N_KINDS * (size_t)p->n_blocks * (size_t)e->max_in_flight)
                    << e->n_gpus;
    e->memo = calloc(n_memo, sizeof *e->memo);
    if (!e->memo)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory");
    e->best_ms = INFINITY;
    for (int n_stages = p->min_stages;
         n_stages <= p->max_stages && n_stages <= e->n_gpus && n_stages <= p->n_blocks;
         n_stages++) {
        e->n_stages = n_stages;
        try_stage(e, 0, (1U << e->n_gpus) - 1, p->n_blocks, 0, 0, 0);
    }
    free(e->memo);
    *best_ms = e->best_ms;
    return true;
}

bool zp_exhaustive(double *best_ms, const zp_problem *problem, zs_error *err)
{
    enumeration e = {.problem = problem};
    int node = 0;
    for (int k = 0; k < problem->n_classes; k++)
        for (int i = 0; i < problem->classes[k].n_nodes; i++, node++)
            for (int j = 0; j < problem->classes[k].gpus_per_node; j++) {
                if (e.n_gpus == ZP_EXHAUSTIVE_MAX_GPUS)
                    return ZS_FAIL(err, ZS_ERR_INPUT, "more than %d GPUs", ZP_EXHAUSTIVE_MAX_GPUS);
                e.gpus[e.n_gpus++] = (gpu){k, node};
            }
    for (int i = 0; i < problem->n_batchings; i++) {
        e.batching = &problem->batchings[i];
        if (!solve_batching(&best_ms[i], &e, err))
            return false;
    }
    return true;
}
