#include "planner/baselines.h"

#include "planner/evaluate.h"
#include "planner/layouts.h"
#include "planner/shape.h"

#include <math.h>
#include <string.h>

enum { MS_PER_S = 1000 };

/* Of the time limit, for baselines before the search. */
static const double TIME_SHARE = 0.25;

typedef struct rules {
    const char *name, *like;
    zp_layout_rule layouts[2];
    int n_layouts;
    bool zero[4]; /* levels that the rule may use */
    bool blocks_by_speed;
    bool samples_by_speed;
    bool shards_by_room;
} rules;

/* clang-format off */
static const rules all_rules[ZP_N_BASELINES] = {
    [ZP_BASELINE_EVEN] = {
        "even split", "Megatron-LM", {ZP_LAYOUT_EQUAL}, 1, {[1] = true}, false, false, false},
    [ZP_BASELINE_LAYERS] = {
        "layers by speed", "AMP, Metis", {ZP_LAYOUT_EQUAL, ZP_LAYOUT_NODES}, 2,
        {[1] = true, [2] = true, [3] = true}, true, false, false},
    [ZP_BASELINE_ZERO3] = {
        "ZeRO-3 even", "DeepSpeed", {ZP_LAYOUT_ONE_STAGE}, 1, {[3] = true}, false, false, false},
    [ZP_BASELINE_ZERO3_FAIR] = {
        "ZeRO-3 by speed", "Cephalo", {ZP_LAYOUT_ONE_STAGE}, 1, {[3] = true}, false, true, true},
    [ZP_BASELINE_PIPELINE] = {
        "pipeline only", "GPipe", {ZP_LAYOUT_ONE_GPU}, 1, {[1] = true, [2] = true, [3] = true},
        true, false, false},
    [ZP_BASELINE_GROUPS] = {
        "ZeRO-2 groups", "Zorse", {ZP_LAYOUT_NODES, ZP_LAYOUT_ONE_STAGE}, 2, {[2] = true}, true,
        true, false},
    [ZP_BASELINE_MIXED] = {
        "mixed stages", "Sailor", {ZP_LAYOUT_ANY_ORDER}, 1, {[1] = true}, false, false, false},
};
/* clang-format on */

/* Samples of a class's GPUs in a stage: n_more of them take one more than low. */
typedef struct split {
    int low, n_more;
} split;

/* The candidate that misses least memory. */
typedef struct miss {
    double missing_gib;
    int n_stages, stage, class, zero;
    bool recompute;
    zp_batching batching;
} miss;

/* n stages of one speed. */
typedef struct stage_speeds {
    double speed;
    int n;
} stage_speeds;

typedef struct tuning {
    const zp_problem *problem;
    const rules *rules;
    zs_arena *arena;
    double speed[ZP_MAX_CLASSES]; /* by class */
    int fastest[ZP_MAX_CLASSES];  /* classes, the fastest first */
    int most_offered[ZP_MAX_CLASSES];
    /* of the candidate at hand */
    const zp_group *groups;
    int n_stages;
    zp_batching batching;
    int zero;
    bool recompute;
    int *n_blocks;
    split (*splits)[ZP_MAX_CLASSES]; /* by stage */
    double *weights;                 /* by stage: speed */
    stage_speeds *layout_speeds;     /* rows of alike stages, at their best */
    stage_speeds *speeds;            /* the same for the batching at hand, the fastest first */
    int n_speeds;
    double *next_ms; /* by stage: time with one block more */
    int *head;       /* by stage: the first of a row of alike stages; its split and
                        weight are those of all */
    /* so far */
    const zp_deadline *deadline; /* may be NULL */
    bool stopped;
    bool any; /* a candidate whose sizes are offered */
    miss nearest;
    zp_baseline *best;
} tuning;

static int most_samples(const split *s)
{
    return s->low + (s->n_more > 0);
}

static bool is_offered(const zp_class *c, int b)
{
    return b == 0 || (b <= c->b_max && isfinite(c->forward_ms[b]));
}

static double block_ms(const tuning *t, int k, int b)
{
    const zp_class *c = &t->problem->classes[k];
    return c->forward_ms[b] * (t->recompute ? 2 : 1) + c->backward_ms[b];
}

/* The same number on every GPU; what is left over goes to the fastest. */
static bool split_evenly(const tuning *t, split *splits, const zp_group *group)
{
    const int u = t->batching.micro_batch, low = u / group->n_gpus;
    int left = u % group->n_gpus;
    for (int i = 0; i < t->problem->n_classes; i++) {
        const int k = t->fastest[i], count = group->counts[k];
        const int n_more = left < count ? left : count;
        const zp_class *c = &t->problem->classes[k];
        splits[k] = (split){low, n_more};
        left -= n_more;
        if ((n_more > 0 && !is_offered(c, low + 1)) || (n_more < count && !is_offered(c, low)))
            return false;
    }
    return true;
}

/* One sample after the other to where it is done soonest, at most `most` on a GPU of a class. */
static bool split_by_speed(const tuning *t, split *splits, const zp_group *group, const int *most)
{
    for (int k = 0; k < t->problem->n_classes; k++)
        splits[k] = (split){0, 0};
    for (int left = t->batching.micro_batch; left > 0; left--) {
        int best = -1;
        double best_ms = INFINITY;
        for (int k = 0; k < t->problem->n_classes; k++) {
            int b = splits[k].low + 1;
            if (group->counts[k] == 0 || b > most[k] || !is_offered(&t->problem->classes[k], b))
                continue;
            double ms = block_ms(t, k, b);
            if (ms < best_ms) {
                best = k;
                best_ms = ms;
            }
        }
        if (best < 0)
            return false;
        if (++splits[best].n_more == group->counts[best])
            splits[best] = (split){splits[best].low + 1, 0};
    }
    return true;
}

/* Does the rule look at speeds when it cuts a micro-batch of this stage? */
static bool cuts_by_speed(const tuning *t, int stage)
{
    const zp_group *group = &t->groups[stage];
    for (int k = 0; k < t->problem->n_classes; k++)
        if (group->counts[k] > 0 && group->counts[k] < group->n_gpus)
            return t->rules->samples_by_speed;
    return false;
}

static const split *splits_of(const tuning *t, int stage)
{
    return t->splits[t->head[stage]];
}

/* Micro-batches through one block of the stage per ms. */
static double stage_speed(const tuning *t, int stage)
{
    double slowest_ms = 0;
    for (int k = 0; k < t->problem->n_classes; k++) {
        int b = most_samples(&splits_of(t, stage)[k]);
        if (t->groups[stage].counts[k] > 0 && b > 0)
            slowest_ms = fmax(slowest_ms, block_ms(t, k, b));
    }
    return slowest_ms > 0 ? 1 / slowest_ms : 0;
}

/* As equal as can be; the last stages, which hold fewer activations, take what is left over. */
static void divide_blocks_evenly(tuning *t)
{
    int low = t->problem->n_blocks / t->n_stages, n_more = t->problem->n_blocks % t->n_stages;
    for (int s = 0; s < t->n_stages; s++)
        t->n_blocks[s] = low + (s >= t->n_stages - n_more);
}

static double tau_ms(const tuning *t, zp_kind kind, int n_blocks, int k, int b)
{
    static const int n_sends[ZP_N_KINDS] = {[ZP_FIRST] = 1, [ZP_MIDDLE] = 2, [ZP_LAST] = 1};
    const zp_problem *p = t->problem;
    const zp_class *c = &p->classes[k];
    if (b == 0)
        return 0;
    double ms = n_blocks * block_ms(t, k, b);
    if (kind == ZP_FIRST || kind == ZP_SINGLE)
        ms += c->embed_ms[b];
    if (kind == ZP_LAST || kind == ZP_SINGLE)
        ms += c->head_ms[b];
    double link_ms =
        n_sends[kind] * p->boundary_gib * b * MS_PER_S * c->gpus_per_node / c->nic_gib_per_s;
    return fmax(ms + (1 - p->overlap_send) * link_ms, link_ms) + n_sends[kind] * c->send_latency_ms;
}

static double comp_ms(const tuning *t, int stage, int n_blocks)
{
    const zp_kind kind = zp_problem_kind(stage, t->n_stages);
    double slowest_ms = 0;
    for (int k = 0; k < t->problem->n_classes; k++)
        if (t->groups[stage].counts[k] > 0)
            slowest_ms = fmax(slowest_ms,
                              tau_ms(t, kind, n_blocks, k, most_samples(&splits_of(t, stage)[k])));
    return slowest_ms;
}

static void set_room(zp_room *room, const tuning *t, int stage)
{
    const int m = t->batching.n_micro_batches, after = t->n_stages - stage;
    zp_room_set(room, t->problem, t->zero, zp_problem_kind(stage, t->n_stages), t->n_blocks[stage],
                t->recompute, t->batching.micro_batch, m < after ? m : after);
}

/* What the stage's fullest GPU lacks; negative: it has that much to spare. */
static double missing_gib(int *class, const tuning *t, int stage)
{
    const zp_group *group = &t->groups[stage];
    double worst_gib = -INFINITY, room_gib = 0, n_gpus = group->n_gpus;
    zp_room room;
    set_room(&room, t, stage);
    double shard_gib = t->rules->shards_by_room ? 0 : room.shard_gib / n_gpus;
    for (int k = 0; k < t->problem->n_classes; k++) {
        if (group->counts[k] == 0)
            continue;
        double need_gib = most_samples(&splits_of(t, stage)[k]) * room.act_gib + shard_gib;
        room_gib += group->counts[k] * room.room_gib[k];
        if (need_gib - room.room_gib[k] > worst_gib) {
            worst_gib = need_gib - room.room_gib[k];
            *class = k;
        }
    }
    return t->rules->shards_by_room ? fmax(worst_gib, (room.needed_gib - room_gib) / n_gpus)
                                    : worst_gib;
}

/* The least slowest stage that memory allows: one block after the other to where it is done soonest
 * and has room, the last such stage, with embedding, head and sends in the count. Room is ignored
 * when there is none anywhere. */
static void divide_blocks_by_speed(tuning *t)
{
    int left = t->problem->n_blocks - t->n_stages, class;
    for (int s = 0; s < t->n_stages; s++) {
        t->n_blocks[s] = 1;
        t->next_ms[s] = comp_ms(t, s, 2);
    }
    for (bool room = true; left > 0;) {
        int soonest = 0;
        for (int s = 1; s < t->n_stages; s++)
            if (t->next_ms[s] <= t->next_ms[soonest])
                soonest = s;
        if (!isfinite(t->next_ms[soonest])) {
            room = false;
            for (int s = 0; s < t->n_stages; s++)
                t->next_ms[s] = comp_ms(t, s, t->n_blocks[s] + 1);
            continue;
        }
        t->n_blocks[soonest]++;
        if (room && missing_gib(&class, t, soonest) > 0) {
            t->n_blocks[soonest]--;
            t->next_ms[soonest] = INFINITY;
            continue;
        }
        t->next_ms[soonest] = comp_ms(t, soonest, t->n_blocks[soonest] + 1);
        left--;
    }
}

static bool fits(tuning *t)
{
    miss worst = {.missing_gib = -INFINITY,
                  .n_stages = t->n_stages,
                  .zero = t->zero,
                  .recompute = t->recompute,
                  .batching = t->batching};
    for (int s = 0; s < t->n_stages; s++) {
        int class = 0;
        double missing = missing_gib(&class, t, s);
        if (missing > worst.missing_gib) {
            worst.missing_gib = missing;
            worst.stage = s;
            worst.class = class;
        }
    }
    if (worst.missing_gib < t->nearest.missing_gib)
        t->nearest = worst;
    return worst.missing_gib <= 0;
}

/* T, or something larger than limit_ms when it is that. */
static double step_ms(const tuning *t, double limit_ms)
{
    const zp_problem *p = t->problem;
    const int m = t->batching.n_micro_batches;
    double sum_ms = 0, max_ms = 0, max_sync_ms = 0;
    for (int s = 0; s < t->n_stages && sum_ms + (m - 1) * max_ms <= limit_ms; s++) {
        const zp_group *group = &t->groups[s];
        zp_kind kind = zp_problem_kind(s, t->n_stages);
        double own_ms = comp_ms(t, s, t->n_blocks[s]);
        double traffic_ms = zp_shape_traffic_ms(p, t->zero, kind, t->n_blocks[s], group);
        double time_ms = fmax(own_ms, (1 - p->overlap_zero) * own_ms + traffic_ms);
        sum_ms += time_ms;
        max_ms = fmax(max_ms, time_ms);
        max_sync_ms = fmax(max_sync_ms, zp_shape_sync_ms(p, t->zero, kind, t->n_blocks[s], group));
    }
    return sum_ms + (m - 1) * max_ms + max_sync_ms;
}

static bool build_stage(zp_stage *out, const tuning *t, zs_arena *arena, int stage, zs_error *err)
{
    const zp_group *group = &t->groups[stage];
    zp_member *members = ZS_NEW(arena, zp_member, group->n_gpus, err);
    if (!members)
        return false;
    zp_room room;
    double free_gib = 0;
    int n = 0;
    set_room(&room, t, stage);
    for (int k = 0; k < t->problem->n_classes; k++)
        for (int i = 0; i < group->counts[k]; i++) {
            const split *s = &splits_of(t, stage)[k];
            int b = s->low + (i < s->n_more);
            double own_gib = fmax(0, room.room_gib[k] - b * room.act_gib);
            free_gib += own_gib;
            members[n++] = (zp_member){k, b, own_gib};
        }
    for (int i = 0; i < n; i++)
        members[i].shard_share =
            t->rules->shards_by_room && free_gib > 0 ? members[i].shard_share / free_gib : 1.0 / n;
    *out = (zp_stage){.n_blocks = t->n_blocks[stage],
                      .zero = t->zero,
                      .recompute = t->recompute,
                      .intra = group->intra,
                      .n_members = n,
                      .members = members};
    return true;
}

/* The judge is zp_evaluate. */
static bool keep(tuning *t, zs_arena *scratch, zs_error *err)
{
    zp_cost cost;
    zp_stage *stages = ZS_NEW(scratch, zp_stage, t->n_stages, err);
    if (!stages)
        return false;
    for (int s = 0; s < t->n_stages; s++)
        if (!build_stage(&stages[s], t, t->arena, s, err))
            return false;
    if (!zp_evaluate(&cost, scratch, t->problem, &t->batching, stages, t->n_stages, false,
                     ZP_SEARCH_TOLERANCE_GIB, err)) {
        if (err)
            err->code = ZS_ERR_RUNTIME;
        return zs_error_prefix(err, "baseline %s", t->rules->name);
    }
    zp_baseline *best = t->best;
    best->feasible = true;
    best->bubble_share = zp_evaluate_bubble_share(&cost, t->n_stages, t->batching.n_micro_batches);
    best->memory_share = zp_evaluate_memory_share(&cost, t->problem, stages, t->n_stages);
    best->solution = (zp_solution){.batching = t->batching,
                                   .n_stages = t->n_stages,
                                   .stages = ZS_NEW(t->arena, zp_stage, t->n_stages, err),
                                   .step_ms = cost.step_ms};
    if (!best->solution.stages)
        return false;
    for (int s = 0; s < t->n_stages; s++)
        best->solution.stages[s] = stages[s];
    return true;
}

static bool try_candidate(tuning *t, zs_error *err)
{
    double best_ms = t->best->feasible ? t->best->solution.step_ms : INFINITY;
    if (t->rules->blocks_by_speed)
        divide_blocks_by_speed(t);
    else
        divide_blocks_evenly(t);
    /* Now that the memory of a sample is known, micro-batches of mixed stages are cut again. */
    for (int s = 0; s < t->n_stages; s++) {
        zp_room room;
        if (!cuts_by_speed(t, s))
            continue;
        set_room(&room, t, s);
        if (!split_by_speed(t, t->splits[s], &t->groups[s], room.most) &&
            !split_by_speed(t, t->splits[s], &t->groups[s], t->most_offered))
            return true;
    }
    t->any = true;
    if (t->best->feasible && step_ms(t, best_ms) >= best_ms)
        return true;
    if (!fits(t) || step_ms(t, best_ms) >= best_ms)
        return true;
    zs_arena *scratch;
    if (!zs_arena_open(&scratch, err))
        return false;
    bool ok = keep(t, scratch, err);
    zs_arena_close(&scratch);
    return ok;
}

static void add_speed(tuning *t, double speed, int n)
{
    int i = t->n_speeds++;
    for (; i > 0 && t->speeds[i - 1].speed < speed; i--)
        t->speeds[i] = t->speeds[i - 1];
    t->speeds[i] = (stage_speeds){speed, n};
}

/* Can stages of these speeds, in units through one block per ms, give a plan faster than the best?
 * A micro-batch is n_units. With limit X on the slowest stage the blocks take the least time when
 * the fastest stages are full, so T >= min_j (m - 1 + j) L / (sum of the j fastest speeds), and
 * between two ends of equal stages that is monotone in j. */
static bool may_be_best(const tuning *t, double n_units)
{
    const int L = t->problem->n_blocks, before = t->batching.n_micro_batches - 1;
    double bound_ms = t->rules->blocks_by_speed ? INFINITY : 0, sum = 0;
    if (!t->best->feasible)
        return true;
    for (int i = 0, j = 0; i < t->n_speeds; i++) {
        const stage_speeds *s = &t->speeds[i];
        j += s->n;
        sum += s->n * s->speed;
        if (t->rules->blocks_by_speed) {
            bound_ms = fmin(bound_ms, (before + j) * L * n_units / sum);
        } else {
            const double each_ms = L / t->n_stages * n_units / s->speed;
            bound_ms += (s->n + (i == t->n_speeds - 1 ? before : 0)) * each_ms;
        }
    }
    /* One stage of the fastest alone may be the least as well. */
    if (t->rules->blocks_by_speed)
        bound_ms = fmin(bound_ms, (before + 1) * L * n_units / t->speeds[0].speed);
    return bound_ms < t->best->solution.step_ms;
}

/* Samples of every stage; false: a size is not offered, or no such plan can be the best. */
static bool divide_samples(tuning *t)
{
    t->n_speeds = 0;
    for (int s = 0, end; s < t->n_stages; s = end) {
        for (end = s + 1; end < t->n_stages && t->head[end] == s;)
            end++;
        if (!(cuts_by_speed(t, s) ? split_by_speed(t, t->splits[s], &t->groups[s], t->most_offered)
                                  : split_evenly(t, t->splits[s], &t->groups[s])))
            return false;
        t->weights[s] = stage_speed(t, s);
        add_speed(t, t->weights[s], end - s);
    }
    return may_be_best(t, 1);
}

static bool try_batching(tuning *t, bool recompute, zs_error *err)
{
    t->recompute = recompute;
    if (!divide_samples(t))
        return true;
    for (t->zero = 1; t->zero <= 3; t->zero++)
        if (t->rules->zero[t->zero] && t->problem->zero[t->zero].allowed && !try_candidate(t, err))
            return false;
    return true;
}

static bool try_layout(void *context, const zp_group *groups, int n_stages, zs_error *err)
{
    tuning *t = context;
    const zp_problem *p = t->problem;
    if (t->stopped || (t->deadline && zp_deadline_passed(t->deadline))) {
        t->stopped = true;
        return true;
    }
    t->groups = groups;
    t->n_stages = n_stages;
    for (int s = 0; s < n_stages; s++) {
        bool alike = s > 0 && !cuts_by_speed(t, s) &&
                     memcmp(groups[s].counts, groups[s - 1].counts, sizeof groups[s].counts) == 0;
        t->head[s] = alike ? t->head[s - 1] : s;
    }
    /* Samples through one block per ms, at the best size of each class. */
    int n_layout_speeds = 0;
    for (int s = 0, end; s < n_stages; s = end) {
        double slowest = INFINITY, speed = 0;
        for (end = s + 1; end < n_stages && t->head[end] == s;)
            end++;
        for (int k = 0; k < p->n_classes; k++)
            if (groups[s].counts[k] > 0) {
                slowest = fmin(slowest, t->speed[k]);
                speed += groups[s].counts[k] * t->speed[k];
            }
        t->layout_speeds[n_layout_speeds++] =
            (stage_speeds){cuts_by_speed(t, s) ? speed : groups[s].n_gpus * slowest, end - s};
    }
    for (int i = 0; i < p->n_batchings; i++) {
        t->batching = p->batchings[i];
        t->n_speeds = 0;
        for (int j = 0; j < n_layout_speeds; j++)
            add_speed(t, t->layout_speeds[j].speed, t->layout_speeds[j].n);
        if (!may_be_best(t, t->batching.micro_batch))
            continue;
        for (int recompute = 0; recompute <= 1; recompute++)
            if ((recompute ? p->recompute_full : p->recompute_none) &&
                !try_batching(t, recompute == 1, err))
                return false;
    }
    return true;
}

static const char *explain(const tuning *t, zs_error *err)
{
    const miss *near = &t->nearest;
    bool allowed = false;
    for (int zero = 1; zero <= 3; zero++)
        allowed = allowed || (t->rules->zero[zero] && t->problem->zero[zero].allowed);
    if (!allowed)
        return zs_arena_strdup(t->arena, "the job excludes its ZeRO level", err);
    if (t->stopped && !t->any)
        return zs_arena_strdup(t->arena, "the time limit passed", err);
    if (!t->any)
        return zs_arena_strdup(t->arena, "no such plan within the job's limits and offered sizes",
                               err);
    const zp_class *c = &t->problem->classes[near->class];
    return zs_arena_printf(
        t->arena, err,
        "no room: %s needs %.2f GiB, has %.2f, missing %.2f (stage %d of %d, "
        "micro-batch %d, ZeRO-%d, recompute %s)",
        c->gpu, c->memory_gib + near->missing_gib, c->memory_gib, near->missing_gib, near->stage,
        near->n_stages, near->batching.micro_batch, near->zero, near->recompute ? "full" : "none");
}

static bool tune(zp_baseline *out, tuning *t, zs_error *err)
{
    *out = (zp_baseline){.name = t->rules->name, .like = t->rules->like};
    t->best = out;
    for (int i = 0; i < t->rules->n_layouts; i++)
        if (!zp_layouts_visit(t->problem, t->rules->layouts[i], try_layout, t, err))
            return false;
    out->why_not = out->feasible ? NULL : explain(t, err);
    return out->feasible || out->why_not;
}

bool zp_baselines_build(zp_baseline out[ZP_N_BASELINES], bool *stopped, zs_arena *arena,
                        const zp_problem *p, const zp_deadline *deadline, zs_error *err)
{
    zs_arena *scratch;
    if (!zp_problem_check(p, err) || !zs_arena_open(&scratch, err))
        return false;
    tuning base = {.problem = p,
                   .arena = arena,
                   .deadline = deadline,
                   .n_blocks = ZS_NEW(scratch, int, p->max_stages, err),
                   .splits = zs_arena_alloc(scratch, p->max_stages, sizeof *base.splits, err),
                   .weights = ZS_NEW(scratch, double, p->max_stages, err),
                   .layout_speeds = ZS_NEW(scratch, stage_speeds, p->max_stages, err),
                   .speeds = ZS_NEW(scratch, stage_speeds, p->max_stages, err),
                   .next_ms = ZS_NEW(scratch, double, p->max_stages, err),
                   .head = ZS_NEW(scratch, int, p->max_stages, err),
                   .nearest = {.missing_gib = INFINITY}};
    bool any_stopped = false, ok = base.n_blocks && base.splits && base.weights &&
                                   base.layout_speeds && base.speeds && base.next_ms && base.head;
    for (int k = 0; k < p->n_classes; k++) {
        base.speed[k] = zp_layout_speed(p, k);
        int i = k;
        for (; i > 0 && base.speed[base.fastest[i - 1]] < base.speed[k]; i--)
            base.fastest[i] = base.fastest[i - 1];
        base.fastest[i] = k;
        base.most_offered[k] = p->classes[k].b_max;
    }
    for (int i = 0; ok && i < ZP_N_BASELINES; i++) {
        tuning t = base;
        t.rules = &all_rules[i];
        ok = tune(&out[i], &t, err);
        any_stopped = any_stopped || t.stopped;
    }
    if (stopped)
        *stopped = any_stopped;
    zs_arena_close(&scratch);
    return ok;
}

const zp_baseline *zp_baselines_best(const zp_baseline baselines[ZP_N_BASELINES])
{
    const zp_baseline *best = NULL;
    for (int i = 0; i < ZP_N_BASELINES; i++)
        if (baselines[i].feasible &&
            (!best || baselines[i].solution.step_ms < best->solution.step_ms))
            best = &baselines[i];
    return best;
}

bool zp_baselines_search(zp_solution *out, zs_arena *arena, const zp_problem *problem,
                         const zp_search_options *options, zs_error *err)
{
    const double start_ms = zp_deadline_now_ms(), limit_ms = options->time_limit_ms;
    const zp_deadline deadline = {.end_ms =
                                      limit_ms > 0 ? start_ms + TIME_SHARE * limit_ms : INFINITY,
                                  .stop = options->stop};
    zp_baseline baselines[ZP_N_BASELINES];
    bool stopped;
    if (!zp_baselines_build(baselines, &stopped, arena, problem, &deadline, err))
        return false;
    const zp_baseline *best = zp_baselines_best(baselines);
    zp_search_options rest = *options;
    rest.incumbent = best ? &best->solution : NULL;
    if (limit_ms > 0)
        rest.time_limit_ms = fmax(1, limit_ms - (zp_deadline_now_ms() - start_ms));
    if (!zp_search(out, arena, problem, &rest, err))
        return false;
    out->time_limit = out->time_limit || (stopped && out->step_ms > out->lower_bound_ms);
    return true;
}
