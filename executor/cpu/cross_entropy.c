#include "executor/cpu/kernels.h"
#include "executor/cpu/vector_math.h"

#include <assert.h>
#include <string.h>

/* As many partial sums whatever the number of threads, added in order: equal bits. */
enum { N_PARTS = 64 };

/* Exponentials are added in zx_real over a block, blocks in double: a float sum over a vocabulary
 * of 50000 would lose three digits. */
enum { SUM_BLOCK = 1024 };

/* Sum of exp(x - max); the exponentials replace x when keep is set. */
ZX_INLINE double row_exp_sum(zx_real *x, int V, zx_real max, bool keep)
{
    double sum = 0;
    for (int first = 0; first < V; first += SUM_BLOCK) {
        const int end = first + SUM_BLOCK < V ? first + SUM_BLOCK : V;
        zx_real block = 0;
        if (keep) {
#pragma omp simd reduction(+ : block)
            for (int j = first; j < end; j++) {
                x[j] = zx_exp(x[j] - max);
                block += x[j];
            }
        } else {
#pragma omp simd reduction(+ : block)
            for (int j = first; j < end; j++)
                block += zx_exp(x[j] - max);
        }
        sum += (double)block;
    }
    return sum;
}

static ZX_CLONES double loss_of_rows(zx_real *logits, const int32_t *targets, int64_t first,
                                     int64_t end, int V, double scale)
{
    double loss = 0;
    for (int64_t row = first; row < end; row++) {
        zx_real *x = logits + row * V;
        const int32_t target = targets[row];
        assert(target < V);
        if (target < 0) {
            if (scale != 0)
                memset(x, 0, (size_t)V * sizeof(zx_real));
            continue;
        }
        const zx_real max = zx_max(x, V);
        const double target_logit = (double)x[target] - (double)max;
        const double sum = row_exp_sum(x, V, max, scale != 0);
        loss += log(sum) - target_logit;
        if (scale != 0) {
            const zx_real factor = (zx_real)(scale / sum);
#pragma omp simd
            for (int j = 0; j < V; j++)
                x[j] *= factor;
            x[target] = (zx_real)((double)x[target] - scale);
        }
    }
    return loss;
}

bool zx_cpu_cross_entropy(zx_backend *b, double *loss_sum, zx_real *logits, const int32_t *targets,
                          int64_t n, int V, double scale, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n * V);
    double partial[N_PARTS];
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int t = 0; t < n_threads; t++) {
        const zx_range parts = zx_cpu_part(N_PARTS, 1, n_threads, t);
        for (int64_t part = parts.first; part < parts.end; part++) {
            const zx_range rows = zx_cpu_part(n, 1, N_PARTS, (int)part);
            partial[part] = loss_of_rows(logits, targets, rows.first, rows.end, V, scale);
        }
    }
    double total = 0;
    for (int part = 0; part < N_PARTS; part++)
        total += partial[part];
    *loss_sum = total;
    return true;
}
