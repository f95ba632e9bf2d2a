/* A backend computes on one device. Calls enqueue and return; sync waits. Tensors are zx_real,
 * row-major; B samples, T tokens, C channels, V vocabulary, NH heads. Pointers are device memory.
 * zx_real is float; a second build of the CPU backend and of layers.c with ZX_REAL_IS_DOUBLE lets
 * tests compare gradients with finite differences in double precision. */
#ifndef EXECUTOR_BACKEND_H
#define EXECUTOR_BACKEND_H

#include "models/model.h"
#include "shared/error.h"

#include <stdint.h>

#ifdef ZX_REAL_IS_DOUBLE
typedef double zx_real;
#else
typedef float zx_real;
#endif

typedef struct zx_backend zx_backend;

/* AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019, algorithm 2). */
typedef struct zx_adamw {
    double lr, beta1, beta2, eps;
    double weight_decay;
    double grad_scale; /* gradients are multiplied by it first: clipping */
    int64_t step;      /* 1 for the first update: bias correction */
} zx_adamw;

/* Sizes of an attention. Head h of the queries attends to head h / (n_heads / n_kv_heads) of keys
 * and values (Ainslie et al., GQA, EMNLP 2023, sec. 2.2). Tokens are stride elements apart, heads
 * of a token behind each other. */
typedef struct zx_attention {
    int B, T;
    int n_heads, n_kv_heads; /* the second divides the first */
    int head_size;
    int64_t q_stride;
    int64_t kv_stride; /* of keys and of values */
} zx_attention;

typedef struct zx_backend_ops {
    const char *name; /* "cpu", "cuda" */
    /* n_threads: of the CPU backend; 0: as many as OpenMP would take. */
    bool (*open)(zx_backend **out, int device, int n_threads, zs_error *err);
    /* Frees what was allocated. */
    void (*close)(zx_backend **backend);
    /* Zeroed device memory; what: its purpose, for messages and accounting. */
    bool (*alloc)(zx_backend *b, void **out, int64_t size_bytes, const char *what, zs_error *err);
    void (*free)(zx_backend *b, void **memory);
    /* Allocated now, and most at any time so far; own scratch included. */
    int64_t (*allocated_bytes)(zx_backend *b);
    int64_t (*peak_bytes)(zx_backend *b);
    bool (*to_device)(zx_backend *b, void *device, const void *host, int64_t size_bytes,
                      zs_error *err);
    bool (*to_host)(zx_backend *b, void *host, const void *device, int64_t size_bytes,
                    zs_error *err);
    bool (*zero)(zx_backend *b, void *device, int64_t size_bytes, zs_error *err);
    /* From device memory to other device memory. */
    bool (*copy)(zx_backend *b, void *to, const void *from, int64_t size_bytes, zs_error *err);
    bool (*sync)(zx_backend *b, zs_error *err);

    /* Sizes n, B and T may be 0: nothing is done. */

    /* out (n,n_out) = x (n,n_in) W + bias (n_out; NULL: none) + residual (n,n_out; NULL: none; may
     * be out itself). W is (n_in,n_out) when input_major, else (n_out,n_in). */
    bool (*linear_forward)(zx_backend *b, zx_real *out, const zx_real *x, const zx_real *weight,
                           const zx_real *bias, const zx_real *residual, int64_t n, int n_in,
                           int n_out, bool input_major, zs_error *err);
    /* dx (n,n_in) = dout W^T, or += when accumulate_dx; dweight += x^T dout in W's layout; dbias +=
     * column sums of dout. Each of the three may be NULL: not computed. */
    bool (*linear_backward)(zx_backend *b, zx_real *dx, zx_real *dweight, zx_real *dbias,
                            const zx_real *dout, const zx_real *x, const zx_real *weight, int64_t n,
                            int n_in, int n_out, bool input_major, bool accumulate_dx,
                            zs_error *err);

    /* out (n,C) = wte[token] + wpe[position] (NULL: none), n = B T. */
    bool (*embedding_forward)(zx_backend *b, zx_real *out, const int32_t *tokens,
                              const zx_real *wte, const zx_real *wpe, int B, int T, int C,
                              zs_error *err);
    bool (*embedding_backward)(zx_backend *b, zx_real *dwte, zx_real *dwpe, const int32_t *tokens,
                               const zx_real *dout, int B, int T, int C, zs_error *err);

    /* out, x (n,C); weight, bias (C); mean, rstd (n) are kept for backward.
     * Ba et al., Layer Normalization, 2016, eq. 3. */
    bool (*layernorm_forward)(zx_backend *b, zx_real *out, zx_real *mean, zx_real *rstd,
                              const zx_real *x, const zx_real *weight, const zx_real *bias,
                              int64_t n, int C, double eps, zs_error *err);
    /* dx = dresidual (n,C) + ...: the gradient of the skip connection around the norm (NULL: none;
     * may be dx itself); dweight, dbias +=. */
    bool (*layernorm_backward)(zx_backend *b, zx_real *dx, zx_real *dweight, zx_real *dbias,
                               const zx_real *dresidual, const zx_real *dout, const zx_real *x,
                               const zx_real *weight, const zx_real *mean, const zx_real *rstd,
                               int64_t n, int C, zs_error *err);

    /* The same without mean and bias; eps inside the root. Zhang and Sennrich, Root Mean Square
     * Layer Normalization, NeurIPS 2019, eq. 4. */
    bool (*rmsnorm_forward)(zx_backend *b, zx_real *out, zx_real *rstd, const zx_real *x,
                            const zx_real *weight, int64_t n, int C, double eps, zs_error *err);
    bool (*rmsnorm_backward)(zx_backend *b, zx_real *dx, zx_real *dweight, const zx_real *dresidual,
                             const zx_real *dout, const zx_real *x, const zx_real *weight,
                             const zx_real *rstd, int64_t n, int C, zs_error *err);

    /* Causal attention: out (B,T,n_heads,head_size) from q, k, v; lse (B,NH,T) log-sum-exp of the
     * scaled scores, kept for backward, which recomputes the probabilities (Dao et al.,
     * FlashAttention, NeurIPS 2022, alg. 1 and 4): no T x T tensor outlives a call. */
    bool (*attention_forward)(zx_backend *b, zx_real *out, zx_real *lse, const zx_real *q,
                              const zx_real *k, const zx_real *v, const zx_attention *shape,
                              zs_error *err);
    /* dq, dk, dv lie as q, k, v do. */
    bool (*attention_backward)(zx_backend *b, zx_real *dq, zx_real *dk, zx_real *dv,
                               const zx_real *dout, const zx_real *q, const zx_real *k,
                               const zx_real *v, const zx_real *out, const zx_real *lse,
                               const zx_attention *shape, zs_error *err);

    /* Turns x (B,T,n_heads,d = head_size), in place: of position t the pairs of channels (i, i +
     * d/2) by the angle t theta^(-2i/d) (Su et al., RoFormer, Neurocomputing 568, 2024, eq. 15;
     * halves instead of neighbours as Hugging Face's weights have them). inverse: back, which is
     * the gradient's way. d is even. */
    bool (*rotary)(zx_backend *b, zx_real *x, double theta, bool inverse, int B, int T, int n_heads,
                   int head_size, zs_error *err);

    /* Activation functions over n elements; dx = dout f'(x), dx may be dout itself. */
    bool (*activation_forward)(zx_backend *b, zx_real *out, const zx_real *x, zm_activation kind,
                               int64_t n, zs_error *err);
    bool (*activation_backward)(zx_backend *b, zx_real *dx, const zx_real *dout, const zx_real *x,
                                zm_activation kind, int64_t n, zs_error *err);

    /* out = silu(gate) up over n elements (Shazeer, GLU Variants Improve Transformer, 2020, eq. 6).
     * dgate may be dout itself. */
    bool (*swiglu_forward)(zx_backend *b, zx_real *out, const zx_real *gate, const zx_real *up,
                           int64_t n, zs_error *err);
    bool (*swiglu_backward)(zx_backend *b, zx_real *dgate, zx_real *dup, const zx_real *dout,
                            const zx_real *gate, const zx_real *up, int64_t n, zs_error *err);

    /* out = x + y over n elements; out may be x or y. */
    bool (*add)(zx_backend *b, zx_real *out, const zx_real *x, const zx_real *y, int64_t n,
                zs_error *err);

    /* *loss_sum (host, valid after sync) = sum over the n rows of -log softmax(logits)[target],
     * rows with target < 0 skipped; logits (n,V) become their gradient times scale when scale != 0.
     */
    bool (*cross_entropy)(zx_backend *b, double *loss_sum, zx_real *logits, const int32_t *targets,
                          int64_t n, int V, double scale, zs_error *err);

    /* *sum (host, valid after sync) = sum of squares, accumulated in double. */
    bool (*sum_of_squares)(zx_backend *b, double *sum, const zx_real *x, int64_t n, zs_error *err);

    /* One update of n elements: first and second moment m, v. */
    bool (*adamw)(zx_backend *b, zx_real *params, zx_real *m, zx_real *v, const zx_real *grads,
                  int64_t n, const zx_adamw *options, zs_error *err);
} zx_backend_ops;

/* The first member of every backend's struct. */
struct zx_backend {
    const zx_backend_ops *ops;
};

/* Those in this build. NULL when name is not among them; then *err names the meson option. */
const zx_backend_ops *zx_backend_find(const char *name, zs_error *err);

extern const zx_backend_ops zx_backend_cpu;

#endif
