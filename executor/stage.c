#include "executor/stage.h"

#include "config.h"
#include "shared/rng.h"

#include <math.h>
#include <stdlib.h>

/* Values drawn on the host before they go to the device. */
enum { INIT_CHUNK = 1 << 20 };

static bool alloc(zx_stage *s, void **out, int64_t size_bytes, int64_t *term, const char *what,
                  zs_error *err)
{
    if (!s->backend->ops->alloc(s->backend, out, size_bytes, what, err))
        return false;
    *term += size_bytes;
    return true;
}

static bool alloc_reals(zx_stage *s, zx_real **out, int64_t n, int64_t *term, const char *what,
                        zs_error *err)
{
    void *memory = NULL;
    if (!alloc(s, &memory, n * (int64_t)sizeof(zx_real), term, what, err))
        return false;
    *out = memory;
    return true;
}

static bool alloc_ids(zx_stage *s, int32_t **out, int64_t n, zs_error *err)
{
    void *memory = NULL;
    if (!alloc(s, &memory, n * (int64_t)sizeof(int32_t), &s->memory.activations_bytes, "token ids",
               err))
        return false;
    *out = memory;
    return true;
}

/* (B,T,C) elements of n samples. */
static int64_t stream_size(const zx_stage *s, int n_samples)
{
    return (int64_t)n_samples * s->seq_len * s->model->n_channels;
}

static bool open_slot(zx_stage *s, zx_slot *slot, zs_arena *arena, zx_real *workspace,
                      zs_error *err)
{
    const int64_t n_ids = (int64_t)s->max_samples * s->seq_len;
    int64_t *term = &s->memory.activations_bytes;
    slot->streams = ZS_NEW(arena, zx_real *, s->n_blocks + 1, err);
    slot->acts = ZS_NEW(arena, zx_real *, s->n_blocks, err);
    if (!slot->streams || !slot->acts)
        return false;
    if (s->first && !alloc_ids(s, &slot->tokens, n_ids, err))
        return false;
    if (s->last && !alloc_ids(s, &slot->targets, n_ids, err))
        return false;
    for (int i = 0; i <= s->n_blocks; i++)
        if (!alloc_reals(s, &slot->streams[i], stream_size(s, s->max_samples), term, "block inputs",
                         err))
            return false;
    for (int i = 0; i < s->n_blocks; i++) {
        slot->acts[i] = workspace;
        if (!workspace && !alloc_reals(s, &slot->acts[i],
                                       zx_block_acts_size(s->model, s->max_samples, s->seq_len),
                                       term, "activations", err))
            return false;
    }
    return true;
}

static bool open_slots(zx_stage *s, zs_arena *arena, zs_error *err)
{
    zx_real *workspace = NULL;
    if (s->recompute && s->n_blocks > 0 &&
        !alloc_reals(s, &workspace, zx_block_acts_size(s->model, s->max_samples, s->seq_len),
                     &s->memory.activations_bytes, "recompute workspace", err))
        return false;
    s->slots = ZS_NEW(arena, zx_slot, s->n_slots, err);
    if (!s->slots)
        return false;
    for (int i = 0; i < s->n_slots; i++)
        if (!open_slot(s, &s->slots[i], arena, workspace, err))
            return false;
    return true;
}

static bool open_gradient_buffers(zx_stage *s, zs_error *err)
{
    const int64_t n = stream_size(s, s->max_samples);
    int64_t *term = &s->memory.communication_bytes;
    for (int i = 0; i < 2; i++) {
        if (!s->last && !alloc_reals(s, &s->dout[i], n, term, "output gradients", err))
            return false;
        if (!s->first && !alloc_reals(s, &s->din[i], n, term, "input gradients", err))
            return false;
    }
    if (s->first) {
        /* Nobody is sent this one, so it is free again when backward ends. */
        if (!alloc_reals(s, &s->din[0], n, term, "input gradients", err))
            return false;
        s->din[1] = s->din[0];
    }
    return true;
}

static bool open_workspaces(zx_stage *s, zs_error *err)
{
    if (s->last &&
        !alloc_reals(s, &s->head_acts, zx_head_acts_size(s->model, s->max_samples, s->seq_len),
                     &s->memory.logits_bytes, "logits", err))
        return false;
    return alloc_reals(s, &s->scratch, zx_block_scratch_size(s->model, s->max_samples, s->seq_len),
                       &s->memory.activations_bytes, "scratch", err);
}

/* Ranges of the layers in the stage's flattened parameters. */
static bool open_layers(zx_stage *s, zs_arena *arena, zs_error *err)
{
    const int first_layer = s->first ? 0 : s->first_block + 1;
    s->n_layers = s->first + s->n_blocks + s->last;
    s->layers = ZS_NEW(arena, zx_layer, s->n_layers, err);
    if (!s->layers)
        return false;
    for (int i = 0; i < s->n_tensors; i++) {
        const zm_stage_tensor *t = &s->tensors[i];
        zx_layer *layer = &s->layers[t->layer - first_layer];
        if (t->tensor.shared) {
            layer->n_borrowed = s->n_copy > 0 ? 0 : t->tensor.count;
            continue;
        }
        if (layer->count == 0)
            layer->first = t->offset;
        layer->count += t->tensor.count;
    }
    for (int k = 0; k < s->n_layers; k++) {
        const int64_t n = s->layers[k].count + s->layers[k].n_borrowed;
        s->n_buffered = n > s->n_buffered ? n : s->n_buffered;
    }
    return true;
}

/* Points the tensors of every layer into the memory of the whole stage, or of single layers where
 * there are buffers for these, or to the copy. */
static void point_layers(zx_stage *s, bool grads, zx_real *whole, zx_real *const buffers[2],
                         zx_real *copy)
{
    const int first_layer = s->first ? 0 : s->first_block + 1;
    for (int i = 0; i < s->n_tensors; i++) {
        const zm_stage_tensor *t = &s->tensors[i];
        const int k = t->layer - first_layer;
        zx_layer *layer = &s->layers[k];
        zx_real *buffer = buffers[k & 1], *at;
        if (t->tensor.shared && copy)
            at = copy;
        else if (!buffer)
            at = whole + t->offset;
        else
            at = buffer + (t->tensor.shared ? layer->count : t->offset - layer->first);
        (grads ? &layer->grads : &layer->params)->at[t->tensor.role] = at;
    }
}

static bool open_parameters(zx_stage *s, zs_arena *arena, zs_error *err)
{
    if (!open_layers(s, arena, err))
        return false;
    const bool one_layer = s->zero_stage > 1;
    const int64_t n_params = s->zero_stage < 3 ? s->n_params : s->shard.count;
    const int64_t n_grads = one_layer ? s->n_buffered : s->n_params;
    if (!alloc_reals(s, &s->params, n_params + s->n_copy, &s->memory.weights_bytes, "parameters",
                     err) ||
        !alloc_reals(s, &s->grads, n_grads + s->n_copy, &s->memory.gradients_bytes, "gradients",
                     err))
        return false;
    for (int i = 0; s->zero_stage == 3 && i < 2; i++)
        if (!alloc_reals(s, &s->gathered[i], s->n_buffered, &s->memory.communication_bytes,
                         "gathered layers", err))
            return false;
    if (s->n_copy > 0) {
        s->copy = s->params + n_params;
        s->copy_grads = s->grads + n_grads;
    }
    zx_real *const grad_buffers[2] = {one_layer ? s->grads : NULL, one_layer ? s->grads : NULL};
    point_layers(s, false, s->params, s->gathered, s->copy);
    point_layers(s, true, s->grads, grad_buffers, s->copy_grads);
    return true;
}

zx_real *zx_stage_stored(const zx_stage *s, zs_shard *part, const zm_stage_tensor *t)
{
    *part = (zs_shard){0, t->tensor.count};
    if (t->tensor.shared && s->copy)
        return s->copy;
    if (s->zero_stage < 3)
        return s->params + t->offset;
    *part = zs_shards_intersect(s->shard, t->offset, t->tensor.count);
    zx_real *stored = s->params + (part->count > 0 ? part->first - s->shard.first : 0);
    part->first -= t->offset;
    return stored;
}

static zx_real initial_value(const zm_model *model, const zm_tensor *tensor, uint64_t seed,
                             int64_t global_index)
{
    /* Radford et al., Language Models are Unsupervised Multitask Learners, 2019, sec. 2.3 */
    const double std = 0.02;
    switch (tensor->init) {
    case ZM_INIT_ZEROS:
        return 0;
    case ZM_INIT_ONES:
        return 1;
    case ZM_INIT_NORMAL:
        return (zx_real)(std * zs_rng_normal(seed, ZS_RNG_WEIGHTS, (uint64_t)global_index));
    case ZM_INIT_RESIDUAL:
        return (zx_real)(std / sqrt(2.0 * model->n_blocks) *
                         zs_rng_normal(seed, ZS_RNG_WEIGHTS, (uint64_t)global_index));
    }
    return 0;
}

static void draw_values(zx_real *values, int64_t n, const zx_stage *s, const zm_stage_tensor *t,
                        int64_t first, uint64_t seed, int n_threads)
{
    (void)n_threads; /* without OpenMP */
#if HAVE_OPENMP
#pragma omp parallel for schedule(static) num_threads(n_threads)
#endif
    for (int64_t i = 0; i < n; i++)
        values[i] = initial_value(s->model, &t->tensor, seed, t->global_offset + first + i);
}

static bool set_tensor(zx_stage *s, zx_real *values, const zm_stage_tensor *t, uint64_t seed,
                       int n_threads, zs_error *err)
{
    zs_shard part;
    zx_real *stored = zx_stage_stored(s, &part, t);
    for (int64_t first = 0; first < part.count; first += INIT_CHUNK) {
        int64_t n = part.count - first < INIT_CHUNK ? part.count - first : INIT_CHUNK;
        draw_values(values, n, s, t, part.first + first, seed, n_threads);
        if (!s->backend->ops->to_device(s->backend, stored + first, values,
                                        n * (int64_t)sizeof *values, err) ||
            !s->backend->ops->sync(s->backend, err))
            return false;
    }
    return true;
}

static bool set_initial_values(zx_stage *s, uint64_t seed, int n_threads, zs_error *err)
{
    zx_real *values = malloc(INIT_CHUNK * sizeof *values);
    if (!values)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for initial values");
    bool ok = true;
    for (int i = 0; ok && i < s->n_tensors; i++)
        ok = set_tensor(s, values, &s->tensors[i], seed, n_threads, err);
    free(values);
    return ok;
}

bool zx_stage_open(zx_stage *out, zs_arena *arena, zx_backend *backend, const zs_plan *plan,
                   const zm_model *model, int rank, int n_slots, uint64_t seed, int n_threads,
                   zs_error *err)
{
    const int stage = zs_plan_stage_of(plan, rank);
    const zs_plan_stage *p = &plan->stages[stage];
    zx_stage s = {.model = model,
                  .backend = backend,
                  .stage = stage,
                  .first_block = p->forward.first,
                  .n_blocks = p->forward.end - p->forward.first,
                  .first = stage == 0,
                  .last = stage == plan->n_stages - 1,
                  .recompute = p->recompute,
                  .defers_head = stage == plan->n_stages - 1 && zs_plan_in_flight(plan, stage) > 1,
                  .zero_stage = p->n_ranks > 1 ? p->zero_stage : 1,
                  .seq_len = plan->job.seq_len,
                  .max_samples = zs_plan_rank_at(plan, rank)->samples,
                  .n_params = p->n_params,
                  .n_copy = zm_stage_n_tied(model, p->forward.first, p->forward.end),
                  .shard = zs_plan_rank_at(plan, rank)->shard,
                  .n_slots = n_slots};
    zm_stage_tensor *tensors = NULL;
    if (!zm_stage_tensors(&tensors, &s.n_tensors, arena, model, p->forward.first, p->forward.end,
                          err))
        return false;
    s.tensors = tensors;
    if (!open_parameters(&s, arena, err) || !open_slots(&s, arena, err) ||
        !open_gradient_buffers(&s, err) || !open_workspaces(&s, err) ||
        !set_initial_values(&s, seed, n_threads, err))
        return zs_error_prefix(err, "stage %d", stage);
    *out = s;
    return true;
}

zx_real *zx_stage_input(const zx_stage *s, int slot, int first_sample)
{
    return s->slots[slot].streams[0] + stream_size(s, first_sample);
}

zx_real *zx_stage_output(const zx_stage *s, int slot, int first_sample)
{
    return s->slots[slot].streams[s->n_blocks] + stream_size(s, first_sample);
}

zx_real *zx_stage_output_grad(const zx_stage *s, int micro_batch, int first_sample)
{
    return s->dout[micro_batch & 1] + stream_size(s, first_sample);
}

zx_real *zx_stage_input_grad(const zx_stage *s, int micro_batch, int first_sample)
{
    /* Without a layer the gradient passes through. */
    zx_real *const *grads = s->n_blocks == 0 && !s->last ? s->dout : s->din;
    return grads[micro_batch & 1] + stream_size(s, first_sample);
}
