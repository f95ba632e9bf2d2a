#include "executor/cpu/kernels.h"

/* As many partial sums whatever the number of threads, added in order: equal bits. */
enum { N_PARTS = 64 };

static ZX_CLONES double sum_range(const zx_real *x, int64_t first, int64_t end)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i < end; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

bool zx_cpu_sum_of_squares(zx_backend *b, double *sum, const zx_real *x, int64_t n, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n);
    double partial[N_PARTS];
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int t = 0; t < n_threads; t++) {
        const zx_range parts = zx_cpu_part(N_PARTS, 1, n_threads, t);
        for (int64_t part = parts.first; part < parts.end; part++) {
            const zx_range range = zx_cpu_part(n, 16, N_PARTS, (int)part);
            partial[part] = sum_range(x, range.first, range.end);
        }
    }
    double total = 0;
    for (int part = 0; part < N_PARTS; part++)
        total += partial[part];
    *sum = total;
    return true;
}
