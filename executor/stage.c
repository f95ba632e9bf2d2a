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

static bool open_parameters(zx_stage *s, zs_arena *arena, zs_error *err)
{
    if (!alloc_reals(s, &s->params, s->n_stored, &s->memory.weights_bytes, "parameters", err) ||
        !alloc_reals(s, &s->grads, s->n_stored, &s->memory.gradients_bytes, "gradients", err))
        return false;
    s->blocks = ZS_NEW(arena, zx_tensors, s->n_blocks, err);
    s->block_grads = ZS_NEW(arena, zx_tensors, s->n_blocks, err);
    if (!s->blocks || !s->block_grads)
        return false;
    if (s->first) {
        zx_layer_point(&s->embedding, s->params, s->tensors, s->n_tensors, 0);
        zx_layer_point(&s->embedding_grad, s->grads, s->tensors, s->n_tensors, 0);
    }
    for (int i = 0; i < s->n_blocks; i++) {
        const int layer = s->first_block + i + 1;
        zx_layer_point(&s->blocks[i], s->params, s->tensors, s->n_tensors, layer);
        zx_layer_point(&s->block_grads[i], s->grads, s->tensors, s->n_tensors, layer);
    }
    if (s->last) {
        const int layer = s->model->n_blocks + 1;
        zx_layer_point(&s->head, s->params, s->tensors, s->n_tensors, layer);
        zx_layer_point(&s->head_grad, s->grads, s->tensors, s->n_tensors, layer);
    }
    return true;
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
    for (int64_t first = 0; first < t->tensor.count; first += INIT_CHUNK) {
        int64_t n = t->tensor.count - first < INIT_CHUNK ? t->tensor.count - first : INIT_CHUNK;
        draw_values(values, n, s, t, first, seed, n_threads);
        if (!s->backend->ops->to_device(s->backend, s->params + t->offset + first, values,
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
                  .seq_len = plan->job.seq_len,
                  .max_samples = zs_plan_rank_at(plan, rank)->samples,
                  .n_params = p->n_params,
                  .n_slots = n_slots};
    s.n_stored = s.n_params + zm_stage_n_tied(model, p->forward.first, p->forward.end);
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

static bool head_forward(zx_stage *s, double *loss_sum, const zx_slot *slot, int B, double scale,
                         zs_error *err)
{
    double sum = 0;
    if (!zx_head_forward(s->backend, s->model, &sum, s->head_acts, slot->streams[s->n_blocks],
                         &s->head, slot->targets, B, s->seq_len, scale, err) ||
        !s->backend->ops->sync(s->backend, err))
        return false;
    *loss_sum += sum;
    return true;
}

static bool block_forward(zx_stage *s, const zx_slot *slot, int block, int B, zs_error *err)
{
    return zx_block_forward(s->backend, s->model, slot->streams[block + 1], slot->acts[block],
                            slot->streams[block], &s->blocks[block], s->scratch, B, s->seq_len,
                            err);
}

bool zx_stage_forward(zx_stage *s, double *loss_sum, int slot_index, int B, bool training,
                      double scale, zs_error *err)
{
    const zx_slot *slot = &s->slots[slot_index];
    if (s->first && !zx_embedding_forward(s->backend, s->model, slot->streams[0], &s->embedding,
                                          slot->tokens, B, s->seq_len, err))
        return false;
    for (int i = 0; i < s->n_blocks; i++)
        if (!block_forward(s, slot, i, B, err))
            return false;
    if (!s->last || (training && s->n_slots > 1))
        return true;
    return head_forward(s, loss_sum, slot, B, training ? scale : 0, err);
}

bool zx_stage_backward(zx_stage *s, double *loss_sum, int slot_index, int micro_batch, int B,
                       double scale, zs_error *err)
{
    const zx_slot *slot = &s->slots[slot_index];
    zx_real *din = s->din[micro_batch & 1];
    const zx_real *dout = s->dout[micro_batch & 1];
    if (s->last) {
        if (s->n_slots > 1 && !head_forward(s, loss_sum, slot, B, scale, err))
            return false;
        if (!zx_head_backward(s->backend, s->model, din, &s->head_grad, s->head_acts,
                              slot->streams[s->n_blocks], &s->head, s->scratch, B, s->seq_len, err))
            return false;
        dout = din;
    }
    for (int i = s->n_blocks - 1; i >= 0; i--) {
        /* Recompute writes the block's output again: the same bits. */
        if (s->recompute && !block_forward(s, slot, i, B, err))
            return false;
        if (!zx_block_backward(s->backend, s->model, din, &s->block_grads[i], dout, slot->acts[i],
                               slot->streams[i], &s->blocks[i], s->scratch, B, s->seq_len, err))
            return false;
        dout = din;
    }
    return !s->first || zx_embedding_backward(s->backend, s->model, &s->embedding_grad,
                                              slot->tokens, dout, B, s->seq_len, err);
}

bool zx_stage_zero_grads(zx_stage *s, zs_error *err)
{
    return s->backend->ops->zero(s->backend, s->grads, s->n_stored * (int64_t)sizeof(zx_real), err);
}
