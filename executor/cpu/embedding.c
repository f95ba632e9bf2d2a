#include "executor/cpu/kernels.h"

#include <string.h>

static ZX_CLONES void add_rows(zx_real *out, const zx_real *x, const zx_real *y, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] + y[i];
}

bool zx_cpu_embedding_forward(zx_backend *b, zx_real *out, const int32_t *tokens,
                              const zx_real *wte, const zx_real *wpe, int B, int T, int C,
                              zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, (int64_t)B * T * C);
    const int64_t n = (int64_t)B * T;
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range rows = zx_cpu_part(n, 1, n_threads, part);
        for (int64_t row = rows.first; row < rows.end; row++) {
            const zx_real *wte_row = wte + (int64_t)tokens[row] * C;
            if (wpe != NULL)
                add_rows(out + row * C, wte_row, wpe + row % T * C, C);
            else
                memcpy(out + row * C, wte_row, (size_t)C * sizeof(zx_real));
        }
    }
    return true;
}

/* Threads share columns, not rows: two rows may name the same token, and its sum then still has one
 * writer and one order. */
bool zx_cpu_embedding_backward(zx_backend *b, zx_real *dwte, zx_real *dwpe, const int32_t *tokens,
                               const zx_real *dout, int B, int T, int C, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, (int64_t)B * T * C);
    const int64_t n = (int64_t)B * T;
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range cols = zx_cpu_part(C, 16, n_threads, part);
        for (int64_t row = 0; row < n; row++) {
            const zx_real *dout_row = dout + row * C + cols.first;
            zx_real *dwte_row = dwte + (int64_t)tokens[row] * C + cols.first;
            add_rows(dwte_row, dwte_row, dout_row, cols.end - cols.first);
            if (dwpe == NULL)
                continue;
            zx_real *dwpe_row = dwpe + row % T * C + cols.first;
            add_rows(dwpe_row, dwpe_row, dout_row, cols.end - cols.first);
        }
    }
    return true;
}
