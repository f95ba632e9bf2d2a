#include "planner/timing.h"

#include "models/cost.h"

#include <math.h>

static const double MS_PER_S = 1000;

void zp_timing_route(zp_hop hops[2], double *latency_ms, const zp_timing *timing, int from, int to)
{
    const int a = timing->ranks[from].node, b = timing->ranks[to].node;
    const int nics = 2 * timing->n_ranks;
    const bool inside = a == b;
    hops[0] = (zp_hop){inside ? 2 * from : nics + 2 * a, 1};
    hops[1] = (zp_hop){inside ? 2 * to + 1 : nics + 2 * b + 1, 1};
    *latency_ms = inside ? timing->intra_latency_ms[a]
                         : fmax(timing->nic_latency_ms[a], timing->nic_latency_ms[b]);
}

static bool build_links(zp_timing *t, zs_arena *arena, const zs_plan *plan,
                        const zp_what_if *what_if, zs_error *err)
{
    const zs_cluster *cluster = &plan->cluster;
    t->n_links = 2 * t->n_ranks + 2 * cluster->n_nodes;
    t->link_bytes_per_ms = ZS_NEW(arena, double, t->n_links, err);
    t->intra_latency_ms = ZS_NEW(arena, double, cluster->n_nodes, err);
    t->nic_latency_ms = ZS_NEW(arena, double, cluster->n_nodes, err);
    if (!t->link_bytes_per_ms || !t->intra_latency_ms || !t->nic_latency_ms)
        return false;
    for (int rank = 0; rank < t->n_ranks; rank++) {
        const int node = t->ranks[rank].node;
        t->link_bytes_per_ms[2 * rank] = t->link_bytes_per_ms[2 * rank + 1] =
            cluster->nodes[node].intra_bytes_per_s * what_if->intra_factor[node] / MS_PER_S;
    }
    for (int node = 0; node < cluster->n_nodes; node++) {
        double *nic = &t->link_bytes_per_ms[2 * t->n_ranks + 2 * node];
        nic[0] = nic[1] =
            cluster->nodes[node].nic_bytes_per_s * what_if->nic_factor[node] / MS_PER_S;
        t->intra_latency_ms[node] = cluster->nodes[node].intra_latency_ms;
        t->nic_latency_ms[node] = cluster->nodes[node].nic_latency_ms;
    }
    return true;
}

static int n_members(const zp_ring *ring)
{
    return ring->end[0] - ring->first[0] + ring->end[1] - ring->first[1];
}

/* Hops and the largest latency of a ring through all members, in rank order. n_uses: zero for each
 * link, and zero again afterwards. */
static bool build_hops(zp_ring *ring, double *latency_ms, zs_arena *arena, const zp_timing *t,
                       int *n_uses, zs_error *err)
{
    const int n = n_members(ring);
    *latency_ms = 0;
    ring->n_hops = 0;
    if (n < 2)
        return true;
    zp_hop *hops = ZS_NEW(arena, zp_hop, 2 * (int64_t)n, err);
    if (!hops)
        return false;
    int previous = ring->end[1] > ring->first[1] ? ring->end[1] - 1 : ring->end[0] - 1;
    for (int k = 0; k < 2; k++)
        for (int rank = ring->first[k]; rank < ring->end[k]; rank++) {
            zp_hop route[2];
            double hop_latency_ms = 0;
            zp_timing_route(route, &hop_latency_ms, t, previous, rank);
            *latency_ms = fmax(*latency_ms, hop_latency_ms);
            for (int i = 0; i < 2; i++)
                if (n_uses[route[i].link]++ == 0)
                    hops[ring->n_hops++] = route[i];
            previous = rank;
        }
    for (int i = 0; i < ring->n_hops; i++) {
        hops[i].weight = n_uses[hops[i].link];
        n_uses[hops[i].link] = 0;
    }
    ring->hops = hops;
    return true;
}

/* The ring's bandwidth with its links to itself. */
static double ring_bytes_per_ms(const zp_timing *t, const zp_ring *ring)
{
    double bytes_per_ms = INFINITY;
    for (int i = 0; i < ring->n_hops; i++)
        bytes_per_ms =
            fmin(bytes_per_ms, t->link_bytes_per_ms[ring->hops[i].link] / ring->hops[i].weight);
    return bytes_per_ms;
}

/* The same members and links for a collective that moves hop_bytes over each link. */
static zp_ring with_bytes(const zp_ring *ring, double hop_latency_ms, double hop_bytes)
{
    zp_ring result = *ring;
    const int n_steps = n_members(ring) - 1;
    if (hop_bytes > 0 && n_steps > 0) {
        result.bytes = hop_bytes;
        result.latency_ms = n_steps * hop_latency_ms;
    }
    return result;
}

/* Parameters that cross the busiest link of a ring when each of the n members owns its part of
 * [first, first + count): all but the smallest part. */
static double ring_params(const zs_plan_stage *owners, int n, int64_t first, int64_t count)
{
    int64_t smallest = n > owners->n_ranks ? 0 : count; /* members beyond the owners own nothing */
    for (int i = 0; i < owners->n_ranks; i++) {
        const zs_shard part = zs_shards_intersect(owners->ranks[i].shard, first, count);
        smallest = part.count < smallest ? part.count : smallest;
    }
    return (double)(count - smallest);
}

/* What ZeRO moves in each pass of a micro-batch, with the links to itself. */
typedef struct traffic {
    double forward_ms, backward_ms;
} traffic;

static bool build_stage_rings(zp_timing *t, traffic *out, zs_arena *arena, const zs_plan *plan,
                              int stage, zm_state_bytes state, int *n_uses, zs_error *err)
{
    const zs_plan_stage *s = &plan->stages[stage];
    const int first = zs_plan_first_rank(plan, stage);
    zp_ring ring = {.first = {first}, .end = {first + s->n_ranks}};
    double latency_ms = 0;
    if (!build_hops(&ring, &latency_ms, arena, t, n_uses, err))
        return false;
    const double params = ring_params(s, s->n_ranks, 0, s->n_params);
    const zp_ring gradients = with_bytes(&ring, latency_ms, state.gradients * params);
    const zp_ring weights = with_bytes(&ring, latency_ms, state.weights * params);
    t->rings[ZS_OP_REDUCE_GRADS * t->n_stages + stage] = s->zero_stage == 1 ? gradients : ring;
    t->rings[ZS_OP_GATHER_PARAMS * t->n_stages + stage] = s->zero_stage < 3 ? weights : ring;
    const double bytes_per_ms = ring_bytes_per_ms(t, &ring);
    const double gather_ms = weights.latency_ms + weights.bytes / bytes_per_ms;
    const double reduce_ms = gradients.latency_ms + gradients.bytes / bytes_per_ms;
    *out = (traffic){s->zero_stage == 3 ? gather_ms : 0,
                     (s->zero_stage == 3 ? gather_ms : 0) + (s->zero_stage > 1 ? reduce_ms : 0)};
    return true;
}

static bool build_shared_rings(zp_timing *t, zs_arena *arena, const zs_plan *plan,
                               const zm_model *model, zm_state_bytes state, int *n_uses,
                               zs_error *err)
{
    const int last = plan->n_stages - 1;
    double latency_ms = 0;
    zp_ring all = {.end = {t->n_ranks}};
    zp_ring tied = {.end = {plan->stages[0].n_ranks}};
    if (last > 0) {
        tied.first[1] = zs_plan_first_rank(plan, last);
        tied.end[1] = t->n_ranks;
    }
    if (!build_hops(&all, &latency_ms, arena, t, n_uses, err))
        return false;
    all.latency_ms = 2 * ceil(log2(t->n_ranks)) * latency_ms;
    all.n_hops = 0; /* one number needs no bandwidth */
    t->rings[ZS_OP_GRAD_NORM * t->n_stages] = all;

    if (!build_hops(&tied, &latency_ms, arena, t, n_uses, err))
        return false;
    const double params = ring_params(&plan->stages[0], n_members(&tied), 0,
                                      (int64_t)model->n_vocab * model->n_channels);
    t->rings[ZS_OP_REDUCE_TIED * t->n_stages] =
        with_bytes(&tied, latency_ms, state.gradients * params);
    t->rings[ZS_OP_GATHER_TIED * t->n_stages] =
        with_bytes(&tied, latency_ms, state.weights * params);
    return true;
}

/* Lengthens both passes by the traffic that compute does not hide. */
static void add_exposed(double *forward_ms, double *backward_ms, const traffic *moved,
                        double overlap, bool pass_by_pass)
{
    const double sum_ms = moved->forward_ms + moved->backward_ms;
    if (pass_by_pass) {
        *forward_ms += fmax(0, moved->forward_ms - overlap * *forward_ms);
        *backward_ms += fmax(0, moved->backward_ms - overlap * *backward_ms);
    } else if (sum_ms > 0) {
        const double exposed_ms = fmax(0, sum_ms - overlap * (*forward_ms + *backward_ms));
        *forward_ms += exposed_ms * moved->forward_ms / sum_ms;
        *backward_ms += exposed_ms * moved->backward_ms / sum_ms;
    }
}

static bool build_rank(zp_timing *t, zs_arena *arena, const zs_plan *plan, int stage, int index,
                       const traffic *moved, double time_factor, zm_state_bytes state,
                       zs_error *err)
{
    const zs_plan_stage *s = &plan->stages[stage];
    const zs_plan_rank *r = &s->ranks[index];
    zp_rank_timing *out = &t->ranks[zs_plan_first_rank(plan, stage) + index];
    const char *type = plan->cluster.nodes[r->node].devices[r->gpu].type;
    const int n_blocks = s->forward.end - s->forward.first;
    const int n_layers[ZS_N_LAYER_KINDS] = {[ZS_LAYER_EMBEDDING] = stage == 0,
                                            [ZS_LAYER_BLOCK] = n_blocks,
                                            [ZS_LAYER_HEAD] = stage == plan->n_stages - 1};
    out->n_samples = r->samples;
    out->forward_ms = ZS_NEW(arena, double, r->samples + 1, err);
    out->backward_ms = ZS_NEW(arena, double, r->samples + 1, err);
    if (!out->forward_ms || !out->backward_ms)
        return false;
    const zs_profile_entry *entries[ZS_N_LAYER_KINDS];
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++)
        entries[kind] = zs_profile_find(&plan->profile, type, (zs_layer_kind)kind,
                                        plan->job.precision, plan->job.seq_len);
    double f[ZS_N_LAYER_KINDS] = {0}, g[ZS_N_LAYER_KINDS] = {0};
    for (int b = r->samples; b >= 1; b--) {
        double forward_ms = 0, backward_ms = 0;
        for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
            bool interpolated = false;
            if (n_layers[kind] == 0)
                continue;
            /* a size that is not offered keeps the times of the next larger one */
            const bool offered = entries[kind] && zs_profile_time(&f[kind], &g[kind], &interpolated,
                                                                  entries[kind], b);
            if (!offered && b == r->samples)
                return ZS_FAIL(err, ZS_ERR_INPUT,
                               "profile: no %s times of GPU type %s for %d samples",
                               zs_layer_kind_names[kind], type, b);
            const bool again = s->recompute && kind == ZS_LAYER_BLOCK;
            forward_ms += n_layers[kind] * f[kind];
            backward_ms += n_layers[kind] * (g[kind] + (again ? f[kind] : 0));
        }
        forward_ms *= time_factor;
        backward_ms *= time_factor;
        add_exposed(&forward_ms, &backward_ms, moved, plan->job.overlap_zero,
                    plan->schedule == ZS_SCHEDULE_GPIPE);
        out->forward_ms[b] = forward_ms;
        out->backward_ms[b] = backward_ms;
    }
    /* without samples nothing hides what the rank moves with the others of its stage */
    out->forward_ms[0] = moved->forward_ms;
    out->backward_ms[0] = moved->backward_ms;
    const zs_gpu *gpu = zs_gpus_find(type);
    const int moved_bytes = 2 * state.optimizer + state.gradients +
                            (plan->job.precision == ZS_FP32 ? 2 : 1) * state.weights;
    if (gpu)
        out->step_ms =
            time_factor * (double)r->shard.count * moved_bytes / gpu->memory_bytes_per_s * MS_PER_S;
    return true;
}

/* Devices are numbered node after node: the number of a node's first. */
static int first_device(const zs_cluster *cluster, int node)
{
    int first = 0;
    for (int k = 0; k < node; k++)
        first += cluster->nodes[k].n_devices;
    return first;
}

bool zp_timing_build(zp_timing *out, zs_arena *arena, const zs_plan *plan, const zm_model *model,
                     const zp_what_if *what_if, zs_error *err)
{
    const zm_state_bytes state = zm_cost_state(plan->job.precision);
    zp_timing t = {.n_ranks = zs_plan_n_ranks(plan),
                   .n_stages = plan->n_stages,
                   .boundary_bytes = (double)zm_cost_boundary_bytes(model, plan->job.seq_len,
                                                                    plan->job.precision)};
    t.ranks = ZS_NEW(arena, zp_rank_timing, t.n_ranks, err);
    t.rings = ZS_NEW(arena, zp_ring, (int64_t)ZS_N_OPS * t.n_stages, err);
    traffic *moved = ZS_NEW(arena, traffic, t.n_stages, err);
    if (!t.ranks || !t.rings || !moved)
        return false;
    for (int rank = 0; rank < t.n_ranks; rank++)
        t.ranks[rank].node = zs_plan_rank_at(plan, rank)->node;
    if (!build_links(&t, arena, plan, what_if, err))
        return false;
    int *n_uses = ZS_NEW(arena, int, t.n_links, err);
    if (!n_uses || !build_shared_rings(&t, arena, plan, model, state, n_uses, err))
        return false;
    for (int stage = 0; stage < plan->n_stages; stage++) {
        if (!build_stage_rings(&t, &moved[stage], arena, plan, stage, state, n_uses, err))
            return false;
        for (int i = 0; i < plan->stages[stage].n_ranks; i++) {
            const zs_plan_rank *r = &plan->stages[stage].ranks[i];
            const double factor =
                what_if->time_factor[first_device(&plan->cluster, r->node) + r->gpu];
            if (!build_rank(&t, arena, plan, stage, i, &moved[stage], factor, state, err))
                return false;
        }
    }
    *out = t;
    return true;
}
