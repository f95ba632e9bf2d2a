#include "planner/quality.h"

#include "shared/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_CASES = 10000 };

/* Bounds are claimed within the tolerance of the solver. */
static const double ROUNDING = 1e-6;

static double gap_of(const zp_quality *q)
{
    return fmax(0, (q->step_ms - q->lower_bound_ms) / q->step_ms);
}

static const zp_quality *find(const zp_qualities *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    return NULL;
}

bool zp_qualities_leave_out(const zp_qualities *list, const char *name)
{
    for (int i = 0; i < list->n_left_out; i++)
        if (strcmp(list->left_out[i], name) == 0)
            return true;
    return false;
}

static bool parse_case(zp_quality *out, const zs_json *object, zs_error *err)
{
    static const char *const keys[] = {"name", "step_ms", "lower_bound_ms", "n_solves", "n_nodes"};
    zp_quality q = {0};
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, keys, (int)(sizeof keys / sizeof *keys), err) ||
        !zs_json_get_string(&q.name, object, "name", err) ||
        !zs_json_get_double(&q.step_ms, object, "step_ms", 1e-9, 1e18, err) ||
        !zs_json_get_double(&q.lower_bound_ms, object, "lower_bound_ms", 1e-9, 1e18, err) ||
        !zs_json_get_int(&q.n_solves, object, "n_solves", 0, INT64_MAX >> 11, err) ||
        !zs_json_get_int(&q.n_nodes, object, "n_nodes", 0, INT64_MAX >> 11, err))
        return false;
    if (q.lower_bound_ms > q.step_ms * (1 + ROUNDING))
        return zs_json_fail(object, err, "lower_bound_ms %g is above step_ms %g", q.lower_bound_ms,
                            q.step_ms);
    *out = q;
    return true;
}

bool zp_qualities_load(zp_qualities *out, zs_arena *arena, const char *path, zs_error *err)
{
    static const char *const keys[] = {"format", "version", "gap", "cases", "left_out"};
    const zs_json *root, *cases, *left_out;
    zp_qualities list = {0};
    if (!zs_json_load(&root, arena, path, err) ||
        !zs_json_check_format(root, ZP_QUALITY_FORMAT, ZP_QUALITY_VERSION, err) ||
        !zs_json_only_keys(root, keys, (int)(sizeof keys / sizeof *keys), err) ||
        !zs_json_get_double(&list.gap, root, "gap", 0, 1, err) ||
        !zs_json_get(&cases, root, "cases", err) ||
        !zs_json_is_array(&list.n, cases, 1, MAX_CASES, err) ||
        !zs_json_get(&left_out, root, "left_out", err) ||
        !zs_json_is_array(&list.n_left_out, left_out, 0, MAX_CASES, err))
        return false;
    const int n = list.n;
    list.items = ZS_NEW(arena, zp_quality, n, err);
    list.left_out = ZS_NEW(arena, const char *, list.n_left_out, err);
    if (!list.items || !list.left_out)
        return false;
    list.n = 0;
    for (int i = 0; i < n; i++) {
        const zs_json *item = zs_json_item(cases, i);
        if (!parse_case(&list.items[i], item, err))
            return false;
        if (find(&list, list.items[i].name))
            return zs_json_fail(item, err, "case %s is there twice", list.items[i].name);
        list.n++;
    }
    for (int i = 0; i < list.n_left_out; i++)
        if (!zs_json_string(&list.left_out[i], zs_json_item(left_out, i), err))
            return false;
    *out = list;
    return true;
}

bool zp_qualities_save(const zp_qualities *list, const char *path, zs_error *err)
{
    zs_json_writer *w = NULL;
    if (!zs_json_writer_open(&w, err))
        return false;
    zs_json_begin_object(w, NULL);
    zs_json_put_string(w, "format", ZP_QUALITY_FORMAT);
    zs_json_put_int(w, "version", ZP_QUALITY_VERSION);
    zs_json_put_double(w, "gap", list->gap);
    zs_json_begin_array(w, "cases");
    for (int i = 0; i < list->n; i++) {
        const zp_quality *q = &list->items[i];
        zs_json_begin_object(w, NULL);
        zs_json_put_string(w, "name", q->name);
        zs_json_put_double(w, "step_ms", q->step_ms);
        zs_json_put_double(w, "lower_bound_ms", q->lower_bound_ms);
        zs_json_put_int(w, "n_solves", q->n_solves);
        zs_json_put_int(w, "n_nodes", q->n_nodes);
        zs_json_end_object(w);
    }
    zs_json_end_array(w);
    zs_json_begin_array(w, "left_out");
    for (int i = 0; i < list->n_left_out; i++)
        zs_json_put_string(w, NULL, list->left_out[i]);
    zs_json_end_array(w);
    zs_json_end_object(w);
    const bool ok = zs_json_writer_save(w, path, err);
    zs_json_writer_close(&w);
    return ok;
}

static int check_effort(FILE *out, const char *name, const char *what, int64_t before, int64_t now)
{
    if ((double)now <= (double)before * (1 + ZP_QUALITY_EFFORT))
        return 0;
    fprintf(out, "%s: %" PRId64 " %s, %" PRId64 " before\n", name, now, what, before);
    return 1;
}

/* Is there a step time and a bound that can be? */
static int check_figures(FILE *out, const zp_quality *q)
{
    if (q->failure) {
        fprintf(out, "%s: %s\n", q->name, q->failure);
        return 1;
    }
    if (q->time_limit) {
        fprintf(out, "%s: stopped by the time limit\n", q->name);
        return 1;
    }
    if (!(isfinite(q->step_ms) && q->step_ms > 0) ||
        !(isfinite(q->lower_bound_ms) && q->lower_bound_ms > 0)) {
        fprintf(out, "%s: step time %g ms, bound %g ms: not figures\n", q->name, q->step_ms,
                q->lower_bound_ms);
        return 1;
    }
    if (q->lower_bound_ms > q->step_ms * (1 + ROUNDING)) {
        fprintf(out, "%s: step time %g ms is below its own bound %g ms\n", q->name, q->step_ms,
                q->lower_bound_ms);
        return 1;
    }
    return 0;
}

static int check_case(FILE *out, const zp_quality *before, const zp_quality *now)
{
    if (check_figures(out, now) > 0)
        return 1;
    int n_faults = 0;
    if (now->step_ms > before->step_ms * (1 + ZP_QUALITY_SLOWER)) {
        fprintf(out, "%s: step time %.6g ms, %.6g before: %.2f %% slower\n", now->name,
                now->step_ms, before->step_ms, 100 * (now->step_ms / before->step_ms - 1));
        n_faults++;
    }
    if (now->step_ms < before->lower_bound_ms * (1 - ROUNDING)) {
        fprintf(out, "%s: step time %.6g ms, but nothing is faster than %.6g ms: model changed?\n",
                now->name, now->step_ms, before->lower_bound_ms);
        n_faults++;
    }
    if (gap_of(now) > gap_of(before) * (1 + ZP_QUALITY_EFFORT) + ROUNDING) {
        fprintf(out, "%s: gap %.4f %%, %.4f %% before\n", now->name, 100 * gap_of(now),
                100 * gap_of(before));
        n_faults++;
    }
    return n_faults +
           check_effort(out, now->name, "integer programs", before->n_solves, now->n_solves) +
           check_effort(out, now->name, "nodes", before->n_nodes, now->n_nodes);
}

int zp_qualities_check(FILE *out, const zp_qualities *golden, const zp_qualities *now)
{
    int n_faults = 0;
    if (golden->n == 0 || now->n == 0) {
        fprintf(out, "no cases: %d are known, %d were run\n", golden->n, now->n);
        n_faults++;
    }
    for (int i = 0; i < golden->n; i++)
        if (!find(now, golden->items[i].name)) {
            fprintf(out, "%s: was not run\n", golden->items[i].name);
            n_faults++;
        }
    for (int i = 0; i < now->n; i++) {
        const zp_quality *before = find(golden, now->items[i].name);
        if (before) {
            n_faults += check_case(out, before, &now->items[i]);
        } else {
            fprintf(out, "%s: is not among the known cases\n", now->items[i].name);
            n_faults++;
        }
    }
    return n_faults;
}

void zp_qualities_print_changes(FILE *out, const zp_qualities *before, const zp_qualities *after)
{
    int n_changes = 0;
    for (int i = 0; i < before->n; i++)
        if (!find(after, before->items[i].name)) {
            fprintf(out, "- %s\n", before->items[i].name);
            n_changes++;
        }
    for (int i = 0; i < after->n; i++) {
        const zp_quality *b = find(before, after->items[i].name), *a = &after->items[i];
        if (!b) {
            fprintf(out, "+ %s: %.6g ms, bound %.6g, %" PRId64 " programs, %" PRId64 " nodes\n",
                    a->name, a->step_ms, a->lower_bound_ms, a->n_solves, a->n_nodes);
            n_changes++;
        } else if (b->step_ms != a->step_ms || b->lower_bound_ms != a->lower_bound_ms ||
                   b->n_solves != a->n_solves || b->n_nodes != a->n_nodes) {
            fprintf(out,
                    "  %s: %.6g -> %.6g ms (%+.3f %%), bound %.6g -> %.6g, programs %" PRId64
                    " -> %" PRId64 ", nodes %" PRId64 " -> %" PRId64 "\n",
                    a->name, b->step_ms, a->step_ms, 100 * (a->step_ms / b->step_ms - 1),
                    b->lower_bound_ms, a->lower_bound_ms, b->n_solves, a->n_solves, b->n_nodes,
                    a->n_nodes);
            n_changes++;
        }
    }
    fprintf(out, "%d of %d cases changed\n", n_changes, after->n);
}
