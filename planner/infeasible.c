#include "planner/infeasible.h"

#include "planner/master.h"
#include "shared/units.h"

#include <math.h>
#include <stdlib.h>

/* Cells (blocks, group) of a problem that is still relaxed for an explanation. */
static const double MAX_CELLS = 1e6;

/* A stage that every plan has, or something that needs more; with the fewest blocks. */
typedef struct stage_part {
    zp_kind kind;
    int n_blocks;
    const char *name;
} stage_part;

/* What the choice that misses least needs. */
typedef struct shortage {
    double need_gib, have_gib;
    int n_gpus;
    int zero;
    bool recompute;
    int micro_batch;
} shortage;

static int n_gpus_of(const zp_class *c)
{
    return c->b_max > 0 ? c->n_nodes * c->gpus_per_node : 0;
}

static int n_usable(const zp_problem *p)
{
    int n = 0;
    for (int k = 0; k < p->n_classes; k++)
        n += n_gpus_of(&p->classes[k]);
    return n;
}

static double act_gib(const zp_problem *p, const stage_part *part, bool recompute)
{
    bool last = part->kind == ZP_LAST || part->kind == ZP_SINGLE;
    return part->n_blocks * (recompute ? p->act_ckpt_gib : p->act_gib) + p->output_gib +
           (recompute ? p->act_gib : 0) + (last ? p->logits_gib : 0) + p->workspace_gib;
}

static int compare_descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Memory of the usable GPUs, largest first. In arena. */
static double *sorted_memory(zs_arena *arena, const zp_problem *p, zs_error *err)
{
    double *memory_gib = ZS_NEW(arena, double, n_usable(p), err);
    int n = 0;
    if (!memory_gib)
        return NULL;
    for (int k = 0; k < p->n_classes; k++)
        for (int i = 0; i < n_gpus_of(&p->classes[k]); i++)
            memory_gib[n++] = p->classes[k].memory_gib;
    qsort(memory_gib, (size_t)n, sizeof *memory_gib, compare_descending);
    return memory_gib;
}

static const zp_class *largest_class(const zp_problem *p)
{
    const zp_class *largest = NULL;
    for (int k = 0; k < p->n_classes; k++)
        if (n_gpus_of(&p->classes[k]) > 0 &&
            (!largest || p->classes[k].memory_gib > largest->memory_gib))
            largest = &p->classes[k];
    return largest;
}

static void keep_least(shortage *least, shortage other)
{
    if (other.need_gib - other.have_gib < least->need_gib - least->have_gib)
        *least = other;
}

static const shortage NO_CHOICE = {INFINITY, 0, 0, 0, false, 0};

/* One micro-batch in flight: on every GPU repl, on the one that takes a sample its activations too;
 * together also the shards and the activations of the whole micro-batch. */
static shortage least_shortage(const zp_problem *p, const stage_part *part,
                               const double *memory_gib, int most, bool whole)
{
    shortage least = NO_CHOICE;
    if (p->max_gpus_per_stage > 0 && p->max_gpus_per_stage < most)
        most = p->max_gpus_per_stage;
    for (int zero = 1; zero <= 3; zero++)
        for (int recompute = 0; recompute <= 1; recompute++) {
            if (!p->zero[zero].allowed || !(recompute ? p->recompute_full : p->recompute_none))
                continue;
            double repl_gib = zp_problem_repl_gib(p, zero, part->kind, part->n_blocks);
            double shard_gib = zp_problem_shard_gib(p, zero, part->kind, part->n_blocks);
            for (int i = 0; i < p->n_batchings; i++) {
                int u = p->batchings[i].micro_batch;
                shortage s = {0, 0, 0, zero, recompute, u};
                s.need_gib = (whole ? shard_gib + u * act_gib(p, part, recompute)
                                    : act_gib(p, part, recompute));
                for (int g = 0; g < most; g++) {
                    s.n_gpus = g + 1;
                    s.need_gib += repl_gib;
                    s.have_gib += memory_gib[g];
                    keep_least(&least, s);
                }
            }
        }
    return least;
}

static const char *print_gib(char text[32], double gib)
{
    return zs_units_print_bytes(text, 32, (int64_t)(gib * 1073741824.0 + 0.5));
}

static bool fail_shortage(const zp_problem *p, const shortage *s, const char *name, zs_error *err)
{
    char choice[96], have[160], need[32], amount[32], missing[32];
    snprintf(choice, sizeof choice, "%sZeRO-%d, micro-batch %d", s->recompute ? "recompute, " : "",
             s->zero, s->micro_batch);
    print_gib(amount, s->have_gib);
    if (s->n_gpus == 1)
        snprintf(have, sizeof have, "the largest GPU has %s (%s)", amount, largest_class(p)->gpu);
    else
        snprintf(have, sizeof have, "the %d largest GPUs have %s", s->n_gpus, amount);
    return ZS_FAIL(err, ZS_ERR_INFEASIBLE, "no feasible plan: %s needs %s (%s), %s, %s missing",
                   name, print_gib(need, s->need_gib), choice, have,
                   print_gib(missing, s->need_gib - s->have_gib));
}

/* Stages, GPUs and samples, before memory. */
static bool explain_counts(const zp_problem *p, zs_error *err)
{
    int n_gpus = n_usable(p);
    if (n_gpus == 0)
        return ZS_FAIL(err, ZS_ERR_INFEASIBLE,
                       "no feasible plan: none of the %d GPU types can run the model",
                       p->n_classes);
    if (p->n_blocks < p->min_stages)
        return ZS_FAIL(
            err, ZS_ERR_INFEASIBLE,
            "no feasible plan: %d stages need a block each, the model has %d, %d missing",
            p->min_stages, p->n_blocks, p->min_stages - p->n_blocks);
    if (n_gpus < p->min_stages)
        return ZS_FAIL(
            err, ZS_ERR_INFEASIBLE,
            "no feasible plan: %d stages need a GPU each, %d can run the model, %d missing",
            p->min_stages, n_gpus, p->min_stages - n_gpus);
    int64_t have = 0;
    int need = p->batchings[0].micro_batch;
    for (int k = 0; k < p->n_classes; k++) {
        const zp_class *c = &p->classes[k];
        int most = 0;
        for (int b = 1; b <= c->b_max; b++)
            if (isfinite(c->forward_ms[b]))
                most = b;
        have += (int64_t)most * n_gpus_of(c);
    }
    for (int i = 1; i < p->n_batchings; i++)
        if (p->batchings[i].micro_batch < need)
            need = p->batchings[i].micro_batch;
    if (need > have)
        return ZS_FAIL(err, ZS_ERR_INFEASIBLE,
                       "no feasible plan: the smallest micro-batch has %d samples, all %d GPUs "
                       "together take %d, %d missing",
                       need, n_gpus, (int)have, need - (int)have);
    return true;
}

/* Every stage by itself. */
static bool explain_parts(const zp_problem *p, const double *memory_gib, zs_error *err)
{
    static const stage_part pipeline[] = {{ZP_MIDDLE, 1, "a block"},
                                          {ZP_FIRST, 1, "a block with the embedding"},
                                          {ZP_LAST, 1, "a block with the head"}};
    const stage_part whole = {ZP_SINGLE, p->n_blocks, "the whole model in one stage"};
    bool one_stage = p->max_stages == 1;
    const stage_part *parts = one_stage ? &whole : pipeline;
    int n_parts = one_stage ? 1 : (int)(sizeof pipeline / sizeof pipeline[0]);
    for (int i = 0; i < n_parts; i++) {
        char name[96];
        snprintf(name, sizeof name, "one sample of %s", parts[i].name);
        shortage one = least_shortage(p, &parts[i], memory_gib, 1, false);
        shortage all = least_shortage(p, &parts[i], memory_gib, n_usable(p), true);
        /* With a single GPU the second says all. */
        if (all.need_gib > all.have_gib)
            return fail_shortage(p, &all, parts[i].name, err);
        if (one.need_gib > one.have_gib)
            return fail_shortage(p, &one, name, err);
    }
    return true;
}

/* All parts together: state once, with the activations of one micro-batch in flight. */
static bool explain_total(const zp_problem *p, const double *memory_gib, zs_error *err)
{
    double need_gib = 0, have_gib = 0, block_gib = INFINITY, least_act_gib = INFINITY;
    int u = p->batchings[0].micro_batch, n_gpus = n_usable(p);
    char need[32], have[32], missing[32];
    for (int i = 0; i < p->n_batchings; i++)
        if (p->batchings[i].micro_batch < u)
            u = p->batchings[i].micro_batch;
    for (int zero = 1; zero <= 3; zero++) {
        const zp_zero *z = &p->zero[zero];
        if (!z->allowed)
            continue;
        /* Under level 3 what is gathered is gone again and does not add up. */
        double repl_gib = zero < 3 ? z->repl_gib[ZP_PART_BLOCK] : 0;
        block_gib = fmin(block_gib, z->shard_gib[ZP_PART_BLOCK] + repl_gib);
    }
    if (p->recompute_none)
        least_act_gib = p->act_gib;
    if (p->recompute_full)
        least_act_gib = fmin(least_act_gib, p->act_ckpt_gib);
    need_gib = p->n_blocks * (block_gib + u * least_act_gib) + u * p->logits_gib;
    for (int g = 0; g < n_gpus; g++)
        have_gib += memory_gib[g];
    if (need_gib > have_gib)
        return ZS_FAIL(err, ZS_ERR_INFEASIBLE,
                       "no feasible plan: %d blocks need at least %s together (micro-batch "
                       "%d), all %d GPUs have %s, %s missing",
                       p->n_blocks, print_gib(need, need_gib), u, n_gpus, print_gib(have, have_gib),
                       print_gib(missing, need_gib - have_gib));
    return true;
}

/* Where each stage is one GPU, the min_stages-th largest has to hold at least the easiest stage. */
static bool explain_smallest(const zp_problem *p, const double *memory_gib, zs_error *err)
{
    static const stage_part easiest[] = {{ZP_MIDDLE, 1, "a block"},
                                         {ZP_FIRST, 1, "a block with the embedding"},
                                         {ZP_LAST, 1, "a block with the head"}};
    const int last = p->min_stages - 1;
    if (p->min_stages < 2 || (p->max_gpus_per_stage != 1 && n_usable(p) != p->min_stages))
        return true;
    shortage least = NO_CHOICE;
    const char *name = "";
    for (int i = p->min_stages == 2; i < 3; i++) { /* two stages have no middle */
        const shortage s = least_shortage(p, &easiest[i], &memory_gib[last], 1, true);
        if (s.need_gib - s.have_gib < least.need_gib - least.have_gib)
            name = easiest[i].name;
        keep_least(&least, s);
    }
    if (least.need_gib <= least.have_gib)
        return true;
    const char *gpu = "";
    for (int k = 0; k < p->n_classes; k++)
        if (p->classes[k].memory_gib == memory_gib[last])
            gpu = p->classes[k].gpu;
    char need[32], have[32], missing[32];
    return ZS_FAIL(
        err, ZS_ERR_INFEASIBLE,
        "no feasible plan: %d stages need a GPU each; %s has %s, %s needs %s (%sZeRO-%d, "
        "micro-batch %d), %s missing",
        p->min_stages, gpu, print_gib(have, least.have_gib), name, print_gib(need, least.need_gib),
        least.recompute ? "recompute, " : "", least.zero, least.micro_batch,
        print_gib(missing, least.need_gib - least.have_gib));
}

/* The most blocks that stages can hold at once, over all batchings; n_blocks when that is not
 * known.
 */
static bool most_blocks(int *most, int *micro_batch, zs_arena *arena, const zp_problem *p,
                        const zp_deadline *deadline, zs_error *err)
{
    zp_groups groups;
    zp_problem relaxed = *p;
    *most = p->n_blocks;
    if (zp_groups_count(p, ZP_MIX_ALL) * p->n_blocks > MAX_CELLS)
        return true;
    relaxed.min_stages = 2;
    if (!zp_groups_build(&groups, arena, p, ZP_MIX_ALL, err))
        return false;
    int best = 0;
    *micro_batch = p->batchings[0].micro_batch;
    for (int i = 0; i < p->n_batchings; i++) {
        zp_patterns patterns;
        if (!zp_patterns_find(&patterns, &relaxed, &groups, &p->batchings[i], INFINITY, INFINITY,
                              deadline, err))
            return false;
        zp_master master = {&relaxed, &groups, &p->batchings[i], &patterns, &zp_solver_glpk,
                            deadline, NULL};
        double n_blocks = p->n_blocks;
        int *subset = ZS_NEW(arena, int, patterns.n, err);
        for (int j = 0; subset && j < patterns.n; j++)
            subset[j] = j;
        bool ok = subset && (patterns.stopped || zp_master_most_blocks(&n_blocks, arena, &master,
                                                                       subset, patterns.n, err));
        zp_patterns_close(&patterns);
        if (!ok)
            return false;
        if (n_blocks + 1e-6 > best + 1) {
            best = (int)(n_blocks + 1e-6);
            *micro_batch = p->batchings[i].micro_batch;
        }
    }
    *most = best;
    return true;
}

static bool explain(zs_arena *arena, const zp_problem *p, bool all_groups,
                    const zp_deadline *deadline, zs_error *err)
{
    int most, micro_batch;
    if (!explain_counts(p, err))
        return false;
    const double *memory_gib = sorted_memory(arena, p, err);
    if (!memory_gib || !explain_parts(p, memory_gib, err) || !explain_total(p, memory_gib, err) ||
        !explain_smallest(p, memory_gib, err))
        return false;
    bool pipeline = zp_pattern_max_stages(p) >= 2;
    if (pipeline && !most_blocks(&most, &micro_batch, arena, p, deadline, err))
        return false;
    if (pipeline && most < p->n_blocks)
        return ZS_FAIL(err, ZS_ERR_INFEASIBLE,
                       "no feasible plan: the GPUs hold at most %d of %d blocks at once "
                       "(micro-batch %d), %d missing",
                       most, p->n_blocks, micro_batch, p->n_blocks - most);
    return ZS_FAIL(
        err, ZS_ERR_INFEASIBLE,
        "no feasible plan: each part fits by itself and memory suffices in total, but no "
        "division of %d blocks among %d GPUs in %d to %d stages fits every GPU%s",
        p->n_blocks, n_usable(p), p->min_stages, p->max_stages,
        all_groups ? "" : " (stages that mix parts of nodes were not tried)");
}

bool zp_infeasible_explain(const zp_problem *problem, bool all_groups, const zp_deadline *deadline,
                           zs_error *err)
{
    zs_arena *arena;
    if (!zs_arena_open(&arena, err))
        return false;
    bool ok = explain(arena, problem, all_groups, deadline, err);
    zs_arena_close(&arena);
    return ok;
}
