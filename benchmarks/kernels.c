/* Time of each kernel inside a training step of one rank (forward, backward, AdamW, through
 * executor/layers.h), and of the whole step against the step's matrix products alone, measured in
 * turn on the same memory. README.md says what the columns mean. */
#include "shared/options.h"
#include "tests/kernels/stack.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct shape {
    const char *name;
    const char *what;
    int L, C, NH, V, B, T;
} shape;

static const shape shapes[] = {
    {"a", "GPT-2 124M, B=4 T=64", 12, 768, 12, 50257, 4, 64},
    {"b", "6 blocks, C=384, B=4 T=256", 6, 384, 6, 50257, 4, 256},
    {"c", "GPT-2 124M, B=1 T=1024", 12, 768, 12, 50257, 1, 1024},
};

enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]), MAX_REPEATS = 1000 };

static clockid_t bench_clock = CLOCK_MONOTONIC;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(bench_clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void must(bool ok, const zs_error *err)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", err->message);
    exit(err->code == ZS_OK ? 1 : (int)err->code);
}

/* The backend's table with a stop watch around each entry. */
typedef enum row_kind {
    LINEAR_FORWARD,
    LINEAR_BACKWARD,
    EMBEDDING_FORWARD,
    EMBEDDING_BACKWARD,
    NORM_FORWARD,
    NORM_BACKWARD,
    ATTENTION_FORWARD,
    ATTENTION_BACKWARD,
    ACTIVATION_FORWARD,
    ACTIVATION_BACKWARD,
    CROSS_ENTROPY,
    SUM_OF_SQUARES,
    ADAMW,
    ZERO,
    N_ROWS
} row_kind;

static const char *const row_names[N_ROWS] = {"linear forward",
                                              "linear backward",
                                              "embedding forward",
                                              "embedding backward",
                                              "norm forward",
                                              "norm backward",
                                              "attention forward",
                                              "attention backward",
                                              "activation forward",
                                              "activation backward",
                                              "cross entropy",
                                              "sum of squares",
                                              "adamw",
                                              "zero gradients"};

static struct {
    int calls;
    double ms, flops, bytes;
} rows[N_ROWS];

static const zx_backend_ops *inner;

/* elements: of the operands, each read or written once. */
#define TIMED(kind, n_flops, n_elements, call)                                                     \
    const double started_ms = now_ms();                                                            \
    const bool ok = inner->call;                                                                   \
    rows[kind].ms += now_ms() - started_ms;                                                        \
    rows[kind].calls++;                                                                            \
    rows[kind].flops += (n_flops);                                                                 \
    rows[kind].bytes += (n_elements) * (double)sizeof(zx_real);                                    \
    return ok

static bool linear_forward(zx_backend *b, zx_real *out, const zx_real *x, const zx_real *weight,
                           const zx_real *bias, const zx_real *residual, int64_t n, int n_in,
                           int n_out, bool input_major, zs_error *err)
{
    const double N = (double)n, I = n_in, O = n_out;
    TIMED(LINEAR_FORWARD, 2 * N * I * O, N * I + N * O + I * O,
          linear_forward(b, out, x, weight, bias, residual, n, n_in, n_out, input_major, err));
}

static bool linear_backward(zx_backend *b, zx_real *dx, zx_real *dweight, zx_real *dbias,
                            const zx_real *dout, const zx_real *x, const zx_real *weight, int64_t n,
                            int n_in, int n_out, bool input_major, bool accumulate_dx,
                            zs_error *err)
{
    const double N = (double)n, I = n_in, O = n_out;
    TIMED(LINEAR_BACKWARD, 4 * N * I * O, 2 * N * I + N * O + 3 * I * O,
          linear_backward(b, dx, dweight, dbias, dout, x, weight, n, n_in, n_out, input_major,
                          accumulate_dx, err));
}

static bool embedding_forward(zx_backend *b, zx_real *out, const int32_t *tokens,
                              const zx_real *wte, const zx_real *wpe, int B, int T, int C,
                              zs_error *err)
{
    const double n = (double)B * T * C;
    TIMED(EMBEDDING_FORWARD, n, 3 * n, embedding_forward(b, out, tokens, wte, wpe, B, T, C, err));
}

static bool embedding_backward(zx_backend *b, zx_real *dwte, zx_real *dwpe, const int32_t *tokens,
                               const zx_real *dout, int B, int T, int C, zs_error *err)
{
    const double n = (double)B * T * C;
    TIMED(EMBEDDING_BACKWARD, 2 * n, 5 * n,
          embedding_backward(b, dwte, dwpe, tokens, dout, B, T, C, err));
}

static bool layernorm_forward(zx_backend *b, zx_real *out, zx_real *mean, zx_real *rstd,
                              const zx_real *x, const zx_real *weight, const zx_real *bias,
                              int64_t n, int C, double eps, zs_error *err)
{
    const double nC = (double)n * C;
    TIMED(NORM_FORWARD, 8 * nC, 2 * nC,
          layernorm_forward(b, out, mean, rstd, x, weight, bias, n, C, eps, err));
}

static bool layernorm_backward(zx_backend *b, zx_real *dx, zx_real *dweight, zx_real *dbias,
                               const zx_real *dresidual, const zx_real *dout, const zx_real *x,
                               const zx_real *weight, const zx_real *mean, const zx_real *rstd,
                               int64_t n, int C, zs_error *err)
{
    const double nC = (double)n * C;
    TIMED(NORM_BACKWARD, 18 * nC, 4 * nC,
          layernorm_backward(b, dx, dweight, dbias, dresidual, dout, x, weight, mean, rstd, n, C,
                             err));
}

static bool attention_forward(zx_backend *b, zx_real *out, zx_real *lse, const zx_real *q,
                              const zx_real *k, const zx_real *v, const zx_attention *sizes,
                              zs_error *err)
{
    const double nC = (double)sizes->B * sizes->T * sizes->n_heads * sizes->head_size;
    TIMED(ATTENTION_FORWARD, 2 * nC * sizes->T, 4 * nC,
          attention_forward(b, out, lse, q, k, v, sizes, err));
}

static bool attention_backward(zx_backend *b, zx_real *dq, zx_real *dk, zx_real *dv,
                               const zx_real *dout, const zx_real *q, const zx_real *k,
                               const zx_real *v, const zx_real *out, const zx_real *lse,
                               const zx_attention *sizes, zs_error *err)
{
    const double nC = (double)sizes->B * sizes->T * sizes->n_heads * sizes->head_size;
    TIMED(ATTENTION_BACKWARD, 5 * nC * sizes->T, 8 * nC,
          attention_backward(b, dq, dk, dv, dout, q, k, v, out, lse, sizes, err));
}

static bool activation_forward(zx_backend *b, zx_real *out, const zx_real *x, zm_activation kind,
                               int64_t n, zs_error *err)
{
    TIMED(ACTIVATION_FORWARD, 25.0 * (double)n, 2.0 * (double)n,
          activation_forward(b, out, x, kind, n, err));
}

static bool activation_backward(zx_backend *b, zx_real *dx, const zx_real *dout, const zx_real *x,
                                zm_activation kind, int64_t n, zs_error *err)
{
    TIMED(ACTIVATION_BACKWARD, 33.0 * (double)n, 3.0 * (double)n,
          activation_backward(b, dx, dout, x, kind, n, err));
}

static bool cross_entropy(zx_backend *b, double *loss_sum, zx_real *logits, const int32_t *targets,
                          int64_t n, int V, double scale, zs_error *err)
{
    const double nV = (double)n * V;
    TIMED(CROSS_ENTROPY, 20 * nV, 2 * nV,
          cross_entropy(b, loss_sum, logits, targets, n, V, scale, err));
}

static bool sum_of_squares(zx_backend *b, double *sum, const zx_real *x, int64_t n, zs_error *err)
{
    TIMED(SUM_OF_SQUARES, 2.0 * (double)n, (double)n, sum_of_squares(b, sum, x, n, err));
}

static bool adamw(zx_backend *b, zx_real *params, zx_real *m, zx_real *v, const zx_real *grads,
                  int64_t n, const zx_adamw *options, zs_error *err)
{
    TIMED(ADAMW, 14.0 * (double)n, 7.0 * (double)n, adamw(b, params, m, v, grads, n, options, err));
}

static bool zero(zx_backend *b, void *device, int64_t size_bytes, zs_error *err)
{
    TIMED(ZERO, 0.0, (double)size_bytes / (double)sizeof(zx_real),
          zero(b, device, size_bytes, err));
}

static zx_backend_ops timed_ops(void)
{
    zx_backend_ops ops = *inner;
    ops.linear_forward = linear_forward;
    ops.linear_backward = linear_backward;
    ops.embedding_forward = embedding_forward;
    ops.embedding_backward = embedding_backward;
    ops.layernorm_forward = layernorm_forward;
    ops.layernorm_backward = layernorm_backward;
    ops.attention_forward = attention_forward;
    ops.attention_backward = attention_backward;
    ops.activation_forward = activation_forward;
    ops.activation_backward = activation_backward;
    ops.cross_entropy = cross_entropy;
    ops.sum_of_squares = sum_of_squares;
    ops.adamw = adamw;
    ops.zero = zero;
    return ops;
}

/* The three products of one matrix: out = x W, dx = dout W^T, dW += x^T dout, and nothing else. */
static void products(stack *s, zx_real *out, zx_real *dx, const zx_real *x, const zx_real *weight,
                     zx_real *dweight, int64_t n, int n_in, int n_out, bool input_major)
{
    zs_error err;
    must(inner->linear_forward(s->b, out, x, weight, NULL, NULL, n, n_in, n_out, input_major,
                               &err) &&
             inner->linear_backward(s->b, dx, dweight, NULL, out, x, weight, n, n_in, n_out,
                                    input_major, false, &err),
         &err);
}

/* The step's 3 (4 L + 1) products on the step's own matrices. */
static double roof_ms(stack *s)
{
    const int C = s->model.n_channels;
    const int F = s->model.n_ffn;
    const int64_t n = (int64_t)s->B * s->T;
    const int L = s->model.n_blocks;
    const double started_ms = now_ms();
    for (int i = 0; i < L; i++) {
        zx_real *const *p = s->layer_params[i + 1].at;
        zx_real *const *g = s->layer_grads[i + 1].at;
        zx_real *x = s->outs[i];
        zx_real *wide = s->acts[i];
        zx_real *dx = s->scratch;
        products(s, wide, dx, x, p[ZM_QKV_W], g[ZM_QKV_W], n, C, 3 * C, true);
        products(s, wide, dx, x, p[ZM_PROJ_W], g[ZM_PROJ_W], n, C, C, true);
        products(s, wide, dx, x, p[ZM_FC_W], g[ZM_FC_W], n, C, F, true);
        products(s, x, dx, wide, p[ZM_FCPROJ_W], g[ZM_FCPROJ_W], n, F, C, true);
    }
    products(s, s->head_acts, s->scratch, s->outs[L], s->layer_params[L + 1].at[ZM_WTE],
             s->layer_grads[L + 1].at[ZM_WTE], n, C, s->model.n_vocab, false);
    return now_ms() - started_ms;
}

static double step_ms(stack *s)
{
    const double started_ms = now_ms();
    stack_forward(s, 1.0 / (s->B * s->T));
    stack_backward(s);
    stack_step(s, 1e-4);
    return now_ms() - started_ms;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void run_shape(const shape *h, int n_threads, int n_repeats)
{
    static double roofs[MAX_REPEATS], steps[MAX_REPEATS], ratios[MAX_REPEATS];
    zx_backend *b = NULL;
    stack s;
    zs_error err;
    const zm_model model = stack_model(h->L, h->C, h->NH, h->V, h->T, true);
    const int n = h->B * h->T;
    must(zx_backend_cpu.open(&b, 0, n_threads, &err), &err);
    inner = &zx_backend_cpu;
    const zx_backend_ops timed = timed_ops();
    stack_open(&s, b, &model, h->B, h->T, 1);
    for (int i = 0; i < n; i++) {
        s.tokens[i] = (int32_t)((int64_t)i * 7919 % h->V);
        s.targets[i] = (int32_t)((int64_t)(i + 1) * 7919 % h->V);
    }
    roof_ms(&s); /* first touches, first threads */
    step_ms(&s);
    memset(rows, 0, sizeof(rows));
    for (int i = 0; i < n_repeats; i++) {
        const double before = roof_ms(&s);
        b->ops = &timed;
        steps[i] = step_ms(&s);
        b->ops = inner;
        roofs[i] = (before + roof_ms(&s)) / 2;
        ratios[i] = steps[i] / roofs[i];
        must(inner->zero(b, s.grads, s.n_params * (int64_t)sizeof(zx_real), &err), &err);
    }

    const double params = (double)s.n_params;
    printf("shape %s: %s, %.1f M parameters, %d threads, %d steps\n", h->name, h->what,
           params * 1e-6, n_threads, n_repeats);
    printf("  %-20s %6s %9s %7s %9s %7s\n", "kernel", "calls", "ms", "share", "GFLOP/s", "GB/s");
    double total_ms = 0;
    for (int i = 0; i < N_ROWS; i++)
        total_ms += rows[i].ms;
    for (int i = 0; i < N_ROWS; i++)
        printf("  %-20s %6d %9.2f %6.1f%% %9.1f %7.1f\n", row_names[i], rows[i].calls / n_repeats,
               rows[i].ms / n_repeats, 100 * rows[i].ms / total_ms,
               rows[i].flops / rows[i].ms / 1e6, rows[i].bytes / rows[i].ms / 1e6);
    const double C = h->C;
    const double product_flops = 6.0 * n * (12.0 * h->L * C * C + (double)h->V * C);
    const double roof = median(roofs, n_repeats);
    const double step = median(steps, n_repeats);
    printf("  products alone %.1f ms (%.1f GFLOP/s), step %.1f ms (%.0f tokens/s), "
           "step/products %.2f\n",
           roof, product_flops / roof / 1e6, step, n / step * 1e3, median(ratios, n_repeats));
    stack_close(&s);
    b->ops->close(&b);
}

/* clang-format off */
static const zs_option options_table[] = {
    {"shape",   's', ZS_OPTION_CHOICE, "NAME", "all",  0, 0,           "a|b|c|all",  "model and batch"},
    {"threads", 't', ZS_OPTION_INT,    "N",    "1",    1, 1024,        NULL,       "threads"},
    {"steps",   'n', ZS_OPTION_INT,    "N",    "5",    1, MAX_REPEATS, NULL,       "steps measured"},
    {"clock",   'c', ZS_OPTION_CHOICE, "NAME", "wall", 0, 0,           "wall|cpu", "cpu: time of "
        "this process alone, for one thread on a machine with other work"},
};
/* clang-format on */

static const zs_command command = {
    .name = "kernels",
    .arguments = "",
    .summary = "times the CPU kernels inside a training step",
    .details = "Example: kernels --shape a --threads 2",
    .options = options_table,
    .n_options = sizeof(options_table) / sizeof(options_table[0]),
};

int main(int argc, char **argv)
{
    zs_arena *arena = NULL;
    zs_options *options = NULL;
    bool help = false;
    zs_error err;
    must(zs_arena_open(&arena, &err) &&
             zs_options_parse(&options, &help, arena, &command, argc - 1, argv + 1, &err),
         &err);
    if (help) {
        zs_options_print_help(stdout, "benchmarks", "", &command, 1, &command);
        return 0;
    }
    const char *name = zs_options_string(options, "shape");
    if (strcmp(zs_options_string(options, "clock"), "cpu") == 0)
        bench_clock = CLOCK_PROCESS_CPUTIME_ID;
    for (int i = 0; i < N_SHAPES; i++) {
        if (strcmp(name, "all") == 0 || strcmp(name, shapes[i].name) == 0)
            run_shape(&shapes[i], (int)zs_options_int(options, "threads"),
                      (int)zs_options_int(options, "steps"));
    }
    zs_arena_close(&arena);
    return 0;
}
