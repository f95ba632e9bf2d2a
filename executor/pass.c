#include "executor/pass.h"

/* One micro-batch on its way. */
typedef struct pass {
    zx_stage *stage;
    const zx_slot *slot;
    int B;
    double scale;
    double *loss_sum;
    zx_real *din;        /* backward: gradient of the input of the layer that runs */
    const zx_real *dout; /* ... and of its output */
} pass;

static bool head_forward(const pass *p, const zx_layer *layer, double scale, zs_error *err)
{
    const zx_stage *s = p->stage;
    double sum = 0;
    if (!zx_head_forward(s->backend, s->model, &sum, s->head_acts, p->slot->streams[s->n_blocks],
                         &layer->params, p->slot->targets, p->B, s->seq_len, scale, err) ||
        !s->backend->ops->sync(s->backend, err))
        return false;
    *p->loss_sum += sum;
    return true;
}

static bool block_forward(const pass *p, const zx_layer *layer, int block, zs_error *err)
{
    const zx_stage *s = p->stage;
    return zx_block_forward(s->backend, s->model, p->slot->streams[block + 1], p->slot->acts[block],
                            p->slot->streams[block], &layer->params, s->scratch, p->B, s->seq_len,
                            err);
}

static bool layer_forward(const pass *p, int k, zs_error *err)
{
    const zx_stage *s = p->stage;
    const zx_layer *layer = &s->layers[k];
    const int block = k - s->first;
    if (block < 0)
        return zx_embedding_forward(s->backend, s->model, p->slot->streams[0], &layer->params,
                                    p->slot->tokens, p->B, s->seq_len, err);
    return block < s->n_blocks ? block_forward(p, layer, block, err)
                               : head_forward(p, layer, p->scale, err);
}

static bool layer_backward(pass *p, int k, zs_error *err)
{
    const zx_stage *s = p->stage;
    zx_layer *layer = &s->layers[k];
    const int block = k - s->first;
    if (block < 0)
        return zx_embedding_backward(s->backend, s->model, &layer->grads, p->slot->tokens, p->dout,
                                     p->B, s->seq_len, err);
    if (block == s->n_blocks) {
        if ((s->defers_head && !head_forward(p, layer, p->scale, err)) ||
            !zx_head_backward(s->backend, s->model, p->din, &layer->grads, s->head_acts,
                              p->slot->streams[s->n_blocks], &layer->params, s->scratch, p->B,
                              s->seq_len, err))
            return false;
    } else {
        /* Recompute writes the block's output again: the same bits. */
        if ((s->recompute && !block_forward(p, layer, block, err)) ||
            !zx_block_backward(s->backend, s->model, p->din, &layer->grads, p->dout,
                               p->slot->acts[block], p->slot->streams[block], &layer->params,
                               s->scratch, p->B, s->seq_len, err))
            return false;
    }
    p->dout = p->din;
    return true;
}

bool zx_pass_forward(zx_zero *z, double *loss_sum, int slot, int B, bool training, double scale,
                     zs_error *err)
{
    zx_stage *s = z->stage;
    const pass p = {.stage = s,
                    .slot = B > 0 ? &s->slots[slot] : NULL,
                    .B = B,
                    .scale = training ? scale : 0,
                    .loss_sum = loss_sum};
    const int n_layers = s->n_layers - (training && s->defers_head);
    for (int k = 0; k < n_layers; k++)
        if (!zx_zero_gather_layer(z, k, err) || (B > 0 && !layer_forward(&p, k, err)))
            return false;
    return true;
}

bool zx_pass_backward(zx_zero *z, double *loss_sum, int slot, int micro_batch, int B, double scale,
                      zs_error *err)
{
    zx_stage *s = z->stage;
    pass p = {.stage = s,
              .slot = B > 0 ? &s->slots[slot] : NULL,
              .B = B,
              .scale = scale,
              .loss_sum = loss_sum,
              .din = s->din[micro_batch & 1],
              .dout = s->dout[micro_batch & 1]};
    for (int k = s->n_layers - 1; k >= 0; k--) {
        const bool is_embedding = s->first && k == 0;
        if ((!is_embedding && !zx_zero_gather_layer(z, k, err)) ||
            !zx_zero_clear_layer(z, k, err) || (B > 0 && !layer_backward(&p, k, err)) ||
            !zx_zero_reduce_layer(z, k, err))
            return false;
    }
    return true;
}
