#include "tests/kernels/support.h"

#include "executor/cpu/kernels.h"
#include "shared/rng.h"

#include <math.h>
#include <stdlib.h>

zx_backend *support_open(int n_threads)
{
    zx_backend *b = NULL;
    zs_error err;
    if (!zx_backend_cpu.open(&b, 0, n_threads, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    /* Sizes here are small; every thread is to have its part. */
    ((zx_cpu *)b)->work_per_thread = 1;
    return b;
}

zx_real *support_zeros(zx_backend *b, int64_t n)
{
    void *memory = NULL;
    zs_error err;
    if (!b->ops->alloc(b, &memory, n * (int64_t)sizeof(zx_real), "test", &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    return (zx_real *)memory;
}

zx_real *support_random(zx_backend *b, uint64_t seed, int64_t n, double size)
{
    zx_real *out = support_zeros(b, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (zx_real)(float)(size * (2 * zs_rng_uniform(seed, ZS_RNG_TEST, (uint64_t)i) - 1));
    return out;
}

void support_shift(zx_real *x, int64_t n, double offset)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (zx_real)(float)((double)x[i] + offset);
}

void support_tokens(int32_t *out, uint64_t seed, int64_t n, int n_vocab)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = (int32_t)(zs_rng_u64(seed, ZS_RNG_TEST, (uint64_t)i) % (uint64_t)n_vocab);
}

zx_attention support_attention(int B, int T, int n_heads, int n_kv_heads, int head_size,
                               bool packed)
{
    const int64_t width = (int64_t)(n_heads + 2 * n_kv_heads) * head_size;
    return (zx_attention){.B = B,
                          .T = T,
                          .n_heads = n_heads,
                          .n_kv_heads = n_kv_heads,
                          .head_size = head_size,
                          .q_stride = packed ? width : (int64_t)n_heads * head_size,
                          .kv_stride = packed ? width : (int64_t)n_kv_heads * head_size};
}

static int64_t tensors_apart(const zx_attention *s, int n_heads)
{
    const int64_t width = (int64_t)n_heads * s->head_size;
    return s->q_stride == s->kv_stride && s->q_stride > (int64_t)s->n_heads * s->head_size
               ? width
               : width * s->B * s->T;
}

int64_t support_k_offset(const zx_attention *shape)
{
    return tensors_apart(shape, shape->n_heads);
}

int64_t support_v_offset(const zx_attention *shape)
{
    return support_k_offset(shape) + tensors_apart(shape, shape->n_kv_heads);
}

double support_dot(const zx_real *a, const zx_real *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

double support_nmse(const double *a, const double *b, int64_t n)
{
    double error = 0;
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return norm > 0 ? error / norm : error;
}

void support_check_gradient(const char *what, support_loss loss, void *context, zx_real *x,
                            const zx_real *gradient, int64_t n, int64_t max_entries)
{
    /* Truncation h^2 f''' / 6 and rounding 1e-16 f / h are then both near 1e-11. */
    const double h = 2e-5;
    const int64_t stride = n > max_entries ? n / max_entries : 1;
    double error = 0;
    double norm = 0;
    for (int64_t i = 0; i < n; i += stride) {
        const zx_real saved = x[i];
        const zx_real up = saved + (zx_real)h;
        const zx_real down = saved - (zx_real)h;
        x[i] = up;
        const double above = loss(context);
        x[i] = down;
        const double below = loss(context);
        x[i] = saved;
        const double difference = (above - below) / ((double)up - (double)down);
        const double off = (double)gradient[i] - difference;
        error += off * off;
        norm += difference * difference;
    }
    CHECK(norm > 0, "%s: the loss does not depend on it", what);
    CHECK(sqrt(error) <= 1e-6 * sqrt(norm), "%s: relative error %.3g", what, sqrt(error / norm));
}
