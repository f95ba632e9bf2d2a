/* Gradients of every kernel against central differences, in double precision. */
#include "tests/kernels/support.h"

#include <string.h>

enum { ENTRIES = 120 };

typedef struct linear_case {
    zx_backend *b;
    zx_real *x, *weight, *bias, *residual, *out, *dout;
    int64_t n;
    int n_in, n_out;
    bool input_major;
} linear_case;

static double linear_loss(void *context)
{
    const linear_case *c = (const linear_case *)context;
    zs_error err;
    CHECK(c->b->ops->linear_forward(c->b, c->out, c->x, c->weight, c->bias, c->residual, c->n,
                                    c->n_in, c->n_out, c->input_major, &err),
          "%s", err.message);
    return support_dot(c->out, c->dout, c->n * c->n_out);
}

static void check_linear(int n_threads, bool input_major)
{
    zx_backend *b = support_open(n_threads);
    zs_error err;
    linear_case c = {.b = b, .n = 21, .n_in = 24, .n_out = 37, .input_major = input_major};
    const int64_t n_x = c.n * c.n_in;
    const int64_t n_out = c.n * c.n_out;
    const int64_t n_weight = (int64_t)c.n_in * c.n_out;
    c.x = support_random(b, 1, n_x, 1);
    c.weight = support_random(b, 2, n_weight, 1);
    c.bias = support_random(b, 3, c.n_out, 1);
    c.residual = support_random(b, 4, n_out, 1);
    c.out = support_zeros(b, n_out);
    c.dout = support_random(b, 5, n_out, 1);
    zx_real *dx = support_random(b, 6, n_x, 1);
    zx_real *dx_before = support_random(b, 6, n_x, 1);
    zx_real *dweight = support_random(b, 7, n_weight, 1);
    zx_real *dweight_before = support_random(b, 7, n_weight, 1);
    zx_real *dbias = support_zeros(b, c.n_out);
    CHECK(b->ops->linear_backward(b, dx, dweight, dbias, c.dout, c.x, c.weight, c.n, c.n_in,
                                  c.n_out, input_major, false, &err),
          "%s", err.message);
    for (int64_t i = 0; i < n_weight; i++)
        dweight[i] -= dweight_before[i]; /* it accumulates */
    support_check_gradient("linear x", linear_loss, &c, c.x, dx, n_x, ENTRIES);
    support_check_gradient("linear weight", linear_loss, &c, c.weight, dweight, n_weight, ENTRIES);
    support_check_gradient("linear bias", linear_loss, &c, c.bias, dbias, c.n_out, ENTRIES);
    support_check_gradient("linear residual", linear_loss, &c, c.residual, c.dout, n_out, ENTRIES);

    memcpy(dx, dx_before, (size_t)n_x * sizeof(zx_real));
    CHECK(b->ops->linear_backward(b, dx, NULL, NULL, c.dout, c.x, c.weight, c.n, c.n_in, c.n_out,
                                  input_major, true, &err),
          "%s", err.message);
    for (int64_t i = 0; i < n_x; i++)
        dx[i] -= dx_before[i];
    support_check_gradient("linear x, accumulated", linear_loss, &c, c.x, dx, n_x, ENTRIES);

    /* In place on the residual, and without a bias. */
    zx_real *in_place = support_random(b, 4, n_out, 1);
    linear_loss(&c);
    CHECK(b->ops->linear_forward(b, in_place, c.x, c.weight, c.bias, in_place, c.n, c.n_in, c.n_out,
                                 input_major, &err),
          "%s", err.message);
    CHECK(memcmp(in_place, c.out, (size_t)n_out * sizeof(zx_real)) == 0, "residual in place");
    c.bias = NULL;
    c.residual = NULL;
    CHECK(b->ops->linear_backward(b, dx, NULL, NULL, c.dout, c.x, c.weight, c.n, c.n_in, c.n_out,
                                  input_major, false, &err),
          "%s", err.message);
    support_check_gradient("linear x alone", linear_loss, &c, c.x, dx, n_x, ENTRIES);
    b->ops->close(&b);
}

typedef struct embedding_case {
    zx_backend *b;
    const int32_t *tokens;
    zx_real *wte, *wpe, *out, *dout;
    int B, T, C;
} embedding_case;

static double embedding_loss(void *context)
{
    const embedding_case *c = (const embedding_case *)context;
    zs_error err;
    CHECK(c->b->ops->embedding_forward(c->b, c->out, c->tokens, c->wte, c->wpe, c->B, c->T, c->C,
                                       &err),
          "%s", err.message);
    return support_dot(c->out, c->dout, (int64_t)c->B * c->T * c->C);
}

static void check_embedding(int n_threads, bool positions)
{
    enum { B = 3, T = 7, C = 24, V = 5, MAX_T = 9 };
    zx_backend *b = support_open(n_threads);
    zs_error err;
    int32_t tokens[B * T];
    support_tokens(tokens, 11, B * T, V); /* more rows than tokens: some repeat */
    embedding_case c = {.b = b, .tokens = tokens, .B = B, .T = T, .C = C};
    c.wte = support_random(b, 12, V * C, 1);
    c.wpe = positions ? support_random(b, 13, MAX_T * C, 1) : NULL;
    c.out = support_zeros(b, B * T * C);
    c.dout = support_random(b, 14, B * T * C, 1);
    zx_real *dwte = support_zeros(b, V * C);
    zx_real *dwpe = positions ? support_zeros(b, MAX_T * C) : NULL;
    CHECK(b->ops->embedding_backward(b, dwte, dwpe, tokens, c.dout, B, T, C, &err), "%s",
          err.message);
    support_check_gradient("wte", embedding_loss, &c, c.wte, dwte, V * C, ENTRIES);
    if (positions)
        support_check_gradient("wpe", embedding_loss, &c, c.wpe, dwpe, MAX_T * C, MAX_T * C);
    b->ops->close(&b);
}

typedef struct layernorm_case {
    zx_backend *b;
    zx_real *x, *weight, *bias, *mean, *rstd, *out, *dout;
    int64_t n;
    int C;
} layernorm_case;

static double layernorm_loss(void *context)
{
    const layernorm_case *c = (const layernorm_case *)context;
    zs_error err;
    CHECK(c->b->ops->layernorm_forward(c->b, c->out, c->mean, c->rstd, c->x, c->weight, c->bias,
                                       c->n, c->C, 1e-5, &err),
          "%s", err.message);
    return support_dot(c->out, c->dout, c->n * c->C);
}

static void check_layernorm(int n_threads, int C)
{
    zx_backend *b = support_open(n_threads);
    zs_error err;
    layernorm_case c = {.b = b, .n = 21, .C = C};
    const int64_t n_x = c.n * C;
    c.x = support_random(b, 21, n_x, 1);
    c.weight = support_random(b, 22, C, 1);
    c.bias = support_random(b, 23, C, 1);
    c.mean = support_zeros(b, c.n);
    c.rstd = support_zeros(b, c.n);
    c.out = support_zeros(b, n_x);
    c.dout = support_random(b, 24, n_x, 1);
    zx_real *dx = support_random(b, 25, n_x, 1);
    zx_real *dweight = support_zeros(b, C);
    zx_real *dbias = support_zeros(b, C);
    layernorm_loss(&c);
    CHECK(b->ops->layernorm_backward(b, dx, dweight, dbias, NULL, c.dout, c.x, c.weight, c.mean,
                                     c.rstd, c.n, C, &err),
          "%s", err.message);
    support_check_gradient("norm x", layernorm_loss, &c, c.x, dx, n_x, ENTRIES);
    support_check_gradient("norm weight", layernorm_loss, &c, c.weight, dweight, C, ENTRIES);
    support_check_gradient("norm bias", layernorm_loss, &c, c.bias, dbias, C, ENTRIES);

    /* The skip connection's gradient is added, also in place. */
    zx_real *with_skip = support_random(b, 26, n_x, 1);
    zx_real *skip = support_random(b, 26, n_x, 1);
    CHECK(b->ops->layernorm_backward(b, with_skip, dweight, dbias, with_skip, c.dout, c.x, c.weight,
                                     c.mean, c.rstd, c.n, C, &err),
          "%s", err.message);
    for (int64_t i = 0; i < n_x; i++)
        CHECK_NEAR((double)with_skip[i], (double)(dx[i] + skip[i]), 1e-14);
    b->ops->close(&b);
}

typedef struct rmsnorm_case {
    zx_backend *b;
    zx_real *x, *weight, *rstd, *out, *dout;
    int64_t n;
    int C;
} rmsnorm_case;

static double rmsnorm_loss(void *context)
{
    const rmsnorm_case *c = (const rmsnorm_case *)context;
    zs_error err;
    CHECK(
        c->b->ops->rmsnorm_forward(c->b, c->out, c->rstd, c->x, c->weight, c->n, c->C, 1e-5, &err),
        "%s", err.message);
    return support_dot(c->out, c->dout, c->n * c->C);
}

static void check_rmsnorm(int n_threads, int C)
{
    zx_backend *b = support_open(n_threads);
    zs_error err;
    rmsnorm_case c = {.b = b, .n = 71, .C = C};
    const int64_t n_x = c.n * C;
    c.x = support_random(b, 21, n_x, 1);
    c.weight = support_random(b, 22, C, 1);
    c.rstd = support_zeros(b, c.n);
    c.out = support_zeros(b, n_x);
    c.dout = support_random(b, 24, n_x, 1);
    zx_real *dx = support_random(b, 25, n_x, 1);
    zx_real *dweight = support_random(b, 23, C, 1);
    zx_real *dweight_before = support_random(b, 23, C, 1);
    rmsnorm_loss(&c);
    CHECK(
        b->ops->rmsnorm_backward(b, dx, dweight, NULL, c.dout, c.x, c.weight, c.rstd, c.n, C, &err),
        "%s", err.message);
    for (int i = 0; i < C; i++)
        dweight[i] -= dweight_before[i]; /* it accumulates */
    support_check_gradient("rms norm x", rmsnorm_loss, &c, c.x, dx, n_x, ENTRIES);
    support_check_gradient("rms norm weight", rmsnorm_loss, &c, c.weight, dweight, C, ENTRIES);

    zx_real *with_skip = support_random(b, 26, n_x, 1);
    zx_real *skip = support_random(b, 26, n_x, 1);
    CHECK(b->ops->rmsnorm_backward(b, with_skip, dweight, with_skip, c.dout, c.x, c.weight, c.rstd,
                                   c.n, C, &err),
          "%s", err.message);
    for (int64_t i = 0; i < n_x; i++)
        CHECK_NEAR((double)with_skip[i], (double)(dx[i] + skip[i]), 1e-14);
    b->ops->close(&b);
}

typedef struct attention_case {
    zx_backend *b;
    zx_real *qkv, *lse, *out, *dout;
    zx_attention shape;
} attention_case;

static double attention_loss(void *context)
{
    const attention_case *c = (const attention_case *)context;
    const zx_attention *s = &c->shape;
    zs_error err;
    CHECK(c->b->ops->attention_forward(c->b, c->out, c->lse, c->qkv, c->qkv + support_k_offset(s),
                                       c->qkv + support_v_offset(s), s, &err),
          "%s", err.message);
    return support_dot(c->out, c->dout, (int64_t)s->B * s->T * s->n_heads * s->head_size);
}

static void check_attention(int n_threads, zx_attention shape, double size)
{
    zx_backend *b = support_open(n_threads);
    zs_error err;
    attention_case c = {.b = b, .shape = shape};
    const int64_t rows = (int64_t)shape.B * shape.T;
    const int64_t n_out = rows * shape.n_heads * shape.head_size;
    const int64_t n_qkv = n_out + 2 * rows * shape.n_kv_heads * shape.head_size;
    c.qkv = support_random(b, 31, n_qkv, size);
    c.lse = support_zeros(b, rows * shape.n_heads);
    c.out = support_zeros(b, n_out);
    c.dout = support_random(b, 32, n_out, 1);
    zx_real *dqkv = support_random(b, 33, n_qkv, 1); /* is overwritten, not added to */
    const int64_t k = support_k_offset(&shape);
    const int64_t v = support_v_offset(&shape);
    attention_loss(&c);
    CHECK(b->ops->attention_backward(b, dqkv, dqkv + k, dqkv + v, c.dout, c.qkv, c.qkv + k,
                                     c.qkv + v, c.out, c.lse, &shape, &err),
          "%s", err.message);
    support_check_gradient("attention", attention_loss, &c, c.qkv, dqkv, n_qkv, 400);
    b->ops->close(&b);
}

typedef struct rotary_case {
    zx_backend *b;
    zx_real *x, *work, *dout;
    int B, T, n_heads, head_size;
} rotary_case;

static double rotary_loss(void *context)
{
    const rotary_case *c = (const rotary_case *)context;
    const int64_t n = (int64_t)c->B * c->T * c->n_heads * c->head_size;
    zs_error err;
    memcpy(c->work, c->x, (size_t)n * sizeof(zx_real));
    CHECK(c->b->ops->rotary(c->b, c->work, 1e4, false, c->B, c->T, c->n_heads, c->head_size, &err),
          "%s", err.message);
    return support_dot(c->work, c->dout, n);
}

static void check_rotary(int n_threads, int B, int T, int n_heads, int head_size)
{
    zx_backend *b = support_open(n_threads);
    zs_error err;
    rotary_case c = {.b = b, .B = B, .T = T, .n_heads = n_heads, .head_size = head_size};
    const int64_t n = (int64_t)B * T * n_heads * head_size;
    c.x = support_random(b, 34, n, 1);
    c.work = support_zeros(b, n);
    c.dout = support_random(b, 35, n, 1);
    zx_real *dx = support_random(b, 35, n, 1);
    CHECK(b->ops->rotary(b, dx, 1e4, true, B, T, n_heads, head_size, &err), "%s", err.message);
    support_check_gradient("rotary", rotary_loss, &c, c.x, dx, n, ENTRIES);
    b->ops->close(&b);
}

typedef struct swiglu_case {
    zx_backend *b;
    zx_real *gate, *up, *out, *dout;
    int64_t n;
} swiglu_case;

static double swiglu_loss(void *context)
{
    const swiglu_case *c = (const swiglu_case *)context;
    zs_error err;
    CHECK(c->b->ops->swiglu_forward(c->b, c->out, c->gate, c->up, c->n, &err), "%s", err.message);
    return support_dot(c->out, c->dout, c->n);
}

static void check_swiglu(int n_threads)
{
    enum { N = 301 };
    zx_backend *b = support_open(n_threads);
    zs_error err;
    swiglu_case c = {.b = b, .n = N};
    c.gate = support_random(b, 43, N, 5);
    c.up = support_random(b, 44, N, 2);
    c.out = support_zeros(b, N);
    c.dout = support_random(b, 45, N, 1);
    zx_real *dgate = support_random(b, 45, N, 1); /* in place */
    zx_real *dup = support_random(b, 46, N, 1);
    CHECK(b->ops->swiglu_backward(b, dgate, dup, dgate, c.gate, c.up, N, &err), "%s", err.message);
    support_check_gradient("gate", swiglu_loss, &c, c.gate, dgate, N, N);
    support_check_gradient("up", swiglu_loss, &c, c.up, dup, N, N);
    b->ops->close(&b);
}

typedef struct activation_case {
    zx_backend *b;
    zx_real *x, *out, *dout;
    zm_activation kind;
    int64_t n;
} activation_case;

static double activation_loss(void *context)
{
    const activation_case *c = (const activation_case *)context;
    zs_error err;
    CHECK(c->b->ops->activation_forward(c->b, c->out, c->x, c->kind, c->n, &err), "%s",
          err.message);
    return support_dot(c->out, c->dout, c->n);
}

static void check_activation(int n_threads, zm_activation kind)
{
    enum { N = 301 };
    zx_backend *b = support_open(n_threads);
    zs_error err;
    activation_case c = {.b = b, .kind = kind, .n = N};
    c.x = support_random(b, 41, N, 5);
    c.out = support_zeros(b, N);
    c.dout = support_random(b, 42, N, 1);
    zx_real *dx = support_random(b, 42, N, 1);
    CHECK(b->ops->activation_backward(b, dx, dx, c.x, kind, N, &err), "%s", err.message);
    support_check_gradient("activation", activation_loss, &c, c.x, dx, N, N);
    b->ops->close(&b);
}

typedef struct cross_entropy_case {
    zx_backend *b;
    const int32_t *targets;
    zx_real *logits, *work;
    int64_t n;
    int V;
    double scale;
} cross_entropy_case;

static double cross_entropy_loss(void *context)
{
    const cross_entropy_case *c = (const cross_entropy_case *)context;
    zs_error err;
    double loss = 0;
    CHECK(c->b->ops->cross_entropy(c->b, &loss, c->logits, c->targets, c->n, c->V, 0, &err), "%s",
          err.message);
    return loss * c->scale;
}

static void check_cross_entropy(int n_threads, int V)
{
    enum { N = 13 };
    zx_backend *b = support_open(n_threads);
    zs_error err;
    int32_t targets[N];
    double loss = 0;
    support_tokens(targets, 51, N, V);
    targets[3] = -1;
    cross_entropy_case c = {.b = b, .targets = targets, .n = N, .V = V, .scale = 1.0 / 12};
    c.logits = support_random(b, 52, N * V, 4);
    zx_real *gradient = support_random(b, 52, N * V, 4);
    CHECK(b->ops->cross_entropy(b, &loss, gradient, targets, N, V, c.scale, &err), "%s",
          err.message);
    CHECK_NEAR(loss * c.scale, cross_entropy_loss(&c), 1e-14);
    support_check_gradient("cross entropy", cross_entropy_loss, &c, c.logits, gradient, N * V, 400);
    for (int j = 0; j < V; j++)
        CHECK(gradient[3 * V + j] == 0, "a row without a target has gradient %g",
              (double)gradient[3 * V + j]);
    b->ops->close(&b);
}

int main(void)
{
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        check_linear(n_threads, true);
        check_linear(n_threads, false);
        check_embedding(n_threads, true);
        check_embedding(n_threads, false);
        check_layernorm(n_threads, 24);
        check_layernorm(n_threads, 37);
        check_rmsnorm(n_threads, 24);
        check_rmsnorm(n_threads, 37);
        check_attention(n_threads, support_attention(3, 7, 3, 3, 8, true), 1);
        check_attention(n_threads, support_attention(1, 65, 3, 3, 8, true), 3);
        check_attention(n_threads, support_attention(1, 131, 2, 2, 5, false), 1);
        check_attention(n_threads, support_attention(2, 1, 2, 2, 4, true), 1);
        check_attention(n_threads, support_attention(3, 7, 6, 3, 5, false), 1);
        check_attention(n_threads, support_attention(1, 65, 4, 1, 3, false), 2);
        check_attention(n_threads, support_attention(2, 131, 8, 2, 2, true), 1);
        check_rotary(n_threads, 3, 7, 3, 2);
        check_rotary(n_threads, 2, 65, 2, 10);
        check_swiglu(n_threads);
        check_cross_entropy(n_threads, 29);
        check_cross_entropy(n_threads, 2500);
        for (int kind = 0; kind < ZM_N_ACTIVATIONS; kind++)
            check_activation(n_threads, (zm_activation)kind);
    }
    return check_done();
}
