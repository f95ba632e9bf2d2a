#include "executor/zero.h"

#include <assert.h>
#include <string.h>

/* Elements brought to the host at a time. */
enum { DIGEST_CHUNK = 65536 };

static bool shares_embedding(const zs_plan *plan, const zm_model *model)
{
    return model->tied && plan->n_stages > 1;
}

static int64_t n_embedding(const zm_model *model)
{
    return (int64_t)model->n_vocab * model->n_channels;
}

/* Elements that the i-th rank of a stage owns of a segment. */
static int64_t owned_count(const zs_plan *plan, const zm_model *model, int stage, int i,
                           zx_segment_kind kind)
{
    const zs_shard shard = plan->stages[stage].ranks[i].shard;
    /* The embedding matrix is the first tensor of the first stage (models/layers.h). */
    const int64_t tied = stage == 0 && shares_embedding(plan, model)
                             ? zs_shards_intersect(shard, 0, n_embedding(model)).count
                             : 0;
    return kind == ZX_SEGMENT_TIED ? tied : shard.count - tied;
}

static int index_of(const int *ranks, int rank)
{
    int index = 0;
    while (ranks[index] != rank)
        index++;
    return index;
}

static void add_stage(zx_segment *s, int *ranks, const zs_plan *plan, const zm_model *model,
                      int stage, zx_segment_kind kind)
{
    for (int i = 0; i < plan->stages[stage].n_ranks; i++) {
        const int n = s->n_ranks++;
        ranks[n] = zs_plan_first_rank(plan, stage) + i;
        s->counts[n] = owned_count(plan, model, stage, i, kind);
        s->displacements[n] = n == 0 ? 0 : s->displacements[n - 1] + s->counts[n - 1];
    }
}

bool zx_zero_map(zx_segment *out, int *ranks, const zs_plan *plan, const zm_model *model, int rank,
                 zx_segment_kind kind, int64_t *counts, int64_t *displacements)
{
    const int stage = zs_plan_stage_of(plan, rank), last = plan->n_stages - 1;
    zx_segment s = {.counts = counts, .displacements = displacements};
    if (kind == ZX_SEGMENT_TIED) {
        if (!shares_embedding(plan, model) || (stage != 0 && stage != last))
            return false;
        add_stage(&s, ranks, plan, model, 0, kind);
        add_stage(&s, ranks, plan, model, last, kind);
        /* The last stage keeps its copy behind its own parameters. */
        s.first = stage == 0 ? 0 : plan->stages[last].n_params;
    } else {
        add_stage(&s, ranks, plan, model, stage, kind);
        s.first = stage == 0 && shares_embedding(plan, model) ? n_embedding(model) : 0;
    }
    s.index = index_of(ranks, rank);
    s.owned = (zs_shard){.first = s.first + displacements[s.index], .count = counts[s.index]};
    *out = s;
    return true;
}

void zx_zero_map_range(zx_segment *out, const zs_plan *plan, int rank, int64_t first, int64_t count,
                       int64_t *counts, int64_t *displacements)
{
    const int stage = zs_plan_stage_of(plan, rank);
    const zs_plan_stage *p = &plan->stages[stage];
    zx_segment s = {.first = first,
                    .n_ranks = p->n_ranks,
                    .index = rank - zs_plan_first_rank(plan, stage),
                    .counts = counts,
                    .displacements = displacements};
    int64_t end = 0;
    for (int i = 0; i < p->n_ranks; i++) {
        counts[i] = zs_shards_intersect(p->ranks[i].shard, first, count).count;
        displacements[i] = end;
        end += counts[i];
    }
    s.owned = (zs_shard){.first = first + displacements[s.index], .count = counts[s.index]};
    *out = s;
}

static bool alloc_grads(zx_zero *z, zx_real **out, int64_t n, zs_error *err)
{
    zx_backend *backend = z->stage->backend;
    const int64_t size_bytes = n * (int64_t)sizeof(zx_real);
    void *memory = NULL;
    if (!backend->ops->alloc(backend, &memory, size_bytes, "owned gradients", err))
        return false;
    *out = memory;
    z->stage->memory.gradients_bytes += size_bytes;
    return true;
}

/* Where a part of the shard is in memory that has one element for each of the shard's. */
static zx_real *in_owned(const zx_zero *z, zx_real *owned, zs_shard part)
{
    return owned + (part.count > 0 ? part.first - z->shard.first : 0);
}

static bool open_segment(zx_zero *z, zs_arena *arena, const zs_plan *plan, int rank,
                         zx_segment_kind kind, zs_error *err)
{
    const int n_ranks = zs_plan_n_ranks(plan);
    int *ranks = ZS_NEW(arena, int, n_ranks, err);
    int64_t *counts = ZS_NEW(arena, int64_t, n_ranks, err);
    int64_t *displacements = ZS_NEW(arena, int64_t, n_ranks, err);
    zx_segment *s = &z->segments[kind];
    if (!ranks || !counts || !displacements)
        return false;
    if (!zx_zero_map(s, ranks, plan, z->stage->model, rank, kind, counts, displacements))
        return true;
    if (s->n_ranks == 1) {
        /* The only rank owns everything, and its own gradients are the sum. */
        s->owned_grads = z->stage->grads + s->owned.first;
        return true;
    }
    if (!z->comm->ops->group_open(z->comm, &s->group, ranks, s->n_ranks, err))
        return false;
    if (z->owned_grads) {
        s->owned_grads = in_owned(z, z->owned_grads, s->owned);
        return true;
    }
    return alloc_grads(z, &s->owned_grads, s->owned.count, err);
}

static bool open_range(zx_zero *z, zx_segment *s, zs_arena *arena, const zs_plan *plan, int rank,
                       int64_t first, int64_t count, zs_error *err)
{
    const int n_ranks = plan->stages[z->stage->stage].n_ranks;
    int64_t *counts = ZS_NEW(arena, int64_t, n_ranks, err);
    int64_t *displacements = ZS_NEW(arena, int64_t, n_ranks, err);
    if (!counts || !displacements)
        return false;
    zx_zero_map_range(s, plan, rank, first, count, counts, displacements);
    s->group = z->segments[ZX_SEGMENT_OWN].group;
    s->owned_grads = in_owned(z, z->owned_grads, s->owned);
    return true;
}

static bool open_layers(zx_zero *z, zs_arena *arena, const zs_plan *plan, int rank, zs_error *err)
{
    const zx_stage *stage = z->stage;
    z->layers = ZS_NEW(arena, zx_segment, stage->n_layers, err);
    if (!z->layers)
        return false;
    for (int k = 0; k < stage->n_layers; k++) {
        const zx_layer *layer = &stage->layers[k];
        if (!open_range(z, &z->layers[k], arena, plan, rank, layer->first, layer->count, err) ||
            (layer->n_borrowed > 0 &&
             !open_range(z, &z->borrowed, arena, plan, rank, 0, layer->n_borrowed, err)))
            return false;
    }
    return true;
}

bool zx_zero_open(zx_zero *out, zs_arena *arena, zx_comm *comm, zx_stage *stage,
                  const zs_plan *plan, int rank, zs_error *err)
{
    const bool by_layer = stage->zero_stage > 1;
    *out =
        (zx_zero){.comm = comm,
                  .stage = stage,
                  .shard = stage->shard,
                  .owned_params = stage->params + (stage->zero_stage < 3 ? stage->shard.first : 0)};
    if ((by_layer && !alloc_grads(out, &out->owned_grads, out->shard.count, err)) ||
        !open_segment(out, arena, plan, rank, ZX_SEGMENT_OWN, err) ||
        !open_segment(out, arena, plan, rank, ZX_SEGMENT_TIED, err) ||
        (by_layer && !open_layers(out, arena, plan, rank, err))) {
        zx_zero_close(out);
        return false;
    }
    assert(out->segments[ZX_SEGMENT_OWN].owned.count + out->segments[ZX_SEGMENT_TIED].owned.count ==
           out->shard.count);
    return true;
}

void zx_zero_close(zx_zero *z)
{
    for (int kind = ZX_N_SEGMENTS - 1; kind >= 0; kind--)
        if (z->segments[kind].group)
            z->comm->ops->group_close(z->comm, &z->segments[kind].group);
}

static bool clear(zx_zero *z, zx_real *grads, int64_t n, zs_error *err)
{
    return z->stage->backend->ops->zero(z->stage->backend, grads, n * (int64_t)sizeof *grads, err);
}

bool zx_zero_clear(zx_zero *z, zs_error *err)
{
    const zx_stage *s = z->stage;
    if (!z->owned_grads)
        return clear(z, s->grads, s->n_params + s->n_copy, err);
    return clear(z, z->owned_grads, z->shard.count, err) &&
           (s->n_copy == 0 || clear(z, s->copy_grads, s->n_copy, err));
}

/* Copies this rank's part of a segment to its place in memory of the whole segment. */
static bool place_owned(zx_zero *z, zx_real *whole, const zx_segment *s, const zx_real *owned,
                        zs_error *err)
{
    return z->stage->backend->ops->copy(z->stage->backend, whole + s->displacements[s->index],
                                        owned, s->owned.count * (int64_t)sizeof *owned, err);
}

static bool reduce_scatter(zx_zero *z, const zx_segment *s, const zx_real *grads, bool accumulate,
                           zs_error *err)
{
    if (!z->stage->backend->ops->sync(z->stage->backend, err) ||
        !z->comm->ops->reduce_scatter(z->comm, s->group, s->owned_grads, grads, s->counts,
                                      accumulate, err))
        return zs_error_prefix(err, "reduce-scatter of stage %d", z->stage->stage);
    return true;
}

static bool all_gather(zx_zero *z, const zx_segment *s, zx_real *params, zs_error *err)
{
    if (!z->stage->backend->ops->sync(z->stage->backend, err) ||
        !z->comm->ops->all_gather(z->comm, s->group, params, s->counts, s->displacements, err))
        return zs_error_prefix(err, "all-gather of stage %d", z->stage->stage);
    return true;
}

/* The same from the stored shard into memory of the whole segment. */
static bool gather_owned(zx_zero *z, const zx_segment *s, zx_real *whole, zs_error *err)
{
    return place_owned(z, whole, s, in_owned(z, z->owned_params, s->owned), err) &&
           all_gather(z, s, whole, err);
}

bool zx_zero_reduce(zx_zero *z, zx_segment_kind kind, zs_error *err)
{
    const zx_stage *stage = z->stage;
    const zx_segment *s = &z->segments[kind];
    if (!s->group || (kind == ZX_SEGMENT_OWN && z->owned_grads))
        return true;
    if (kind == ZX_SEGMENT_TIED && stage->copy)
        return reduce_scatter(z, s, stage->copy_grads, false, err);
    if (!z->owned_grads)
        return reduce_scatter(z, s, stage->grads + s->first, false, err);
    /* The first stage's sums are with their owners, which add nothing to each other's. */
    const int64_t n = s->displacements[s->n_ranks - 1] + s->counts[s->n_ranks - 1];
    return clear(z, stage->grads, n, err) && place_owned(z, stage->grads, s, s->owned_grads, err) &&
           reduce_scatter(z, s, stage->grads, false, err);
}

bool zx_zero_gather(zx_zero *z, zx_segment_kind kind, zs_error *err)
{
    const zx_stage *stage = z->stage;
    const zx_segment *s = &z->segments[kind];
    if (!s->group || (kind == ZX_SEGMENT_OWN && stage->zero_stage == 3))
        return true;
    if (kind == ZX_SEGMENT_TIED && stage->copy)
        return all_gather(z, s, stage->copy, err);
    if (stage->zero_stage < 3)
        return all_gather(z, s, stage->params + s->first, err);
    /* The first stage gives its parts and does not keep the others'. */
    return gather_owned(z, s, stage->gathered[0], err);
}

bool zx_zero_gather_layer(zx_zero *z, int k, zs_error *err)
{
    const zx_layer *layer = &z->stage->layers[k];
    zx_real *buffer = z->stage->gathered[k & 1];
    return z->stage->zero_stage < 3 ||
           (gather_owned(z, &z->layers[k], buffer, err) &&
            (layer->n_borrowed == 0 || gather_owned(z, &z->borrowed, buffer + layer->count, err)));
}

bool zx_zero_clear_layer(zx_zero *z, int k, zs_error *err)
{
    const zx_layer *layer = &z->stage->layers[k];
    return !z->layers || clear(z, z->stage->grads, layer->count + layer->n_borrowed, err);
}

bool zx_zero_reduce_layer(zx_zero *z, int k, zs_error *err)
{
    const zx_layer *layer = &z->stage->layers[k];
    const zx_real *grads = z->stage->grads;
    return !z->layers || (reduce_scatter(z, &z->layers[k], grads, true, err) &&
                          (layer->n_borrowed == 0 ||
                           reduce_scatter(z, &z->borrowed, grads + layer->count, true, err)));
}

bool zx_zero_sum_of_squares(zx_zero *z, double *sum, zs_error *err)
{
    zx_backend *backend = z->stage->backend;
    *sum = 0;
    for (int kind = ZX_N_SEGMENTS - 1; kind >= 0; kind--) {
        const zx_segment *s = &z->segments[kind];
        double part = 0;
        if (s->owned.count == 0)
            continue;
        if (!backend->ops->sum_of_squares(backend, &part, s->owned_grads, s->owned.count, err) ||
            !backend->ops->sync(backend, err))
            return false;
        *sum += part;
    }
    return true;
}

/* Finalizer of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators,
 * OOPSLA 2014, fig. 15). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t hash_values(const zx_real *values, int64_t n, int64_t global_index)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const float value = (float)values[i];
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        sum += mix(mix((uint64_t)(global_index + i) + 1) ^ bits);
    }
    return sum;
}

bool zx_zero_digest(zx_zero *z, zs_arena *arena, uint64_t *digest, zs_error *err)
{
    zx_backend *backend = z->stage->backend;
    zx_real *values = ZS_NEW(arena, zx_real, DIGEST_CHUNK, err);
    if (!values)
        return false;
    uint64_t sum = 0;
    for (int i = 0; i < z->stage->n_tensors; i++) {
        const zm_stage_tensor *t = &z->stage->tensors[i];
        if (t->tensor.shared)
            continue;
        const zs_shard part = zs_shards_intersect(z->shard, t->offset, t->tensor.count);
        for (int64_t done = 0; done < part.count; done += DIGEST_CHUNK) {
            const int64_t n = part.count - done < DIGEST_CHUNK ? part.count - done : DIGEST_CHUNK;
            const int64_t at = part.first + done;
            if (!backend->ops->to_host(backend, values, z->owned_params + at - z->shard.first,
                                       n * (int64_t)sizeof *values, err) ||
                !backend->ops->sync(backend, err))
                return false;
            sum += hash_values(values, n, t->global_offset + at - t->offset);
        }
    }
    *digest = sum;
    return true;
}
