#include "executor/cpu/kernels.h"
#include "executor/cpu/vector_math.h"

#include <string.h>

/* Queries are taken in blocks; a block sees the keys up to its last query, so that of the T x T
 * scores only a staircase above the diagonal is computed and only QUERY_BLOCK rows exist at a time.
 * The products over a block are the BLAS's, on the thread that owns the (sample, head). 64 was the
 * fastest of 64, 96 and 128 at T = 256 and T = 1024 (Zen 4, OpenBLAS 0.3.21). */
enum { QUERY_BLOCK = 64 };

/* One head of one sample: sizes are those of the call. */
typedef struct head {
    const zx_real *q, *k, *v;
    int64_t q_stride, kv_stride;
    int64_t out_stride; /* n_heads * head_size, of out and its gradient */
    int d;              /* head_size */
    int T;
    zx_real scale;    /* 1 / sqrt(d) */
    zx_real *scores;  /* (QUERY_BLOCK, ld) */
    zx_real *dscores; /* the same, for backward */
    int64_t ld;
} head;

/* Odd multiples of a cache line, lest a column of the block fall into one cache set. */
static int64_t score_stride(int T)
{
    return ((int64_t)T + 31) / 32 * 32 + 16;
}

static int64_t scratch_elements(int T)
{
    return 2 * QUERY_BLOCK * score_stride(T);
}

/* Where a head of a sample starts in out, in q, and in k and v. */
typedef struct place {
    int64_t out, q, kv;
} place;

static place place_of(const zx_attention *shape, int64_t sample, int index)
{
    const int group = shape->n_heads / shape->n_kv_heads;
    const int64_t row = sample * shape->T;
    const int64_t d = shape->head_size;
    return (place){.out = row * shape->n_heads * d + index * d,
                   .q = row * shape->q_stride + index * d,
                   .kv = row * shape->kv_stride + index / group * d};
}

static head head_at(const zx_attention *shape, place at, const zx_real *q, const zx_real *k,
                    const zx_real *v, zx_real *scratch)
{
    const int64_t ld = score_stride(shape->T);
    return (head){.q = q + at.q,
                  .k = k + at.kv,
                  .v = v + at.kv,
                  .q_stride = shape->q_stride,
                  .kv_stride = shape->kv_stride,
                  .out_stride = (int64_t)shape->n_heads * shape->head_size,
                  .d = shape->head_size,
                  .T = shape->T,
                  .scale = (zx_real)(1 / sqrt((double)shape->head_size)),
                  .scores = scratch,
                  .dscores = scratch + QUERY_BLOCK * ld,
                  .ld = ld};
}

/* Scaled scores of queries [first, end) against keys [0, end). */
static void block_scores(const head *h, int first, int end)
{
    zx_cpu_gemm(false, true, end - first, end, h->d, h->scale, h->q + first * h->q_stride,
                h->q_stride, h->k, h->kv_stride, 0, h->scores, h->ld);
}

/* Rows become exp(score - max) with zeros above the diagonal; 1 / sum and log-sum-exp per row. */
static ZX_CLONES void block_softmax(const head *h, zx_real *inverse_sum, zx_real *lse, int first,
                                    int end)
{
    for (int row = first; row < end; row++) {
        zx_real *s = h->scores + (row - first) * h->ld;
        const zx_real max = zx_max(s, row + 1);
        zx_real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int j = 0; j <= row; j++) {
            s[j] = zx_exp(s[j] - max);
            sum += s[j];
        }
        for (int j = row + 1; j < end; j++)
            s[j] = 0;
        inverse_sum[row - first] = 1 / sum;
        lse[row] = (zx_real)((double)max + log((double)sum));
    }
}

static ZX_CLONES void scale_rows(zx_real *out, const zx_real *factor, int n, int d, int64_t stride)
{
    for (int row = 0; row < n; row++) {
        zx_real *out_row = out + row * stride;
#pragma omp simd
        for (int i = 0; i < d; i++)
            out_row[i] *= factor[row];
    }
}

static void forward_head(const head *h, zx_real *out, zx_real *lse)
{
    zx_real inverse_sum[QUERY_BLOCK];
    for (int first = 0; first < h->T; first += QUERY_BLOCK) {
        const int end = first + QUERY_BLOCK < h->T ? first + QUERY_BLOCK : h->T;
        zx_real *out_block = out + first * h->out_stride;
        block_scores(h, first, end);
        block_softmax(h, inverse_sum, lse, first, end);
        zx_cpu_gemm(false, false, end - first, h->d, end, 1, h->scores, h->ld, h->v, h->kv_stride,
                    0, out_block, h->out_stride);
        scale_rows(out_block, inverse_sum, end - first, h->d, h->out_stride);
    }
}

static int threads_of(zx_backend *b, const zx_attention *shape)
{
    const int64_t rows = (int64_t)shape->B * shape->T;
    return zx_cpu_threads(b, rows * shape->T * shape->n_heads * shape->head_size / ZX_GEMM_SPEED);
}

bool zx_cpu_attention_forward(zx_backend *b, zx_real *out, zx_real *lse, const zx_real *q,
                              const zx_real *k, const zx_real *v, const zx_attention *shape,
                              zs_error *err)
{
    zx_cpu *cpu = (zx_cpu *)b;
    const int n_threads = threads_of(b, shape);
    const int n_heads = shape->n_heads;
    const int64_t per_thread = scratch_elements(shape->T);
    void *scratch;
    if (shape->B == 0 || shape->T == 0)
        return true;
    if (!zx_cpu_scratch(cpu, &scratch, n_threads * per_thread * (int64_t)sizeof(zx_real), err))
        return false;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range items = zx_cpu_part((int64_t)shape->B * n_heads, 1, n_threads, part);
        for (int64_t i = items.first; i < items.end; i++) {
            const place at = place_of(shape, i / n_heads, (int)(i % n_heads));
            const head h = head_at(shape, at, q, k, v, (zx_real *)scratch + part * per_thread);
            forward_head(&h, out + at.out, lse + i * shape->T);
        }
    }
    return true;
}

/* scores become probabilities P, dscores (dout V^T on entry) P (dP - D) with D = dout . out per
 * row: Dao et al., FlashAttention, NeurIPS 2022, alg. 4, lines 13 to 20. */
static ZX_CLONES void block_dscores(const head *h, const zx_real *dout, const zx_real *out,
                                    const zx_real *lse, int first, int end)
{
    for (int row = first; row < end; row++) {
        zx_real *p = h->scores + (row - first) * h->ld;
        zx_real *ds = h->dscores + (row - first) * h->ld;
        const zx_real *dout_row = dout + row * h->out_stride;
        const zx_real *out_row = out + row * h->out_stride;
        const zx_real lse_row = lse[row];
        zx_real dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int i = 0; i < h->d; i++)
            dot += dout_row[i] * out_row[i];
#pragma omp simd
        for (int j = 0; j <= row; j++) {
            p[j] = zx_exp(p[j] - lse_row);
            ds[j] = p[j] * (ds[j] - dot);
        }
        for (int j = row + 1; j < end; j++) {
            p[j] = 0;
            ds[j] = 0;
        }
    }
}

/* dk and dv are added to when accumulate. */
static void backward_head(const head *h, zx_real *dq, zx_real *dk, zx_real *dv, bool accumulate,
                          const zx_real *dout, const zx_real *out, const zx_real *lse)
{
    const int last_first = (h->T - 1) / QUERY_BLOCK * QUERY_BLOCK;
    /* From the last block, which sees every key and so writes all of dk and dv. */
    for (int first = last_first; first >= 0; first -= QUERY_BLOCK) {
        const int end = first + QUERY_BLOCK < h->T ? first + QUERY_BLOCK : h->T;
        const zx_real *dout_block = dout + first * h->out_stride;
        const zx_real beta = first == last_first && !accumulate ? 0 : 1;
        const int n = end - first;
        block_scores(h, first, end);
        zx_cpu_gemm(false, true, n, end, h->d, 1, dout_block, h->out_stride, h->v, h->kv_stride, 0,
                    h->dscores, h->ld);
        block_dscores(h, dout, out, lse, first, end);
        zx_cpu_gemm(true, false, end, h->d, n, 1, h->scores, h->ld, dout_block, h->out_stride, beta,
                    dv, h->kv_stride);
        zx_cpu_gemm(false, false, n, h->d, end, h->scale, h->dscores, h->ld, h->k, h->kv_stride, 0,
                    dq + first * h->q_stride, h->q_stride);
        zx_cpu_gemm(true, false, end, h->d, n, h->scale, h->dscores, h->ld,
                    h->q + first * h->q_stride, h->q_stride, beta, dk, h->kv_stride);
    }
}

bool zx_cpu_attention_backward(zx_backend *b, zx_real *dq, zx_real *dk, zx_real *dv,
                               const zx_real *dout, const zx_real *q, const zx_real *k,
                               const zx_real *v, const zx_real *out, const zx_real *lse,
                               const zx_attention *shape, zs_error *err)
{
    zx_cpu *cpu = (zx_cpu *)b;
    const int n_threads = threads_of(b, shape);
    const int n_kv = shape->n_kv_heads;
    const int group = shape->n_heads / n_kv;
    const int64_t per_thread = scratch_elements(shape->T);
    void *scratch;
    if (shape->B == 0 || shape->T == 0)
        return true;
    if (!zx_cpu_scratch(cpu, &scratch, n_threads * per_thread * (int64_t)sizeof(zx_real), err))
        return false;
        /* The heads of a group add to one dk and dv, so one thread takes them all. */
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range items = zx_cpu_part((int64_t)shape->B * n_kv, 1, n_threads, part);
        for (int64_t i = items.first * group; i < items.end * group; i++) {
            const place at = place_of(shape, i / shape->n_heads, (int)(i % shape->n_heads));
            const head h = head_at(shape, at, q, k, v, (zx_real *)scratch + part * per_thread);
            backward_head(&h, dq + at.q, dk + at.kv, dv + at.kv, i % group != 0, dout + at.out,
                          out + at.out, lse + i * shape->T);
        }
    }
    return true;
}
