#include "planner/memory.h"

#include <math.h>

static const double BYTES_PER_GIB = 1073741824.0;

/* zp_evaluate sums doubles and plans round shares of a shard to whole parameters: at most one
 * parameter (16 bytes of state) and a few units in the last place of 10^12 bytes. */
static const int64_t ROUNDING_BYTES = 4096;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void zp_memory_rule_build(zp_memory_rule *out, const zm_model *model, int seq_len,
                          zs_precision precision)
{
    const int64_t embedding = zm_layer_n_params(model, 0);
    const int64_t block = zm_layer_n_params(model, 1);
    const int64_t head = zm_layer_n_params(model, model->n_blocks + 1);
    const int64_t tied = model->tied ? (int64_t)model->n_vocab * model->n_channels : 0;

    *out = (zp_memory_rule){
        .state = zm_cost_state(precision),
        .part_params = {[ZP_PART_BLOCK] = block,
                        [ZP_PART_FIRST] = embedding,
                        [ZP_PART_LAST] = head,
                        [ZP_PART_SINGLE] = embedding + head},
        .layer_params = {[ZP_PART_BLOCK] = block,
                         [ZP_PART_FIRST] = embedding,
                         [ZP_PART_LAST] = head, /* the copy of a tied matrix is there anyway */
                         [ZP_PART_SINGLE] = larger(embedding, head + tied)},
        .tied_params = tied,
        .act_bytes = zm_cost_block_act_bytes(model, seq_len, precision),
        .act_ckpt_bytes = zm_cost_boundary_bytes(model, seq_len, precision),
        .scratch_bytes = zm_cost_scratch_bytes(model, seq_len, precision),
        .logits_bytes = zm_cost_logits_bytes(model, seq_len, precision),
        .boundary_bytes = zm_cost_boundary_bytes(model, seq_len, precision),
        .ids_bytes = (int64_t)sizeof(int32_t) * seq_len,
    };
}

static double gib(int64_t bytes)
{
    return (double)bytes / BYTES_PER_GIB;
}

void zp_memory_fill_problem(zp_problem *problem, const zp_memory_rule *rule)
{
    const int64_t w = rule->state.weights;
    const int64_t g = rule->state.gradients;
    const int64_t o = rule->state.optimizer;

    for (int part = 0; part < ZP_N_PARTS; part++) {
        const int64_t params = rule->part_params[part];
        const int64_t layer = rule->layer_params[part];
        const int64_t copy = part == ZP_PART_LAST ? rule->tied_params : 0;
        zp_zero *zero = problem->zero;

        zero[1].repl_gib[part] = gib((w + g) * (params + copy));
        zero[1].working_gib[part] = 0;
        /* Summed gradients of the shard beside the rank's own; a rank that is alone in its stage
         * does without them, which the problem does not know. */
        zero[1].shard_gib[part] = gib((g + o) * params);
        zero[1].volume_gib[part] = 0;
        zero[1].sync_volume_gib[part] = gib((w + g) * (params + copy));

        /* A rank that is alone in its stage needs no buffers of layers either. */
        zero[2].repl_gib[part] = gib(w * params + (w + g) * copy);
        zero[2].working_gib[part] = gib(g * layer);
        zero[2].shard_gib[part] = gib((g + o) * params);
        zero[2].volume_gib[part] = gib(g * params);
        zero[2].sync_volume_gib[part] = gib(w * params + (w + g) * copy);

        zero[3].repl_gib[part] = gib((w + g) * copy);
        zero[3].working_gib[part] = gib((ZP_GATHERED_LAYERS * w + g) * layer);
        zero[3].shard_gib[part] = gib((w + g + o) * params);
        zero[3].volume_gib[part] = gib((2 * w + g) * params);
        zero[3].sync_volume_gib[part] = gib((w + g) * copy);
    }
    /* Gradients reduce-scattered and weights gathered, per step or per micro-batch; level 3 gathers
     * for the forward and again for the backward pass. */
    problem->zero[1].collectives = 0;
    problem->zero[1].sync_collectives = 2;
    problem->zero[2].collectives = 1;
    problem->zero[2].sync_collectives = 1;
    problem->zero[3].collectives = 3;
    problem->zero[3].sync_collectives = rule->tied_params > 0 ? 2 : 0;

    problem->act_gib = gib(rule->act_bytes);
    problem->act_ckpt_gib = gib(rule->act_ckpt_bytes);
    problem->logits_gib = gib(rule->logits_bytes);
    problem->output_gib = gib(rule->boundary_bytes + 2 * rule->ids_bytes);
    problem->workspace_gib = gib(rule->scratch_bytes + ZP_BOUNDARY_BUFFERS * rule->boundary_bytes);
    problem->boundary_gib = gib(rule->boundary_bytes);
}

int64_t zp_memory_usable_bytes(int64_t device_bytes, const zs_job *job)
{
    return larger(0, device_bytes - job->context_bytes - job->reserve_bytes - ROUNDING_BYTES);
}

static zp_part extra_of(zp_kind kind)
{
    switch (kind) {
    case ZP_FIRST:
        return ZP_PART_FIRST;
    case ZP_LAST:
        return ZP_PART_LAST;
    case ZP_SINGLE:
        return ZP_PART_SINGLE;
    default:
        return ZP_PART_BLOCK;
    }
}

static int n_boundary_buffers(zp_kind kind)
{
    switch (kind) {
    case ZP_FIRST:
        return 3;
    case ZP_LAST:
        return 2;
    case ZP_SINGLE:
        return 1;
    default:
        return ZP_BOUNDARY_BUFFERS;
    }
}

/* Parameters whose gradients are summed over ranks into memory of their own: the shard where the
 * stage has several ranks, the shared embedding's part of it where the last stage holds a copy. */
static int64_t n_summed(const zp_memory_rule *rule, const zp_memory_place *place)
{
    if (place->n_ranks > 1)
        return place->shard.count;
    return place->kind == ZP_FIRST ? zs_shards_intersect(place->shard, 0, rule->tied_params).count
                                   : 0;
}

void zp_memory_of_rank(zs_memory *out, const zp_memory_rule *rule, const zp_memory_place *place,
                       const zs_job *job)
{
    const int64_t w = rule->state.weights;
    const int64_t g = rule->state.gradients;
    const int64_t o = rule->state.optimizer;
    const int64_t samples = place->samples;
    const int64_t shard = place->shard.count;
    const zp_part extra = extra_of(place->kind);

    int64_t params = place->n_blocks * rule->part_params[ZP_PART_BLOCK];
    int64_t layer = rule->layer_params[ZP_PART_BLOCK];
    if (extra != ZP_PART_BLOCK) {
        params += rule->part_params[extra];
        layer = larger(layer, rule->layer_params[extra]);
    }
    const int64_t copy = place->kind == ZP_LAST ? rule->tied_params : 0;
    const int level = place->n_ranks > 1 ? place->zero_stage : 1; /* alone, nothing is shared */
    const bool has_embedding = place->kind == ZP_FIRST || place->kind == ZP_SINGLE;
    const bool has_head = place->kind == ZP_LAST || place->kind == ZP_SINGLE;
    const int64_t kept = place->recompute ? rule->act_ckpt_bytes : rule->act_bytes;
    const int64_t in_flight_bytes = place->n_blocks * kept + rule->boundary_bytes +
                                    (has_embedding + has_head) * rule->ids_bytes;

    *out = (zs_memory){0};
    out->weights_bytes = w * ((level < 3 ? params : shard) + copy);
    out->gradients_bytes =
        g * ((level < 2 ? params + n_summed(rule, place) : shard + layer) + copy);
    out->optimizer_bytes = o * shard;
    out->activations_bytes =
        samples * (place->in_flight * in_flight_bytes + (place->recompute ? rule->act_bytes : 0) +
                   rule->scratch_bytes);
    out->logits_bytes = has_head ? samples * rule->logits_bytes : 0;
    out->communication_bytes = n_boundary_buffers(place->kind) * samples * rule->boundary_bytes;
    if (level == 3)
        out->communication_bytes += ZP_GATHERED_LAYERS * w * layer;
    out->context_bytes = job->context_bytes;
    out->reserve_bytes = job->reserve_bytes;
}
