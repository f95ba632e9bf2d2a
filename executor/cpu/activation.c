#include "executor/cpu/kernels.h"
#include "executor/cpu/vector_math.h"

#include <assert.h>

/* A value and its derivative, so that each formula stands in one place; the compiler drops the half
 * that a loop does not use. */
typedef struct value_slope {
    zx_real value;
    zx_real slope;
} value_slope;

typedef struct sigmoid_pair {
    zx_real s;         /* 1 / (1 + exp(-x)) */
    zx_real one_minus; /* not by subtraction, which would cancel */
} sigmoid_pair;

ZX_INLINE sigmoid_pair sigmoid(zx_real x)
{
    /* Beyond 87 exp(-x) would leave the range of a float and 0 times infinity follow. */
    const zx_real clamped = x < -87 ? -87 : x;
    const zx_real e = zx_exp(-clamped);
    const zx_real s = 1 / (1 + e);
    return (sigmoid_pair){s, e * s};
}

/* Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, sec. 2: 0.5 x (1 + tanh u) with u =
 * sqrt(2/pi) (x + 0.044715 x^3); 0.5 (1 + tanh u) is the sigmoid of 2u, which needs no tanh. */
ZX_INLINE value_slope gelu_tanh(zx_real x)
{
    const zx_real two_sqrt_2_over_pi = (zx_real)1.59576912160573071176;
    const zx_real cubic = (zx_real)0.044715;
    const sigmoid_pair p = sigmoid(two_sqrt_2_over_pi * (x + cubic * x * x * x));
    const zx_real du = two_sqrt_2_over_pi * (1 + 3 * cubic * x * x);
    return (value_slope){x * p.s, p.s + x * p.s * p.one_minus * du};
}

/* x P(X <= x) of the standard normal distribution; its density is exp(-x^2/2) / sqrt(2 pi). */
ZX_INLINE value_slope gelu(zx_real x)
{
    const zx_real e = zx_exp((zx_real)-0.5 * x * x);
    const zx_real cdf = zx_normal_cdf(x, e);
    return (value_slope){x * cdf, cdf + x * e * (zx_real)0.39894228040143267794};
}

ZX_INLINE value_slope relu(zx_real x)
{
    return (value_slope){x > 0 ? x : 0, x > 0 ? 1 : 0};
}

/* x sigmoid(x): Elfwing et al., Sigmoid-Weighted Linear Units, Neural Networks 107, 2018, eq. 2. */
ZX_INLINE value_slope silu(zx_real x)
{
    const sigmoid_pair p = sigmoid(x);
    return (value_slope){x * p.s, p.s + x * p.s * p.one_minus};
}

/* One forward and one backward loop of each kind. */
#define LOOPS(kind)                                                                                \
    static ZX_CLONES void forward_##kind(zx_real *out, const zx_real *x, int64_t first,            \
                                         int64_t end)                                              \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = first; i < end; i++) out[i] = kind(x[i]).value;       \
    }                                                                                              \
    static ZX_CLONES void backward_##kind(zx_real *dx, const zx_real *dout, const zx_real *x,      \
                                          int64_t first, int64_t end)                              \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = first; i < end; i++) dx[i] =                          \
            dout[i] * kind(x[i]).slope;                                                            \
    }

LOOPS(gelu_tanh)
LOOPS(gelu)
LOOPS(relu)
LOOPS(silu)

typedef struct loops {
    void (*forward)(zx_real *out, const zx_real *x, int64_t first, int64_t end);
    void (*backward)(zx_real *dx, const zx_real *dout, const zx_real *x, int64_t first,
                     int64_t end);
} loops;

static const loops table[ZM_N_ACTIVATIONS] = {
    [ZM_GELU_TANH] = {forward_gelu_tanh, backward_gelu_tanh},
    [ZM_GELU] = {forward_gelu, backward_gelu},
    [ZM_RELU] = {forward_relu, backward_relu},
    [ZM_SILU] = {forward_silu, backward_silu},
};

bool zx_cpu_activation_forward(zx_backend *b, zx_real *out, const zx_real *x, zm_activation kind,
                               int64_t n, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n);
    (void)err;
    assert(kind >= 0 && kind < ZM_N_ACTIVATIONS);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range range = zx_cpu_part(n, 16, n_threads, part);
        table[kind].forward(out, x, range.first, range.end);
    }
    return true;
}

bool zx_cpu_activation_backward(zx_backend *b, zx_real *dx, const zx_real *dout, const zx_real *x,
                                zm_activation kind, int64_t n, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n);
    (void)err;
    assert(kind >= 0 && kind < ZM_N_ACTIVATIONS);
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range range = zx_cpu_part(n, 16, n_threads, part);
        table[kind].backward(dx, dout, x, range.first, range.end);
    }
    return true;
}

static ZX_CLONES void swiglu_range(zx_real *out, const zx_real *gate, const zx_real *up,
                                   int64_t first, int64_t end)
{
#pragma omp simd
    for (int64_t i = first; i < end; i++)
        out[i] = silu(gate[i]).value * up[i];
}

static ZX_CLONES void swiglu_backward_range(zx_real *dgate, zx_real *dup, const zx_real *dout,
                                            const zx_real *gate, const zx_real *up, int64_t first,
                                            int64_t end)
{
#pragma omp simd
    for (int64_t i = first; i < end; i++) {
        const value_slope g = silu(gate[i]);
        const zx_real d = dout[i];
        dup[i] = d * g.value;
        dgate[i] = d * up[i] * g.slope;
    }
}

bool zx_cpu_swiglu_forward(zx_backend *b, zx_real *out, const zx_real *gate, const zx_real *up,
                           int64_t n, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n);
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range range = zx_cpu_part(n, 16, n_threads, part);
        swiglu_range(out, gate, up, range.first, range.end);
    }
    return true;
}

bool zx_cpu_swiglu_backward(zx_backend *b, zx_real *dgate, zx_real *dup, const zx_real *dout,
                            const zx_real *gate, const zx_real *up, int64_t n, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, n);
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range range = zx_cpu_part(n, 16, n_threads, part);
        swiglu_backward_range(dgate, dup, dout, gate, up, range.first, range.end);
    }
    return true;
}
