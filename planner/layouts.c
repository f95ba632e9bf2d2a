#include "planner/layouts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PERMUTED = 4, N_PERMUTED = 24, N_ORDERS = 6 };

typedef struct order {
    int n;
    int classes[ZP_MAX_CLASSES];
} order;

typedef struct orders {
    int n;
    order items[N_PERMUTED + N_ORDERS];
} orders;

typedef struct visitor {
    const zp_problem *problem;
    zp_layout_rule rule;
    zp_layout_visit visit;
    void *context;
    order fastest; /* all usable classes, the fastest first */
    zp_group *stages;
    int n_stages;
} visitor;

static int n_gpus_of(const zp_problem *p, int k)
{
    return p->classes[k].n_nodes * p->classes[k].gpus_per_node;
}

double zp_layout_speed(const zp_problem *p, int k)
{
    const zp_class *c = &p->classes[k];
    double best = 0;
    for (int b = 1; b <= c->b_max; b++)
        best = fmax(best, b / (c->forward_ms[b] + c->backward_ms[b]));
    return best;
}

/* Stable, so that equal classes stay as they are listed. */
static void sort_order(order *o, const double *keys, bool descending)
{
    for (int i = 1; i < o->n; i++)
        for (int j = i; j > 0; j--) {
            double before = keys[o->classes[j - 1]], after = keys[o->classes[j]];
            if (descending ? before >= after : before <= after)
                break;
            int swapped = o->classes[j];
            o->classes[j] = o->classes[j - 1];
            o->classes[j - 1] = swapped;
        }
}

static void add_order(orders *out, const order *o)
{
    for (int i = 0; i < out->n; i++)
        if (memcmp(out->items[i].classes, o->classes, (size_t)o->n * sizeof *o->classes) == 0)
            return;
    out->items[out->n++] = *o;
}

static void add_permutations(orders *out, order *o, int n_fixed)
{
    if (n_fixed == o->n)
        add_order(out, o);
    for (int i = n_fixed; i < o->n; i++) {
        order next = *o;
        next.classes[n_fixed] = o->classes[i];
        next.classes[i] = o->classes[n_fixed];
        add_permutations(out, &next, n_fixed + 1);
    }
}

/* Orders of the n fastest classes: as listed, by memory, by speed. */
static void list_orders(orders *out, const visitor *v, int n)
{
    const zp_problem *p = v->problem;
    double index[ZP_MAX_CLASSES], memory[ZP_MAX_CLASSES], speed[ZP_MAX_CLASSES];
    order listed = v->fastest;
    listed.n = n;
    for (int k = 0; k < p->n_classes; k++) {
        index[k] = k;
        memory[k] = p->classes[k].memory_gib;
        speed[k] = zp_layout_speed(p, k);
    }
    sort_order(&listed, index, false);
    out->n = 0;
    add_order(out, &listed);
    if (v->rule == ZP_LAYOUT_ONE_STAGE)
        return;
    const double *keys[] = {memory, speed};
    for (int i = 0; i < 2; i++)
        for (int descending = 1; descending >= 0; descending--) {
            order o = listed;
            sort_order(&o, keys[i], descending);
            add_order(out, &o);
        }
    if (v->rule == ZP_LAYOUT_ANY_ORDER && n <= MAX_PERMUTED)
        add_permutations(out, &listed, 0);
}

static void put(visitor *v, int k, int n)
{
    v->stages[v->n_stages - 1].counts[k] += n;
    v->stages[v->n_stages - 1].n_gpus += n;
}

static zp_group *begin_stage(visitor *v)
{
    v->stages[v->n_stages] = (zp_group){0};
    return &v->stages[v->n_stages++];
}

static bool show(visitor *v, zs_error *err)
{
    const zp_problem *p = v->problem;
    if (v->n_stages < p->min_stages || v->n_stages > p->max_stages || v->n_stages > p->n_blocks)
        return true;
    for (int s = 0; s < v->n_stages; s++) {
        if (p->max_gpus_per_stage > 0 && v->stages[s].n_gpus > p->max_gpus_per_stage)
            return true;
        zp_group_set_link(&v->stages[s], p);
    }
    return v->visit(v->context, v->stages, v->n_stages, err);
}

/* n_stages stages of n_gpus each; of the used classes the slowest gives up what is too much. */
static bool visit_equal(visitor *v, const order *o, int n_stages, int n_gpus, zs_error *err)
{
    int counts[ZP_MAX_CLASSES] = {0}, excess = -n_stages * n_gpus;
    for (int i = 0; i < o->n; i++) {
        counts[o->classes[i]] = n_gpus_of(v->problem, o->classes[i]);
        excess += counts[o->classes[i]];
    }
    for (int i = o->n - 1; excess > 0; i--) {
        int *count = &counts[v->fastest.classes[i]];
        int dropped = excess < *count ? excess : *count;
        *count -= dropped;
        excess -= dropped;
    }
    v->n_stages = 0;
    for (int s = 0, i = 0; s < n_stages; s++) {
        begin_stage(v);
        for (int left = n_gpus; left > 0;) {
            int k = o->classes[i], taken = left < counts[k] ? left : counts[k];
            put(v, k, taken);
            left -= taken;
            counts[k] -= taken;
            if (counts[k] == 0)
                i++;
        }
    }
    return show(v, err);
}

/* As many GPUs in each stage as there are, and the largest power of two of them: such groups lie
 * inside nodes more often. */
static bool visit_counts(visitor *v, const order *o, int n_stages, int n_used, zs_error *err)
{
    int n_gpus = v->rule == ZP_LAYOUT_ONE_GPU ? 1 : n_used / n_stages, power = 1;
    if (v->problem->max_gpus_per_stage > 0 && n_gpus > v->problem->max_gpus_per_stage)
        n_gpus = v->problem->max_gpus_per_stage;
    while (2 * power <= n_gpus)
        power *= 2;
    return visit_equal(v, o, n_stages, n_gpus, err) &&
           (power == n_gpus || visit_equal(v, o, n_stages, power, err));
}

/* Stages of about n_gpus: the largest piece of a node, or as many nodes as that gives. Nodes that
 * are left over form a smaller stage of their own, or none. */
static bool visit_nodes(visitor *v, const order *o, int n_gpus, bool with_rest, zs_error *err)
{
    const zp_problem *p = v->problem;
    v->n_stages = 0;
    for (int i = 0; i < o->n; i++) {
        int k = o->classes[i], node = p->classes[k].gpus_per_node, n = n_gpus_of(p, k);
        int size = n_gpus / node * node;
        for (int piece = 1; size == 0 && piece <= n_gpus; piece++)
            if (2 * piece > n_gpus && zp_problem_is_chain_piece(piece, node))
                size = piece;
        if (size == 0)
            size = 1;
        if (size > n)
            size = n;
        if (v->n_stages + n / size + 1 > p->max_stages)
            return true;
        for (; n >= size; n -= size) {
            begin_stage(v);
            put(v, k, size);
        }
        if (n > 0 && with_rest) {
            begin_stage(v);
            put(v, k, n);
        }
    }
    return show(v, err);
}

static bool visit_order(visitor *v, const order *o, zs_error *err)
{
    const zp_problem *p = v->problem;
    int n_used = 0;
    for (int i = 0; i < o->n; i++)
        n_used += n_gpus_of(p, o->classes[i]);
    if (v->rule == ZP_LAYOUT_NODES) {
        for (int base = 1; base <= 3; base += 2)
            for (int n_gpus = base; n_gpus <= n_used; n_gpus *= 2)
                if (!visit_nodes(v, o, n_gpus, false, err) || !visit_nodes(v, o, n_gpus, true, err))
                    return false;
        return true;
    }
    int most = v->rule == ZP_LAYOUT_ONE_STAGE ? 1 : p->max_stages;
    for (int n_stages = p->min_stages; n_stages <= most && n_stages <= n_used; n_stages++)
        if (!visit_counts(v, o, n_stages, n_used, err))
            return false;
    return true;
}

bool zp_layouts_visit(const zp_problem *p, zp_layout_rule rule, zp_layout_visit visit,
                      void *context, zs_error *err)
{
    double speed[ZP_MAX_CLASSES];
    visitor v = {.problem = p, .rule = rule, .visit = visit, .context = context};
    for (int k = 0; k < p->n_classes; k++) {
        speed[k] = zp_layout_speed(p, k);
        if (p->classes[k].b_max > 0)
            v.fastest.classes[v.fastest.n++] = k;
    }
    sort_order(&v.fastest, speed, true);
    v.stages = malloc(((size_t)p->max_stages + 1) * sizeof *v.stages);
    if (!v.stages)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for %d stages", p->max_stages);
    bool ok = true;
    for (int n = v.fastest.n; ok && n > 0; n--) {
        orders list;
        list_orders(&list, &v, n);
        for (int i = 0; ok && i < list.n; i++)
            ok = visit_order(&v, &list.items[i], err);
    }
    free(v.stages);
    return ok;
}
