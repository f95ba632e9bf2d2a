#include "executor/cpu/kernels.h"
#include "executor/cpu/vector_math.h"

#include <string.h>

/* Queries are taken in blocks; a block sees the keys up to its last query, so that of the T x T
 * scores only a staircase above the diagonal is computed and only QUERY_BLOCK rows exist at a time.
 * The products over a block are the BLAS's, on the thread that owns the (sample, head). */
enum { QUERY_BLOCK = 64 };

/* One head of one sample. Rows are row_stride apart in q, k, v and their gradients, C apart in out
 * and its gradient. */
typedef struct head {
    const zx_real *q, *k, *v;
    int64_t row_stride;
    int C;
    int d; /* C / n_heads */
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

static head head_of(const zx_real *qkv, zx_real *scratch, int64_t index, int T, int C, int n_heads)
{
    const int64_t sample = index / n_heads;
    const int d = C / n_heads;
    const zx_real *q = qkv + sample * T * 3 * C + index % n_heads * d;
    const int64_t ld = score_stride(T);
    return (head){.q = q,
                  .k = q + C,
                  .v = q + 2 * (int64_t)C,
                  .row_stride = 3 * (int64_t)C,
                  .C = C,
                  .d = d,
                  .T = T,
                  .scale = (zx_real)(1 / sqrt((double)d)),
                  .scores = scratch,
                  .dscores = scratch + QUERY_BLOCK * ld,
                  .ld = ld};
}

/* Scaled scores of queries [first, end) against keys [0, end). */
static void block_scores(const head *h, int first, int end)
{
    zx_cpu_gemm(false, true, end - first, end, h->d, h->scale, h->q + first * h->row_stride,
                h->row_stride, h->k, h->row_stride, 0, h->scores, h->ld);
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
        zx_real *out_block = out + (int64_t)first * h->C;
        block_scores(h, first, end);
        block_softmax(h, inverse_sum, lse, first, end);
        zx_cpu_gemm(false, false, end - first, h->d, end, 1, h->scores, h->ld, h->v, h->row_stride,
                    0, out_block, h->C);
        scale_rows(out_block, inverse_sum, end - first, h->d, h->C);
    }
}

bool zx_cpu_attention_forward(zx_backend *b, zx_real *out, zx_real *lse, const zx_real *qkv, int B,
                              int T, int C, int n_heads, zs_error *err)
{
    zx_cpu *cpu = (zx_cpu *)b;
    const int n_threads = zx_cpu_threads(b, (int64_t)B * T * T * C / ZX_GEMM_SPEED);
    const int64_t n_items = (int64_t)B * n_heads;
    const int64_t per_thread = scratch_elements(T);
    void *scratch;
    if (B == 0 || T == 0)
        return true;
    if (!zx_cpu_scratch(cpu, &scratch, n_threads * per_thread * (int64_t)sizeof(zx_real), err))
        return false;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range items = zx_cpu_part(n_items, 1, n_threads, part);
        for (int64_t i = items.first; i < items.end; i++) {
            const head h = head_of(qkv, (zx_real *)scratch + part * per_thread, i, T, C, n_heads);
            forward_head(&h, out + i / n_heads * T * C + i % n_heads * h.d, lse + i * T);
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
        const zx_real *dout_row = dout + (int64_t)row * h->C;
        const zx_real *out_row = out + (int64_t)row * h->C;
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

static void backward_head(const head *h, zx_real *dq, const zx_real *dout, const zx_real *out,
                          const zx_real *lse)
{
    zx_real *dk = dq + h->C;
    zx_real *dv = dq + 2 * (int64_t)h->C;
    const int64_t stride = h->row_stride;
    const int last_first = (h->T - 1) / QUERY_BLOCK * QUERY_BLOCK;
    /* From the last block, which sees every key and so writes all of dk and dv. */
    for (int first = last_first; first >= 0; first -= QUERY_BLOCK) {
        const int end = first + QUERY_BLOCK < h->T ? first + QUERY_BLOCK : h->T;
        const zx_real *dout_block = dout + (int64_t)first * h->C;
        const zx_real beta = first == last_first ? 0 : 1;
        const int n = end - first;
        block_scores(h, first, end);
        zx_cpu_gemm(false, true, n, end, h->d, 1, dout_block, h->C, h->v, stride, 0, h->dscores,
                    h->ld);
        block_dscores(h, dout, out, lse, first, end);
        zx_cpu_gemm(true, false, end, h->d, n, 1, h->scores, h->ld, dout_block, h->C, beta, dv,
                    stride);
        zx_cpu_gemm(false, false, n, h->d, end, h->scale, h->dscores, h->ld, h->k, stride, 0,
                    dq + first * stride, stride);
        zx_cpu_gemm(true, false, end, h->d, n, h->scale, h->dscores, h->ld, h->q + first * stride,
                    stride, beta, dk, stride);
    }
}

bool zx_cpu_attention_backward(zx_backend *b, zx_real *dqkv, const zx_real *dout,
                               const zx_real *qkv, const zx_real *out, const zx_real *lse, int B,
                               int T, int C, int n_heads, zs_error *err)
{
    zx_cpu *cpu = (zx_cpu *)b;
    const int n_threads = zx_cpu_threads(b, (int64_t)B * T * T * C / ZX_GEMM_SPEED);
    const int64_t n_items = (int64_t)B * n_heads;
    const int64_t per_thread = scratch_elements(T);
    void *scratch;
    if (B == 0 || T == 0)
        return true;
    if (!zx_cpu_scratch(cpu, &scratch, n_threads * per_thread * (int64_t)sizeof(zx_real), err))
        return false;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range items = zx_cpu_part(n_items, 1, n_threads, part);
        for (int64_t i = items.first; i < items.end; i++) {
            const head h = head_of(qkv, (zx_real *)scratch + part * per_thread, i, T, C, n_heads);
            const int64_t at = i / n_heads * T * C + i % n_heads * h.d;
            backward_head(&h, dqkv + (h.q - qkv), dout + at, out + at, lse + i * T);
        }
    }
    return true;
}
