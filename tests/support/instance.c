#include "tests/support/instance.h"

#include "shared/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The optima belong to tables of six significant digits; the files print the tables with more. */
static double six_digits(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", value);
    return strtod(text, NULL);
}

/* Parameters are given in 1e9. */
static const double GIB_PER_BYTE = 1e9 / 1073741824;

static bool load_table(const double **out, zs_arena *arena, const zs_json *class, const char *key,
                       int b_max, zs_error *err)
{
    const zs_json *array;
    int n;
    double *table = ZS_NEW(arena, double, b_max + 1, err);
    if (!table || !zs_json_get(&array, class, key, err) ||
        !zs_json_is_array(&n, array, b_max, b_max, err))
        return false;
    for (int b = 1; b <= b_max; b++) {
        if (!zs_json_double(&table[b], zs_json_item(array, b - 1), 0, 1e12, err))
            return false;
        table[b] = six_digits(table[b]);
    }
    *out = table;
    return true;
}

static bool load_class(zp_class *c, zs_arena *arena, const zs_json *class, int b_max, zs_error *err)
{
    int64_t n_nodes, gpus_per_node;
    if (!zs_json_get_string(&c->gpu, class, "gpu", err) ||
        !zs_json_get_int(&n_nodes, class, "nodes", 1, 1000, err) ||
        !zs_json_get_int(&gpus_per_node, class, "gpus_per_node", 1, 1000, err) ||
        !zs_json_get_double(&c->memory_gib, class, "mem_gib", 0, 1e6, err) ||
        !zs_json_get_double(&c->intra_gib_per_s, class, "intra_gbps", 0, 1e6, err) ||
        !zs_json_get_double(&c->nic_gib_per_s, class, "nic_gbps", 0, 1e6, err))
        return false;
    c->n_nodes = (int)n_nodes;
    c->gpus_per_node = (int)gpus_per_node;
    c->b_max = b_max;
    return load_table(&c->forward_ms, arena, class, "fwd_ms", b_max, err) &&
           load_table(&c->backward_ms, arena, class, "bwd_ms", b_max, err) &&
           load_table(&c->embed_ms, arena, class, "embed_ms", b_max, err) &&
           load_table(&c->head_ms, arena, class, "head_ms", b_max, err);
}

/* A table by part of bytes per parameter; a single stage has both extras. */
static void set_parts(double parts_gib[ZP_N_PARTS], double bytes, double block, double first,
                      double last)
{
    parts_gib[ZP_PART_BLOCK] = bytes * block * GIB_PER_BYTE;
    parts_gib[ZP_PART_FIRST] = bytes * first * GIB_PER_BYTE;
    parts_gib[ZP_PART_LAST] = bytes * last * GIB_PER_BYTE;
    parts_gib[ZP_PART_SINGLE] = bytes * (first + last) * GIB_PER_BYTE;
}

static bool load_zero(zp_problem *p, const zs_json *object, zs_error *err)
{
    static const double repl[] = {0, 4, 2, 4}, shard[] = {0, 12, 14, 16};
    static const double volume[] = {0, 0, 2, 6}, sync[] = {0, 4, 2, 0};
    const zs_json *levels;
    double block, first, last;
    int n_levels;
    if (!zs_json_get_double(&block, object, "P", 0, 1e6, err) ||
        !zs_json_get_double(&first, object, "Pe", 0, 1e6, err) ||
        !zs_json_get_double(&last, object, "Ph", 0, 1e6, err) ||
        !zs_json_get(&levels, object, "zl", err) || !zs_json_is_array(&n_levels, levels, 1, 3, err))
        return false;
    for (int i = 0; i < n_levels; i++) {
        int64_t level;
        if (!zs_json_int(&level, zs_json_item(levels, i), 1, 3, err))
            return false;
        zp_zero *z = &p->zero[level];
        z->allowed = true;
        set_parts(z->repl_gib, repl[level], block, first, last);
        if (level == 3)
            z->repl_gib[ZP_PART_SINGLE] =
                fmax(z->repl_gib[ZP_PART_FIRST], z->repl_gib[ZP_PART_LAST]);
        set_parts(z->shard_gib, shard[level], block, first, last);
        set_parts(z->volume_gib, volume[level], block, first, last);
        set_parts(z->sync_volume_gib, sync[level], block, first, last);
    }
    return true;
}

static bool load_problem(instance *in, zs_arena *arena, const zs_json *object, zs_error *err)
{
    zp_problem *p = &in->problem;
    const zs_json *classes;
    int64_t n_blocks, b_max, batch, max_stages;
    if (!zs_json_get_string(&in->name, object, "name", err) ||
        !zs_json_get_int(&n_blocks, object, "L", 1, 1000, err) ||
        !zs_json_get_double(&p->act_gib, object, "A", 0, 1e6, err) ||
        !zs_json_get_double(&p->act_ckpt_gib, object, "Ac", 0, 1e6, err) ||
        !zs_json_get_double(&p->boundary_gib, object, "D", 0, 1e6, err) ||
        !zs_json_get_double(&p->logits_gib, object, "logit", 0, 1e6, err) ||
        !zs_json_get_int(&batch, object, "B", 1, 1 << 20, err) ||
        !zs_json_get_double(&p->overlap_zero, object, "rho", 0, 1, err) ||
        !zs_json_get_double(&p->overlap_send, object, "rhop", 0, 1, err) ||
        !zs_json_get_int(&b_max, object, "bmax", 1, 4096, err) ||
        !zs_json_get_int(&max_stages, object, "smax", 1, 1000, err) ||
        !zs_json_get(&classes, object, "classes", err) ||
        !zs_json_is_array(&p->n_classes, classes, 1, ZP_MAX_CLASSES, err) ||
        !load_zero(p, object, err))
        return false;
    p->n_blocks = (int)n_blocks;
    p->min_stages = 1;
    p->max_stages = (int)max_stages;
    p->recompute_none = p->recompute_full = true;
    for (int k = 0; k < p->n_classes; k++)
        if (!load_class(&p->classes[k], arena, zs_json_item(classes, k), (int)b_max, err))
            return false;
    zp_batching *batchings = ZS_NEW(arena, zp_batching, batch, err);
    if (!batchings)
        return false;
    for (int u = 1; u <= batch; u++)
        if (batch % u == 0)
            batchings[p->n_batchings++] = (zp_batching){u, (int)batch / u};
    p->batchings = batchings;
    return true;
}

static int find_class(const zp_problem *p, const char *gpu)
{
    for (int k = 0; k < p->n_classes; k++)
        if (strcmp(p->classes[k].gpu, gpu) == 0)
            return k;
    return -1;
}

static bool load_stage(zp_stage *stage, const zp_problem *p, zs_arena *arena, const zs_json *object,
                       zs_error *err)
{
    const zs_json *gpus, *samples, *shards, *flag;
    int64_t n_blocks, zero;
    int n;
    if (!zs_json_get_int(&n_blocks, object, "layers", 1, 1000, err) ||
        !zs_json_get_int(&zero, object, "zero", 1, 3, err) ||
        !zs_json_get(&flag, object, "recompute", err) ||
        !zs_json_bool(&stage->recompute, flag, err) ||
        !zs_json_get(&flag, object, "single_node", err) ||
        !zs_json_bool(&stage->intra, flag, err) || !zs_json_get(&gpus, object, "gpus", err) ||
        !zs_json_get(&samples, object, "b", err) ||
        !zs_json_get(&shards, object, "shard_blocks_1MiB", err) ||
        !zs_json_is_array(&stage->n_members, samples, 1, 1000, err) ||
        !zs_json_is_array(&n, shards, stage->n_members, stage->n_members, err))
        return false;
    stage->n_blocks = (int)n_blocks;
    stage->zero = (int)zero;
    stage->members = ZS_NEW(arena, zp_member, stage->n_members, err);
    if (!stage->members)
        return false;
    int i = 0;
    for (int g = 0; g < zs_json_n_items(gpus); g++) {
        int64_t count;
        int class = find_class(p, zs_json_key_at(gpus, g));
        if (!zs_json_int(&count, zs_json_item(gpus, g), 1, stage->n_members - i, err))
            return false;
        if (class < 0)
            return zs_json_fail(gpus, err, "unknown GPU");
        for (; count > 0; count--)
            stage->members[i++].class = class;
    }
    double sum = 0;
    for (i = 0; i < stage->n_members; i++) {
        zp_member *member = &stage->members[i];
        int64_t b;
        if (!zs_json_int(&b, zs_json_item(samples, i), 0, 4096, err) ||
            !zs_json_double(&member->shard_share, zs_json_item(shards, i), 0, 1e9, err))
            return false;
        member->samples = (int)b;
        sum += member->shard_share;
    }
    for (i = 0; i < stage->n_members; i++)
        stage->members[i].shard_share /= sum;
    return true;
}

static bool load_optimum(instance *in, zs_arena *arena, const zs_json *object, zs_error *err)
{
    const zp_problem *p = &in->problem;
    const zs_json *by_u, *plan;
    int64_t u, m;
    if (!zs_json_get_double(&in->best_ms, object, "T_ms", 0, 1e12, err) ||
        !zs_json_get_int(&u, object, "u", 1, 4096, err) ||
        !zs_json_get_int(&m, object, "m", 1, 4096, err) ||
        !zs_json_get(&by_u, object, "per_u", err) ||
        !zs_json_get(&plan, object, "one_optimal_plan", err) ||
        !zs_json_is_array(&in->n_plan_stages, plan, 1, 1000, err))
        return false;
    in->plan_batching = (zp_batching){(int)u, (int)m};
    in->batching_ms = ZS_NEW(arena, double, p->n_batchings, err);
    in->plan_stages = ZS_NEW(arena, zp_stage, in->n_plan_stages, err);
    if (!in->batching_ms || !in->plan_stages)
        return false;
    for (int i = 0; i < p->n_batchings; i++) {
        char key[16];
        const zs_json *entry;
        snprintf(key, sizeof key, "%d", p->batchings[i].micro_batch);
        if (!zs_json_get(&entry, by_u, key, err))
            return false;
        in->batching_ms[i] = INFINITY;
        if (zs_json_type_of(entry) != ZS_JSON_NULL &&
            !zs_json_get_double(&in->batching_ms[i], entry, "T_ms", 0, 1e12, err))
            return false;
    }
    for (int s = 0; s < in->n_plan_stages; s++)
        if (!load_stage(&in->plan_stages[s], p, arena, zs_json_item(plan, s), err))
            return false;
    return true;
}

bool instance_load(instance *out, zs_arena *arena, const char *path, zs_error *err)
{
    const zs_json *root, *problem, *optimum;
    instance in = {0};
    if (!zs_json_load(&root, arena, path, err))
        return false;
    if (zs_json_find(root, "best_step_ms")) {
        if (!load_problem(&in, arena, root, err) ||
            !zs_json_get_double(&in.best_ms, root, "best_step_ms", 0, 1e12, err))
            return false;
        *out = in;
        return true;
    }
    if (!zs_json_get(&problem, root, "instance", err) ||
        !zs_json_get(&optimum, root, "optimum", err) || !load_problem(&in, arena, problem, err) ||
        !load_optimum(&in, arena, optimum, err))
        return false;
    *out = in;
    return true;
}
