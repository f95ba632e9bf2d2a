#include "executor/cpu/kernels.h"
#include "executor/cpu/vector_math.h"

#include <string.h>

static ZX_CLONES void rms_forward_rows(zx_real *out, zx_real *rstd, const zx_real *x,
                                       const zx_real *weight, int64_t first, int64_t end, int C,
                                       zx_real eps)
{
    for (int64_t row = first; row < end; row++) {
        const zx_real *x_row = x + row * C;
        zx_real *out_row = out + row * C;
        zx_real squares = 0;
#pragma omp simd reduction(+ : squares)
        for (int i = 0; i < C; i++)
            squares += x_row[i] * x_row[i];
        const zx_real s = 1 / ZX_SQRT(squares / (zx_real)C + eps);
#pragma omp simd
        for (int i = 0; i < C; i++)
            out_row[i] = x_row[i] * s * weight[i];
        rstd[row] = s;
    }
}

bool zx_cpu_rmsnorm_forward(zx_backend *b, zx_real *out, zx_real *rstd, const zx_real *x,
                            const zx_real *weight, int64_t n, int C, double eps, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n * C);
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range rows = zx_cpu_part(n, 1, n_threads, part);
        rms_forward_rows(out, rstd, x, weight, rows.first, rows.end, C, (zx_real)eps);
    }
    return true;
}

/* With xhat = x rstd and g = dout weight: dx = dresidual + rstd (g - xhat mean of g xhat). */
static ZX_CLONES void rms_backward_rows(zx_real *dx, const zx_real *dresidual, const zx_real *dout,
                                        const zx_real *x, const zx_real *weight,
                                        const zx_real *rstd, int64_t first, int64_t end, int C)
{
    for (int64_t row = first; row < end; row++) {
        const zx_real *x_row = x + row * C;
        const zx_real *dout_row = dout + row * C;
        zx_real *dx_row = dx + row * C;
        const zx_real s = rstd[row];
        zx_real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < C; i++)
            sum += dout_row[i] * weight[i] * (x_row[i] * s);
        const zx_real mean = sum / (zx_real)C;
        if (dresidual != NULL) {
            const zx_real *dresidual_row = dresidual + row * C;
#pragma omp simd
            for (int i = 0; i < C; i++)
                dx_row[i] = dresidual_row[i] + s * (dout_row[i] * weight[i] - x_row[i] * s * mean);
        } else {
#pragma omp simd
            for (int i = 0; i < C; i++)
                dx_row[i] = s * (dout_row[i] * weight[i] - x_row[i] * s * mean);
        }
    }
}

enum { COLUMN_BLOCK = 256, ROW_BLOCK = 64 };

/* dweight of columns [first, end): one writer per column whatever the number of threads; partial
 * sums of ROW_BLOCK rows keep the rounding error near that of a tree. */
static ZX_CLONES void rms_backward_columns(zx_real *dweight, const zx_real *dout, const zx_real *x,
                                           const zx_real *rstd, int64_t n, int C, int64_t first,
                                           int64_t end)
{
    zx_real sum[COLUMN_BLOCK];
    for (int64_t col = first; col < end; col += COLUMN_BLOCK) {
        const int64_t width = end - col < COLUMN_BLOCK ? end - col : COLUMN_BLOCK;
        for (int64_t row = 0; row < n; row += ROW_BLOCK) {
            const int64_t end_row = row + ROW_BLOCK < n ? row + ROW_BLOCK : n;
            memset(sum, 0, (size_t)width * sizeof(zx_real));
            for (int64_t i = row; i < end_row; i++) {
                const zx_real *x_row = x + i * C + col;
                const zx_real *dout_row = dout + i * C + col;
                const zx_real s = rstd[i];
#pragma omp simd
                for (int64_t j = 0; j < width; j++)
                    sum[j] += dout_row[j] * (x_row[j] * s);
            }
#pragma omp simd
            for (int64_t j = 0; j < width; j++)
                dweight[col + j] += sum[j];
        }
    }
}

bool zx_cpu_rmsnorm_backward(zx_backend *b, zx_real *dx, zx_real *dweight, const zx_real *dresidual,
                             const zx_real *dout, const zx_real *x, const zx_real *weight,
                             const zx_real *rstd, int64_t n, int C, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n * C);
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range rows = zx_cpu_part(n, 1, n_threads, part);
        const zx_range cols = zx_cpu_part(C, 16, n_threads, part);
        rms_backward_columns(dweight, dout, x, rstd, n, C, cols.first, cols.end);
        rms_backward_rows(dx, dresidual, dout, x, weight, rstd, rows.first, rows.end, C);
    }
    return true;
}
