/* AdamW on the elements that this rank owns, with a learning rate that is a pure function of the
 * step, and clipping by the norm of the whole model's gradient. */
#ifndef EXECUTOR_OPTIMIZER_H
#define EXECUTOR_OPTIMIZER_H

#include "executor/zero.h"

typedef enum zx_lr_decay { ZX_LR_COSINE, ZX_LR_LINEAR, ZX_LR_CONSTANT, ZX_N_LR_DECAYS } zx_lr_decay;

extern const char *const zx_lr_decay_names[ZX_N_LR_DECAYS]; /* "cosine", "linear", "constant" */

typedef struct zx_lr {
    double max, min;
    int64_t n_warmup; /* steps */
    int64_t n_steps;  /* of the whole run: min is reached behind the last one */
    zx_lr_decay decay;
} zx_lr;

/* Learning rate of step k = 0, 1, ..., with W = n_warmup and N = n_steps:
 *   k < W   max (k + 1) / W
 *   else    p = (k - W) / (N - W), at most 1;  constant: max;  linear: max + (min - max) p;
 *           cosine: min + (max - min) (1 + cos(pi p)) / 2
 *           (Loshchilov and Hutter, SGDR, ICLR 2017, eq. 5) */
double zx_lr_at(const zx_lr *lr, int64_t step);

/* What gradients are multiplied by: max_norm / (norm + 1e-6) when norm > max_norm > 0, else exactly
 * 1. The 1e-6 is PyTorch's (clip_grad_norm_), so that runs can be compared. */
double zx_clip_scale(double norm, double max_norm);

typedef struct zx_optimizer {
    zx_zero *zero;
    double beta1, beta2, eps, weight_decay;
    zx_real *m, *v;    /* moments of the shard, [shard.count] */
    int64_t n_updates; /* done so far */
} zx_optimizer;

/* zero must outlive out. Moments start at 0. */
ZS_MUST_CHECK bool zx_optimizer_open(zx_optimizer *out, zx_zero *zero, double beta1, double beta2,
                                     double eps, double weight_decay, zs_error *err);

/* One update with owned gradients times grad_scale. Weight decay only where the tensor has it. */
ZS_MUST_CHECK bool zx_optimizer_step(zx_optimizer *o, double lr, double grad_scale, zs_error *err);

#endif
