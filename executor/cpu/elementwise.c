#include "executor/cpu/kernels.h"

static ZX_CLONES void add_range(zx_real *out, const zx_real *x, const zx_real *y, int64_t first,
                                int64_t end)
{
#pragma omp simd
    for (int64_t i = first; i < end; i++)
        out[i] = x[i] + y[i];
}

bool zx_cpu_add(zx_backend *b, zx_real *out, const zx_real *x, const zx_real *y, int64_t n,
                zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n);
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range range = zx_cpu_part(n, 16, n_threads, part);
        add_range(out, x, y, range.first, range.end);
    }
    return true;
}
