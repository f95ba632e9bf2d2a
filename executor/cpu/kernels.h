/* Kernels of the CPU backend, one file per kind; contracts in executor/backend.h. All of them
 * divide their work by sizes and the number of threads alone and add up in a fixed order, so equal
 * calls give equal bits. The matrix products are the BLAS's, called from the same OpenMP threads as
 * everything else: two thread pools would fight for the cores. */
#ifndef EXECUTOR_CPU_KERNELS_H
#define EXECUTOR_CPU_KERNELS_H

#include "config.h"
#include "executor/backend.h"

typedef struct zx_cpu_allocation zx_cpu_allocation;

/* Cosines and sines of rotary positions [0, T), (T,head_size/2) each. */
typedef struct zx_angles {
    void *memory;
    const zx_real *cos, *sin;
    double theta;
    int T, head_size;
} zx_angles;

typedef struct zx_cpu {
    zx_backend base;
    int n_threads;
    int64_t work_per_thread; /* below it a second thread does not pay; tests set it to 1 */
    zx_cpu_allocation *allocations;
    int64_t allocated_bytes;
    int64_t peak_bytes;
    void *scratch; /* of attention; grows to the largest call and stays */
    int64_t scratch_bytes;
    zx_angles angles;
} zx_cpu;

/* A loop that deserves the widest vectors of the machine that runs it, which need not be the one
 * that compiled it: one clone per instruction set, chosen when the program starts.
 * Its name must be the only one in all files: clang's function that chooses is global. */
#if HAVE_TARGET_CLONES
#define ZX_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ZX_CLONES
#endif

/* Threads for a call of that many element operations: by sizes alone, so that equal calls stay
 * equal.
 */
static inline int zx_cpu_threads(const zx_backend *b, int64_t work)
{
    const zx_cpu *cpu = (const zx_cpu *)b;
    const int64_t useful = work / cpu->work_per_thread;
    return useful >= cpu->n_threads ? cpu->n_threads : useful > 1 ? (int)useful : 1;
}

/* Part `part` of [0, n) cut into n_parts with boundaries at multiples of `multiple`. */
typedef struct zx_range {
    int64_t first;
    int64_t end;
} zx_range;

static inline zx_range zx_cpu_part(int64_t n, int64_t multiple, int n_parts, int part)
{
    const int64_t n_units = (n + multiple - 1) / multiple;
    zx_range range = {n_units * part / n_parts * multiple,
                      n_units * (part + 1) / n_parts * multiple};
    range.first = range.first < n ? range.first : n;
    range.end = range.end < n ? range.end : n;
    return range;
}

/* At least size_bytes, 64-byte aligned; not zeroed; valid until the next call. */
ZS_MUST_CHECK bool zx_cpu_scratch(zx_cpu *cpu, void **out, int64_t size_bytes, zs_error *err);

/* Tells the BLAS that its callers are the threads. */
void zx_cpu_gemm_open(void);

/* c (m,n) = alpha a b + beta c on the calling thread; a (m,k) or its transpose with rows lda apart,
 * b (k,n) likewise. Sizes of 0 are allowed. */
void zx_cpu_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, zx_real alpha,
                 const zx_real *a, int64_t lda, const zx_real *b, int64_t ldb, zx_real beta,
                 zx_real *c, int64_t ldc);

/* The tile of an (m,n) result that one thread computes. */
typedef struct zx_tile {
    zx_range rows;
    zx_range cols;
} zx_tile;

/* Work of a product: so many multiply-adds take the time of one step of an elementwise loop. */
enum { ZX_GEMM_SPEED = 16 };

/* Tiles are as square as n_threads allows: less of the factors is read twice. */
zx_tile zx_cpu_tile(int64_t m, int64_t n, int n_threads, int tile);

/* Backend table. */
bool zx_cpu_linear_forward(zx_backend *b, zx_real *out, const zx_real *x, const zx_real *weight,
                           const zx_real *bias, const zx_real *residual, int64_t n, int n_in,
                           int n_out, bool input_major, zs_error *err);
bool zx_cpu_linear_backward(zx_backend *b, zx_real *dx, zx_real *dweight, zx_real *dbias,
                            const zx_real *dout, const zx_real *x, const zx_real *weight, int64_t n,
                            int n_in, int n_out, bool input_major, bool accumulate_dx,
                            zs_error *err);
bool zx_cpu_embedding_forward(zx_backend *b, zx_real *out, const int32_t *tokens,
                              const zx_real *wte, const zx_real *wpe, int B, int T, int C,
                              zs_error *err);
bool zx_cpu_embedding_backward(zx_backend *b, zx_real *dwte, zx_real *dwpe, const int32_t *tokens,
                               const zx_real *dout, int B, int T, int C, zs_error *err);
bool zx_cpu_layernorm_forward(zx_backend *b, zx_real *out, zx_real *mean, zx_real *rstd,
                              const zx_real *x, const zx_real *weight, const zx_real *bias,
                              int64_t n, int C, double eps, zs_error *err);
bool zx_cpu_layernorm_backward(zx_backend *b, zx_real *dx, zx_real *dweight, zx_real *dbias,
                               const zx_real *dresidual, const zx_real *dout, const zx_real *x,
                               const zx_real *weight, const zx_real *mean, const zx_real *rstd,
                               int64_t n, int C, zs_error *err);
bool zx_cpu_rmsnorm_forward(zx_backend *b, zx_real *out, zx_real *rstd, const zx_real *x,
                            const zx_real *weight, int64_t n, int C, double eps, zs_error *err);
bool zx_cpu_rmsnorm_backward(zx_backend *b, zx_real *dx, zx_real *dweight, const zx_real *dresidual,
                             const zx_real *dout, const zx_real *x, const zx_real *weight,
                             const zx_real *rstd, int64_t n, int C, zs_error *err);
bool zx_cpu_attention_forward(zx_backend *b, zx_real *out, zx_real *lse, const zx_real *q,
                              const zx_real *k, const zx_real *v, const zx_attention *shape,
                              zs_error *err);
bool zx_cpu_attention_backward(zx_backend *b, zx_real *dq, zx_real *dk, zx_real *dv,
                               const zx_real *dout, const zx_real *q, const zx_real *k,
                               const zx_real *v, const zx_real *out, const zx_real *lse,
                               const zx_attention *shape, zs_error *err);
bool zx_cpu_rotary(zx_backend *b, zx_real *x, double theta, bool inverse, int B, int T, int n_heads,
                   int head_size, zs_error *err);
bool zx_cpu_swiglu_forward(zx_backend *b, zx_real *out, const zx_real *gate, const zx_real *up,
                           int64_t n, zs_error *err);
bool zx_cpu_swiglu_backward(zx_backend *b, zx_real *dgate, zx_real *dup, const zx_real *dout,
                            const zx_real *gate, const zx_real *up, int64_t n, zs_error *err);
bool zx_cpu_activation_forward(zx_backend *b, zx_real *out, const zx_real *x, zm_activation kind,
                               int64_t n, zs_error *err);
bool zx_cpu_activation_backward(zx_backend *b, zx_real *dx, const zx_real *dout, const zx_real *x,
                                zm_activation kind, int64_t n, zs_error *err);
bool zx_cpu_add(zx_backend *b, zx_real *out, const zx_real *x, const zx_real *y, int64_t n,
                zs_error *err);
bool zx_cpu_cross_entropy(zx_backend *b, double *loss_sum, zx_real *logits, const int32_t *targets,
                          int64_t n, int V, double scale, zs_error *err);
bool zx_cpu_sum_of_squares(zx_backend *b, double *sum, const zx_real *x, int64_t n, zs_error *err);
bool zx_cpu_adamw(zx_backend *b, zx_real *params, zx_real *m, zx_real *v, const zx_real *grads,
                  int64_t n, const zx_adamw *options, zs_error *err);

#endif
