#include "executor/optimizer.h"

#include <math.h>

const char *const zx_lr_decay_names[ZX_N_LR_DECAYS] = {
    [ZX_LR_COSINE] = "cosine", [ZX_LR_LINEAR] = "linear", [ZX_LR_CONSTANT] = "constant"};

double zx_lr_at(const zx_lr *lr, int64_t step)
{
    const double pi = 3.141592653589793;
    if (step < lr->n_warmup)
        return lr->max * (double)(step + 1) / (double)lr->n_warmup;
    if (lr->decay == ZX_LR_CONSTANT)
        return lr->max;
    const int64_t span = lr->n_steps - lr->n_warmup;
    double p = span > 0 ? (double)(step - lr->n_warmup) / (double)span : 1;
    p = p < 1 ? p : 1;
    if (lr->decay == ZX_LR_LINEAR)
        return lr->max + (lr->min - lr->max) * p;
    return lr->min + (lr->max - lr->min) * (1 + cos(pi * p)) / 2;
}

double zx_clip_scale(double norm, double max_norm)
{
    if (max_norm <= 0 || !(norm > max_norm))
        return 1;
    return max_norm / (norm + 1e-6);
}

static bool alloc_moment(zx_zero *zero, zx_real **out, const char *what, zs_error *err)
{
    zx_backend *backend = zero->stage->backend;
    const int64_t size_bytes = zero->shard.count * (int64_t)sizeof(zx_real);
    void *memory = NULL;
    if (!backend->ops->alloc(backend, &memory, size_bytes, what, err))
        return false;
    *out = memory;
    zero->stage->memory.optimizer_bytes += size_bytes;
    return true;
}

bool zx_optimizer_open(zx_optimizer *out, zx_zero *zero, double beta1, double beta2, double eps,
                       double weight_decay, zs_error *err)
{
    zx_optimizer o = {
        .zero = zero, .beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay};
    if (!alloc_moment(zero, &o.m, "first moments", err) ||
        !alloc_moment(zero, &o.v, "second moments", err))
        return false;
    *out = o;
    return true;
}

/* The part of one tensor that this rank owns inside one segment. */
static bool update_part(zx_optimizer *o, const zx_segment *s, const zm_stage_tensor *t,
                        zx_adamw *adamw, zs_error *err)
{
    const zx_stage *stage = o->zero->stage;
    const zs_shard part = zs_shards_intersect(s->owned, t->offset, t->tensor.count);
    if (part.count == 0)
        return true;
    const int64_t in_shard = part.first - o->zero->shard.first;
    adamw->weight_decay = t->tensor.decay ? o->weight_decay : 0;
    return stage->backend->ops->adamw(
        stage->backend, o->zero->owned_params + in_shard, o->m + in_shard, o->v + in_shard,
        s->owned_grads + part.first - s->owned.first, part.count, adamw, err);
}

bool zx_optimizer_step(zx_optimizer *o, double lr, double grad_scale, zs_error *err)
{
    zx_adamw adamw = {.lr = lr,
                      .beta1 = o->beta1,
                      .beta2 = o->beta2,
                      .eps = o->eps,
                      .grad_scale = grad_scale,
                      .step = o->n_updates + 1};
    const zx_stage *stage = o->zero->stage;
    for (int i = 0; i < stage->n_tensors; i++) {
        if (stage->tensors[i].tensor.shared)
            continue;
        for (int kind = 0; kind < ZX_N_SEGMENTS; kind++)
            if (!update_part(o, &o->zero->segments[kind], &stage->tensors[i], &adamw, err))
                return false;
    }
    o->n_updates++;
    return true;
}
