#include "executor/cpu/kernels.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>

#ifdef ZX_REAL_IS_DOUBLE
#define CBLAS_GEMM cblas_dgemm
#else
#define CBLAS_GEMM cblas_sgemm
#endif

void zx_cpu_gemm_open(void)
{
    openblas_set_num_threads(1);
}

void zx_cpu_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, zx_real alpha,
                 const zx_real *a, int64_t lda, const zx_real *b, int64_t ldb, zx_real beta,
                 zx_real *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return;
    assert(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX);
    assert(lda <= INT_MAX && ldb <= INT_MAX && ldc <= INT_MAX);
    CBLAS_GEMM(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
               trans_b ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, alpha, a,
               (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

zx_tile zx_cpu_tile(int64_t m, int64_t n, int n_threads, int tile)
{
    /* Edges at multiples of the BLAS's micro-kernels; rows x columns of tiles = n_threads. */
    const int64_t edge = 16;
    int best_rows = 1;
    for (int n_rows = 1; n_rows <= n_threads; n_rows++) {
        if (n_threads % n_rows != 0)
            continue;
        const double perimeter = (double)m / n_rows + (double)n * n_rows / n_threads;
        const double best = (double)m / best_rows + (double)n * best_rows / n_threads;
        if (perimeter < best)
            best_rows = n_rows;
    }
    const int n_cols = n_threads / best_rows;
    return (zx_tile){zx_cpu_part(m, edge, best_rows, tile / n_cols),
                     zx_cpu_part(n, edge, n_cols, tile % n_cols)};
}
