#include "planner/pricing.h"

#include "planner/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps of one depth-first search; beyond them the linear relaxation is the bound. Of one search
 * for single stages. */
enum { MAX_STEPS = 1000, MAX_SINGLE_STEPS = 100000 };

/* Shapes between two looks at the clock. */
enum { SHAPES_PER_LOOK = 4 };

/* Knapsacks that are kept for the search, those of least bounds. */
enum { MAX_CANDIDATES = 4096 };

/* Steps of the searches for one kind, and patterns that they may give beside the least. */
enum { MAX_FIND_STEPS = 100000, MAX_FOUND = 20 };

/* Amounts of relaxed groups are rounded down to multiples of 1 / GRID: columns that differ by
 * rounding only make the simplex method cycle. */
enum { GRID = 64 };

/* The limits are times of patterns: sums in another order must not miss them. take_group decides.
 */
static const double ROUNDING = 1e-12;

static const double TOLERANCE_GIB = 1e-9; /* as in shape.c */

/* Added to the price of each GPU, so that what is free is not used without measure. Too little to
 * tell in a reduced cost. */
static const double LEAST_PRICE = 1e-10;

typedef struct level {
    double gib_per_s; /* classes with at least this speed may take part */
    double latency_ms;
    int n;
    int classes[ZP_MAX_CLASSES];
} level;

struct zp_pricer {
    const zp_problem *problem;
    const zp_batching *batching;
    int step[ZP_MAX_CLASSES]; /* counts are multiples of it */
    int most[ZP_MAX_CLASSES]; /* GPUs */
    int least_classes;        /* of a group: 2, or 1 when only relaxations are looked for */
    int max_in_flight;
    int max_blocks;
    zp_shape **shapes[ZP_N_KINDS][2]; /* [n_blocks]; NULL beyond the last within the time limit */
    int n_levels;
    level levels[ZP_MAX_CLASSES]; /* slowest first */
    int n_candidates;
    double dropped; /* least bound of those that were not kept */
    struct candidate *candidates;
    double *found; /* [n_blocks]: the least reduced cost found */
};

typedef struct candidate {
    double bound;
    int n_blocks, zero, in_flight, level, rank;
    bool recompute;
    int number; /* ties */
} candidate;

/* Kinds with one micro-batch in flight. */
static bool ends(zp_kind kind)
{
    return kind == ZP_LAST || kind == ZP_SINGLE;
}

/* One knapsack and the search in it. */
typedef struct knapsack {
    zp_pricer *pricer;
    const zp_prices *prices;
    const zp_pricing_limits *limits;
    zp_kind kind;
    int n_blocks, zero;
    bool recompute;
    int in_flight;
    const zp_shape *shape;
    zp_room room;
    int rank;
    const level *level;
    double volume_gib, sync_volume_gib;
    int n; /* classes, the cheapest for what it covers first */
    int classes[ZP_MAX_CLASSES];
    int cap[ZP_MAX_CLASSES]; /* by class */
    int max_cap;
    double comp_ms, shown_ms; /* at the rank: compute, and its part that hides no traffic */
    double traffic_ms, traffic_latency_ms, sync_ms, sync_latency_ms; /* of a large group; per GPU */
    double base;              /* reduced cost without time and GPUs */
    double by_sample, by_gib; /* duals of the two rows: what covering one more costs at least */
    int counts[ZP_MAX_CLASSES];
    int n_steps, max_steps; /* of one search */
    int n_all_steps, n_kept;
    bool gave_up;
    double threshold; /* only patterns below are of interest */
    bool listing;     /* all of them, not only the least */
    bool found;
    double best;
    zp_pattern pattern; /* the best; group not set */
    int best_counts[ZP_MAX_CLASSES];
    zp_patterns *patterns;
    zp_groups *groups;
    zs_error *err;
    bool failed;
} knapsack;

static int compare_levels(const void *a, const void *b)
{
    double x = ((const level *)a)->gib_per_s, y = ((const level *)b)->gib_per_s;
    return (x > y) - (x < y);
}

static double link_speed(const zp_class *c)
{
    return fmin(c->intra_gib_per_s, c->nic_gib_per_s);
}

static double link_latency(const zp_class *c)
{
    return fmax(c->intra_latency_ms, c->nic_latency_ms);
}

static void fill_levels(zp_pricer *q)
{
    const zp_problem *p = q->problem;
    for (int k = 0; k < p->n_classes; k++) {
        bool known = q->most[k] == 0;
        for (int i = 0; i < q->n_levels; i++)
            known = known || q->levels[i].gib_per_s == link_speed(&p->classes[k]);
        if (!known)
            q->levels[q->n_levels++].gib_per_s = link_speed(&p->classes[k]);
    }
    qsort(q->levels, (size_t)q->n_levels, sizeof *q->levels, compare_levels);
    for (int i = 0; i < q->n_levels; i++) {
        level *l = &q->levels[i];
        l->latency_ms = INFINITY;
        for (int k = 0; k < p->n_classes; k++)
            if (q->most[k] > 0 && link_speed(&p->classes[k]) >= l->gib_per_s) {
                l->classes[l->n++] = k;
                l->latency_ms = fmin(l->latency_ms, link_latency(&p->classes[k]));
            }
    }
}

bool zp_pricer_build(zp_pricer **out, zs_arena *arena, const zp_problem *p,
                     const zp_batching *batching, bool whole_nodes, bool relaxed,
                     double max_time_ms, zs_error *err)
{
    zp_pricer *q = ZS_NEW(arena, zp_pricer, 1, err);
    if (!q)
        return false;
    q->problem = p;
    q->batching = batching;
    q->least_classes = relaxed ? 1 : 2;
    q->max_in_flight = zp_pattern_max_in_flight(p, batching);
    q->max_blocks = p->n_blocks - (p->min_stages > 2 ? p->min_stages - 1 : 1);
    q->candidates = ZS_NEW(arena, candidate, MAX_CANDIDATES, err);
    q->found = ZS_NEW(arena, double, p->n_blocks + 1, err);
    if (!q->candidates || !q->found)
        return false;
    for (int k = 0; k < p->n_classes; k++) {
        const zp_class *c = &p->classes[k];
        q->step[k] = whole_nodes ? c->gpus_per_node : 1;
        q->most[k] = c->b_max > 0 ? c->n_nodes * c->gpus_per_node : 0;
    }
    fill_levels(q);
    for (int kind = ZP_FIRST; kind < ZP_N_KINDS; kind++)
        for (int recompute = 0; recompute <= 1; recompute++) {
            zp_shape **shapes = ZS_NEW(arena, zp_shape *, p->n_blocks + 1, err);
            if (!shapes)
                return false;
            q->shapes[kind][recompute] = shapes;
            if (!(recompute ? p->recompute_full : p->recompute_none))
                continue;
            int first = kind == ZP_SINGLE ? p->n_blocks : 1;
            int last = kind == ZP_SINGLE ? p->n_blocks : q->max_blocks;
            for (int n = first; n <= last; n++) {
                if (!zp_shape_build(&shapes[n], arena, p, (zp_kind)kind, n, recompute,
                                    batching->micro_batch, max_time_ms, err))
                    return false;
                if (shapes[n]->n_ranks == 0) {
                    shapes[n] = NULL;
                    break;
                }
            }
        }
    *out = q;
    return true;
}

static double traffic_ms(const knapsack *s, double volume_gib, int collectives, int n_gpus)
{
    if (volume_gib <= 0)
        return 0;
    return volume_gib * (n_gpus - 1) / n_gpus / s->level->gib_per_s * 1000 +
           collectives * (n_gpus - 1) * s->level->latency_ms;
}

/* Reduced cost of a group of at least n_gpus without what its GPUs cost; infinity beyond the
 * limits. */
static double rest_of_cost(const knapsack *s, int n_gpus)
{
    double phi = (double)(n_gpus - 1) / n_gpus;
    double sync_ms = phi * s->sync_ms + (n_gpus - 1) * s->sync_latency_ms;
    double ms = s->shown_ms + phi * s->traffic_ms + (n_gpus - 1) * s->traffic_latency_ms;
    if (ms < s->comp_ms)
        ms = s->comp_ms;
    if (sync_ms > s->limits->max_sync_ms * (1 + ROUNDING) ||
        ms > s->limits->max_time_ms * (1 + ROUNDING))
        return INFINITY;
    return s->base + s->prices->time * ms + s->prices->sync * sync_ms;
}

/* The dual of the relaxed knapsack, max by_sample u + by_gib needed over by_sample cap_k + by_gib
 * room_k <= price_k: the best of its vertices. */
static void solve_dual(knapsack *s)
{
    double best = 0;
    const double u = s->pricer->batching->micro_batch, needed = s->room.needed_gib;
    s->by_sample = s->by_gib = 0;
    for (int i = 0; i < s->n; i++)
        for (int j = i; j <= s->n + 1; j++) {
            /* The vertex of two classes' constraints, or of one and an axis. */
            int a = s->classes[i];
            double cap_a = s->cap[a], room_a = fmax(s->room.room_gib[a], 0);
            double price_a = s->prices->gpu[a] + LEAST_PRICE, x, y;
            if (j == i)
                continue;
            if (j == s->n || j == s->n + 1) {
                double by = j == s->n ? cap_a : room_a;
                if (by <= 0)
                    continue;
                x = j == s->n ? price_a / by : 0;
                y = j == s->n ? 0 : price_a / by;
            } else {
                int b = s->classes[j];
                double cap_b = s->cap[b], room_b = fmax(s->room.room_gib[b], 0);
                double price_b = s->prices->gpu[b] + LEAST_PRICE,
                       det = cap_a * room_b - cap_b * room_a;
                if (fabs(det) < 1e-12)
                    continue;
                x = (price_a * room_b - price_b * room_a) / det;
                y = (cap_a * price_b - cap_b * price_a) / det;
                if (x < 0 || y < 0)
                    continue;
            }
            /* Must be what every class allows; scaled down, so that rounding cannot make it too
             * much. */
            double scale = 1;
            for (int l = 0; l < s->n && scale > 0; l++) {
                int k = s->classes[l];
                double sum = x * s->cap[k] + y * fmax(s->room.room_gib[k], 0);
                if (sum * scale > s->prices->gpu[k] + LEAST_PRICE)
                    scale = (s->prices->gpu[k] + LEAST_PRICE) / sum;
            }
            if (scale > 1 - 1e-9 && scale * (x * u + y * needed) > best) {
                best = scale * (x * u + y * needed);
                s->by_sample = scale * x;
                s->by_gib = scale * y;
            }
        }
}

/* Is the same pattern or a better one found in another knapsack: of a lower rank, more
 * micro-batches in flight, the group's own level, or without some of the GPUs? */
static bool found_elsewhere(const knapsack *s, const zp_group *group)
{
    const zp_problem *p = s->pricer->problem;
    if (group->gib_per_s != s->level->gib_per_s ||
        (s->rank > 0 && zp_shape_fits(s->shape, &s->room, group, s->rank - 1)))
        return true;
    if (!ends(s->kind) && s->in_flight < s->pricer->max_in_flight) {
        zp_room room;
        zp_room_set(&room, p, s->zero, s->kind, s->n_blocks, s->recompute,
                    s->pricer->batching->micro_batch, s->in_flight + 1);
        if (zp_shape_fits(s->shape, &room, group, s->rank))
            return true;
    }
    zp_group smaller = *group;
    for (int i = 0; i < s->n; i++) {
        int k = s->classes[i], step = s->pricer->step[k];
        if (group->counts[k] == 0)
            continue;
        smaller.counts[k] -= step;
        smaller.n_gpus -= step;
        if (smaller.n_gpus > 0 && zp_shape_fits(s->shape, &s->room, &smaller, s->rank))
            return true;
        smaller.counts[k] += step;
        smaller.n_gpus += step;
    }
    return false;
}

/* A group that covers both rows: its pattern, exactly. false: it does not fit after all, since
 * sizes are missing. */
static bool take_group(knapsack *s)
{
    const zp_problem *p = s->pricer->problem;
    zp_group group = {0};
    int n_used = 0;
    double cost = s->base;
    for (int i = 0; i < s->n; i++) {
        int k = s->classes[i];
        n_used += s->counts[k] > 0;
        group.counts[k] = s->counts[k];
        group.n_gpus += s->counts[k];
        cost += s->prices->gpu[k] * s->counts[k];
    }
    if (n_used < 2 || (p->max_gpus_per_stage > 0 && group.n_gpus > p->max_gpus_per_stage))
        return true;
    zp_group_set_link(&group, p);
    if (!zp_shape_fits(s->shape, &s->room, &group, s->rank))
        return false;
    if (s->listing && found_elsewhere(s, &group))
        return true;
    int rank = zp_shape_least_rank(s->shape, &s->room, &group, s->rank);
    zp_pattern q = {.kind = s->kind,
                    .n_blocks = s->n_blocks,
                    .zero = s->zero,
                    .recompute = s->recompute,
                    .in_flight = s->in_flight};
    q.sync_ms = zp_shape_sync_ms(p, s->zero, s->kind, s->n_blocks, &group);
    q.time_ms = zp_shape_time_ms(p, s->shape, rank,
                                 zp_shape_traffic_ms(p, s->zero, s->kind, s->n_blocks, &group));
    if (q.sync_ms > s->limits->max_sync_ms || q.time_ms > s->limits->max_time_ms)
        return true;
    /* The most in flight that it survives at this time. */
    while (q.in_flight < s->pricer->max_in_flight && !ends(s->kind)) {
        zp_room room;
        zp_room_set(&room, p, s->zero, s->kind, s->n_blocks, s->recompute,
                    s->pricer->batching->micro_batch, q.in_flight + 1);
        if (!zp_shape_fits(s->shape, &room, &group, rank))
            break;
        q.in_flight++;
    }
    cost += s->prices->time * q.time_ms + s->prices->sync * q.sync_ms;
    cost += s->prices->place[s->kind][q.in_flight] - s->prices->place[s->kind][s->in_flight];
    if (s->listing) {
        if (cost > s->threshold)
            return true;
        if (!zp_groups_add(&q.group, s->groups, &group, s->err))
            s->failed = true;
        else if (!zp_patterns_push(s->patterns, &q, s->err))
            s->failed = true;
    } else if (cost < s->threshold) {
        s->threshold = s->best = cost;
        s->found = true;
        s->pattern = q;
        memcpy(s->best_counts, group.counts, sizeof s->best_counts);
    }
    return true;
}

/* GPUs of class k that cover what is left alone, in whole steps; more than there are: none do. */
static int least_count(const knapsack *s, int k, int u_left, double gib_left)
{
    const int step = s->pricer->step[k], none = s->pricer->most[k] + 1;
    double n = 0, room_gib = s->room.room_gib[k] + TOLERANCE_GIB;
    if (u_left > 0)
        n = s->cap[k] > 0 ? (double)u_left / s->cap[k] : none;
    if (gib_left > TOLERANCE_GIB)
        n = fmax(n, room_gib > 0 ? (gib_left - TOLERANCE_GIB) / room_gib : none);
    n = ceil(n / step - 1e-9) * step;
    return n < none ? (int)n : none;
}

/* Counts of the classes from i on, where u_left and gib_left are still to be covered. */
static void descend(knapsack *s, int i, int n_gpus, double cost, int u_left, double gib_left)
{
    bool covered = u_left <= 0 && gib_left <= TOLERANCE_GIB;
    if (s->failed || ++s->n_steps > s->max_steps)
        return;
    if (covered && n_gpus > 0 && take_group(s))
        return;
    if (i == s->n)
        return;
    int k = s->classes[i], step = s->pricer->step[k];
    double room_gib = fmax(s->room.room_gib[k], 0);
    int first = i == s->n - 1 ? least_count(s, k, u_left, gib_left) : 0;
    for (int c = first; c <= s->pricer->most[k] && !s->failed; c += step) {
        int u_now = u_left - c * s->cap[k];
        double gib_now = gib_left - c * room_gib;
        double now = cost + s->prices->gpu[k] * c;
        int more = u_now > 0 ? (u_now + s->max_cap - 1) / s->max_cap : 0;
        int at_least = n_gpus + c + more;
        double bound = now + rest_of_cost(s, at_least > 2 ? at_least : 2) +
                       s->by_sample * (u_now > 0 ? u_now : 0) +
                       s->by_gib * (gib_now > 0 ? gib_now : 0);
        bool enough = u_now <= 0 && gib_now <= TOLERANCE_GIB;
        if (s->listing ? bound <= s->threshold : bound < s->threshold) {
            s->counts[k] = c;
            descend(s, i + 1, n_gpus + c, now, u_now, gib_now);
            s->counts[k] = 0;
            if (s->n_steps > s->max_steps)
                return;
        } else {
            break; /* a class costs at least what it covers is worth: the bound only grows */
        }
        if (enough && s->shape->unbroken[k * s->shape->n_ranks + s->rank] >= s->cap[k])
            break;
    }
}

/* Sets up the knapsack of a rank; false: it covers nothing below the threshold. */
static bool set_rank(knapsack *s, int rank)
{
    const int u = s->pricer->batching->micro_batch;
    double by_sample = INFINITY, by_gib = INFINITY;
    int64_t all = 0;
    const zp_problem *p = s->pricer->problem;
    const zp_zero *z = &p->zero[s->zero];
    const double ms_per_gib = 1000 / s->level->gib_per_s;
    s->comp_ms = s->shape->limit_ms[rank];
    s->shown_ms = (1 - p->overlap_zero) * s->comp_ms;
    s->traffic_ms = fmax(s->volume_gib, 0) * ms_per_gib;
    s->sync_ms = fmax(s->sync_volume_gib, 0) * ms_per_gib;
    s->traffic_latency_ms = s->volume_gib > 0 ? z->collectives * s->level->latency_ms : 0;
    s->sync_latency_ms = s->sync_volume_gib > 0 ? z->sync_collectives * s->level->latency_ms : 0;
    s->rank = rank;
    s->n = 0;
    s->max_cap = 0;
    for (int i = 0; i < s->level->n; i++) {
        int k = s->level->classes[i], by_time = s->shape->most[k * s->shape->n_ranks + rank];
        if (s->room.most[k] < 0)
            continue;
        s->cap[k] = by_time < s->room.most[k] ? by_time : s->room.most[k];
        if (s->cap[k] == 0 && s->room.room_gib[k] <= 0)
            continue;
        s->classes[s->n++] = k;
        all += (int64_t)s->cap[k] * s->pricer->most[k];
        if (s->cap[k] > s->max_cap)
            s->max_cap = s->cap[k];
        if (s->cap[k] > 0)
            by_sample = fmin(by_sample, s->prices->gpu[k] / s->cap[k]);
        if (s->room.room_gib[k] > 0)
            by_gib = fmin(by_gib, s->prices->gpu[k] / s->room.room_gib[k]);
    }
    if (s->n < s->pricer->least_classes || all < u)
        return false;
    int at_least = (u + s->max_cap - 1) / s->max_cap;
    double bound = rest_of_cost(s, at_least > 2 ? at_least : 2) +
                   fmax(by_sample * u, s->room.needed_gib > 0 ? by_gib * s->room.needed_gib : 0);
    return s->listing ? bound <= s->threshold : bound < s->threshold;
}

/* By what a class costs under the duals of the rows, the cheapest first. */
static void sort_classes(knapsack *s)
{
    double over[ZP_MAX_CLASSES];
    for (int i = 0; i < s->n; i++) {
        int k = s->classes[i];
        over[k] = (s->prices->gpu[k] + 1e-12) /
                  (s->by_sample * s->cap[k] + s->by_gib * fmax(s->room.room_gib[k], 0) + 1e-12);
    }
    for (int i = 1; i < s->n; i++)
        for (int j = i; j > 0 && over[s->classes[j]] < over[s->classes[j - 1]]; j--) {
            int swap = s->classes[j];
            s->classes[j] = s->classes[j - 1];
            s->classes[j - 1] = swap;
        }
}

static double relaxed_bound(const knapsack *s)
{
    const int u = s->pricer->batching->micro_batch;
    int at_least = (u + s->max_cap - 1) / s->max_cap;
    return rest_of_cost(s, at_least > 2 ? at_least : 2) + s->by_sample * u +
           s->by_gib * fmax(s->room.needed_gib, 0);
}

/* Searches the knapsack for what is below the threshold; false: gave up. */
static bool search_knapsack(knapsack *s)
{
    if (s->pricer->least_classes == 1)
        return false;
    sort_classes(s);
    s->n_steps = 0;
    descend(s, 0, 0, 0, s->pricer->batching->micro_batch, s->room.needed_gib);
    s->n_all_steps += s->n_steps;
    return s->n_steps <= s->max_steps;
}

static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    return x->number - y->number;
}

/* Keeps the knapsack for later; where there are too many, those of least bounds. */
static void keep_candidate(knapsack *s, double bound)
{
    zp_pricer *q = s->pricer;
    if (bound >= q->dropped)
        return;
    if (q->n_candidates == MAX_CANDIDATES) {
        qsort(q->candidates, MAX_CANDIDATES, sizeof *q->candidates, compare_candidates);
        q->n_candidates = MAX_CANDIDATES / 2;
        q->dropped = q->candidates[q->n_candidates].bound;
        if (bound >= q->dropped)
            return;
    }
    q->candidates[q->n_candidates] = (candidate){.bound = bound,
                                                 .n_blocks = s->n_blocks,
                                                 .zero = s->zero,
                                                 .in_flight = s->in_flight,
                                                 .level = (int)(s->level - q->levels),
                                                 .rank = s->rank,
                                                 .recompute = s->recompute,
                                                 .number = s->n_kept++};
    q->n_candidates++;
}

/* Is what a lower rank can do the same? Then this one is only slower. */
static bool rank_is_idle(const knapsack *s, int rank)
{
    for (int i = 0; i < s->level->n; i++) {
        int k = s->level->classes[i];
        const int *most = &s->shape->most[k * s->shape->n_ranks];
        int fit = s->room.most[k];
        int now = most[rank] < fit ? most[rank] : fit;
        int below = rank == 0 ? 0 : most[rank - 1] < fit ? most[rank - 1] : fit;
        if (now != below)
            return false;
    }
    return true;
}

static void set_volumes(knapsack *s)
{
    const zp_problem *p = s->pricer->problem;
    s->volume_gib = zp_problem_volume_gib(p, s->zero, s->kind, s->n_blocks);
    s->sync_volume_gib = zp_problem_sync_volume_gib(p, s->zero, s->kind, s->n_blocks);
}

static void set_room(knapsack *s)
{
    zp_room_set(&s->room, s->pricer->problem, s->zero, s->kind, s->n_blocks, s->recompute,
                s->pricer->batching->micro_batch, s->in_flight);
    s->base = s->prices->place[s->kind][s->in_flight] - s->prices->block * s->n_blocks;
}

/* All ranks of one level and number in flight. */
static void visit_ranks(knapsack *s)
{
    const zp_problem *p = s->pricer->problem;
    set_room(s);
    double traffic = traffic_ms(s, s->volume_gib, p->zero[s->zero].collectives, 2);
    int top = zp_shape_rank(s->shape, zp_shape_comp_limit(p, s->limits->max_time_ms, traffic));
    for (int rank = top; rank >= 0; rank--) {
        if (rank_is_idle(s, rank) || !set_rank(s, rank))
            continue;
        solve_dual(s);
        double bound = relaxed_bound(s);
        if (s->listing && bound <= s->threshold)
            s->gave_up = !search_knapsack(s) || s->gave_up;
        else if (!s->listing && bound < s->threshold)
            keep_candidate(s, bound);
        if (s->prices->time == 0 && !s->listing)
            break; /* time costs nothing: the others are only smaller */
    }
}

/* The next number in flight above w at which the pattern pays less; 0: none. */
static int next_in_flight(const knapsack *s, int w, int max)
{
    const double *place = s->prices->place[s->kind];
    if (s->listing)
        return w < max ? w + 1 : 0;
    for (int next = w + 1; next <= max; next++)
        if (place[next] < place[w])
            return next;
    return 0;
}

/* All knapsacks with this shape. */
static void visit_shape(knapsack *s)
{
    const zp_problem *p = s->pricer->problem;
    const int u = s->pricer->batching->micro_batch;
    const int max = ends(s->kind) ? 1 : s->pricer->max_in_flight, min = max < 2 ? 1 : 2;
    double least_place = INFINITY, least = INFINITY;
    for (int w = min; w <= max; w++)
        least_place = fmin(least_place, s->prices->place[s->kind][w]);
    /* Without memory and traffic. */
    int top = zp_shape_rank(s->shape, s->limits->max_time_ms);
    for (int rank = 0; rank <= top; rank++) {
        double by_sample = INFINITY;
        for (int k = 0; k < p->n_classes; k++) {
            int most = s->shape->most[k * s->shape->n_ranks + rank];
            if (most > 0 && s->pricer->most[k] > 0)
                by_sample = fmin(by_sample, s->prices->gpu[k] / most);
        }
        least = fmin(least, s->prices->time * s->shape->limit_ms[rank] + u * by_sample);
    }
    if (least + least_place - s->prices->block * s->n_blocks >
        s->threshold + fabs(s->threshold) * 1e-12)
        return;
    for (s->zero = 1; s->zero <= 3; s->zero++) {
        if (!p->zero[s->zero].allowed)
            continue;
        set_volumes(s);
        for (int l = 0; l < s->pricer->n_levels; l++) {
            s->level = &s->pricer->levels[l];
            double sync_ms =
                traffic_ms(s, s->sync_volume_gib, p->zero[s->zero].sync_collectives, 2);
            if (s->level->n < s->pricer->least_classes || sync_ms > s->limits->max_sync_ms)
                continue;
            for (int w = min; w > 0 && !s->failed; w = next_in_flight(s, w, max)) {
                s->in_flight = w;
                visit_ranks(s);
            }
        }
    }
}

static knapsack knapsack_of(zp_pricer *pricer, const zp_prices *prices,
                            const zp_pricing_limits *limits, zp_patterns *patterns,
                            zp_groups *groups, zs_error *err)
{
    return (knapsack){.pricer = pricer,
                      .prices = prices,
                      .limits = limits,
                      .patterns = patterns,
                      .groups = groups,
                      .err = err,
                      .max_steps = MAX_STEPS};
}

static bool push_best(knapsack *s)
{
    const zp_problem *p = s->pricer->problem;
    zp_group group = {0};
    memcpy(group.counts, s->best_counts, sizeof group.counts);
    for (int k = 0; k < p->n_classes; k++)
        group.n_gpus += group.counts[k];
    zp_group_set_link(&group, p);
    return zp_groups_add(&s->pattern.group, s->groups, &group, s->err) &&
           zp_patterns_push(s->patterns, &s->pattern, s->err);
}

/* The optimum of the relaxed knapsack as a pattern: its rows are covered by one class or two. */
static bool push_relaxed(knapsack *s)
{
    const double u = s->pricer->batching->micro_batch, needed = fmax(s->room.needed_gib, 0);
    zp_group group = {.relaxed = true};
    zp_pattern q = {.kind = s->kind,
                    .n_blocks = s->n_blocks,
                    .zero = s->zero,
                    .recompute = s->recompute,
                    .relaxed = true,
                    .in_flight = s->in_flight};
    double least = INFINITY;
    for (int i = 0; i < s->n; i++)
        for (int j = i; j < s->n; j++) {
            int a = s->classes[i], b = s->classes[j];
            double room_a = fmax(s->room.room_gib[a], 0), room_b = fmax(s->room.room_gib[b], 0);
            double det = s->cap[a] * room_b - s->cap[b] * room_a, of_a, of_b = 0;
            if (i == j) {
                of_a = fmax(s->cap[a] > 0 ? u / s->cap[a] : INFINITY,
                            needed > 0 ? needed / room_a : 0);
            } else {
                if (fabs(det) < 1e-12)
                    continue;
                of_a = (u * room_b - needed * s->cap[b]) / det;
                of_b = (needed * s->cap[a] - u * room_a) / det;
            }
            double cost =
                (s->prices->gpu[a] + LEAST_PRICE) * of_a + (s->prices->gpu[b] + LEAST_PRICE) * of_b;
            if (of_a < 0 || of_b < 0 || cost >= least)
                continue;
            least = cost;
            memset(group.amounts, 0, sizeof group.amounts);
            group.amounts[a] = of_a;
            group.amounts[b] += of_b;
        }
    for (int k = 0; k < ZP_MAX_CLASSES; k++)
        group.amounts[k] = fmax(floor(group.amounts[k] * GRID) / GRID, 0);
    int at_least = ((int)u + s->max_cap - 1) / s->max_cap;
    const zp_problem *p = s->pricer->problem;
    q.time_ms = zp_shape_time_ms(
        p, s->shape, s->rank,
        traffic_ms(s, s->volume_gib, p->zero[s->zero].collectives, at_least > 2 ? at_least : 2));
    q.sync_ms = traffic_ms(s, s->sync_volume_gib, p->zero[s->zero].sync_collectives,
                           at_least > 2 ? at_least : 2);
    return zp_groups_add(&q.group, s->groups, &group, s->err) &&
           zp_patterns_push(s->patterns, &q, s->err);
}

/* Sets up the knapsack of a candidate. */
static void set_candidate(knapsack *s, const candidate *c)
{
    s->n_blocks = c->n_blocks;
    s->recompute = c->recompute;
    s->zero = c->zero;
    s->in_flight = c->in_flight;
    s->level = &s->pricer->levels[c->level];
    s->shape = s->pricer->shapes[s->kind][c->recompute][c->n_blocks];
    set_volumes(s);
    set_room(s);
    if (set_rank(s, c->rank))
        solve_dual(s);
}

/* Searches the candidates of a kind, those of least bounds first. *least: bound on all patterns. */
static bool search_candidates(double *least, knapsack *s)
{
    zp_pricer *q = s->pricer;
    const double tolerance = -s->threshold;
    int n_found = 0;
    s->n_all_steps = 0;
    *least = -tolerance;
    for (int n = 0; n <= q->problem->n_blocks; n++)
        q->found[n] = -tolerance;
    qsort(q->candidates, (size_t)q->n_candidates, sizeof *q->candidates, compare_candidates);
    for (int i = 0; i < q->n_candidates; i++) {
        const candidate *c = &q->candidates[i];
        if (c->bound >= *least && (n_found >= MAX_FOUND || c->bound > *least / 2))
            return true;
        if (c->bound >= q->found[c->n_blocks])
            continue;
        s->threshold = q->found[c->n_blocks];
        s->found = false;
        set_candidate(s, c);
        bool searched = s->n_all_steps < MAX_FIND_STEPS && search_knapsack(s);
        if (s->found || !searched) {
            n_found++;
            if ((s->found && !push_best(s)) || (!searched && !push_relaxed(s)))
                return false;
            q->found[c->n_blocks] = searched ? s->best : c->bound;
            *least = fmin(*least, q->found[c->n_blocks]);
        }
    }
    if (isfinite(q->dropped))
        *least = fmin(*least, q->dropped);
    return true;
}

bool zp_pricer_find(double least[ZP_N_KINDS], bool *stopped, zp_patterns *patterns,
                    zp_groups *groups, zp_pricer *pricer, const zp_prices *prices, double tolerance,
                    const zp_pricing_limits *limits, zs_error *err)
{
    knapsack s = knapsack_of(pricer, prices, limits, patterns, groups, err);
    *stopped = false;
    for (int kind = ZP_FIRST; kind <= ZP_LAST; kind++) {
        s.kind = (zp_kind)kind;
        s.threshold = -tolerance;
        pricer->n_candidates = 0;
        pricer->dropped = INFINITY;
        for (int n = 1; n <= pricer->max_blocks; n++) {
            s.n_blocks = n;
            if (n % SHAPES_PER_LOOK == 0 && zp_deadline_passed(limits->deadline)) {
                *stopped = true;
                return true;
            }
            for (int recompute = 0; recompute <= 1; recompute++) {
                s.recompute = recompute;
                s.shape = pricer->shapes[kind][recompute][n];
                if (s.shape)
                    visit_shape(&s);
            }
        }
        if (!search_candidates(&least[kind], &s))
            return false;
    }
    least[ZP_SINGLE] = 0;
    return true;
}

bool zp_pricer_find_single(double *least_ms, zp_patterns *patterns, zp_groups *groups,
                           zp_pricer *pricer, double max_step_ms, const zp_deadline *deadline,
                           zs_error *err)
{
    static const double no_place[2];
    const int n_blocks = pricer->problem->n_blocks, m = pricer->batching->n_micro_batches;
    const zp_prices prices = {.time = m, .sync = 1, .place = {[ZP_SINGLE] = no_place}};
    const zp_pricing_limits limits = {max_step_ms / m, INFINITY, deadline};
    knapsack s = knapsack_of(pricer, &prices, &limits, patterns, groups, err);
    s.kind = ZP_SINGLE;
    s.n_blocks = n_blocks;
    s.threshold = max_step_ms;
    s.max_steps = MAX_SINGLE_STEPS;
    pricer->n_candidates = 0;
    pricer->dropped = INFINITY;
    *least_ms = max_step_ms;
    for (int recompute = 0; recompute <= 1; recompute++) {
        s.recompute = recompute;
        s.shape = pricer->shapes[ZP_SINGLE][recompute][n_blocks];
        if (s.shape)
            visit_shape(&s);
    }
    *least_ms = fmin(*least_ms, pricer->dropped);
    qsort(pricer->candidates, (size_t)pricer->n_candidates, sizeof *pricer->candidates,
          compare_candidates);
    for (int i = 0; i < pricer->n_candidates; i++) {
        const candidate *c = &pricer->candidates[i];
        if (c->bound >= s.threshold)
            break;
        set_candidate(&s, c);
        if (!search_knapsack(&s))
            *least_ms = fmin(*least_ms, c->bound);
    }
    if (!s.found)
        return true;
    *least_ms = fmin(*least_ms, s.best);
    return push_best(&s);
}

void zp_pricer_most(double *max_time_ms, double *max_sync_ms, const zp_pricer *pricer)
{
    const zp_problem *p = pricer->problem;
    zp_group slowest = {.gib_per_s = INFINITY};
    *max_time_ms = *max_sync_ms = 0;
    for (int k = 0; k < p->n_classes; k++) {
        slowest.n_gpus += pricer->most[k];
        slowest.gib_per_s = fmin(slowest.gib_per_s, link_speed(&p->classes[k]));
        slowest.latency_ms = fmax(slowest.latency_ms, link_latency(&p->classes[k]));
    }
    for (int kind = ZP_FIRST; kind <= ZP_LAST; kind++)
        for (int recompute = 0; recompute <= 1; recompute++)
            for (int n = 1; n <= pricer->max_blocks; n++)
                for (int zero = 1; pricer->shapes[kind][recompute][n] && zero <= 3; zero++) {
                    const zp_shape *shape = pricer->shapes[kind][recompute][n];
                    double traffic = zp_shape_traffic_ms(p, zero, (zp_kind)kind, n, &slowest);
                    double sync = zp_shape_sync_ms(p, zero, (zp_kind)kind, n, &slowest);
                    *max_sync_ms = fmax(*max_sync_ms, sync);
                    *max_time_ms =
                        fmax(*max_time_ms, zp_shape_time_ms(p, shape, shape->n_ranks - 1, traffic));
                }
}

bool zp_pricer_list(bool *complete, zp_patterns *patterns, zp_groups *groups, zp_pricer *pricer,
                    const zp_prices *prices, double slack, int most, int max_steps,
                    const zp_pricing_limits *limits, zs_error *err)
{
    knapsack s = knapsack_of(pricer, prices, limits, patterns, groups, err);
    const int n_before = patterns->n;
    s.listing = true;
    s.max_steps = max_steps;
    s.threshold = slack;
    *complete = false;
    for (int kind = ZP_FIRST; kind <= ZP_LAST; kind++)
        for (int n = 1; n <= pricer->max_blocks; n++)
            for (int recompute = 0; recompute <= 1; recompute++) {
                s.kind = (zp_kind)kind;
                s.n_blocks = n;
                s.recompute = recompute;
                s.shape = pricer->shapes[kind][recompute][n];
                if (!s.shape)
                    continue;
                visit_shape(&s);
                if (s.failed)
                    return false;
                if (s.gave_up || s.n_all_steps > max_steps || patterns->n - n_before > most ||
                    zp_deadline_passed(limits->deadline))
                    return true;
            }
    *complete = true;
    return true;
}
