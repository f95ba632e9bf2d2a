#include "planner/problem.h"

#include <math.h>

zp_kind zp_problem_kind(int stage, int n_stages)
{
    if (n_stages == 1)
        return ZP_SINGLE;
    if (stage == 0)
        return ZP_FIRST;
    return stage == n_stages - 1 ? ZP_LAST : ZP_MIDDLE;
}

/* The extra of a kind in a table by part; a middle stage has none. */
static double extra_gib(const double parts_gib[ZP_N_PARTS], zp_kind kind)
{
    static const zp_part part_of[ZP_N_KINDS] = {
        [ZP_FIRST] = ZP_PART_FIRST, [ZP_LAST] = ZP_PART_LAST, [ZP_SINGLE] = ZP_PART_SINGLE};
    return kind == ZP_MIDDLE ? 0 : parts_gib[part_of[kind]];
}

static double sum_gib(const double parts_gib[ZP_N_PARTS], zp_kind kind, int n_blocks)
{
    return n_blocks * parts_gib[ZP_PART_BLOCK] + extra_gib(parts_gib, kind);
}

static double largest_gib(const double parts_gib[ZP_N_PARTS], zp_kind kind)
{
    return fmax(parts_gib[ZP_PART_BLOCK], extra_gib(parts_gib, kind));
}

double zp_problem_repl_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks)
{
    const zp_zero *z = &p->zero[zero];
    double repl_gib =
        zero == 3 ? largest_gib(z->repl_gib, kind) : sum_gib(z->repl_gib, kind, n_blocks);
    return repl_gib + largest_gib(z->working_gib, kind);
}

double zp_problem_shard_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks)
{
    return sum_gib(p->zero[zero].shard_gib, kind, n_blocks);
}

double zp_problem_volume_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks)
{
    return sum_gib(p->zero[zero].volume_gib, kind, n_blocks);
}

double zp_problem_sync_volume_gib(const zp_problem *p, int zero, zp_kind kind, int n_blocks)
{
    return sum_gib(p->zero[zero].sync_volume_gib, kind, n_blocks);
}

bool zp_problem_is_chain_piece(int c, int g)
{
    if (c == 1 || c == g)
        return true;
    return c > 0 && c < g && (c & (c - 1)) == 0 && g % c == 0;
}

static bool check_quantity(double value, const char *name, zs_error *err)
{
    if (isfinite(value) && value >= 0)
        return true;
    return ZS_FAIL(err, ZS_ERR_INPUT, "%s is %g, expected 0 or more", name, value);
}

static bool check_count(int value, int min, int max, const char *name, zs_error *err)
{
    if (value >= min && value <= max)
        return true;
    return ZS_FAIL(err, ZS_ERR_INPUT, "%s is %d, expected %d to %d", name, value, min, max);
}

/* Speeds may be infinite: a link whose time is neglected. */
static bool check_speed(double gib_per_s, const char *name, zs_error *err)
{
    if (gib_per_s > 0)
        return true;
    return ZS_FAIL(err, ZS_ERR_INPUT, "%s is %g, expected more than 0", name, gib_per_s);
}

static bool check_table(const double *table_ms, int b_max, const char *name, zs_error *err)
{
    if (!table_ms && b_max > 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s is missing", name);
    for (int b = 1; b <= b_max; b++)
        if (!(table_ms[b] >= 0))
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s[%d] is %g, expected 0 or more", name, b,
                           table_ms[b]);
    return true;
}

static bool check_class(const zp_class *c, zs_error *err)
{
    if (!c->gpu)
        return ZS_FAIL(err, ZS_ERR_INPUT, "gpu is missing");
    return check_count(c->n_nodes, 1, 1 << 16, "n_nodes", err) &&
           check_count(c->gpus_per_node, 1, 1 << 12, "gpus_per_node", err) &&
           check_quantity(c->memory_gib, "memory_gib", err) &&
           check_speed(c->intra_gib_per_s, "intra_gib_per_s", err) &&
           check_speed(c->nic_gib_per_s, "nic_gib_per_s", err) &&
           check_quantity(c->intra_latency_ms, "intra_latency_ms", err) &&
           check_quantity(c->nic_latency_ms, "nic_latency_ms", err) &&
           check_quantity(c->send_latency_ms, "send_latency_ms", err) &&
           check_count(c->b_max, 0, 1 << 20, "b_max", err) &&
           check_table(c->forward_ms, c->b_max, "forward_ms", err) &&
           check_table(c->backward_ms, c->b_max, "backward_ms", err) &&
           check_table(c->embed_ms, c->b_max, "embed_ms", err) &&
           check_table(c->head_ms, c->b_max, "head_ms", err);
}

static bool check_parts(const double parts_gib[ZP_N_PARTS], const char *name, zs_error *err)
{
    for (int part = 0; part < ZP_N_PARTS; part++)
        if (!check_quantity(parts_gib[part], name, err))
            return false;
    return true;
}

static bool check_zero(const zp_zero *z, zs_error *err)
{
    return check_parts(z->repl_gib, "repl_gib", err) &&
           check_parts(z->working_gib, "working_gib", err) &&
           check_parts(z->shard_gib, "shard_gib", err) &&
           check_parts(z->volume_gib, "volume_gib", err) &&
           check_parts(z->sync_volume_gib, "sync_volume_gib", err) &&
           check_count(z->collectives, 0, 1 << 20, "collectives", err) &&
           check_count(z->sync_collectives, 0, 1 << 20, "sync_collectives", err);
}

bool zp_problem_check(const zp_problem *p, zs_error *err)
{
    if (!check_count(p->n_blocks, 1, 2048, "n_blocks", err) ||
        !check_count(p->n_classes, 1, ZP_MAX_CLASSES, "n_classes", err))
        return false;
    for (int k = 0; k < p->n_classes; k++)
        if (!check_class(&p->classes[k], err))
            return zs_error_prefix(err, "classes[%d]", k);
    if (!p->zero[1].allowed && !p->zero[2].allowed && !p->zero[3].allowed)
        return ZS_FAIL(err, ZS_ERR_INPUT, "zero allows no level, expected 1, 2 or 3");
    for (int zero = 1; zero <= 3; zero++)
        if (p->zero[zero].allowed && !check_zero(&p->zero[zero], err))
            return zs_error_prefix(err, "zero[%d]", zero);
    if (!p->recompute_none && !p->recompute_full)
        return ZS_FAIL(err, ZS_ERR_INPUT, "recompute allows neither none nor full");
    if (!check_quantity(p->act_gib, "act_gib", err) ||
        !check_quantity(p->act_ckpt_gib, "act_ckpt_gib", err) ||
        !check_quantity(p->logits_gib, "logits_gib", err) ||
        !check_quantity(p->output_gib, "output_gib", err) ||
        !check_quantity(p->workspace_gib, "workspace_gib", err) ||
        !check_quantity(p->boundary_gib, "boundary_gib", err))
        return false;
    if (!(p->overlap_zero >= 0 && p->overlap_zero <= 1))
        return ZS_FAIL(err, ZS_ERR_INPUT, "overlap_zero is %g, expected 0 to 1", p->overlap_zero);
    if (!(p->overlap_send >= 0 && p->overlap_send <= 1))
        return ZS_FAIL(err, ZS_ERR_INPUT, "overlap_send is %g, expected 0 to 1", p->overlap_send);
    if (!check_count(p->max_gpus_per_stage, 0, 1 << 20, "max_gpus_per_stage", err) ||
        !check_count(p->min_stages, 1, 1 << 16, "min_stages", err) ||
        !check_count(p->max_stages, 1, 1 << 16, "max_stages", err))
        return false;
    if (p->min_stages > p->max_stages)
        return ZS_FAIL(err, ZS_ERR_INPUT, "min_stages is %d, expected at most max_stages %d",
                       p->min_stages, p->max_stages);
    if (!check_count(p->n_batchings, 1, 1 << 20, "n_batchings", err))
        return false;
    for (int i = 0; i < p->n_batchings; i++)
        if (!check_count(p->batchings[i].micro_batch, 1, 1 << 20, "micro_batch", err) ||
            !check_count(p->batchings[i].n_micro_batches, 1, 1 << 20, "n_micro_batches", err))
            return zs_error_prefix(err, "batchings[%d]", i);
    return true;
}
