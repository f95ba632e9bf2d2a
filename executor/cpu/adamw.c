#include "executor/cpu/kernels.h"
#include "executor/cpu/vector_math.h"

/* What is the same for all elements, rounded to zx_real once. */
typedef struct factors {
    zx_real grad_scale;
    zx_real keep;                     /* 1 - lr weight_decay */
    zx_real beta1, one_minus_beta1;   /* first moment */
    zx_real beta2, one_minus_beta2;   /* second moment */
    zx_real step_size;                /* lr / (1 - beta1^step) */
    zx_real inverse_sqrt_correction2; /* 1 / sqrt(1 - beta2^step) */
    zx_real eps;
} factors;

static ZX_CLONES void update_range(zx_real *restrict params, zx_real *restrict m,
                                   zx_real *restrict v, const zx_real *restrict grads,
                                   int64_t first, int64_t end, factors f)
{
#pragma omp simd
    for (int64_t i = first; i < end; i++) {
        const zx_real g = grads[i] * f.grad_scale;
        const zx_real mi = f.beta1 * m[i] + f.one_minus_beta1 * g;
        const zx_real vi = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
        m[i] = mi;
        v[i] = vi;
        params[i] = params[i] * f.keep -
                    f.step_size * mi / (ZX_SQRT(vi) * f.inverse_sqrt_correction2 + f.eps);
    }
}

bool zx_cpu_adamw(zx_backend *b, zx_real *params, zx_real *m, zx_real *v, const zx_real *grads,
                  int64_t n, const zx_adamw *options, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n);
    const double correction1 = 1 - pow(options->beta1, (double)options->step);
    const double correction2 = 1 - pow(options->beta2, (double)options->step);
    const factors f = {
        .grad_scale = (zx_real)options->grad_scale,
        .keep = (zx_real)(1 - options->lr * options->weight_decay),
        .beta1 = (zx_real)options->beta1,
        .one_minus_beta1 = (zx_real)(1 - options->beta1),
        .beta2 = (zx_real)options->beta2,
        .one_minus_beta2 = (zx_real)(1 - options->beta2),
        .step_size = (zx_real)(options->lr / correction1),
        .inverse_sqrt_correction2 = (zx_real)(1 / sqrt(correction2)),
        .eps = (zx_real)options->eps,
    };
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range range = zx_cpu_part(n, 16, n_threads, part);
        update_range(params, m, v, grads, range.first, range.end, f);
    }
    return true;
}
