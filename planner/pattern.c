#include "planner/pattern.h"

#include "planner/shape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Patterns of one cell (kind, blocks, group) or of all cells below it that are kept to test
 * dominance. Leaving some out only makes the test weaker. */
enum { MAX_FRONT = 16 };

/* Cells between two looks at the clock. */
enum { CELLS_PER_LOOK = 64 };

typedef struct outcome {
    double time_ms;
    double sync_ms;
    int in_flight;
} outcome;

typedef struct front {
    int n;
    outcome items[MAX_FRONT];
} front;

typedef struct finder {
    const zp_problem *problem;
    const zp_groups *groups;
    const zp_batching *batching;
    double max_time_ms;
    double max_sync_ms;
    zp_kind kind;
    int n_blocks;
    int min_in_flight, max_in_flight;
    zp_shape *shapes[2];  /* by recompute; NULL: not allowed */
    zp_room *rooms[4][2]; /* by ZeRO level and recompute: [in_flight - min_in_flight] */
    front *above,
        *current;    /* by group: dominating outcomes with one block more, and with as many */
    zp_pattern *own; /* candidates of the cell */
    int n_own, own_capacity;
    zp_patterns *out;
} finder;

int zp_pattern_max_stages(const zp_problem *p)
{
    int n_gpus = 0;
    for (int k = 0; k < p->n_classes; k++)
        if (p->classes[k].b_max > 0)
            n_gpus += p->classes[k].n_nodes * p->classes[k].gpus_per_node;
    int most = p->max_stages < p->n_blocks ? p->max_stages : p->n_blocks;
    return most < n_gpus ? most : n_gpus;
}

int zp_pattern_max_in_flight(const zp_problem *p, const zp_batching *batching)
{
    int n_stages = zp_pattern_max_stages(p);
    int w = batching->n_micro_batches < n_stages ? batching->n_micro_batches : n_stages;
    return w > 1 ? w : 1;
}

static bool no_worse(const outcome *a, const outcome *b)
{
    return a->time_ms <= b->time_ms && a->sync_ms <= b->sync_ms && a->in_flight >= b->in_flight;
}

static bool front_covers(const front *f, const outcome *o)
{
    for (int i = 0; i < f->n; i++)
        if (no_worse(&f->items[i], o))
            return true;
    return false;
}

static void front_add(front *f, const outcome *o)
{
    if (front_covers(f, o))
        return;
    int n = 0;
    for (int i = 0; i < f->n; i++)
        if (!no_worse(o, &f->items[i]))
            f->items[n++] = f->items[i];
    if (n < MAX_FRONT)
        f->items[n++] = *o;
    f->n = n;
}

static void front_merge(front *f, const front *other)
{
    for (int i = 0; i < other->n; i++)
        front_add(f, &other->items[i]);
}

bool zp_patterns_push(zp_patterns *list, const zp_pattern *pattern, zs_error *err)
{
    if (list->n == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 1024;
        zp_pattern *items = realloc(list->items, (size_t)capacity * sizeof *items);
        if (!items)
            return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for %d patterns", capacity);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = *pattern;
    return true;
}

void zp_patterns_close(zp_patterns *patterns)
{
    free(patterns->items);
    *patterns = (zp_patterns){0};
}

/* The largest w in [min, max] with room for the group's samples and shards at the limit given by
 * its rank, or min - 1. Room shrinks as w grows. */
static int most_in_flight(const finder *f, const zp_shape *shape, const zp_room *rooms,
                          const zp_group *group, int rank, int max)
{
    int low = f->min_in_flight - 1, high = max;
    while (low < high) {
        int w = low + (high - low + 1) / 2;
        if (w == low)
            break;
        if (zp_shape_fits(shape, &rooms[w - f->min_in_flight], group, rank))
            low = w;
        else
            high = w - 1;
    }
    return low;
}

/* Candidates of a cell at one ZeRO level and recompute choice, the one that survives most first:
 * each next one is the next faster at fewer micro-batches in flight. */
static bool add_candidates(finder *f, int g, int zero, int recompute, zs_error *err)
{
    const zp_problem *p = f->problem;
    const zp_group *group = &f->groups->items[g];
    const zp_shape *shape = f->shapes[recompute];
    const zp_room *rooms = f->rooms[zero][recompute];
    double sync_ms = zp_shape_sync_ms(p, zero, f->kind, f->n_blocks, group);
    double traffic_ms = zp_shape_traffic_ms(p, zero, f->kind, f->n_blocks, group);
    if (sync_ms > f->max_sync_ms)
        return true;
    int rank = zp_shape_rank(shape, zp_shape_comp_limit(p, f->max_time_ms, traffic_ms));
    if (rank < 0)
        return true;
    int w = most_in_flight(f, shape, rooms, group, rank, f->max_in_flight);
    while (w >= f->min_in_flight) {
        rank = zp_shape_least_rank(shape, &rooms[w - f->min_in_flight], group, rank);
        if (f->n_own == f->own_capacity)
            return ZS_FAIL(err, ZS_ERR_RUNTIME, "more than %d patterns of one group",
                           f->own_capacity);
        f->own[f->n_own++] = (zp_pattern){.kind = f->kind,
                                          .n_blocks = f->n_blocks,
                                          .zero = zero,
                                          .recompute = recompute,
                                          .group = g,
                                          .in_flight = w,
                                          .time_ms = zp_shape_time_ms(p, shape, rank, traffic_ms),
                                          .sync_ms = sync_ms};
        if (rank == 0 || w == f->min_in_flight)
            break;
        rank--;
        w = most_in_flight(f, shape, rooms, group, rank, w - 1);
    }
    return true;
}

static bool visit_cell(finder *f, int g, zs_error *err)
{
    const zp_group *group = &f->groups->items[g];
    front *cell = &f->current[g];
    *cell = f->above[g];
    for (int k = 0; k < f->problem->n_classes; k++)
        if (group->below[k] >= 0)
            front_merge(cell, &f->current[group->below[k]]);
    f->n_own = 0;
    for (int zero = 1; zero <= 3; zero++)
        for (int recompute = 0; recompute <= 1; recompute++)
            if (f->rooms[zero][recompute] && !add_candidates(f, g, zero, recompute, err))
                return false;
    /* Two equal candidates do not remove each other: the first one is kept. */
    for (int i = 0; i < f->n_own; i++) {
        const zp_pattern *own = &f->own[i];
        outcome o = {own->time_ms, own->sync_ms, own->in_flight};
        bool kept = !front_covers(cell, &o);
        for (int j = 0; kept && j < f->n_own; j++) {
            const zp_pattern *q = &f->own[j];
            outcome other = {q->time_ms, q->sync_ms, q->in_flight};
            if (j != i && no_worse(&other, &o) && (j < i || !no_worse(&o, &other)))
                kept = false;
        }
        if (kept && !zp_patterns_push(f->out, own, err))
            return false;
    }
    for (int i = 0; i < f->n_own; i++) {
        outcome o = {f->own[i].time_ms, f->own[i].sync_ms, f->own[i].in_flight};
        front_add(cell, &o);
    }
    return true;
}

/* Tables of the kind at this number of blocks, shared by all groups. */
static bool prepare_level(finder *f, zs_arena *arena, zs_error *err)
{
    const zp_problem *p = f->problem;
    for (int recompute = 0; recompute <= 1; recompute++) {
        bool allowed = recompute ? p->recompute_full : p->recompute_none;
        f->shapes[recompute] = NULL;
        if (allowed && !zp_shape_build(&f->shapes[recompute], arena, p, f->kind, f->n_blocks,
                                       recompute, f->batching->micro_batch, f->max_time_ms, err))
            return false;
        for (int zero = 1; zero <= 3; zero++) {
            f->rooms[zero][recompute] = NULL;
            if (!allowed || !p->zero[zero].allowed)
                continue;
            int n = f->max_in_flight - f->min_in_flight + 1;
            zp_room *rooms = ZS_NEW(arena, zp_room, n, err);
            if (!rooms)
                return false;
            for (int i = 0; i < n; i++)
                zp_room_set(&rooms[i], p, zero, f->kind, f->n_blocks, recompute,
                            f->batching->micro_batch, f->min_in_flight + i);
            f->rooms[zero][recompute] = rooms;
        }
    }
    return true;
}

static bool visit_kind(finder *f, zp_kind kind, int min_blocks, int max_blocks,
                       const zp_deadline *deadline, zs_error *err)
{
    bool ends = kind == ZP_LAST || kind == ZP_SINGLE;
    int most = zp_pattern_max_in_flight(f->problem, f->batching);
    f->kind = kind;
    f->max_in_flight = ends ? 1 : most;
    f->min_in_flight = ends || most < 2 ? 1 : 2;
    for (int g = 0; g < f->groups->n; g++)
        f->above[g].n = 0;
    for (int n = max_blocks; n >= min_blocks; n--) {
        zs_arena *arena;
        if (!zs_arena_open(&arena, err))
            return false;
        f->n_blocks = n;
        bool ok = prepare_level(f, arena, err);
        for (int g = 0; ok && g < f->groups->n && !f->out->stopped; g++) {
            ok = visit_cell(f, g, err);
            if (g % CELLS_PER_LOOK == 0)
                f->out->stopped = zp_deadline_passed(deadline);
        }
        zs_arena_close(&arena);
        if (!ok || f->out->stopped)
            return ok;
        front *level = f->above;
        f->above = f->current;
        f->current = level;
    }
    return true;
}

bool zp_patterns_find(zp_patterns *out, const zp_problem *problem, const zp_groups *groups,
                      const zp_batching *batching, double max_time_ms, double max_sync_ms,
                      const zp_deadline *deadline, zs_error *err)
{
    zs_arena *arena;
    zp_patterns found = {0};
    finder f = {.problem = problem,
                .groups = groups,
                .batching = batching,
                .max_time_ms = max_time_ms,
                .max_sync_ms = max_sync_ms,
                .own_capacity = 6 * (zp_pattern_max_in_flight(problem, batching) + 1),
                .out = &found};
    if (!zs_arena_open(&arena, err))
        return false;
    f.above = ZS_NEW(arena, front, groups->n, err);
    f.current = ZS_NEW(arena, front, groups->n, err);
    f.own = ZS_NEW(arena, zp_pattern, f.own_capacity, err);
    bool ok = f.above && f.current && f.own;
    if (ok && problem->min_stages <= 1)
        ok = visit_kind(&f, ZP_SINGLE, problem->n_blocks, problem->n_blocks, deadline, err);
    /* Two stages or more leave each stage at most this many blocks. */
    int n_others = problem->min_stages > 2 ? problem->min_stages - 1 : 1;
    if (zp_pattern_max_stages(problem) >= 2)
        for (int kind = ZP_FIRST; ok && !found.stopped && kind <= ZP_LAST; kind++)
            ok = visit_kind(&f, (zp_kind)kind, 1, problem->n_blocks - n_others, deadline, err);
    zs_arena_close(&arena);
    if (!ok) {
        zp_patterns_close(&found);
        return false;
    }
    *out = found;
    return true;
}

static int more_samples_first(const void *a, const void *b)
{
    const zp_member *x = a, *y = b;
    return x->samples < y->samples ? 1 : x->samples > y->samples ? -1 : 0;
}

/* Shares in proportion to what repl and activations leave free: then every GPU has room for its
 * share exactly when all have together. */
static void set_shares(zp_stage *stage, const zp_room *room)
{
    double sum_gib = 0;
    for (int i = 0; i < stage->n_members; i++) {
        zp_member *member = &stage->members[i];
        double free_gib = room->room_gib[member->class] - member->samples * room->act_gib;
        member->shard_share = free_gib > 0 ? free_gib : 0;
        sum_gib += member->shard_share;
    }
    for (int i = 0; i < stage->n_members; i++) {
        zp_member *member = &stage->members[i];
        member->shard_share = sum_gib > 0 ? member->shard_share / sum_gib : 1.0 / stage->n_members;
    }
}

bool zp_pattern_stage(zp_stage *out, zs_arena *arena, const zp_problem *problem,
                      const zp_groups *groups, const zp_pattern *pattern,
                      const zp_batching *batching, int n_blocks, int in_flight, zs_error *err)
{
    const zp_group *group = &groups->items[pattern->group];
    zp_shape *shape;
    zp_room room;
    zp_stage stage = {.n_blocks = n_blocks,
                      .zero = pattern->zero,
                      .recompute = pattern->recompute,
                      .intra = group->intra,
                      .n_members = group->n_gpus};
    stage.members = ZS_NEW(arena, zp_member, stage.n_members, err);
    int *samples = ZS_NEW(arena, int, stage.n_members, err);
    if (!stage.members || !samples ||
        !zp_shape_build(&shape, arena, problem, pattern->kind, n_blocks, pattern->recompute,
                        batching->micro_batch, INFINITY, err))
        return false;
    zp_room_set(&room, problem, pattern->zero, pattern->kind, n_blocks, pattern->recompute,
                batching->micro_batch, in_flight);
    int rank = shape->n_ranks - 1;
    if (rank < 0 || !zp_shape_fits(shape, &room, group, rank))
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "a pattern of %d blocks does not fit its %d GPUs",
                       n_blocks, group->n_gpus);
    rank = zp_shape_least_rank(shape, &room, group, rank);
    if (!zp_shape_samples(samples, shape, &room, group, rank))
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "a pattern of %d blocks has no division of samples",
                       n_blocks);
    int i = 0;
    for (int k = 0; k < problem->n_classes; k++) {
        int first = i;
        for (int j = 0; j < group->counts[k]; j++, i++)
            stage.members[i] = (zp_member){.class = k, .samples = samples[i]};
        qsort(&stage.members[first], (size_t)(i - first), sizeof *stage.members,
              more_samples_first);
    }
    set_shares(&stage, &room);
    *out = stage;
    return true;
}
