#include "planner/evaluate.h"

#include <math.h>

enum { MS_PER_S = 1000 };

/* Of the matrix products of a layer the backward pass has two for each one of the forward pass;
 * splits embed_ms and head_ms, which are given for both passes together. */
static const double FORWARD_SHARE = 1.0 / 3;

typedef struct link_speed {
    double gib_per_s;
    double latency_ms;
} link_speed;

typedef struct pass_time {
    double forward_ms;
    double backward_ms;
} pass_time;

static int n_members_of(const zp_stage *stage, int class)
{
    int n = 0;
    for (int i = 0; i < stage->n_members; i++)
        n += stage->members[i].class == class;
    return n;
}

static bool check_stage(const zp_problem *p, const zp_batching *batching, const zp_stage *stage,
                        zs_error *err)
{
    if (stage->n_blocks < 1)
        return ZS_FAIL(err, ZS_ERR_INPUT, "has %d blocks, expected 1 or more", stage->n_blocks);
    if (stage->zero < 1 || stage->zero > 3 || !p->zero[stage->zero].allowed)
        return ZS_FAIL(err, ZS_ERR_INPUT, "ZeRO-%d is not allowed", stage->zero);
    if (stage->recompute ? !p->recompute_full : !p->recompute_none)
        return ZS_FAIL(err, ZS_ERR_INPUT, "recompute %s is not allowed",
                       stage->recompute ? "full" : "none");
    if (stage->n_members < 1)
        return ZS_FAIL(err, ZS_ERR_INPUT, "has no GPU");
    if (p->max_gpus_per_stage > 0 && stage->n_members > p->max_gpus_per_stage)
        return ZS_FAIL(err, ZS_ERR_INPUT, "has %d GPUs, expected at most %d", stage->n_members,
                       p->max_gpus_per_stage);
    int n_samples = 0;
    double sum = 0;
    for (int i = 0; i < stage->n_members; i++) {
        const zp_member *member = &stage->members[i];
        if (member->class < 0 || member->class >= p->n_classes)
            return ZS_FAIL(err, ZS_ERR_INPUT, "member %d has class %d of %d", i, member->class,
                           p->n_classes);
        const zp_class *class = &p->classes[member->class];
        if (class->b_max == 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "member %d: %s cannot run the model", i, class->gpu);
        if (member->samples < 0 || member->samples > class->b_max ||
            (member->samples > 0 && !isfinite(class->forward_ms[member->samples])))
            return ZS_FAIL(err, ZS_ERR_INPUT, "member %d: %s offers no micro-batch of %d samples",
                           i, class->gpu, member->samples);
        if (!(member->shard_share >= 0))
            return ZS_FAIL(err, ZS_ERR_INPUT, "member %d has a shard share of %g, expected 0 to 1",
                           i, member->shard_share);
        n_samples += member->samples;
        sum += member->shard_share;
    }
    if (n_samples != batching->micro_batch)
        return ZS_FAIL(err, ZS_ERR_INPUT, "members take %d samples, expected %d", n_samples,
                       batching->micro_batch);
    if (!(fabs(sum - 1) <= 1e-6))
        return ZS_FAIL(err, ZS_ERR_INPUT, "shard shares sum to %.9g, expected 1", sum);
    int class = stage->members[0].class;
    if (stage->intra &&
        (n_members_of(stage, class) != stage->n_members ||
         !zp_problem_is_chain_piece(stage->n_members, p->classes[class].gpus_per_node)))
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "is said to be inside one node, but %d GPUs are no piece of a node of %d %s",
                       stage->n_members, p->classes[class].gpus_per_node, p->classes[class].gpu);
    return true;
}

static bool check_assignment(const zp_problem *p, const zp_batching *batching,
                             const zp_stage *stages, int n_stages, zs_error *err)
{
    if (n_stages < p->min_stages || n_stages > p->max_stages)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%d stages, expected %d to %d", n_stages, p->min_stages,
                       p->max_stages);
    int n_blocks = 0;
    for (int s = 0; s < n_stages; s++) {
        if (!check_stage(p, batching, &stages[s], err))
            return zs_error_prefix(err, "stage %d", s);
        n_blocks += stages[s].n_blocks;
    }
    if (n_blocks != p->n_blocks)
        return ZS_FAIL(err, ZS_ERR_INPUT, "stages have %d blocks, expected %d", n_blocks,
                       p->n_blocks);
    for (int k = 0; k < p->n_classes; k++) {
        int used = 0, have = p->classes[k].n_nodes * p->classes[k].gpus_per_node;
        for (int s = 0; s < n_stages; s++)
            used += n_members_of(&stages[s], k);
        if (used > have)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%d GPUs of %s are used, there are %d", used,
                           p->classes[k].gpu, have);
    }
    return true;
}

static link_speed group_link(const zp_problem *p, const zp_stage *stage)
{
    const zp_class *first = &p->classes[stage->members[0].class];
    if (stage->intra)
        return (link_speed){first->intra_gib_per_s, first->intra_latency_ms};
    link_speed slowest = {INFINITY, 0};
    for (int i = 0; i < stage->n_members; i++) {
        const zp_class *c = &p->classes[stage->members[i].class];
        slowest.gib_per_s = fmin(slowest.gib_per_s, fmin(c->intra_gib_per_s, c->nic_gib_per_s));
        slowest.latency_ms = fmax(slowest.latency_ms, fmax(c->intra_latency_ms, c->nic_latency_ms));
    }
    return slowest;
}

/* What member i computes in a micro-batch, by pass: the backward pass repeats the forward pass of
 * the blocks under recompute. */
static pass_time member_time(const zp_problem *p, const zp_stage *stage, zp_kind kind,
                             const zp_member *member)
{
    int b = member->samples;
    if (b == 0)
        return (pass_time){0, 0};
    const zp_class *c = &p->classes[member->class];
    double extra_ms = (kind == ZP_FIRST || kind == ZP_SINGLE ? c->embed_ms[b] : 0) +
                      (kind == ZP_LAST || kind == ZP_SINGLE ? c->head_ms[b] : 0);
    pass_time t = {stage->n_blocks * c->forward_ms[b] + FORWARD_SHARE * extra_ms,
                   stage->n_blocks * c->backward_ms[b] + (1 - FORWARD_SHARE) * extra_ms};
    if (stage->recompute)
        t.backward_ms += stage->n_blocks * c->forward_ms[b];
    return t;
}

/* compute_ms with n_sends across a boundary: overlap_send of them is hidden behind compute, and
 * the link is a floor. */
static double with_sends(const zp_problem *p, const zp_member *member, double compute_ms,
                         int n_sends)
{
    const zp_class *c = &p->classes[member->class];
    double link_ms = n_sends * p->boundary_gib * member->samples * MS_PER_S * c->gpus_per_node /
                     c->nic_gib_per_s;
    return member->samples == 0 ? 0
                                : fmax(compute_ms + (1 - p->overlap_send) * link_ms, link_ms) +
                                      n_sends * c->send_latency_ms;
}

/* Time of one pass in which traffic_ms is moved: what overlap_zero of the compute cannot hide. */
static double exposed_ms(const zp_problem *p, double compute_ms, double traffic_ms)
{
    return fmax(compute_ms, (1 - p->overlap_zero) * compute_ms + traffic_ms);
}

static double traffic_ms(link_speed link, int n_gpus, double volume_gib, int collectives)
{
    double moved_gib = volume_gib * (n_gpus - 1) / n_gpus;
    if (moved_gib <= 0)
        return 0;
    return moved_gib / link.gib_per_s * MS_PER_S + collectives * (n_gpus - 1) * link.latency_ms;
}

static bool evaluate_memory(zp_stage_cost *cost, const zp_problem *p, const zp_stage *stage,
                            zp_kind kind, int in_flight, int s, double tolerance_gib, zs_error *err)
{
    double repl_gib = zp_problem_repl_gib(p, stage->zero, kind, stage->n_blocks);
    double shard_gib = zp_problem_shard_gib(p, stage->zero, kind, stage->n_blocks);
    double act_gib =
        in_flight *
        (stage->n_blocks * (stage->recompute ? p->act_ckpt_gib : p->act_gib) + p->output_gib);
    if (stage->recompute)
        act_gib += p->act_gib;
    if (kind == ZP_LAST || kind == ZP_SINGLE)
        act_gib += p->logits_gib;
    act_gib += p->workspace_gib;
    for (int i = 0; i < stage->n_members; i++) {
        const zp_member *member = &stage->members[i];
        const zp_class *c = &p->classes[member->class];
        cost->member_memory_gib[i] =
            repl_gib + member->shard_share * shard_gib + member->samples * act_gib;
        cost->member_free_gib[i] = c->memory_gib - cost->member_memory_gib[i];
        if (cost->member_free_gib[i] < -tolerance_gib)
            return ZS_FAIL(err, ZS_ERR_INFEASIBLE,
                           "stage %d needs %.3f GiB on member %d (%d blocks, %d samples, %d in "
                           "flight, ZeRO-%d%s), %s has %.3f GiB, %.3f GiB missing",
                           s, cost->member_memory_gib[i], i, stage->n_blocks, member->samples,
                           in_flight, stage->zero, stage->recompute ? ", recompute" : "", c->gpu,
                           c->memory_gib, -cost->member_free_gib[i]);
    }
    return true;
}

/* t_s of the whole micro-batch in 1F1B, and of its two passes for GPipe. ZeRO-3 gathers once for
 * the forward pass and gathers and reduces in the backward pass; ZeRO-2 reduces there. */
static pass_time evaluate_time(zp_stage_cost *cost, const zp_problem *p, const zp_stage *stage,
                               zp_kind kind)
{
    const zp_zero *z = &p->zero[stage->zero];
    link_speed link = group_link(p, stage);
    int n_gpus = stage->n_members;
    int acts = kind == ZP_FIRST || kind == ZP_MIDDLE; /* the forward pass sends activations on */
    int grads = kind == ZP_LAST || kind == ZP_MIDDLE; /* the backward pass sends gradients back */
    pass_time compute = {0, 0};
    cost->compute_ms = 0;
    for (int i = 0; i < n_gpus; i++) {
        const zp_member *member = &stage->members[i];
        pass_time t = member_time(p, stage, kind, member);
        cost->member_ms[i] = with_sends(p, member, t.forward_ms + t.backward_ms, acts + grads);
        cost->compute_ms = fmax(cost->compute_ms, cost->member_ms[i]);
        compute.forward_ms = fmax(compute.forward_ms, with_sends(p, member, t.forward_ms, acts));
        compute.backward_ms =
            fmax(compute.backward_ms, with_sends(p, member, t.backward_ms, grads));
    }
    double zero_ms = traffic_ms(
        link, n_gpus, zp_problem_volume_gib(p, stage->zero, kind, stage->n_blocks), z->collectives);
    cost->micro_batch_ms = exposed_ms(p, cost->compute_ms, zero_ms);
    cost->sync_ms =
        traffic_ms(link, n_gpus, zp_problem_sync_volume_gib(p, stage->zero, kind, stage->n_blocks),
                   z->sync_collectives);
    double forward_part = stage->zero == 3 ? 1.0 / 3 : 0;
    return (pass_time){exposed_ms(p, compute.forward_ms, forward_part * zero_ms),
                       exposed_ms(p, compute.backward_ms, (1 - forward_part) * zero_ms)};
}

bool zp_evaluate(zp_cost *out, zs_arena *arena, const zp_problem *problem,
                 const zp_batching *batching, const zp_stage *stages, int n_stages, bool gpipe,
                 double tolerance_gib, zs_error *err)
{
    if (!check_assignment(problem, batching, stages, n_stages, err))
        return false;
    zp_cost cost = {.stages = ZS_NEW(arena, zp_stage_cost, n_stages, err)};
    if (!cost.stages)
        return false;
    const int m = batching->n_micro_batches;
    double sum_ms = 0, max_ms = 0, max_sync_ms = 0;
    pass_time sum = {0, 0}, max = {0, 0};
    for (int s = 0; s < n_stages; s++) {
        zp_stage_cost *stage_cost = &cost.stages[s];
        stage_cost->member_ms = ZS_NEW(arena, double, stages[s].n_members, err);
        stage_cost->member_memory_gib = ZS_NEW(arena, double, stages[s].n_members, err);
        stage_cost->member_free_gib = ZS_NEW(arena, double, stages[s].n_members, err);
        if (!stage_cost->member_ms || !stage_cost->member_memory_gib ||
            !stage_cost->member_free_gib)
            return false;
        zp_kind kind = zp_problem_kind(s, n_stages);
        int in_flight = gpipe || m < n_stages - s ? m : n_stages - s;
        if (!evaluate_memory(stage_cost, problem, &stages[s], kind, in_flight, s, tolerance_gib,
                             err))
            return false;
        pass_time pass = evaluate_time(stage_cost, problem, &stages[s], kind);
        sum_ms += stage_cost->micro_batch_ms;
        max_ms = fmax(max_ms, stage_cost->micro_batch_ms);
        max_sync_ms = fmax(max_sync_ms, stage_cost->sync_ms);
        sum.forward_ms += pass.forward_ms;
        sum.backward_ms += pass.backward_ms;
        max.forward_ms = fmax(max.forward_ms, pass.forward_ms);
        max.backward_ms = fmax(max.backward_ms, pass.backward_ms);
    }
    cost.step_ms = gpipe ? sum.forward_ms + (m - 1) * max.forward_ms + sum.backward_ms +
                               (m - 1) * max.backward_ms + max_sync_ms
                         : sum_ms + (m - 1) * max_ms + max_sync_ms;
    *out = cost;
    return true;
}

double zp_evaluate_bubble_share(const zp_cost *cost, int n_stages, int n_micro_batches)
{
    double sum = 0;
    for (int s = 0; s < n_stages; s++) {
        double busy_ms = n_micro_batches * cost->stages[s].micro_batch_ms + cost->stages[s].sync_ms;
        sum += cost->step_ms > 0 ? 1 - busy_ms / cost->step_ms : 0;
    }
    return fmax(0, sum / n_stages);
}

double zp_evaluate_memory_share(const zp_cost *cost, const zp_problem *p, const zp_stage *stages,
                                int n_stages)
{
    double share = 0;
    for (int s = 0; s < n_stages; s++)
        for (int i = 0; i < stages[s].n_members; i++)
            share = fmax(share, cost->stages[s].member_memory_gib[i] /
                                    p->classes[stages[s].members[i].class].memory_gib);
    return share;
}
