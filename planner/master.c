#include "planner/master.h"

#include <math.h>
#include <stdlib.h>

/* Costs are stated in thousandths of a typical F, so that the solver's absolute tolerances (1e-7)
 * mean the same at any speed of the GPUs. */
static const double COST_SCALE = 1000;

/* Phase 1 proves that there is no solution when its optimum is above this; its rows have small
 * whole coefficients. */
static const double INFEASIBLE_ABOVE = 1e-6;

/* Columns of the first program, and those that each round adds. */
enum { FIRST_COLUMNS = 1000, MORE_COLUMNS = 500 };

/* In units of cost, which are thousandths of the slowest pattern. */
static const double REDUCED_TOLERANCE = 1e-7;

/* Of F: pricing looks for nothing that could lower the bound by less. */
static const double PRICING_TOLERANCE = 1e-6;

/* Patterns that pricing adds to one relaxation. */
enum { MAX_PRICED = 20000 };

/* What the program is for: it decides objective and rows. */
typedef enum goal {
    TIME,          /* min sum t y */
    INFEASIBILITY, /* phase 1: artificial columns cost 1, patterns nothing */
    BLOCKS         /* max sum n y, without the cover row */
} goal;

typedef struct builder {
    const zp_master *m;
    int *subset;
    int n;
    goal goal;
    double unit_ms; /* cost = t / unit_ms */
    double max_time_ms;
    zp_program *program;
    int *rows; /* the master's row of each row of the program */
} builder;

/* Rows of the master before empty ones are dropped. */
enum { ROW_COVER, ROW_FIRST, ROW_LAST, ROW_STAGES, ROW_FIRST_HALL, ROW_TIME, ROW_CLASSES };

static const zp_pattern *pattern_of(const builder *b, int column)
{
    return &b->m->patterns->items[b->subset[column]];
}

static int max_in_flight(const zp_master *m)
{
    return zp_pattern_max_in_flight(m->problem, m->batching);
}

static int row_hall(const builder *b, int w)
{
    return ROW_CLASSES + b->m->problem->n_classes + w;
}

/* Coefficient of a pattern in a row; w is the row's number in flight where it is a Hall row. */
static double coefficient(const builder *b, const zp_pattern *q, int row)
{
    const zp_master *m = b->m;
    int n_classes = m->problem->n_classes, most = max_in_flight(m);
    switch (row) {
    case ROW_COVER:
        /* sum_p n_p y_p >= L: every block is in a stage. */
        return b->goal == BLOCKS ? 0 : q->n_blocks;
    case ROW_FIRST:
        return q->kind == ZP_FIRST;
    case ROW_LAST:
        return q->kind == ZP_LAST;
    case ROW_STAGES:
        /* min_stages <= sum_p y_p <= max_stages. */
        return 1;
    case ROW_FIRST_HALL:
        /* sum_p y_p <= sum_{p first} W_p y_p: the first stage survives as many micro-batches in
         * flight as there are stages; any number when W_p is the most there can be. */
        if (q->kind != ZP_FIRST)
            return 1;
        return 1 - (q->in_flight >= most ? zp_pattern_max_stages(m->problem) : q->in_flight);
    case ROW_TIME:
        /* sum_p t_p y_p <= cutoff. */
        return isfinite(b->max_time_ms) ? q->time_ms / b->unit_ms : 0;
    default:
        break;
    }
    if (row < ROW_CLASSES + n_classes) {
        /* sum_p c_pk y_p <= N_k: the GPUs of each class. */
        const zp_group *group = &m->groups->items[q->group];
        return q->relaxed ? group->amounts[row - ROW_CLASSES] : group->counts[row - ROW_CLASSES];
    }
    /* sum_{p middle, W_p < w} y_p <= w - 2: middle stages that do not survive w in flight stand
     * within the w - 2 places before the last stage. */
    return q->kind == ZP_MIDDLE && q->in_flight < row - ROW_CLASSES - n_classes;
}

static void row_bounds(const builder *b, int row, double *min, double *max)
{
    const zp_problem *p = b->m->problem;
    *min = -INFINITY;
    *max = INFINITY;
    switch (row) {
    case ROW_COVER:
        *min = p->n_blocks;
        return;
    case ROW_FIRST:
    case ROW_LAST:
        *min = *max = 1;
        return;
    case ROW_STAGES:
        *min = p->min_stages > 2 ? p->min_stages : 2;
        *max = zp_pattern_max_stages(p);
        return;
    case ROW_FIRST_HALL:
        *max = 0;
        return;
    case ROW_TIME:
        *max = b->max_time_ms / b->unit_ms;
        return;
    default:
        break;
    }
    int k = row - ROW_CLASSES;
    if (k < p->n_classes)
        *max = p->classes[k].n_nodes * p->classes[k].gpus_per_node;
    else
        *max = k - p->n_classes - 2;
}

static double cost_of(const builder *b, const zp_pattern *q)
{
    if (b->goal == INFEASIBILITY)
        return 0;
    return b->goal == BLOCKS ? -q->n_blocks : q->time_ms / b->unit_ms;
}

/* Hall rows for w = 3..most in flight, where a middle pattern survives w - 1 but not w: for other w
 * the row of the next smaller such w says more. */
static void mark_hall_rows(const builder *b, bool *used)
{
    int most = max_in_flight(b->m);
    for (int w = 0; w <= most; w++)
        used[w] = false;
    for (int j = 0; j < b->n; j++) {
        const zp_pattern *q = pattern_of(b, j);
        if (q->kind == ZP_MIDDLE && q->in_flight + 1 >= 3 && q->in_flight < most)
            used[q->in_flight + 1] = true;
    }
}

/* Artificial columns of phase 1: one for each row that y = 0 does not satisfy. */
static int n_artificial(const builder *b)
{
    return b->goal == INFEASIBILITY ? ROW_STAGES + 1 : 0;
}

static bool build_program(builder *b, zs_arena *arena, zs_error *err)
{
    const zp_master *m = b->m;
    int most = max_in_flight(m), n_rows = row_hall(b, most) + 1;
    int n_columns = b->n + n_artificial(b);
    bool *hall = ZS_NEW(arena, bool, most + 1, err);
    int *number = ZS_NEW(arena, int, n_rows, err);
    int *rows = ZS_NEW(arena, int, n_rows, err);
    zp_program *q = ZS_NEW(arena, zp_program, 1, err);
    if (!hall || !number || !rows || !q)
        return false;
    mark_hall_rows(b, hall);
    int64_t n_entries = 0;
    for (int row = 0; row < n_rows; row++) {
        int w = row - row_hall(b, 0);
        number[row] = -1;
        if (w >= 0 && !hall[w])
            continue;
        int64_t n = b->goal == INFEASIBILITY && row <= ROW_STAGES;
        for (int j = 0; j < b->n; j++)
            n += coefficient(b, pattern_of(b, j), row) != 0;
        n_entries += n;
        if (n > 0) {
            rows[q->n_rows] = row;
            number[row] = q->n_rows++;
        }
    }
    q->n_columns = n_columns;
    q->row_min = ZS_NEW(arena, double, q->n_rows, err);
    q->row_max = ZS_NEW(arena, double, q->n_rows, err);
    q->cost = ZS_NEW(arena, double, n_columns, err);
    q->column_start = ZS_NEW(arena, int, n_columns + 1, err);
    q->entry_row = ZS_NEW(arena, int, n_entries, err);
    q->entry_value = ZS_NEW(arena, double, n_entries, err);
    if (!q->row_min || !q->row_max || !q->cost || !q->column_start || !q->entry_row ||
        !q->entry_value)
        return false;
    if (q->n_rows > ZP_PROGRAM_MAX_ROWS)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%d rows in the integer program, expected at most %d",
                       q->n_rows, ZP_PROGRAM_MAX_ROWS);
    for (int i = 0; i < q->n_rows; i++)
        row_bounds(b, rows[i], &q->row_min[i], &q->row_max[i]);
    int e = 0;
    for (int j = 0; j < b->n; j++) {
        const zp_pattern *pattern = pattern_of(b, j);
        q->column_start[j] = e;
        for (int i = 0; i < q->n_rows; i++) {
            double value = coefficient(b, pattern, rows[i]);
            if (value != 0) {
                q->entry_row[e] = i;
                q->entry_value[e++] = value;
            }
        }
        q->cost[j] = cost_of(b, pattern);
    }
    for (int j = b->n; j < n_columns; j++) {
        q->column_start[j] = e;
        q->entry_row[e] = number[j - b->n];
        q->entry_value[e++] = 1;
        q->cost[j] = 1;
    }
    q->column_start[n_columns] = e;
    b->program = q;
    b->rows = rows;
    return true;
}

/* What duals (by row of the master) say about patterns. */
typedef struct verdict {
    double base;              /* sum_i d_i (d_i > 0 ? row_min_i : row_max_i) */
    double least[ZP_N_KINDS]; /* reduced costs; infinity: no patterns of the kind */
} verdict;

/* The bound that duals prove, whatever the solver says about them: for any d with the sign that the
 * bounds of its row allow, cost y >= base + sum_j (cost_j - d A_j) y_j, and an assignment has one
 * first, one last and at most max_stages - 2 middle patterns. */
static double bound_of(const builder *b, const verdict *v)
{
    double middle = fmin(v->least[ZP_MIDDLE], 0);
    return v->base + v->least[ZP_FIRST] + v->least[ZP_LAST] +
           (zp_pattern_max_stages(b->m->problem) - 2) * middle;
}

static double reduced_cost(const builder *b, const zp_pattern *q, const double *duals)
{
    int n_rows = row_hall(b, max_in_flight(b->m)) + 1;
    double r = cost_of(b, q);
    for (int row = 0; row < n_rows; row++)
        if (duals[row] != 0)
            r -= duals[row] * coefficient(b, q, row);
    return r;
}

/* Corrects duals; fills reduced. */
static verdict price(const builder *b, double *duals, double *reduced)
{
    int n_rows = row_hall(b, max_in_flight(b->m)) + 1, n_used = 0;
    int used[ZP_PROGRAM_MAX_ROWS];
    verdict v = {0};
    for (int kind = 0; kind < ZP_N_KINDS; kind++)
        v.least[kind] = INFINITY;
    for (int row = 0; row < n_rows; row++) {
        double min, max;
        row_bounds(b, row, &min, &max);
        double side = duals[row] > 0 ? min : max;
        if (!isfinite(side))
            duals[row] = 0;
        if (duals[row] == 0)
            continue;
        v.base += duals[row] * side;
        used[n_used++] = row;
    }
    for (int j = 0; j < b->n; j++) {
        const zp_pattern *q = pattern_of(b, j);
        double r = cost_of(b, q);
        for (int i = 0; i < n_used; i++)
            r -= duals[used[i]] * coefficient(b, q, used[i]);
        reduced[j] = r;
        v.least[q->kind] = fmin(v.least[q->kind], r);
    }
    return v;
}

/* The duals as prices of a pattern's parts, times scale. place[kind] has room for all numbers in
 * flight. */
static void fill_prices(zp_prices *out, double *const place[ZP_N_KINDS], const builder *b,
                        const double *duals, double scale)
{
    const zp_master *m = b->m;
    const int n_classes = m->problem->n_classes, most = max_in_flight(m);
    out->time = scale * (b->goal == TIME ? 1 / b->unit_ms : 0);
    out->block = scale * duals[ROW_COVER];
    for (int k = 0; k < n_classes; k++)
        out->gpu[k] = -scale * duals[ROW_CLASSES + k];
    for (int kind = ZP_FIRST; kind <= ZP_LAST; kind++)
        for (int w = 1; w <= most; w++) {
            const zp_pattern q = {.kind = (zp_kind)kind, .in_flight = w};
            double sum = 0;
            for (int row = ROW_FIRST; row <= row_hall(b, most); row++)
                if (duals[row] != 0 && row != ROW_TIME &&
                    (row < ROW_CLASSES || row >= ROW_CLASSES + n_classes))
                    sum -= duals[row] * coefficient(b, &q, row);
            place[kind][w] = scale * sum;
        }
    for (int kind = 0; kind < ZP_N_KINDS; kind++)
        out->place[kind] = place[kind];
}

static bool open_place(double *place[ZP_N_KINDS], zs_arena *arena, const zp_master *m,
                       zs_error *err)
{
    for (int kind = 0; kind < ZP_N_KINDS; kind++) {
        place[kind] = ZS_NEW(arena, double, max_in_flight(m) + 1, err);
        if (!place[kind])
            return false;
    }
    return true;
}

/* The patterns that the program has so far. */
typedef struct active {
    int n;
    int *patterns; /* as indices */
    bool *is_in;   /* by position */
} active;

static void activate(active *a, const builder *b, int position)
{
    if (a->is_in[position])
        return;
    a->is_in[position] = true;
    a->patterns[a->n++] = b->subset[position];
}

/* A first choice: all of few; else one of each kind, and an even sample. */
static bool active_open(active *a, zs_arena *arena, const builder *b, int capacity, zs_error *err)
{
    bool seen[ZP_N_KINDS] = {false};
    *a = (active){.patterns = ZS_NEW(arena, int, capacity, err),
                  .is_in = ZS_NEW(arena, bool, capacity, err)};
    if (!a->patterns || !a->is_in)
        return false;
    int stride = b->n > 2 * FIRST_COLUMNS ? b->n / FIRST_COLUMNS : 1;
    for (int j = 0; j < b->n; j++) {
        zp_kind kind = pattern_of(b, j)->kind;
        if (j % stride == 0 || !seen[kind])
            activate(a, b, j);
        seen[kind] = true;
    }
    return true;
}

typedef struct candidate {
    double reduced;
    int position;
} candidate;

static int compare_candidates(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->reduced != y->reduced)
        return x->reduced < y->reduced ? -1 : 1;
    return x->position - y->position;
}

/* Adds the patterns of the most negative reduced costs. */
static bool activate_negative(int *n_added, active *a, zs_arena *arena, const builder *b,
                              const double *reduced, zs_error *err)
{
    int n = 0, before = a->n;
    for (int j = 0; j < b->n; j++)
        n += reduced[j] < -REDUCED_TOLERANCE && !a->is_in[j];
    candidate *candidates = ZS_NEW(arena, candidate, n, err);
    if (!candidates)
        return false;
    n = 0;
    for (int j = 0; j < b->n; j++)
        if (reduced[j] < -REDUCED_TOLERANCE && !a->is_in[j])
            candidates[n++] = (candidate){reduced[j], j};
    qsort(candidates, (size_t)n, sizeof *candidates, compare_candidates);
    for (int i = 0; i < n && i < MORE_COLUMNS; i++)
        activate(a, b, candidates[i].position);
    *n_added = a->n - before;
    return true;
}

static bool answer_open(zp_answer *answer, zs_arena *arena, const zp_program *p, zs_error *err)
{
    *answer = (zp_answer){.values = ZS_NEW(arena, double, p->n_columns, err),
                          .duals = ZS_NEW(arena, double, p->n_rows, err)};
    return answer->values && answer->duals;
}

/* What one program over the active patterns says about all of them. */
typedef struct round_result {
    zp_status status;
    double claimed; /* objective of the program, recomputed from its values */
    double listed;  /* bound for the listed patterns */
    double proven;  /* bound for all; -infinity: not known */
    verdict verdict;
    int n_added; /* patterns that were missing */
    double *duals;
    double *reduced; /* by position; the caller's memory */
} round_result;

/* Asks pricing for patterns that are not listed, and takes them in. */
static bool price_others(round_result *r, active *a, builder *all, const builder *priced,
                         int capacity, zs_arena *arena, const zp_relaxing *relaxing, zs_error *err)
{
    const zp_master *m = all->m;
    const zp_pricing_limits limits = {relaxing->max_time_ms, relaxing->max_sync_ms, m->deadline};
    double least[ZP_N_KINDS], *place[ZP_N_KINDS];
    double tolerance = priced->goal == TIME ? PRICING_TOLERANCE * (fabs(r->claimed) + 1) /
                                                  zp_pattern_max_stages(m->problem)
                                            : REDUCED_TOLERANCE;
    zp_prices prices = {0};
    bool stopped;
    int n_before = m->patterns->n;
    if (!open_place(place, arena, m, err))
        return false;
    fill_prices(&prices, place, priced, r->duals, 1);
    if (!zp_pricer_find(least, &stopped, m->patterns, m->groups, m->pricer, &prices, tolerance,
                        &limits, err))
        return false;
    if (stopped) {
        r->status = ZP_STOPPED;
        return true;
    }
    for (int kind = ZP_FIRST; kind <= ZP_LAST; kind++)
        r->verdict.least[kind] = fmin(r->verdict.least[kind], least[kind]);
    r->proven = bound_of(priced, &r->verdict);
    for (int i = n_before; i < m->patterns->n && all->n < capacity; i++) {
        all->subset[all->n] = i;
        activate(a, all, all->n++);
        r->n_added++;
    }
    return true;
}

static bool run_round(round_result *r, active *a, builder *all, goal goal_now, int setting,
                      int capacity, const zp_relaxing *relaxing, zs_error *err)
{
    const zp_master *m = all->m;
    zs_arena *arena;
    zp_answer answer;
    if (!zs_arena_open(&arena, err))
        return false;
    builder priced = *all, b = *all;
    priced.goal = b.goal = goal_now;
    b.subset = a->patterns;
    b.n = a->n;
    bool ok = build_program(&b, arena, err) && answer_open(&answer, arena, b.program, err) &&
              m->solver->solve_linear(&answer, b.program, setting, m->deadline, err);
    if (ok) {
        r->status = answer.status;
        r->n_added = 0;
    }
    if (ok && answer.status == ZP_OPTIMAL) {
        r->claimed = 0;
        for (int j = 0; j < b.program->n_columns; j++)
            r->claimed += b.program->cost[j] * answer.values[j];
        for (int row = 0; row <= row_hall(all, max_in_flight(m)); row++)
            r->duals[row] = 0;
        for (int i = 0; i < b.program->n_rows; i++)
            r->duals[b.rows[i]] = answer.duals[i];
        r->verdict = price(&priced, r->duals, r->reduced);
        r->listed = r->proven = bound_of(&priced, &r->verdict);
        ok = activate_negative(&r->n_added, a, arena, &priced, r->reduced, err);
        if (ok && m->pricer) {
            r->proven = -INFINITY;
            ok = r->n_added > 0 || price_others(r, a, all, &priced, capacity, arena, relaxing, err);
        }
    }
    zs_arena_close(&arena);
    return ok;
}

/* A program without patterns of a kind has no solution; solvers are not asked. */
static bool has_kinds(const builder *b)
{
    bool first = false, last = false;
    for (int j = 0; j < b->n; j++) {
        first = first || pattern_of(b, j)->kind == ZP_FIRST;
        last = last || pattern_of(b, j)->kind == ZP_LAST;
    }
    return first && last;
}

/* The best bound so far, with the duals that prove it. */
typedef struct proof {
    zp_status status;
    double bound;
    double *duals;
    verdict verdict;
} proof;

static void keep_proof(proof *best, const round_result *r, const builder *b)
{
    best->bound = r->proven;
    best->verdict = r->verdict;
    for (int row = 0; row <= row_hall(b, max_in_flight(b->m)); row++)
        best->duals[row] = r->duals[row];
}

/* Column generation: programs over a few of the listed patterns, joined by those that their duals
 * price below zero and by those that pricing finds, until the duals prove for all what the program
 * claims. all->subset has room for capacity patterns. A claim that there is no solution is only
 * believed when phase 1 proves it; other claims that do not hold lead to the next settings. */
static bool solve_relaxation(proof *best, zs_arena *arena, builder *all, int capacity,
                             const zp_relaxing *relaxing, zs_error *err)
{
    active a;
    const zp_master *m = all->m;
    int n_rows = row_hall(all, max_in_flight(m)) + 1;
    round_result r = {.duals = ZS_NEW(arena, double, n_rows, err),
                      .reduced = ZS_NEW(arena, double, capacity, err)};
    best->duals = ZS_NEW(arena, double, n_rows, err);
    if (!r.reduced || !r.duals || !best->duals || !active_open(&a, arena, all, capacity, err))
        return false;
    /* Without duals: no time is negative. */
    best->verdict = price(all, best->duals, r.reduced);
    if (m->pricer)
        best->verdict.least[ZP_FIRST] = best->verdict.least[ZP_MIDDLE] =
            best->verdict.least[ZP_LAST] = 0;
    best->bound = bound_of(all, &best->verdict);
    best->status = ZP_OPTIMAL;
    goal now = has_kinds(all) ? all->goal : INFEASIBILITY;
    int setting = 0, n_active = 0; /* n_active: when phase 1 was begun */
    while (setting < m->solver->n_settings) {
        if (!run_round(&r, &a, all, now, setting, capacity, relaxing, err))
            return false;
        if (r.status == ZP_STOPPED) {
            best->status = ZP_STOPPED;
            return true;
        }
        if (now == INFEASIBILITY) {
            if (r.status != ZP_OPTIMAL) {
                setting++;
            } else if (r.proven > INFEASIBLE_ABOVE) {
                best->status = ZP_NO_SOLUTION;
                return true;
            } else if (r.n_added == 0 || r.claimed <= INFEASIBLE_ABOVE) {
                if (!has_kinds(all))
                    return true;
                /* There is a solution after all; without new columns only other settings help. */
                now = all->goal;
                setting += a.n == n_active;
            }
        } else if (r.status != ZP_OPTIMAL) {
            now = INFEASIBILITY;
            n_active = a.n;
        } else {
            if (r.proven > best->bound)
                keep_proof(best, &r, all);
            if (best->bound * all->unit_ms >= relaxing->enough_ms ||
                fabs(r.claimed - r.proven) <=
                    (m->pricer ? PRICING_TOLERANCE : 1e-7) * (1 + fabs(r.claimed)))
                return true;
            if (r.n_added == 0) {
                /* Nothing is missing from a program that was solved: pricing cannot say more. */
                if (m->pricer && fabs(r.claimed - r.listed) <= 1e-7 * (1 + fabs(r.claimed)))
                    return true;
                setting++;
            }
        }
    }
    return true;
}

static builder builder_of(const zp_master *m, int *subset, int n, goal aim)
{
    builder b = {.m = m, .subset = subset, .n = n, .goal = aim, .max_time_ms = INFINITY};
    double most_ms = 0;
    for (int j = 0; j < n; j++)
        most_ms = fmax(most_ms, pattern_of(&b, j)->time_ms);
    b.unit_ms = most_ms > 0 ? most_ms / COST_SCALE : 1;
    return b;
}

bool zp_master_relax(zp_relaxation *out, zs_arena *arena, const zp_master *m, const int *subset,
                     int n, const zp_relaxing *relaxing, zs_error *err)
{
    const int capacity = m->pricer ? n + MAX_PRICED : n;
    zp_relaxation r = {.status = ZP_NO_SOLUTION, .bound_ms = INFINITY, .n = n};
    r.subset = ZS_NEW(arena, int, capacity, err);
    if (!r.subset)
        return false;
    for (int j = 0; j < n; j++)
        r.subset[j] = subset[j];
    builder b = builder_of(m, r.subset, n, TIME);
    if (m->pricer && isfinite(relaxing->max_time_ms))
        b.unit_ms = relaxing->max_time_ms / COST_SCALE;
    if (!m->pricer && !has_kinds(&b)) {
        *out = r;
        return true;
    }
    proof best;
    if (!open_place(r.place, arena, m, err) ||
        !solve_relaxation(&best, arena, &b, capacity, relaxing, err))
        return false;
    r.n = b.n;
    r.status = best.status;
    r.bound_ms = best.status == ZP_NO_SOLUTION ? INFINITY : best.bound * b.unit_ms;
    r.reduced_ms = ZS_NEW(arena, double, r.n, err);
    if (!r.reduced_ms)
        return false;
    /* Counted from the least of the kind, which the bound contains already. */
    best.verdict.least[ZP_MIDDLE] = fmin(best.verdict.least[ZP_MIDDLE], 0);
    for (int j = 0; j < r.n; j++) {
        const zp_pattern *q = pattern_of(&b, j);
        r.reduced_ms[j] =
            b.unit_ms * (reduced_cost(&b, q, best.duals) - best.verdict.least[q->kind]);
    }
    fill_prices(&r.prices, r.place, &b, best.duals, b.unit_ms);
    for (int kind = ZP_FIRST; kind <= ZP_LAST; kind++)
        for (int w = 0; w <= max_in_flight(m); w++)
            r.place[kind][w] -= b.unit_ms * best.verdict.least[kind];
    *out = r;
    return true;
}

bool zp_master_most_blocks(double *n_blocks, zs_arena *arena, const zp_master *m, const int *subset,
                           int n, zs_error *err)
{
    int *copy = ZS_NEW(arena, int, n, err);
    if (!copy)
        return false;
    for (int j = 0; j < n; j++)
        copy[j] = subset[j];
    builder b = builder_of(m, copy, n, BLOCKS);
    const zp_relaxing relaxing = {INFINITY, INFINITY, INFINITY};
    proof best = {.status = ZP_NO_SOLUTION};
    if (has_kinds(&b) && !solve_relaxation(&best, arena, &b, n, &relaxing, err))
        return false;
    *n_blocks = best.status == ZP_NO_SOLUTION ? 0 : -best.bound;
    return true;
}

/* The rows with y in whole numbers. */
static bool holds(const builder *b, const int *y)
{
    const zp_program *p = b->program;
    double unit = 1e-7 * (1 + fabs(b->max_time_ms / b->unit_ms));
    for (int i = 0; i < p->n_rows; i++) {
        double sum = 0;
        for (int j = 0; j < p->n_columns; j++)
            for (int e = p->column_start[j]; y[j] && e < p->column_start[j + 1]; e++)
                if (p->entry_row[e] == i)
                    sum += p->entry_value[e] * y[j];
        /* Only the row of times has coefficients that are not whole. */
        double slack = isfinite(b->max_time_ms) ? unit : 0;
        if (sum < p->row_min[i] - fmin(slack, 0.5) || sum > p->row_max[i] + fmin(slack, 0.5))
            return false;
    }
    return true;
}

static int compare_stages(const zp_pattern *a, const zp_pattern *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a->in_flight > b->in_flight ? -1 : a->in_flight < b->in_flight;
}

/* Takes the solver's values as whole numbers if they are and the rows hold. */
static bool take_values(bool *taken, zp_selection *out, zs_arena *arena, const builder *b,
                        const zp_answer *answer, zs_error *err)
{
    int *y = ZS_NEW(arena, int, b->n, err);
    int most = zp_pattern_max_stages(b->m->problem), n_stages = 0;
    int *chosen = ZS_NEW(arena, int, most, err);
    if (!y || !chosen)
        return false;
    double time_ms = 0;
    *taken = false;
    for (int j = 0; j < b->n; j++) {
        double value = answer->values[j];
        y[j] = (int)lround(value);
        if (fabs(value - y[j]) > 1e-5 || y[j] < 0 || n_stages + y[j] > most)
            return true;
        for (int i = 0; i < y[j]; i++)
            chosen[n_stages++] = b->subset[j];
        time_ms += y[j] * pattern_of(b, j)->time_ms;
    }
    if (!holds(b, y))
        return true;
    /* Few stages: insertion sort, stable. */
    const zp_pattern *patterns = b->m->patterns->items;
    for (int i = 1; i < n_stages; i++)
        for (int k = i; k > 0 && compare_stages(&patterns[chosen[k]], &patterns[chosen[k - 1]]) < 0;
             k--) {
            int swap = chosen[k];
            chosen[k] = chosen[k - 1];
            chosen[k - 1] = swap;
        }
    out->time_ms = time_ms;
    out->n_stages = n_stages;
    out->chosen = chosen;
    *taken = true;
    return true;
}

bool zp_master_select(zp_selection *out, zs_arena *arena, const zp_master *m, const int *subset,
                      int n, double max_time_ms, int64_t max_nodes, zs_error *err)
{
    int *copy = ZS_NEW(arena, int, n, err);
    if (!copy)
        return false;
    for (int j = 0; j < n; j++)
        copy[j] = subset[j];
    builder b = builder_of(m, copy, n, TIME);
    zp_selection s = {.status = ZP_NO_SOLUTION, .time_ms = INFINITY};
    zp_answer answer;
    b.max_time_ms = max_time_ms;
    if (!has_kinds(&b)) {
        *out = s;
        return true;
    }
    if (!build_program(&b, arena, err) || !answer_open(&answer, arena, b.program, err))
        return false;
    int n_denials = 0;
    bool settled = false;
    for (int setting = 0; setting < m->solver->n_settings && !settled; setting++) {
        bool taken = false;
        if (!m->solver->solve_integer(&answer, b.program, setting, max_nodes, m->deadline, err) ||
            (answer.has_values && !take_values(&taken, &s, arena, &b, &answer, err)))
            return false;
        s.n_nodes += answer.n_nodes;
        s.status = answer.status;
        /* A denial counts when a second way of solving gives the same. */
        n_denials += answer.status == ZP_NO_SOLUTION;
        settled =
            answer.status == ZP_STOPPED || (answer.status == ZP_OPTIMAL && taken) || n_denials == 2;
    }
    if (!settled)
        return ZS_FAIL(err, ZS_ERR_RUNTIME,
                       "%s gives no answer that holds for %d patterns in %d rows", m->solver->name,
                       n, b.program->n_rows);
    *out = s;
    return true;
}
