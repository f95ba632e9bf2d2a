#include "planner/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MS_PER_S = 1000 };

/* Sums of memory that are equal in exact arithmetic must not differ by rounding. */
static const double TOLERANCE_GIB = 1e-9;

static double tau_ms(const zp_problem *p, const zp_class *c, zp_kind kind, int n, bool recompute,
                     int b)
{
    static const int n_sends[ZP_N_KINDS] = {[ZP_FIRST] = 1, [ZP_MIDDLE] = 2, [ZP_LAST] = 1};
    if (b > c->b_max || !isfinite(c->forward_ms[b]))
        return INFINITY;
    double ms = n * (c->forward_ms[b] * (recompute ? 2 : 1) + c->backward_ms[b]);
    if (kind == ZP_FIRST || kind == ZP_SINGLE)
        ms += c->embed_ms[b];
    if (kind == ZP_LAST || kind == ZP_SINGLE)
        ms += c->head_ms[b];
    double link_ms =
        n_sends[kind] * p->boundary_gib * b * MS_PER_S / (c->nic_gib_per_s / c->gpus_per_node);
    return fmax(ms + (1 - p->overlap_send) * link_ms, link_ms) + n_sends[kind] * c->send_latency_ms;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Fills the two tables of one class: the prefix of sizes within the limit grows with the limit. */
static void fill_ranks(zp_shape *s, int k)
{
    const double *tau = &s->tau_ms[k * (s->b_most + 1)];
    int *most = &s->most[k * s->n_ranks], *unbroken = &s->unbroken[k * s->n_ranks];
    int prefix = 0;
    for (int rank = 0; rank < s->n_ranks; rank++) {
        while (prefix < s->b_most && tau[prefix + 1] <= s->limit_ms[rank])
            prefix++;
        unbroken[rank] = prefix;
        most[rank] = 0;
    }
    /* most[rank] is a running maximum over the ranks at which each size comes in. */
    for (int b = 1; b <= s->b_most; b++) {
        int rank = zp_shape_rank(s, tau[b]);
        if (rank >= 0 && tau[b] <= s->limit_ms[s->n_ranks - 1])
            most[rank] = b;
    }
    for (int rank = 1; rank < s->n_ranks; rank++)
        if (most[rank] < most[rank - 1])
            most[rank] = most[rank - 1];
}

bool zp_shape_build(zp_shape **out, zs_arena *arena, const zp_problem *p, zp_kind kind,
                    int n_blocks, bool recompute, int micro_batch, double max_limit_ms,
                    zs_error *err)
{
    zp_shape *s = ZS_NEW(arena, zp_shape, 1, err);
    if (!s)
        return false;
    s->n_classes = p->n_classes;
    s->micro_batch = micro_batch;
    for (int k = 0; k < p->n_classes; k++)
        if (p->classes[k].b_max > s->b_most)
            s->b_most = p->classes[k].b_max;
    if (s->b_most > micro_batch)
        s->b_most = micro_batch;
    const int stride = s->b_most + 1;
    s->tau_ms = ZS_NEW(arena, double, p->n_classes *stride, err);
    s->limit_ms = ZS_NEW(arena, double, p->n_classes *stride, err);
    if (!s->tau_ms || !s->limit_ms)
        return false;
    int n = 0;
    for (int k = 0; k < p->n_classes; k++)
        for (int b = 1; b <= s->b_most; b++) {
            double tau = tau_ms(p, &p->classes[k], kind, n_blocks, recompute, b);
            s->tau_ms[k * stride + b] = tau;
            if (tau <= max_limit_ms && isfinite(tau))
                s->limit_ms[n++] = tau;
        }
    qsort(s->limit_ms, (size_t)n, sizeof *s->limit_ms, compare_doubles);
    for (int i = 0; i < n; i++)
        if (s->n_ranks == 0 || s->limit_ms[i] > s->limit_ms[s->n_ranks - 1])
            s->limit_ms[s->n_ranks++] = s->limit_ms[i];
    s->most = ZS_NEW(arena, int, p->n_classes * s->n_ranks, err);
    s->unbroken = ZS_NEW(arena, int, p->n_classes * s->n_ranks, err);
    if (!s->most || !s->unbroken)
        return false;
    for (int k = 0; k < p->n_classes; k++)
        fill_ranks(s, k);
    *out = s;
    return true;
}

void zp_room_set(zp_room *out, const zp_problem *p, int zero, zp_kind kind, int n_blocks,
                 bool recompute, int micro_batch, int in_flight)
{
    double repl_gib = zp_problem_repl_gib(p, zero, kind, n_blocks);
    out->shard_gib = zp_problem_shard_gib(p, zero, kind, n_blocks);
    out->act_gib =
        in_flight * (n_blocks * (recompute ? p->act_ckpt_gib : p->act_gib) + p->output_gib) +
        (recompute ? p->act_gib : 0) + (kind == ZP_LAST || kind == ZP_SINGLE ? p->logits_gib : 0) +
        p->workspace_gib;
    out->needed_gib = out->shard_gib + micro_batch * out->act_gib;
    for (int k = 0; k < p->n_classes; k++) {
        out->room_gib[k] = p->classes[k].memory_gib - repl_gib;
        out->most[k] = -1;
        if (p->classes[k].b_max == 0 || out->room_gib[k] < -TOLERANCE_GIB)
            continue;
        double n = (out->room_gib[k] + TOLERANCE_GIB) / out->act_gib;
        out->most[k] = n < micro_batch ? (int)n : micro_batch;
    }
}

/* Samples that one GPU of class k may take: 0, or b with tau within the limit and room for it. */
static bool may_take(const zp_shape *s, const zp_room *room, int k, int rank, int b)
{
    return b == 0 ||
           (b <= room->most[k] && s->tau_ms[k * (s->b_most + 1) + b] <= s->limit_ms[rank]);
}

/* reach[i][x]: the GPUs before GPU i (in the order of classes) can take x samples together. */
static void fill_reach(bool *reach, const zp_shape *s, const zp_room *room, const zp_group *group,
                       int rank)
{
    int stride = s->micro_batch + 1, i = 0;
    memset(reach, 0, (size_t)(group->n_gpus + 1) * (size_t)stride);
    reach[0] = true;
    for (int k = 0; k < s->n_classes; k++)
        for (int j = 0; j < group->counts[k]; j++, i++)
            for (int b = 0; b <= s->b_most; b++) {
                if (!may_take(s, room, k, rank, b))
                    continue;
                for (int x = 0; x + b <= s->micro_batch; x++)
                    if (reach[i * stride + x])
                        reach[(i + 1) * stride + x + b] = true;
            }
}

static bool reaches(const zp_shape *s, const zp_room *room, const zp_group *group, int rank)
{
    size_t stride = (size_t)s->micro_batch + 1, n = ((size_t)group->n_gpus + 1) * stride;
    bool *reach = malloc(n);
    if (!reach)
        return false;
    fill_reach(reach, s, room, group, rank);
    bool reached = reach[n - 1];
    free(reach);
    return reached;
}

bool zp_shape_fits(const zp_shape *s, const zp_room *room, const zp_group *group, int rank)
{
    double room_gib = 0;
    int64_t most = 0, unbroken = 0;
    for (int k = 0; k < s->n_classes; k++) {
        int count = group->counts[k];
        if (count == 0)
            continue;
        int fit = room->most[k];
        if (fit < 0)
            return false;
        int by_time = s->most[k * s->n_ranks + rank];
        int unbroken_by_time = s->unbroken[k * s->n_ranks + rank];
        room_gib += count * room->room_gib[k];
        most += (int64_t)count * (by_time < fit ? by_time : fit);
        unbroken += (int64_t)count * (unbroken_by_time < fit ? unbroken_by_time : fit);
    }
    if (most < s->micro_batch || room_gib < room->needed_gib - TOLERANCE_GIB)
        return false;
    /* Without gaps every sum up to the largest is reached. */
    return unbroken >= s->micro_batch || reaches(s, room, group, rank);
}

int zp_shape_least_rank(const zp_shape *s, const zp_room *room, const zp_group *group, int rank)
{
    int low = 0, high = rank;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (zp_shape_fits(s, room, group, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

int zp_shape_rank(const zp_shape *s, double limit_ms)
{
    int low = -1, high = s->n_ranks - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (s->limit_ms[middle] <= limit_ms)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static double link_ms(const zp_group *group, double volume_gib, int collectives)
{
    int g = group->n_gpus;
    if (g == 1 || volume_gib <= 0)
        return 0;
    return volume_gib * (g - 1) / g / group->gib_per_s * MS_PER_S +
           collectives * (g - 1) * group->latency_ms;
}

double zp_shape_traffic_ms(const zp_problem *p, int zero, zp_kind kind, int n_blocks,
                           const zp_group *group)
{
    return link_ms(group, zp_problem_volume_gib(p, zero, kind, n_blocks),
                   p->zero[zero].collectives);
}

double zp_shape_sync_ms(const zp_problem *p, int zero, zp_kind kind, int n_blocks,
                        const zp_group *group)
{
    return link_ms(group, zp_problem_sync_volume_gib(p, zero, kind, n_blocks),
                   p->zero[zero].sync_collectives);
}

double zp_shape_time_ms(const zp_problem *p, const zp_shape *s, int rank, double traffic_ms)
{
    double comp_ms = s->limit_ms[rank];
    return fmax(comp_ms, (1 - p->overlap_zero) * comp_ms + traffic_ms);
}

double zp_shape_comp_limit(const zp_problem *p, double max_time_ms, double traffic_ms)
{
    double rest_ms = max_time_ms - traffic_ms;
    if (rest_ms < 0)
        return -1;
    if (p->overlap_zero >= 1)
        return max_time_ms;
    return fmin(max_time_ms, rest_ms / (1 - p->overlap_zero));
}

bool zp_shape_samples(int *samples, const zp_shape *s, const zp_room *room, const zp_group *group,
                      int rank)
{
    int stride = s->micro_batch + 1, i = group->n_gpus, left = s->micro_batch;
    bool *reach = calloc((size_t)(i + 1) * (size_t)stride, sizeof *reach);
    if (!reach)
        return false;
    fill_reach(reach, s, room, group, rank);
    bool ok = reach[i * stride + left];
    int64_t capacity = 0;
    for (int k = 0; k < s->n_classes; k++) {
        int most = s->most[k * s->n_ranks + rank];
        capacity += (int64_t)group->counts[k] * (most < room->most[k] ? most : room->most[k]);
    }
    for (int k = s->n_classes - 1; ok && k >= 0; k--)
        for (int j = 0; ok && j < group->counts[k]; j++) {
            int most = s->most[k * s->n_ranks + rank];
            if (room->most[k] < most)
                most = room->most[k];
            double share = capacity > 0 ? (double)left * most / (double)capacity : 0;
            int best = -1;
            for (int b = 0; b <= most && b <= left; b++)
                if (may_take(s, room, k, rank, b) && reach[(i - 1) * stride + left - b] &&
                    (best < 0 || fabs(b - share) < fabs(best - share)))
                    best = b;
            ok = best >= 0;
            samples[--i] = best;
            left -= best;
            capacity -= most;
        }
    free(reach);
    return ok;
}
