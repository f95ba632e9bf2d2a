/* The float kernels against the same sources in double precision. This file is built twice: the
 * double program writes what it computes to stdout, the float program runs it (its path is the one
 * argument), computes the same from equal inputs and bounds the normalised mean squared error. */
#include "tests/kernels/stack.h"
#include "tests/kernels/support.h"

#include <stdlib.h>

static FILE *peer; /* float: to read from; double: NULL, output goes to stdout */

static void compare(const char *what, const zx_real *x, int64_t n)
{
    double *mine = (double *)malloc((size_t)n * sizeof(double));
    double *theirs = (double *)malloc((size_t)n * sizeof(double));
    for (int64_t i = 0; i < n; i++)
        mine[i] = (double)x[i];
    if (peer == NULL) {
        if (fwrite(mine, sizeof(double), (size_t)n, stdout) != (size_t)n)
            exit(1);
    } else {
        const size_t got = fread(theirs, sizeof(double), (size_t)n, peer);
        CHECK(got == (size_t)n, "%s: the double program ended early", what);
        const double nmse = got == (size_t)n ? support_nmse(mine, theirs, n) : 1;
        CHECK(nmse <= 1e-12, "%s: error %.3g", what, nmse);
    }
    free(mine);
    free(theirs);
}

static void linear(zx_backend *b, int64_t n, int n_in, int n_out, bool input_major)
{
    zs_error err;
    const int64_t n_weight = (int64_t)n_in * n_out;
    zx_real *x = support_random(b, 1, n * n_in, 1);
    zx_real *weight = support_random(b, 2, n_weight, 1);
    zx_real *bias = support_random(b, 3, n_out, 1);
    zx_real *dout = support_random(b, 4, n * n_out, 1);
    zx_real *residual = support_random(b, 5, n * n_out, 1);
    zx_real *out = support_zeros(b, n * n_out);
    zx_real *dx = support_zeros(b, n * n_in);
    zx_real *dweight = support_random(b, 6, n_weight, 1);
    zx_real *dbias = support_random(b, 7, n_out, 1);
    CHECK(b->ops->linear_forward(b, out, x, weight, bias, residual, n, n_in, n_out, input_major,
                                 &err) &&
              b->ops->linear_backward(b, dx, dweight, dbias, dout, x, weight, n, n_in, n_out,
                                      input_major, false, &err),
          "%s", err.message);
    compare("linear", out, n * n_out);
    compare("linear dx", dx, n * n_in);
    compare("linear dweight", dweight, n_weight);
    compare("linear dbias", dbias, n_out);
}

static void layernorm(zx_backend *b, int64_t n, int C, double offset)
{
    zs_error err;
    zx_real *x = support_random(b, 11, n * C, 1);
    support_shift(x, n * C, offset);
    zx_real *weight = support_random(b, 12, C, 1);
    zx_real *bias = support_random(b, 13, C, 1);
    zx_real *dout = support_random(b, 14, n * C, 1);
    zx_real *out = support_zeros(b, n * C);
    zx_real *mean = support_zeros(b, n);
    zx_real *rstd = support_zeros(b, n);
    zx_real *dx = support_zeros(b, n * C);
    zx_real *dweight = support_zeros(b, C);
    zx_real *dbias = support_zeros(b, C);
    CHECK(b->ops->layernorm_forward(b, out, mean, rstd, x, weight, bias, n, C, 1e-5, &err) &&
              b->ops->layernorm_backward(b, dx, dweight, dbias, NULL, dout, x, weight, mean, rstd,
                                         n, C, &err),
          "%s", err.message);
    compare("norm", out, n * C);
    compare("norm rstd", rstd, n);
    compare("norm dx", dx, n * C);
    compare("norm dweight", dweight, C);
    compare("norm dbias", dbias, C);
}

static void rmsnorm(zx_backend *b, int64_t n, int C)
{
    zs_error err;
    zx_real *x = support_random(b, 11, n * C, 1);
    zx_real *weight = support_random(b, 12, C, 1);
    zx_real *dout = support_random(b, 14, n * C, 1);
    zx_real *out = support_zeros(b, n * C);
    zx_real *rstd = support_zeros(b, n);
    zx_real *dx = support_zeros(b, n * C);
    zx_real *dweight = support_zeros(b, C);
    CHECK(b->ops->rmsnorm_forward(b, out, rstd, x, weight, n, C, 1e-6, &err) &&
              b->ops->rmsnorm_backward(b, dx, dweight, NULL, dout, x, weight, rstd, n, C, &err),
          "%s", err.message);
    compare("rms norm", out, n * C);
    compare("rms norm rstd", rstd, n);
    compare("rms norm dx", dx, n * C);
    compare("rms norm dweight", dweight, C);
}

static void attention(zx_backend *b, zx_attention shape, double size)
{
    zs_error err;
    const int64_t rows = (int64_t)shape.B * shape.T;
    const int64_t n_out = rows * shape.n_heads * shape.head_size;
    const int64_t n_qkv = n_out + 2 * rows * shape.n_kv_heads * shape.head_size;
    const int64_t k = support_k_offset(&shape);
    const int64_t v = support_v_offset(&shape);
    zx_real *qkv = support_random(b, 21, n_qkv, size);
    zx_real *dout = support_random(b, 22, n_out, 1);
    zx_real *out = support_zeros(b, n_out);
    zx_real *lse = support_zeros(b, rows * shape.n_heads);
    zx_real *dqkv = support_zeros(b, n_qkv);
    CHECK(b->ops->attention_forward(b, out, lse, qkv, qkv + k, qkv + v, &shape, &err) &&
              b->ops->attention_backward(b, dqkv, dqkv + k, dqkv + v, dout, qkv, qkv + k, qkv + v,
                                         out, lse, &shape, &err),
          "%s", err.message);
    compare("attention", out, n_out);
    compare("attention lse", lse, rows * shape.n_heads);
    compare("attention dqkv", dqkv, n_qkv);
}

static void rotary(zx_backend *b, int T, int n_heads, int head_size)
{
    const int64_t n = (int64_t)T * n_heads * head_size;
    zs_error err;
    zx_real *x = support_random(b, 23, n, 1);
    CHECK(b->ops->rotary(b, x, 5e5, false, 1, T, n_heads, head_size, &err), "%s", err.message);
    compare("rotary", x, n);
}

static void swiglu(zx_backend *b, double size)
{
    enum { N = 10007 };
    zs_error err;
    zx_real *gate = support_random(b, 33, N, size);
    zx_real *up = support_random(b, 34, N, 1);
    zx_real *dout = support_random(b, 35, N, 1);
    zx_real *out = support_zeros(b, N);
    zx_real *dup = support_zeros(b, N);
    CHECK(b->ops->swiglu_forward(b, out, gate, up, N, &err) &&
              b->ops->swiglu_backward(b, dout, dup, dout, gate, up, N, &err),
          "%s", err.message);
    compare("swiglu", out, N);
    compare("swiglu dgate", dout, N);
    compare("swiglu dup", dup, N);
}

static void activation(zx_backend *b, zm_activation kind, double size)
{
    enum { N = 10007 };
    zs_error err;
    zx_real *x = support_random(b, 31, N, size);
    zx_real *out = support_zeros(b, N);
    zx_real *dx = support_random(b, 32, N, 1);
    CHECK(b->ops->activation_forward(b, out, x, kind, N, &err) &&
              b->ops->activation_backward(b, dx, dx, x, kind, N, &err),
          "%s", err.message);
    compare("activation", out, N);
    compare("activation dx", dx, N);
}

static void cross_entropy(zx_backend *b, int64_t n, int V, double size)
{
    zs_error err;
    double loss = 0;
    zx_real *logits = support_random(b, 41, n * V, size);
    int32_t *targets = (int32_t *)malloc((size_t)n * sizeof(int32_t));
    support_tokens(targets, 42, n, V);
    CHECK(b->ops->cross_entropy(b, &loss, logits, targets, n, V, 1.0 / (double)n, &err), "%s",
          err.message);
    const zx_real loss_real = (zx_real)loss;
    compare("loss", &loss_real, 1);
    compare("dlogits", logits, n * V);
    free(targets);
}

static void adamw(zx_backend *b)
{
    enum { N = 1009 };
    zs_error err;
    zx_real *params = support_random(b, 51, N, 1);
    zx_real *m = support_zeros(b, N);
    zx_real *v = support_zeros(b, N);
    zx_real *grads = support_random(b, 52, N, 3);
    zx_adamw options = {1e-2, 0.9, 0.95, 1e-8, 0.1, 0.25, 0};
    for (options.step = 1; options.step <= 5; options.step++)
        CHECK(b->ops->adamw(b, params, m, v, grads, N, &options, &err), "%s", err.message);
    double norm2 = 0;
    CHECK(b->ops->sum_of_squares(b, &norm2, params, N, &err), "%s", err.message);
    const zx_real norm2_real = (zx_real)norm2;
    compare("adamw params", params, N);
    compare("adamw m", m, N);
    compare("adamw v", v, N);
    compare("sum of squares", &norm2_real, 1);
}

static void whole(zx_backend *b, zm_family family, int n_kv_heads, int B, int T)
{
    stack s;
    const zm_model model = stack_family(family, 2, 24, 4, n_kv_heads, 29, T, true);
    stack_open(&s, b, &model, B, T, 9);
    support_tokens(s.tokens, 71, (int64_t)B * T, model.n_vocab);
    support_tokens(s.targets, 72, (int64_t)B * T, model.n_vocab);
    const zx_real loss = (zx_real)stack_forward(&s, 1.0 / (B * T));
    stack_backward(&s);
    compare("model loss", &loss, 1);
    compare("model output", s.outs[model.n_blocks], (int64_t)B * T * model.n_channels);
    compare("model gradients", s.grads, s.n_params);
    stack_close(&s);
}

int main(int argc, char **argv)
{
    const bool is_float = sizeof(zx_real) == sizeof(float);
    if (is_float && argc != 2) {
        fprintf(stderr, "usage: %s DOUBLE_PROGRAM\n", argv[0]);
        return 2;
    }
    if (is_float && (peer = popen(argv[1], "r")) == NULL)
        return 1;
    zx_backend *b = support_open(2);
    linear(b, 21, 24, 37, true);
    linear(b, 21, 24, 37, false);
    linear(b, 195, 384, 130, true);
    linear(b, 1, 1, 1, false);
    layernorm(b, 21, 37, 0);
    layernorm(b, 300, 384, 0);
    layernorm(b, 5, 384, 10);
    rmsnorm(b, 21, 37);
    rmsnorm(b, 300, 384);
    attention(b, support_attention(3, 7, 3, 3, 8, true), 1);
    attention(b, support_attention(1, 65, 3, 3, 8, true), 3);
    attention(b, support_attention(2, 200, 1, 1, 64, true), 1);
    attention(b, support_attention(2, 1, 2, 2, 4, true), 1);
    attention(b, support_attention(2, 130, 8, 2, 16, false), 1);
    rotary(b, 4096, 2, 128);
    swiglu(b, 1);
    swiglu(b, 12);
    for (int kind = 0; kind < ZM_N_ACTIVATIONS; kind++) {
        activation(b, (zm_activation)kind, 1);
        activation(b, (zm_activation)kind, 12);
    }
    cross_entropy(b, 3, 5, 1);
    cross_entropy(b, 7, 50257, 3);
    adamw(b);
    whole(b, ZM_GPT2, 4, 3, 7);
    whole(b, ZM_GPT2, 4, 1, 65);
    whole(b, ZM_OPT, 4, 3, 7);
    whole(b, ZM_LLAMA, 4, 3, 7);
    whole(b, ZM_LLAMA, 2, 1, 65);
    b->ops->close(&b);
    if (peer == NULL)
        return fflush(stdout) == 0 ? 0 : 1;
    CHECK(fgetc(peer) == EOF, "the double program wrote more");
    CHECK(pclose(peer) == 0, "the double program failed");
    return check_done();
}
