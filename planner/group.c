#include "planner/group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int n_gpus_of(const zp_class *c)
{
    return c->b_max > 0 ? c->n_nodes * c->gpus_per_node : 0;
}

double zp_groups_count(const zp_problem *p, zp_mixing mixing)
{
    double n_counts = 1, n_nodes = 1, n_gpus = 0;
    for (int k = 0; k < p->n_classes; k++) {
        int n = n_gpus_of(&p->classes[k]);
        n_counts *= 1 + n;
        n_nodes *= 1 + (n > 0 ? p->classes[k].n_nodes : 0);
        n_gpus += n;
    }
    if (mixing == ZP_MIX_ALL)
        return n_counts;
    return mixing == ZP_MIX_NODES ? n_gpus + n_nodes : n_gpus;
}

/* By size, then the group with more GPUs of the lowest class. */
static int compare_groups(const void *a, const void *b)
{
    const zp_group *x = a, *y = b;
    if (x->n_gpus != y->n_gpus)
        return x->n_gpus < y->n_gpus ? -1 : 1;
    for (int k = 0; k < ZP_MAX_CLASSES; k++)
        if (x->counts[k] != y->counts[k])
            return x->counts[k] > y->counts[k] ? -1 : 1;
    return 0;
}

void zp_group_set_link(zp_group *group, const zp_problem *p)
{
    group->intra = false;
    group->gib_per_s = INFINITY;
    group->latency_ms = 0;
    for (int k = 0; k < p->n_classes; k++) {
        const zp_class *c = &p->classes[k];
        if (group->counts[k] == 0)
            continue;
        if (group->counts[k] == group->n_gpus &&
            zp_problem_is_chain_piece(group->n_gpus, c->gpus_per_node)) {
            group->intra = true;
            group->gib_per_s = c->intra_gib_per_s;
            group->latency_ms = c->intra_latency_ms;
            return;
        }
        group->gib_per_s = fmin(group->gib_per_s, fmin(c->intra_gib_per_s, c->nic_gib_per_s));
        group->latency_ms = fmax(group->latency_ms, fmax(c->intra_latency_ms, c->nic_latency_ms));
    }
}

static void add_group(zp_groups *groups, const zp_problem *p, const int counts[ZP_MAX_CLASSES])
{
    zp_group group = {0};
    int n_used = 0;
    for (int k = 0; k < p->n_classes; k++) {
        group.counts[k] = counts[k];
        group.n_gpus += counts[k];
        n_used += counts[k] > 0;
    }
    if (group.n_gpus == 0 || (p->max_gpus_per_stage > 0 && group.n_gpus > p->max_gpus_per_stage))
        return;
    /* Sets of whole nodes of one class are among the groups of one class already. */
    if (groups->mixing == ZP_MIX_NODES && n_used == 1)
        return;
    zp_group_set_link(&group, p);
    groups->items[groups->n++] = group;
}

/* Adds every combination of counts that are multiples of step[k], like an odometer. */
static void add_combinations(zp_groups *groups, const zp_problem *p, const int step[ZP_MAX_CLASSES])
{
    int counts[ZP_MAX_CLASSES] = {0};
    int k = 0;
    while (k < p->n_classes) {
        add_group(groups, p, counts);
        for (k = 0; k < p->n_classes; k++) {
            counts[k] += step[k];
            if (counts[k] <= n_gpus_of(&p->classes[k]))
                break;
            counts[k] = 0;
        }
    }
}

static void add_single_classes(zp_groups *groups, const zp_problem *p)
{
    zp_mixing mixing = groups->mixing;
    groups->mixing = ZP_MIX_NONE;
    for (int k = 0; k < p->n_classes; k++) {
        int counts[ZP_MAX_CLASSES] = {0};
        int n = n_gpus_of(&p->classes[k]), node = p->classes[k].gpus_per_node;
        for (counts[k] = 1; counts[k] <= n; counts[k]++)
            if (n <= ZP_MANY_GPUS || counts[k] % node == 0 ||
                zp_problem_is_chain_piece(counts[k], node))
                add_group(groups, p, counts);
    }
    groups->mixing = mixing;
}

static int find_below(const zp_groups *groups, const zp_group *group, int k)
{
    zp_group smaller = *group;
    while (smaller.counts[k] > 0) {
        smaller.counts[k]--;
        smaller.n_gpus--;
        const zp_group *found = bsearch(&smaller, groups->items, (size_t)groups->n,
                                        sizeof *groups->items, compare_groups);
        if (found)
            return (int)(found - groups->items);
    }
    return -1;
}

bool zp_groups_build(zp_groups *out, zs_arena *arena, const zp_problem *p, zp_mixing mixing,
                     zs_error *err)
{
    zp_groups groups = {.mixing = mixing, .arena = arena};
    int step[ZP_MAX_CLASSES];
    double n = zp_groups_count(p, mixing);
    if (n > 1e7)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%g groups of GPUs are too many", n);
    groups.items = ZS_NEW(arena, zp_group, (int)n, err);
    if (!groups.items)
        return false;
    for (int k = 0; k < p->n_classes; k++)
        step[k] = mixing == ZP_MIX_ALL ? 1 : p->classes[k].gpus_per_node;
    if (mixing != ZP_MIX_ALL)
        add_single_classes(&groups, p);
    if (mixing != ZP_MIX_NONE)
        add_combinations(&groups, p, step);
    qsort(groups.items, (size_t)groups.n, sizeof *groups.items, compare_groups);
    for (int g = 0; g < groups.n; g++)
        for (int k = 0; k < p->n_classes; k++)
            groups.items[g].below[k] = find_below(&groups, &groups.items[g], k);
    groups.n_listed = groups.capacity = groups.n;
    *out = groups;
    return true;
}

static uint64_t hash_counts(const zp_group *group)
{
    uint64_t h = 0;
    for (int k = 0; k < ZP_MAX_CLASSES; k++) {
        h = (h + (uint64_t)group->counts[k] + 1) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h;
}

/* The slot of an equal group, or the free one where it belongs. */
static int *find_slot(const zp_groups *groups, const zp_group *group)
{
    uint64_t i = hash_counts(group);
    for (;; i++) {
        int *slot = &groups->slots[i % (uint64_t)groups->n_slots];
        if (*slot < 0 ||
            memcmp(groups->items[*slot].counts, group->counts, sizeof group->counts) == 0)
            return slot;
    }
}

static void fill_slots(zp_groups *groups)
{
    for (int i = 0; i < groups->n_slots; i++)
        groups->slots[i] = -1;
    for (int g = groups->n_listed; g < groups->n; g++)
        if (!groups->items[g].relaxed)
            *find_slot(groups, &groups->items[g]) = g;
}

void zp_groups_truncate(zp_groups *groups, int n)
{
    if (n == groups->n)
        return;
    groups->n = n;
    fill_slots(groups);
}

static bool grow(zp_groups *groups, zs_error *err)
{
    int capacity = groups->n + groups->n / 2 + 256, n_slots = 2 * capacity + 1;
    zp_group *items = ZS_NEW(groups->arena, zp_group, capacity, err);
    int *slots = ZS_NEW(groups->arena, int, n_slots, err);
    if (!items || !slots)
        return false;
    memcpy(items, groups->items, (size_t)groups->n * sizeof *items);
    groups->items = items;
    groups->capacity = capacity;
    groups->slots = slots;
    groups->n_slots = n_slots;
    fill_slots(groups);
    return true;
}

bool zp_groups_add(int *index, zp_groups *groups, const zp_group *group, zs_error *err)
{
    if (groups->n == groups->capacity && !grow(groups, err))
        return false;
    if (group->relaxed) {
        *index = groups->n;
        groups->items[groups->n++] = *group;
        return true;
    }
    int *slot = find_slot(groups, group);
    if (*slot < 0) {
        *slot = groups->n;
        groups->items[groups->n++] = *group;
    }
    *index = *slot;
    return true;
}
