#include "executor/cpu/kernels.h"

#include <assert.h>
#include <string.h>

/* out = residual + bias on a tile; either may be NULL. The product is then added by the BLAS, which
 * would otherwise spend the same pass on clearing out. */
static ZX_CLONES void fill_tile(zx_real *out, const zx_real *residual, const zx_real *bias,
                                zx_tile tile, int64_t n_out)
{
    const int64_t first = tile.cols.first;
    const int64_t n_cols = tile.cols.end - first;
    for (int64_t row = tile.rows.first; row < tile.rows.end; row++) {
        zx_real *out_row = out + row * n_out + first;
        const zx_real *residual_row = residual == NULL ? NULL : residual + row * n_out + first;
        if (residual_row != NULL && bias != NULL) {
            const zx_real *bias_row = bias + first;
#pragma omp simd
            for (int64_t j = 0; j < n_cols; j++)
                out_row[j] = residual_row[j] + bias_row[j];
        } else if (residual_row != out_row) {
            memcpy(out_row, residual_row != NULL ? residual_row : bias + first,
                   (size_t)n_cols * sizeof(zx_real));
        }
    }
}

bool zx_cpu_linear_forward(zx_backend *b, zx_real *out, const zx_real *x, const zx_real *weight,
                           const zx_real *bias, const zx_real *residual, int64_t n, int n_in,
                           int n_out, bool input_major, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n * n_in * n_out / ZX_GEMM_SPEED);
    const int64_t ldw = input_major ? n_out : n_in;
    (void)err;
    if (n == 0)
        return true;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int t = 0; t < n_threads; t++) {
        const zx_tile tile = zx_cpu_tile(n, n_out, n_threads, t);
        const bool filled = bias != NULL || residual != NULL;
        if (filled)
            fill_tile(out, residual, bias, tile, n_out);
        zx_cpu_gemm(false, !input_major, tile.rows.end - tile.rows.first,
                    tile.cols.end - tile.cols.first, n_in, 1, x + tile.rows.first * n_in, n_in,
                    weight + tile.cols.first * (input_major ? 1 : ldw), ldw, filled ? 1 : 0,
                    out + tile.rows.first * n_out + tile.cols.first, n_out);
    }
    return true;
}

enum { COLUMN_BLOCK = 512, ROW_BLOCK = 64 };

/* sum[j] += sum of x[i][j] over the rows, for columns [first, end). Partial sums of ROW_BLOCK rows
 * keep the rounding error near that of a tree. */
static ZX_CLONES void add_columns(zx_real *sum, const zx_real *x, int64_t n, int64_t n_cols,
                                  int64_t first, int64_t end)
{
    zx_real partial[COLUMN_BLOCK];
    for (int64_t col = first; col < end; col += COLUMN_BLOCK) {
        const int64_t width = end - col < COLUMN_BLOCK ? end - col : COLUMN_BLOCK;
        for (int64_t row = 0; row < n; row += ROW_BLOCK) {
            const int64_t end_row = row + ROW_BLOCK < n ? row + ROW_BLOCK : n;
            memset(partial, 0, (size_t)width * sizeof(zx_real));
            for (int64_t i = row; i < end_row; i++) {
                const zx_real *x_row = x + i * n_cols + col;
#pragma omp simd
                for (int64_t j = 0; j < width; j++)
                    partial[j] += x_row[j];
            }
#pragma omp simd
            for (int64_t j = 0; j < width; j++)
                sum[col + j] += partial[j];
        }
    }
}

bool zx_cpu_linear_backward(zx_backend *b, zx_real *dx, zx_real *dweight, zx_real *dbias,
                            const zx_real *dout, const zx_real *x, const zx_real *weight, int64_t n,
                            int n_in, int n_out, bool input_major, bool accumulate_dx,
                            zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n * n_in * n_out / ZX_GEMM_SPEED);
    const int64_t ldw = input_major ? n_out : n_in;
    (void)err;
    if (n == 0)
        return true;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int t = 0; t < n_threads; t++) {
        if (dx != NULL) {
            const zx_tile tile = zx_cpu_tile(n, n_in, n_threads, t);
            zx_cpu_gemm(false, input_major, tile.rows.end - tile.rows.first,
                        tile.cols.end - tile.cols.first, n_out, 1, dout + tile.rows.first * n_out,
                        n_out, weight + tile.cols.first * (input_major ? ldw : 1), ldw,
                        accumulate_dx ? 1 : 0, dx + tile.rows.first * n_in + tile.cols.first, n_in);
        }
        if (dweight != NULL) {
            /* dW = x^T dout or, for (n_out,n_in), dout^T x. */
            const zx_real *left = input_major ? x : dout;
            const zx_real *right = input_major ? dout : x;
            const int64_t n_left = input_major ? n_in : n_out;
            const int64_t n_right = input_major ? n_out : n_in;
            const zx_tile tile = zx_cpu_tile(n_left, n_right, n_threads, t);
            zx_cpu_gemm(true, false, tile.rows.end - tile.rows.first,
                        tile.cols.end - tile.cols.first, n, 1, left + tile.rows.first, n_left,
                        right + tile.cols.first, n_right, 1,
                        dweight + tile.rows.first * n_right + tile.cols.first, n_right);
        }
        if (dbias != NULL) {
            const zx_range cols = zx_cpu_part(n_out, 16, n_threads, t);
            add_columns(dbias, dout, n, n_out, cols.first, cols.end);
        }
    }
    return true;
}
