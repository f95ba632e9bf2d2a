#include "planner/search.h"

#include "planner/evaluate.h"
#include "planner/infeasible.h"
#include "planner/master.h"
#include "shared/log.h"

#include <math.h>
#include <stdlib.h>

/* Plans closer than this are equal but for rounding. */
static const double LEAST_GAP = 1e-9;

/* The first phase, with groups of one class only, is there to find a good plan soon. */
static const double FIRST_PHASE_GAP = 0.01;
static const double FIRST_PHASE_TIME = 0.4; /* of the time limit */

/* The second phase ends here, if a third is to bound what it leaves out. */
static const double SECOND_PHASE_TIME = 0.85;

/* Boxes narrower than this part of the step time go to the integer program; wider ones are split
 * first, because its optimum has the least sum of times and not the least step time. */
static const double NARROW = 0.05, NARROW_RELAXED = 0.01;

/* Nodes and columns of one integer program in a box that can still be split. */
enum { MAX_NODES = 500, MAX_INTEGER_COLUMNS = 4000 };

/* A plan this much above the bound of a batching is worth a quick look for a better one there:
 * bisection steps for the bottleneck, and how much above it the integer program may go. */
static const double POOR = 2;
static const double DIVE_SLACK = 1.1;
enum { DIVE_STEPS = 8 };

/* Boxes narrower than this part of the step time are not split any more. */
static const double LEAST_WIDTH = 1e-9, LEAST_WIDTH_PRICING = 1e-5;

/* The solver's rows and its optima hold within this: cutoffs are looser by it, and no bound that an
 * integer program proved is claimed more exactly. */
static const double SOLVER_TOLERANCE = 1e-7;

/* All assignments of one batching with bottleneck max_s t_s and max_s sync_s in these intervals. A
 * batching whose patterns are not known yet has one box without limits. */
typedef struct box {
    int batching;
    double bound_ms; /* on the step time in the box */
    double min_time_ms, max_time_ms;
    double min_sync_ms, max_sync_ms;
    int64_t number; /* ties: the older box first */
} box;

typedef struct search {
    const zp_problem *problem;
    const zp_solver *solver;
    zs_arena *arena; /* of the solution */
    zp_groups groups;
    zp_deadline deadline;
    const zp_search_options *options;
    double gap;
    bool has_best;
    zp_solution best;
    double best_ms;        /* infinity: none yet */
    zp_patterns *patterns; /* by batching: listed ones, then those that pricing found */
    int *n_listed;         /* by batching; -1: not listed yet */
    bool pricing;          /* groups that are not listed are considered, through pricing */
    bool relaxed;          /* only bounds, but for all groups */
    bool whole_nodes;      /* groups of several classes consist of whole nodes */
    zp_pricer **pricers;   /* by batching */
    zs_arena *arena_of_pricers;
    double *floor_ms; /* by batching: bound on max_s t_s and on sum_s t_s */
    box *boxes;       /* heap, least bound first */
    int n_boxes, box_capacity;
    int64_t n_boxes_made;
    double closed_ms;      /* least bound of the boxes that were closed */
    bool mixes;            /* there are several classes */
    double least_floor_ms; /* bound for any groups */
    bool stopped;
    int64_t n_solves, n_nodes;
} search;

/* Assignments that take this long or longer are of no interest. */
static double target_ms(const search *s)
{
    return s->best_ms * (1 - s->gap);
}

static bool box_before(const box *a, const box *b)
{
    if (a->bound_ms != b->bound_ms)
        return a->bound_ms < b->bound_ms;
    return a->number < b->number;
}

static void close_box(search *s, double bound_ms)
{
    s->closed_ms = fmin(s->closed_ms, bound_ms);
}

static bool push_box(search *s, box b, zs_error *err)
{
    if (b.bound_ms >= target_ms(s)) {
        close_box(s, b.bound_ms);
        return true;
    }
    if (s->n_boxes == s->box_capacity) {
        int capacity = s->box_capacity ? 2 * s->box_capacity : 64;
        box *boxes = realloc(s->boxes, (size_t)capacity * sizeof *boxes);
        if (!boxes)
            return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for %d boxes", capacity);
        s->boxes = boxes;
        s->box_capacity = capacity;
    }
    b.number = s->n_boxes_made++;
    int i = s->n_boxes++;
    for (; i > 0 && box_before(&b, &s->boxes[(i - 1) / 2]); i = (i - 1) / 2)
        s->boxes[i] = s->boxes[(i - 1) / 2];
    s->boxes[i] = b;
    return true;
}

static box pop_box(search *s)
{
    box top = s->boxes[0], last = s->boxes[--s->n_boxes];
    int i = 0;
    for (;;) {
        int child = 2 * i + 1;
        if (child >= s->n_boxes)
            break;
        if (child + 1 < s->n_boxes && box_before(&s->boxes[child + 1], &s->boxes[child]))
            child++;
        if (!box_before(&s->boxes[child], &last))
            break;
        s->boxes[i] = s->boxes[child];
        i = child;
    }
    s->boxes[i] = last;
    return top;
}

static zp_master master_of(search *s, int batching)
{
    return (zp_master){.problem = s->problem,
                       .groups = &s->groups,
                       .batching = &s->problem->batchings[batching],
                       .patterns = &s->patterns[batching],
                       .solver = s->solver,
                       .deadline = &s->deadline,
                       .pricer = s->pricing ? s->pricers[batching] : NULL};
}

/* Infinity when the micro-batch is too large for all GPUs together; else
 * max_s t_s >= u L / sum_k N_k max_b b / (f_k + g_k)(b): no division of the blocks beats all GPUs
 * working at their best speed all the time. The same holds for the sum of t_s. */
static double floor_of(const zp_problem *p, const zp_batching *batching)
{
    double samples_per_ms = 0; /* through one block */
    int64_t most = 0;          /* samples of all GPUs in one stage */
    for (int k = 0; k < p->n_classes; k++) {
        const zp_class *c = &p->classes[k];
        double best = 0;
        for (int b = 1; b <= c->b_max && b <= batching->micro_batch; b++)
            best = fmax(best,
                        b / (c->forward_ms[b] * (p->recompute_none ? 1 : 2) + c->backward_ms[b]));
        samples_per_ms += c->n_nodes * c->gpus_per_node * best;
        most += (int64_t)c->n_nodes * c->gpus_per_node * c->b_max;
    }
    if (most < batching->micro_batch)
        return INFINITY;
    return samples_per_ms > 0 ? batching->micro_batch * p->n_blocks / samples_per_ms : INFINITY;
}

/* Patterns cover the blocks; takes what is too much from the stages that are slowest. */
static void trim_blocks(int *n_blocks, const zp_problem *p, const zp_patterns *patterns,
                        const int *chosen, int n_stages)
{
    int excess = -p->n_blocks;
    for (int i = 0; i < n_stages; i++) {
        n_blocks[i] = patterns->items[chosen[i]].n_blocks;
        excess += n_blocks[i];
    }
    for (; excess > 0; excess--) {
        int slowest = -1;
        double slowest_ms = -1;
        for (int i = 0; i < n_stages; i++) {
            const zp_pattern *q = &patterns->items[chosen[i]];
            double ms = q->time_ms * n_blocks[i] / q->n_blocks;
            if (n_blocks[i] > 1 && ms > slowest_ms) {
                slowest = i;
                slowest_ms = ms;
            }
        }
        n_blocks[slowest]--;
    }
}

static bool build_stages(zp_stage **out, zs_arena *arena, const search *s, int batching,
                         const int *chosen, int n_stages, zs_error *err)
{
    const zp_batching *b = &s->problem->batchings[batching];
    const zp_patterns *patterns = &s->patterns[batching];
    zp_stage *stages = ZS_NEW(arena, zp_stage, n_stages, err);
    int *n_blocks = ZS_NEW(arena, int, n_stages, err);
    if (!stages || !n_blocks)
        return false;
    trim_blocks(n_blocks, s->problem, patterns, chosen, n_stages);
    for (int i = 0; i < n_stages; i++) {
        int in_flight = b->n_micro_batches < n_stages - i ? b->n_micro_batches : n_stages - i;
        if (!zp_pattern_stage(&stages[i], arena, s->problem, &s->groups,
                              &patterns->items[chosen[i]], b, n_blocks[i], in_flight, err))
            return false;
    }
    *out = stages;
    return true;
}

/* Makes the chosen patterns the incumbent if they are better; the judge is zp_evaluate. */
static bool try_plan(search *s, zs_arena *scratch, int batching, const int *chosen, int n_stages,
                     zs_error *err)
{
    zp_stage *stages;
    zp_cost cost;
    const zp_batching *b = &s->problem->batchings[batching];
    if (!build_stages(&stages, scratch, s, batching, chosen, n_stages, err) ||
        !zp_evaluate(&cost, scratch, s->problem, b, stages, n_stages, false,
                     ZP_SEARCH_TOLERANCE_GIB, err)) {
        if (err)
            err->code = ZS_ERR_RUNTIME;
        return zs_error_prefix(err, "an answer of the solver does not hold");
    }
    if (cost.step_ms >= s->best_ms)
        return true;
    if (!build_stages(&stages, s->arena, s, batching, chosen, n_stages, err))
        return false;
    s->best_ms = cost.step_ms;
    s->has_best = true;
    s->best.batching = *b;
    s->best.n_stages = n_stages;
    s->best.stages = stages;
    s->best.step_ms = cost.step_ms;
    zs_log_debug("plan of %g ms: %d stages, %d micro-batches of %d", cost.step_ms, n_stages,
                 b->n_micro_batches, b->micro_batch);
    return true;
}

static double width_ms(const search *s, const box *b)
{
    const int m = s->problem->batchings[b->batching].n_micro_batches;
    return (m - 1) * (b->max_time_ms - b->min_time_ms) + b->max_sync_ms - b->min_sync_ms;
}

/* Boxes of the pass that only bounds, beside three of each batching. */
enum { MAX_RELAXED_BOXES = 60 };

/* Effort for one list of patterns; more where a box is so narrow that to split it does not help. */
enum { LIST_STEPS = 30000 };

/* Relaxations of a box before it is split. */
enum { MAX_ROUNDS = 3 };

/* Patterns within the box's limits; lowers the limits to what they reach, if these are all. */
static int collect(int *subset, const search *s, box *b)
{
    const zp_patterns *patterns = &s->patterns[b->batching];
    int n = 0;
    double max_time_ms = -INFINITY, max_sync_ms = -INFINITY;
    /* In narrow boxes pricing may do without relaxed groups. */
    bool wide = width_ms(s, b) > 2 * NARROW * s->best_ms;
    for (int i = 0; i < patterns->n; i++) {
        const zp_pattern *q = &patterns->items[i];
        if (q->kind == ZP_SINGLE || (q->relaxed && !wide) || q->time_ms > b->max_time_ms ||
            q->sync_ms > b->max_sync_ms)
            continue;
        subset[n++] = i;
        max_time_ms = fmax(max_time_ms, q->time_ms);
        max_sync_ms = fmax(max_sync_ms, q->sync_ms);
    }
    if (!s->pricing) {
        b->max_time_ms = max_time_ms;
        b->max_sync_ms = max_sync_ms;
    }
    return n;
}

/* A plan soon: the least bottleneck for which the relaxation has a solution, by bisection, and the
 * integer program a little above it. Only tries; the boxes do not depend on it. */
static bool dive(search *s, zs_arena *scratch, const box *b, zs_error *err)
{
    const zp_master master = master_of(s, b->batching);
    const zp_relaxing relaxing = {INFINITY, INFINITY, INFINITY};
    int *subset = ZS_NEW(scratch, int, master.patterns->n, err);
    double low_ms = b->min_time_ms, high_ms = b->max_time_ms;
    if (!subset)
        return false;
    for (int i = 0; i < DIVE_STEPS && !zp_deadline_passed(&s->deadline); i++) {
        zp_relaxation relaxed;
        double middle_ms = low_ms > 0 ? sqrt(low_ms * high_ms) : high_ms / 2;
        box below = *b;
        below.max_time_ms = middle_ms;
        int n = collect(subset, s, &below);
        if (!zp_master_relax(&relaxed, scratch, &master, subset, n, &relaxing, err))
            return false;
        if (relaxed.status == ZP_OPTIMAL)
            high_ms = middle_ms;
        else
            low_ms = middle_ms;
    }
    zp_selection selected;
    box below = *b;
    below.max_time_ms = high_ms * DIVE_SLACK;
    int n = collect(subset, s, &below);
    if (n > MAX_INTEGER_COLUMNS)
        return true;
    if (!zp_master_select(&selected, scratch, &master, subset, n, target_ms(s), MAX_NODES, err))
        return false;
    s->n_solves++;
    s->n_nodes += selected.n_nodes;
    return !isfinite(selected.time_ms) ||
           try_plan(s, scratch, b->batching, selected.chosen, selected.n_stages, err);
}

/* Lists the patterns of a batching over the listed groups. */
static bool list_patterns(bool *listed, search *s, int batching, double max_time_ms,
                          double max_sync_ms, zs_error *err)
{
    zp_patterns *patterns = &s->patterns[batching];
    *listed = true;
    if (s->n_listed[batching] >= 0)
        return true;
    if (!zp_patterns_find(patterns, s->problem, &s->groups, &s->problem->batchings[batching],
                          max_time_ms, max_sync_ms, &s->deadline, err))
        return false;
    *listed = !patterns->stopped;
    if (*listed)
        s->n_listed[batching] = patterns->n;
    else
        zp_patterns_close(patterns);
    return true;
}

/* The best single stage. */
static bool try_single(search *s, zs_arena *scratch, int batching, zs_error *err)
{
    const zp_patterns *patterns = &s->patterns[batching];
    const int m = s->problem->batchings[batching].n_micro_batches;
    int single = -1;
    double single_ms = INFINITY;
    if (s->pricing && s->problem->min_stages <= 1) {
        double least_ms;
        if (!zp_pricer_find_single(&least_ms, &s->patterns[batching], &s->groups,
                                   s->pricers[batching], target_ms(s), &s->deadline, err))
            return false;
        close_box(s, least_ms);
    }
    for (int i = 0; i < patterns->n; i++) {
        const zp_pattern *q = &patterns->items[i];
        if (q->kind == ZP_SINGLE && m * q->time_ms + q->sync_ms < single_ms) {
            single = i;
            single_ms = m * q->time_ms + q->sync_ms;
        }
    }
    if (single < 0 || s->relaxed)
        return true;
    close_box(s, single_ms);
    return single_ms >= s->best_ms || try_plan(s, scratch, batching, &single, 1, err);
}

/* Finds the patterns of a batching, takes the best single stage, and makes the box of the rest. */
static bool open_batching(search *s, zs_arena *scratch, const box *b, zs_error *err)
{
    const zp_batching *batching = &s->problem->batchings[b->batching];
    const int m = batching->n_micro_batches;
    const zp_patterns *patterns = &s->patterns[b->batching];
    double floor_ms = s->floor_ms[b->batching];
    double max_time_ms = m > 1 ? (s->best_ms - floor_ms) / (m - 1) : s->best_ms;
    double max_sync_ms = s->best_ms - m * floor_ms;
    bool listed;
    if (!list_patterns(&listed, s, b->batching, max_time_ms, max_sync_ms, err))
        return false;
    if (!listed) {
        s->stopped = true;
        return push_box(s, *b, err);
    }
    if (s->pricing && !s->pricers[b->batching] &&
        !zp_pricer_build(&s->pricers[b->batching], s->arena_of_pricers, s->problem, batching,
                         s->whole_nodes, s->relaxed, max_time_ms, err))
        return false;
    if (!try_single(s, scratch, b->batching, err))
        return false;
    if (zp_pattern_max_stages(s->problem) < 2)
        return true;
    box rest = {.batching = b->batching,
                .bound_ms = b->bound_ms,
                .min_time_ms = floor_ms,
                .max_time_ms = -INFINITY};
    for (int i = 0; i < patterns->n; i++) {
        const zp_pattern *q = &patterns->items[i];
        if (q->kind != ZP_SINGLE) {
            rest.max_time_ms = fmax(rest.max_time_ms, q->time_ms);
            rest.max_sync_ms = fmax(rest.max_sync_ms, q->sync_ms);
        }
    }
    if (s->pricing) {
        double most_time_ms, most_sync_ms;
        zp_pricer_most(&most_time_ms, &most_sync_ms, s->pricers[b->batching]);
        rest.max_time_ms = fmin(fmax(rest.max_time_ms, most_time_ms), max_time_ms);
        rest.max_sync_ms = fmin(fmax(rest.max_sync_ms, most_sync_ms), max_sync_ms);
    }
    zs_log_debug("%d micro-batches of %d: %d patterns", m, batching->micro_batch, patterns->n);
    if (rest.max_time_ms < rest.min_time_ms || rest.max_sync_ms < 0)
        return true;
    if (!s->pricing && s->best_ms > POOR * rest.bound_ms && !dive(s, scratch, &rest, err))
        return false;
    return push_box(s, rest, err);
}

/* Cuts the box in two at a value between those of patterns; a half may be empty. */
static void split_box(box halves[2], const search *s, const box *b, double least_sum_ms,
                      const int *subset, int n, bool by_time)
{
    const zp_patterns *patterns = &s->patterns[b->batching];
    const int m = s->problem->batchings[b->batching].n_micro_batches;
    double min = by_time ? b->min_time_ms : b->min_sync_ms;
    double max = by_time ? b->max_time_ms : b->max_sync_ms;
    double middle = min + (max - min) / 2, below = -INFINITY, above = INFINITY;
    for (int i = 0; i < n; i++) {
        const zp_pattern *q = &patterns->items[subset[i]];
        double value = by_time ? q->time_ms : q->sync_ms;
        if (value < min || value > max)
            continue;
        if (value <= middle)
            below = fmax(below, value);
        else
            above = fmin(above, value);
    }
    if (s->pricing) {
        below = middle;
        above = nextafter(middle, INFINITY);
    }
    halves[0] = halves[1] = *b;
    if (by_time) {
        halves[0].max_time_ms = below;
        halves[1].min_time_ms = above;
    } else {
        halves[0].max_sync_ms = below;
        halves[1].min_sync_ms = above;
    }
    halves[1].bound_ms =
        fmax(b->bound_ms, least_sum_ms + (m - 1) * halves[1].min_time_ms + halves[1].min_sync_ms);
}

/* The box without what the optimum of its integer program settles: it has the least sum of times,
 * so whatever has both a bottleneck and a sync no smaller than its own is no faster. */
static bool push_rest(search *s, const box *b, const zp_selection *optimum, const int *subset,
                      int n, zs_error *err)
{
    const zp_patterns *patterns = &s->patterns[b->batching];
    const int m = s->problem->batchings[b->batching].n_micro_batches;
    double time_ms = 0, sync_ms = 0;
    for (int i = 0; i < optimum->n_stages; i++) {
        time_ms = fmax(time_ms, patterns->items[optimum->chosen[i]].time_ms);
        sync_ms = fmax(sync_ms, patterns->items[optimum->chosen[i]].sync_ms);
    }
    box faster = *b, sooner = *b;
    faster.max_time_ms = sooner.max_sync_ms = -INFINITY;
    sooner.min_time_ms = fmax(b->min_time_ms, time_ms);
    for (int i = 0; i < n; i++) {
        const zp_pattern *q = &patterns->items[subset[i]];
        if (q->time_ms < time_ms)
            faster.max_time_ms = fmax(faster.max_time_ms, q->time_ms);
        if (q->sync_ms < sync_ms)
            sooner.max_sync_ms = fmax(sooner.max_sync_ms, q->sync_ms);
    }
    faster.bound_ms =
        fmax(b->bound_ms, optimum->time_ms + (m - 1) * b->min_time_ms + b->min_sync_ms);
    sooner.bound_ms =
        fmax(b->bound_ms, optimum->time_ms + (m - 1) * sooner.min_time_ms + b->min_sync_ms);
    close_box(s, optimum->time_ms + (m - 1) * time_ms + sync_ms);
    if (faster.max_time_ms >= faster.min_time_ms && !push_box(s, faster, err))
        return false;
    return sooner.max_sync_ms < sooner.min_sync_ms || push_box(s, sooner, err);
}

/* Keeps the patterns within the box's limits that can be part of something faster than the target:
 * using one costs at least its reduced cost beyond the bound. Lowers the limits to what is left. */
static int filter(int *subset, int n, const double *reduced_ms, double slack_ms, const search *s,
                  box *b)
{
    const zp_patterns *patterns = &s->patterns[b->batching];
    int n_kept = 0;
    double max_time_ms = -INFINITY, max_sync_ms = -INFINITY;
    for (int j = 0; j < n; j++) {
        const zp_pattern *q = &patterns->items[subset[j]];
        if (reduced_ms[j] > slack_ms || q->time_ms > b->max_time_ms || q->sync_ms > b->max_sync_ms)
            continue;
        subset[n_kept++] = subset[j];
        max_time_ms = fmax(max_time_ms, q->time_ms);
        max_sync_ms = fmax(max_sync_ms, q->sync_ms);
    }
    if (!s->pricing) {
        b->max_time_ms = max_time_ms;
        b->max_sync_ms = max_sync_ms;
    }
    return n_kept;
}

static bool is_empty(const box *b)
{
    return b->max_time_ms < b->min_time_ms || b->max_sync_ms < b->min_sync_ms;
}

/* Raises the bound of a box by the relaxation, and lowers its limits by what the bound on the sum
 * of times leaves for bottleneck and sync, as long as that removes patterns. *open: the box is
 * neither closed nor the search stopped; then out has the patterns that are left. */
static bool tighten(bool *open, zp_relaxation *out, double *slack_ms, box *b, int *subset, int n,
                    search *s, zs_arena *scratch, zs_error *err)
{
    const zp_master master = master_of(s, b->batching);
    const int m = master.batching->n_micro_batches;
    int n_before, n_rounds = 0;
    *open = false;
    do {
        if (is_empty(b))
            return true;
        double base_ms = (m - 1) * b->min_time_ms + b->min_sync_ms;
        const zp_relaxing relaxing = {b->max_time_ms, b->max_sync_ms, target_ms(s) - base_ms};
        if (!zp_master_relax(out, scratch, &master, subset, n, &relaxing, err))
            return false;
        if (out->status == ZP_NO_SOLUTION)
            return true;
        b->bound_ms = fmax(b->bound_ms, out->bound_ms + base_ms);
        if (out->status == ZP_STOPPED) {
            s->stopped = true;
            return push_box(s, *b, err);
        }
        if (b->bound_ms >= target_ms(s)) {
            close_box(s, b->bound_ms);
            return true;
        }
        *slack_ms = target_ms(s) - out->bound_ms - base_ms;
        if (m > 1)
            b->max_time_ms = fmin(b->max_time_ms, b->min_time_ms + *slack_ms / (m - 1));
        b->max_sync_ms = fmin(b->max_sync_ms, b->min_sync_ms + *slack_ms);
        n_before = out->n;
        out->n = n = filter(out->subset, out->n, out->reduced_ms, *slack_ms, s, b);
        subset = out->subset;
        n_rounds++;
    } while (n < n_before - n_before / 4 && n_rounds < MAX_ROUNDS);
    *open = !is_empty(b);
    if (!*open)
        close_box(s, target_ms(s));
    return true;
}

static bool push_halves(search *s, const box *b, double least_sum_ms, const int *subset, int n,
                        bool by_time, zs_error *err)
{
    box halves[2];
    split_box(halves, s, b, least_sum_ms, subset, n, by_time);
    for (int i = 0; i < 2; i++)
        if (!is_empty(&halves[i]) && !push_box(s, halves[i], err))
            return false;
    return true;
}

/* All patterns of the box that can be part of something better than the target: those of the
 * listed groups that are left, and what pricing lists of the others. */
static bool complete_patterns(bool *complete, zp_relaxation *r, double slack_ms, search *s,
                              const box *b, zs_arena *scratch, zs_error *err)
{
    zp_patterns *patterns = &s->patterns[b->batching];
    const zp_pricing_limits limits = {b->max_time_ms, b->max_sync_ms, &s->deadline};
    const int n_before = patterns->n;
    int n = 0, max_steps = width_ms(s, b) < slack_ms / 8   ? 64 * LIST_STEPS
                           : width_ms(s, b) < slack_ms / 2 ? 8 * LIST_STEPS
                                                           : LIST_STEPS;
    if (!zp_pricer_list(complete, patterns, &s->groups, s->pricers[b->batching], &r->prices,
                        slack_ms, MAX_INTEGER_COLUMNS, max_steps, &limits, err))
        return false;
    int *subset = ZS_NEW(scratch, int, r->n + patterns->n - n_before, err);
    if (!subset)
        return false;
    for (int j = 0; j < r->n; j++)
        if (r->subset[j] < s->n_listed[b->batching] ||
            (!*complete && !patterns->items[r->subset[j]].relaxed))
            subset[n++] = r->subset[j];
    for (int i = n_before; *complete && i < patterns->n; i++)
        subset[n++] = i;
    r->subset = subset;
    r->n = n;
    return true;
}

/* The integer program over the patterns of a narrow box. */
static bool settle(search *s, zs_arena *scratch, box b, const zp_relaxation *r, bool complete,
                   bool can_split, bool by_time, zs_error *err)
{
    const zp_master master = master_of(s, b.batching);
    const int m = master.batching->n_micro_batches;
    zp_selection selected;
    double base_ms = (m - 1) * b.min_time_ms + b.min_sync_ms;
    double cutoff_ms = (1 + SOLVER_TOLERANCE) * (target_ms(s) - base_ms);
    if (!zp_master_select(&selected, scratch, &master, r->subset, r->n, cutoff_ms,
                          can_split || !complete ? MAX_NODES : 0, err))
        return false;
    s->n_solves++;
    s->n_nodes += selected.n_nodes;
    if (isfinite(selected.time_ms) &&
        !try_plan(s, scratch, b.batching, selected.chosen, selected.n_stages, err))
        return false;
    if (complete && selected.status == ZP_NO_SOLUTION) {
        close_box(s, base_ms + cutoff_ms);
        return true;
    }
    if (complete && selected.status == ZP_OPTIMAL)
        return push_rest(s, &b, &selected, r->subset, r->n, err);
    if (zp_deadline_passed(&s->deadline) || (!can_split && !s->pricing)) {
        s->stopped = true;
        return push_box(s, b, err);
    }
    if (can_split)
        return push_halves(s, &b, r->bound_ms, r->subset, r->n, by_time, err);
    close_box(s, b.bound_ms);
    return true;
}

/* Bounds a box, and closes it, splits it, or settles part of it by the integer program. */
static bool branch(search *s, zs_arena *scratch, box b, zs_error *err)
{
    zp_patterns *patterns = &s->patterns[b.batching];
    const int m = s->problem->batchings[b.batching].n_micro_batches;
    int *subset = ZS_NEW(scratch, int, patterns->n, err);
    zp_relaxation r;
    double slack_ms;
    bool open, complete = true;
    if (!subset)
        return false;
    int n = collect(subset, s, &b);
    if (!tighten(&open, &r, &slack_ms, &b, subset, n, s, scratch, err))
        return false;
    if (!open)
        return true;
    double width_time_ms = (m - 1) * (b.max_time_ms - b.min_time_ms);
    double width_sync_ms = b.max_sync_ms - b.min_sync_ms;
    double scale_ms = s->has_best ? target_ms(s) : b.bound_ms;
    bool by_time = width_time_ms >= width_sync_ms;
    bool can_split =
        width_time_ms + width_sync_ms > (s->pricing ? LEAST_WIDTH_PRICING : LEAST_WIDTH) * scale_ms;
    bool wide = width_time_ms + width_sync_ms > (s->relaxed ? NARROW_RELAXED : NARROW) * scale_ms;
    if (wide || (can_split && r.n > MAX_INTEGER_COLUMNS && !s->relaxed))
        return push_halves(s, &b, r.bound_ms, r.subset, r.n, by_time, err);
    if (s->relaxed) {
        close_box(s, b.bound_ms);
        return true;
    }
    const int n_patterns = patterns->n, n_groups = s->groups.n;
    if (s->pricing && !complete_patterns(&complete, &r, slack_ms, s, &b, scratch, err))
        return false;
    if (can_split && r.n > MAX_INTEGER_COLUMNS)
        complete = false;
    bool ok = !complete && can_split ? push_halves(s, &b, r.bound_ms, r.subset, r.n, by_time, err)
                                     : settle(s, scratch, b, &r, complete, can_split, by_time, err);
    patterns->n = n_patterns;
    zp_groups_truncate(&s->groups, n_groups);
    return ok;
}

/* What a pass over all batchings considers. */
typedef enum pass {
    LISTED,  /* the listed groups */
    PRICED,  /* and those that mix classes */
    RELAXED, /* bounds only, for any groups */
} pass;

/* *bound_ms: least step time that there can be. */
static bool run(search *s, pass now, double gap, double end_ms, double *bound_ms, zs_error *err)
{
    bool ok = true;
    int n_boxes = 0;
    s->pricing = now != LISTED;
    s->relaxed = now == RELAXED;
    for (int i = 0; i < s->problem->n_batchings; i++)
        s->pricers[i] = NULL;
    s->gap = gap;
    s->deadline.end_ms = end_ms;
    s->stopped = false;
    s->n_boxes = 0;
    s->closed_ms = INFINITY;
    for (int i = 0; ok && i < s->problem->n_batchings; i++) {
        int m = s->problem->batchings[i].n_micro_batches;
        box all = {.batching = i, .bound_ms = m * s->floor_ms[i], .max_time_ms = INFINITY};
        ok = !isfinite(s->floor_ms[i]) || push_box(s, all, err);
    }
    while (ok && s->n_boxes > 0 && !s->stopped) {
        zs_arena *scratch;
        box b = pop_box(s);
        if (b.bound_ms >= target_ms(s) ||
            (s->relaxed && (b.bound_ms >= s->closed_ms ||
                            n_boxes++ == MAX_RELAXED_BOXES + 3 * s->problem->n_batchings))) {
            close_box(s, b.bound_ms);
            break;
        }
        double bound_now_ms = fmin(fmin(s->best_ms, s->closed_ms), b.bound_ms);
        if (now == RELAXED)
            bound_now_ms = s->best.groups_bound_ms;
        if (s->options->progress)
            s->options->progress(s->options->context, s->best_ms,
                                 now == LISTED && s->mixes ? fmin(bound_now_ms, s->least_floor_ms)
                                                           : bound_now_ms);
        if (zp_deadline_passed(&s->deadline)) {
            s->stopped = true;
            ok = push_box(s, b, err);
            break;
        }
        ok = zs_arena_open(&scratch, err);
        if (ok) {
            ok = isfinite(b.max_time_ms) ? branch(s, scratch, b, err)
                                         : open_batching(s, scratch, &b, err);
            zs_arena_close(&scratch);
        }
    }
    *bound_ms = fmin(s->best_ms, s->closed_ms);
    if (s->n_boxes > 0)
        *bound_ms = fmin(*bound_ms, s->boxes[0].bound_ms);
    return ok;
}

/* Any counts of GPUs where the cluster is small, else whole nodes. */
static bool choose_whole_nodes(const zp_problem *p)
{
    int n_gpus = 0;
    for (int k = 0; k < p->n_classes; k++)
        if (p->classes[k].b_max > 0)
            n_gpus += p->classes[k].n_nodes * p->classes[k].gpus_per_node;
    return n_gpus > ZP_MANY_GPUS;
}

static bool run_phases(search *s, const zp_search_options *options, zs_error *err)
{
    const zp_problem *p = s->problem;
    double start_ms = zp_deadline_now_ms(), bound_ms = INFINITY;
    double limit_ms = options->time_limit_ms > 0 ? options->time_limit_ms : INFINITY;
    double gap = fmax(options->gap, LEAST_GAP);
    s->mixes = p->n_classes > 1;
    s->least_floor_ms = INFINITY;
    for (int i = 0; i < p->n_batchings; i++)
        s->least_floor_ms =
            fmin(s->least_floor_ms, p->batchings[i].n_micro_batches * s->floor_ms[i]);
    s->whole_nodes = options->whole_nodes || choose_whole_nodes(p);
    double second_ms = s->whole_nodes ? SECOND_PHASE_TIME * limit_ms : limit_ms;
    if (!zp_groups_build(&s->groups, s->arena_of_pricers, p, ZP_MIX_NONE, err))
        return false;
    if (!run(s, LISTED, s->mixes ? fmax(gap, FIRST_PHASE_GAP) : gap,
             start_ms + (s->mixes ? FIRST_PHASE_TIME * limit_ms : second_ms), &bound_ms, err))
        return false;
    if (s->mixes && !run(s, PRICED, gap, start_ms + second_ms, &bound_ms, err))
        return false;
    static const char *const texts[] = {
        "any GPUs", "GPUs of one kind, above 64 of a kind in whole nodes, or whole nodes"};
    if (s->n_solves > 0)
        bound_ms = fmin(bound_ms, s->best_ms * (1 - SOLVER_TOLERANCE));
    s->best.groups = texts[s->whole_nodes];
    s->best.groups_bound_ms = bound_ms;
    s->best.lower_bound_ms = bound_ms;
    s->best.time_limit = s->stopped;
    if (s->whole_nodes && s->has_best) {
        /* Groups that are left out can be faster than what was found. */
        if (!run(s, RELAXED, gap, start_ms + limit_ms, &bound_ms, err))
            return false;
        s->best.lower_bound_ms = fmin(s->best.groups_bound_ms, bound_ms);
    } else if (s->whole_nodes) {
        s->best.lower_bound_ms = s->least_floor_ms;
    }
    return true;
}

/* Starts from a plan that is known. A plan of the search that is as fast replaces it. */
static bool seed(search *s, const zp_solution *known, zs_error *err)
{
    zs_arena *scratch;
    zp_cost cost;
    if (!zs_arena_open(&scratch, err))
        return false;
    bool ok = zp_evaluate(&cost, scratch, s->problem, &known->batching, known->stages,
                          known->n_stages, false, ZP_SEARCH_TOLERANCE_GIB, err);
    if (ok) {
        s->best = *known;
        s->best.step_ms = cost.step_ms;
        s->best_ms = cost.step_ms * (1 + SOLVER_TOLERANCE);
        s->has_best = true;
    }
    zs_arena_close(&scratch);
    return ok || zs_error_prefix(err, "incumbent");
}

/* As fast means but for rounding. */
static void keep_faster(zp_solution *best, const zp_solution *known)
{
    if (best->step_ms <= known->step_ms * (1 + 1e-12))
        return;
    best->batching = known->batching;
    best->n_stages = known->n_stages;
    best->stages = known->stages;
    best->step_ms = known->step_ms;
}

bool zp_search(zp_solution *out, zs_arena *arena, const zp_problem *problem,
               const zp_search_options *options, zs_error *err)
{
    zs_arena *scratch;
    if (!zp_problem_check(problem, err) || !zs_arena_open(&scratch, err))
        return false;
    search s = {.problem = problem,
                .solver = &zp_solver_glpk,
                .arena = arena,
                .deadline = {.stop = options->stop},
                .options = options,
                .best_ms = INFINITY,
                .arena_of_pricers = scratch,
                .patterns = ZS_NEW(scratch, zp_patterns, problem->n_batchings, err),
                .n_listed = ZS_NEW(scratch, int, problem->n_batchings, err),
                .pricers = ZS_NEW(scratch, zp_pricer *, problem->n_batchings, err),
                .floor_ms = ZS_NEW(scratch, double, problem->n_batchings, err)};
    bool ok = s.patterns && s.n_listed && s.pricers && s.floor_ms;
    for (int i = 0; ok && i < problem->n_batchings; i++) {
        s.floor_ms[i] = floor_of(problem, &problem->batchings[i]);
        s.n_listed[i] = -1;
    }
    ok = ok && (!options->incumbent || seed(&s, options->incumbent, err)) &&
         run_phases(&s, options, err);
    if (ok && s.has_best) {
        if (options->incumbent)
            keep_faster(&s.best, options->incumbent);
        s.best.lower_bound_ms = fmin(s.best.lower_bound_ms, s.best.step_ms);
        s.best.groups_bound_ms = fmin(s.best.groups_bound_ms, s.best.step_ms);
        s.best.n_solves = s.n_solves;
        s.best.n_nodes = s.n_nodes;
        *out = s.best;
    } else if (ok && s.stopped) {
        ok = ZS_FAIL(err, ZS_ERR_RUNTIME,
                     "the time limit passed before a plan was found; step time is at least %g ms",
                     s.best.lower_bound_ms);
    } else if (ok) {
        ok = zp_infeasible_explain(problem, !s.whole_nodes, &s.deadline, err);
    }
    for (int i = 0; s.patterns && i < problem->n_batchings; i++)
        zp_patterns_close(&s.patterns[i]);
    free(s.boxes);
    zs_arena_close(&scratch);
    return ok;
}
