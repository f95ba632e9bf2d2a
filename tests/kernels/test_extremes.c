/* The float kernels at known values, at the edges of their ranges, and with nothing to do. */
#include "executor/cpu/vector_math.h"
#include "tests/kernels/stack.h"
#include "tests/kernels/support.h"

#include <math.h>
#include <string.h>

/* Error in units of the last place of the correctly rounded result. */
static double ulps(float got, double exact)
{
    const float rounded = (float)exact;
    const double ulp = (double)nextafterf(fabsf(rounded), INFINITY) - (double)fabsf(rounded);
    return fabs((double)got - exact) / ulp;
}

static void check_exp(void)
{
    double worst = 0;
    for (double x = -87.3; x <= 88.0; x += 1.0 / 4099)
        worst = fmax(worst, ulps(zx_exp((float)x), exp((double)(float)x)));
    for (double x = -1; x <= 1; x += 1.0 / 1000003)
        worst = fmax(worst, ulps(zx_exp((float)x), exp((double)(float)x)));
    CHECK(worst <= 2, "exp is off by %.2f ulp", worst);
    CHECK(zx_exp(0.0f) == 1.0f, "exp(0) = %.9g", (double)zx_exp(0.0f));
    CHECK(zx_exp(-88.0f) == 0.0f && zx_exp(-INFINITY) == 0.0f, "small results are 0");
    CHECK(zx_exp(1000.0f) == zx_exp(88.0f), "large arguments saturate");
    CHECK(isnan(zx_exp(NAN)), "NaN stays NaN");
}

static void check_normal_cdf(void)
{
    double worst = 0;
    for (double x = -14; x <= 14; x += 1.0 / 4099) {
        const float xf = (float)x;
        const double exact = 0.5 * erfc(-(double)xf / sqrt(2.0));
        worst = fmax(worst, fabs((double)zx_normal_cdf(xf, zx_exp(-0.5f * xf * xf)) - exact));
    }
    CHECK(worst <= 2e-7, "normal distribution is off by %.3g", worst);
}

static float activate(zx_backend *b, zm_activation kind, float x)
{
    zs_error err;
    float out = 0;
    CHECK(b->ops->activation_forward(b, &out, &x, kind, 1, &err), "%s", err.message);
    return out;
}

static float slope(zx_backend *b, zm_activation kind, float x)
{
    zs_error err;
    float dx = 1;
    CHECK(b->ops->activation_backward(b, &dx, &dx, &x, kind, 1, &err), "%s", err.message);
    return dx;
}

static void check_activations(zx_backend *b)
{
    CHECK_NEAR((double)activate(b, ZM_GELU_TANH, 1), 0.8411920, 1e-7);
    CHECK_NEAR((double)activate(b, ZM_GELU, 1), 0.8413447, 1e-7);
    CHECK_NEAR((double)activate(b, ZM_GELU_TANH, -1), -0.1588080, 1e-7);
    CHECK_NEAR((double)activate(b, ZM_GELU, -1), -0.1586553, 1e-7);
    CHECK_NEAR((double)activate(b, ZM_SILU, 1), 0.7310586, 1e-7);
    for (int kind = 0; kind < ZM_N_ACTIVATIONS; kind++) {
        const zm_activation k = (zm_activation)kind;
        CHECK(activate(b, k, 0) == 0, "f(0)");
        CHECK(activate(b, k, 1e4f) == 1e4f, "f(1e4) = %g", (double)activate(b, k, 1e4f));
        CHECK(fabsf(activate(b, k, -1e4f)) < 1e-20f, "f(-1e4) = %g", (double)activate(b, k, -1e4f));
        CHECK(slope(b, k, 1e4f) == 1, "f'(1e4) = %g", (double)slope(b, k, 1e4f));
        CHECK(fabsf(slope(b, k, -1e4f)) < 1e-20f, "f'(-1e4) = %g", (double)slope(b, k, -1e4f));
        CHECK(isnan(activate(b, k, NAN)) || k == ZM_RELU, "NaN stays NaN");
    }
}

static void check_cross_entropy(zx_backend *b)
{
    enum { V = 5000 };
    zs_error err;
    zx_real *x = support_zeros(b, V);
    int32_t target = 3;
    double loss = 0;
    /* All equal, at any height: ln V, and 1/V but for the target. */
    const float heights[] = {0, 1e4f, -1e4f, 3e38f};
    for (size_t h = 0; h < sizeof(heights) / sizeof(heights[0]); h++) {
        for (int i = 0; i < V; i++)
            x[i] = heights[h];
        CHECK(b->ops->cross_entropy(b, &loss, x, &target, 1, V, 1, &err), "%s", err.message);
        CHECK_NEAR(loss, log((double)V), 1e-7);
        CHECK_NEAR((double)x[0] * V, 1, 1e-6);
        CHECK_NEAR((double)x[target], 1.0 / V - 1, 1e-6);
    }
    /* One logit far above the rest: as target it costs nothing, otherwise its height. */
    for (int right = 0; right <= 1; right++) {
        memset(x, 0, V * sizeof(*x));
        x[7] = 1e4f;
        target = right ? 7 : 8;
        CHECK(b->ops->cross_entropy(b, &loss, x, &target, 1, V, 1, &err), "%s", err.message);
        CHECK(loss == (right ? 0 : 1e4), "loss %.9g", loss);
        CHECK((double)x[7] == (right ? 0 : 1) && (double)x[8] == (right ? 0 : -1), "gradient %g %g",
              (double)x[7], (double)x[8]);
    }
    x[9] = NAN;
    CHECK(b->ops->cross_entropy(b, &loss, x, &target, 1, V, 0, &err) && isnan(loss),
          "a NaN logit gives loss %g", loss);
}

/* Tokens of losses 1, 2, 3 in one micro-batch and 8 in another: (1 + 2 + 3 + 8) / 4 = 3.5, where
 * the mean of their means would be 5; and the gradient of that, (p - 1) / 4 at the target. */
static void check_loss_by_hand(zx_backend *b)
{
    static const double losses[] = {1, 2, 3, 8};
    static const int32_t targets[4] = {0};
    zs_error err;
    double first = 0, second = 0;
    zx_real *x = support_zeros(b, 8);
    for (int i = 0; i < 4; i++) /* -log(1 / (1 + e^x)) is the loss */
        x[2 * i + 1] = (zx_real)log(exp(losses[i]) - 1);
    CHECK(b->ops->cross_entropy(b, &first, x, targets, 3, 2, 0.25, &err) &&
              b->ops->cross_entropy(b, &second, x + 6, targets, 1, 2, 0.25, &err),
          "%s", err.message);
    CHECK_NEAR((first + second) / 4, 3.5, 1e-6);
    for (int i = 0; i < 4; i++)
        CHECK_NEAR((double)x[2 * i], (exp(-losses[i]) - 1) / 4, 1e-6);
}

static void check_attention_extremes(zx_backend *b)
{
    enum { T = 70, C = 8 };
    zs_error err;
    zx_real *qkv = support_zeros(b, T * 3 * C);
    zx_real *out = support_zeros(b, T * C);
    zx_real *lse = support_zeros(b, T);
    const zx_attention shape = support_attention(1, T, 1, 1, C, true);
    /* Equal keys: each position is the mean of the values up to it. */
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < C; i++) {
            qkv[t * 3 * C + i] = 40;
            qkv[t * 3 * C + C + i] = 90;
            qkv[t * 3 * C + 2 * C + i] = (zx_real)t;
        }
    }
    CHECK(b->ops->attention_forward(b, out, lse, qkv, qkv + C, qkv + 2 * C, &shape, &err), "%s",
          err.message);
    for (int t = 0; t < T; t++)
        CHECK_NEAR((double)out[t * C], t / 2.0, 1e-6);
    /* Scores of +-1e4: the largest takes all; queries attend to the first key alone. */
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < C; i++) {
            qkv[t * 3 * C + i] = 100;
            qkv[t * 3 * C + C + i] = t == 0 ? 35 : -35;
        }
    }
    CHECK(b->ops->attention_forward(b, out, lse, qkv, qkv + C, qkv + 2 * C, &shape, &err), "%s",
          err.message);
    for (int t = 0; t < T; t++)
        CHECK(out[t * C] == 0, "position %d: %g", t, (double)out[t * C]);
}

/* What torch.optim.AdamW does, step by step in double precision. */
static void check_adamw(zx_backend *b)
{
    enum { N = 77, STEPS = 6 };
    zs_error err;
    zx_real *params = support_random(b, 81, N, 1);
    zx_real *m = support_zeros(b, N);
    zx_real *v = support_zeros(b, N);
    double p_ref[N];
    double m_ref[N] = {0};
    double v_ref[N] = {0};
    for (int i = 0; i < N; i++)
        p_ref[i] = (double)params[i];
    for (int step = 1; step <= STEPS; step++) {
        zx_real *grads = support_random(b, 82 + (uint64_t)step, N, 2);
        const zx_adamw o = {0.03 / step, 0.9, 0.95, 1e-8, 0.1, step % 2 == 1 ? 1 : 0.125, step};
        grads[5] = 0; /* only decay moves it at step 1 */
        CHECK(b->ops->adamw(b, params, m, v, grads, N, &o, &err), "%s", err.message);
        for (int i = 0; i < N; i++) {
            const double g = (double)grads[i] * o.grad_scale;
            p_ref[i] *= 1 - o.lr * o.weight_decay;
            m_ref[i] = o.beta1 * m_ref[i] + (1 - o.beta1) * g;
            v_ref[i] = o.beta2 * v_ref[i] + (1 - o.beta2) * g * g;
            const double m_hat = m_ref[i] / (1 - pow(o.beta1, step));
            const double v_hat = v_ref[i] / (1 - pow(o.beta2, step));
            p_ref[i] -= o.lr * m_hat / (sqrt(v_hat) + o.eps);
            CHECK_NEAR((double)params[i], p_ref[i], 1e-6);
            CHECK_NEAR((double)m[i], m_ref[i], 1e-6);
            CHECK_NEAR((double)v[i], v_ref[i], 1e-6);
        }
        if (step == 1) {
            /* The first step has length lr whatever the gradient's size. */
            CHECK_NEAR(fabs((double)params[0] - p_ref[0]), 0, 1e-6);
            CHECK_NEAR((double)params[5], (double)support_random(b, 81, N, 1)[5] * (1 - 0.003),
                       1e-6);
        }
    }
}

/* Token embedding (tied) 0, final norm weight 0 and bias 1: the logits are 0, the loss ln V, and
 * only the head matrix has a gradient: row v is (1/V - c_v/N) (1,...,1), c_v of N targets being v.
 */
static void check_flat(zx_backend *b, int n_blocks)
{
    enum { V = 8, C = 16, NH = 2, B = 4, T = 6 };
    stack s;
    const zm_model model = stack_model(n_blocks, C, NH, V, T, true);
    stack_open(&s, b, &model, B, T, 91);
    for (int i = 0; i < s.n_tensors; i++) {
        const zm_stage_tensor *t = &s.tensors[i];
        const zm_role role = t->tensor.role;
        if (role != ZM_WTE && role != ZM_NORMF_W && role != ZM_NORMF_B)
            continue;
        for (int64_t j = 0; j < t->tensor.count; j++)
            s.params[t->offset + j] = role == ZM_NORMF_B ? 1 : 0;
    }
    /* 3/4 zeros, 1/4 ones; inputs are the targets one position earlier. */
    for (int i = 0; i < B * T; i++) {
        s.targets[i] = i < 3 * T ? 0 : 1;
        s.tokens[i] = i < 3 * T + 1 ? 0 : 1;
    }
    const double loss = stack_forward(&s, 1.0 / (B * T)) / (B * T);
    stack_backward(&s);
    CHECK_NEAR(loss, 2.0794415, 1e-7);
    for (int v = 0; v < V; v++) {
        const double expected = 1.0 / V - (v == 0 ? 0.75 : v == 1 ? 0.25 : 0);
        for (int i = 0; i < C; i++)
            CHECK_NEAR((double)s.grads[v * C + i], expected, 1e-6);
    }
    CHECK_NEAR(stack_step(&s, 1e-3), 2.828427, 1e-6);
    stack_close(&s);
}

/* No samples: nothing is read or written, and layers and sums of nothing work. */
static void check_nothing(zx_backend *b)
{
    const zx_backend_ops *ops = b->ops;
    const zx_adamw options = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1};
    zs_error err;
    double sum = 7;
    stack s;
    zx_real one = 42;
    const zx_attention no_samples = support_attention(0, 5, 1, 1, 1, true);
    const zx_attention no_tokens = support_attention(3, 0, 1, 1, 1, true);
    CHECK(ops->linear_forward(b, NULL, NULL, &one, &one, NULL, 0, 1, 1, true, &err) &&
              ops->linear_backward(b, NULL, &one, &one, NULL, NULL, &one, 0, 1, 1, true, false,
                                   &err) &&
              ops->embedding_forward(b, NULL, NULL, &one, &one, 0, 5, 1, &err) &&
              ops->embedding_backward(b, &one, &one, NULL, NULL, 0, 5, 1, &err) &&
              ops->layernorm_forward(b, NULL, NULL, NULL, NULL, &one, &one, 0, 1, 1e-5, &err) &&
              ops->layernorm_backward(b, NULL, &one, &one, NULL, NULL, NULL, &one, NULL, NULL, 0, 1,
                                      &err) &&
              ops->rmsnorm_forward(b, NULL, NULL, NULL, &one, 0, 1, 1e-5, &err) &&
              ops->rmsnorm_backward(b, NULL, &one, NULL, NULL, NULL, &one, NULL, 0, 1, &err) &&
              ops->attention_forward(b, NULL, NULL, NULL, NULL, NULL, &no_samples, &err) &&
              ops->attention_backward(b, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                      &no_tokens, &err) &&
              ops->rotary(b, NULL, 1e4, false, 0, 5, 1, 2, &err) &&
              ops->swiglu_forward(b, NULL, NULL, NULL, 0, &err) &&
              ops->swiglu_backward(b, NULL, NULL, NULL, NULL, NULL, 0, &err) &&
              ops->activation_forward(b, NULL, NULL, ZM_GELU, 0, &err) &&
              ops->activation_backward(b, NULL, NULL, NULL, ZM_GELU, 0, &err) &&
              ops->add(b, NULL, NULL, NULL, 0, &err) &&
              ops->adamw(b, NULL, NULL, NULL, NULL, 0, &options, &err),
          "%s", err.message);
    CHECK(one == 42, "changed to %g", (double)one);
    CHECK(ops->cross_entropy(b, &sum, NULL, NULL, 0, 5, 1, &err) && sum == 0, "loss %g", sum);
    sum = 7;
    CHECK(ops->sum_of_squares(b, &sum, NULL, 0, &err) && sum == 0, "sum %g", sum);

    for (int family = 0; family < ZM_N_FAMILIES; family++) {
        const zm_model model = stack_family((zm_family)family, 1, 24, 3, 3, 29, 7, true);
        stack_open(&s, b, &model, 0, 7, 5);
        CHECK(stack_forward(&s, 1) == 0, "loss of no samples");
        stack_backward(&s);
        CHECK(stack_step(&s, 1e-3) == 0, "gradient of no samples");
        stack_close(&s);
    }
}

static void check_two_runs(const zm_model *model, int B, int T, int n_threads)
{
    zx_backend *b = support_open(n_threads);
    stack s[2];
    for (int i = 0; i < 2; i++) {
        stack_open(&s[i], b, model, B, T, 3);
        support_tokens(s[i].tokens, 71, (int64_t)B * T, model->n_vocab);
        support_tokens(s[i].targets, 72, (int64_t)B * T, model->n_vocab);
        for (int step = 0; step < 3; step++) {
            stack_forward(&s[i], 1.0 / (B * T));
            stack_backward(&s[i]);
            stack_step(&s[i], 1e-2);
        }
    }
    CHECK(memcmp(s[0].params, s[1].params, (size_t)s[0].n_params * sizeof(zx_real)) == 0,
          "%s, %d threads: two runs differ", zm_family_names[model->family], n_threads);
    stack_close(&s[0]);
    stack_close(&s[1]);
    b->ops->close(&b);
}

/* Equal calls give equal bits; and so do other numbers of threads where no BLAS is involved. */
static void check_repeatable(void)
{
    enum { B = 3, T = 65 };
    for (int i = 0; i < ZM_N_FAMILIES * 3; i++) {
        const zm_model model = stack_family((zm_family)(i / 3), 2, 48, 3, 3, 29, T, true);
        check_two_runs(&model, B, T, 1 + i % 3);
    }
    zx_backend *b[2] = {support_open(1), support_open(3)};
    double sums[2];
    for (int i = 0; i < 2; i++) {
        zs_error err;
        zx_real *x = support_random(b[i], 5, 100003, 1);
        CHECK(b[i]->ops->sum_of_squares(b[i], &sums[i], x, 100003, &err), "%s", err.message);
    }
    CHECK(sums[0] == sums[1], "%.17g and %.17g", sums[0], sums[1]);
    b[0]->ops->close(&b[0]);
    b[1]->ops->close(&b[1]);
}

static void check_memory(void)
{
    zx_backend *b = support_open(1);
    zs_error err;
    void *memory[3] = {NULL};
    const int64_t sizes[3] = {1, 1000003, 0};
    for (int i = 0; i < 3; i++) {
        CHECK(b->ops->alloc(b, &memory[i], sizes[i], "test", &err), "%s", err.message);
        CHECK((uintptr_t)memory[i] % 64 == 0, "alignment");
        for (int64_t j = 0; j < sizes[i]; j++)
            CHECK(((const char *)memory[i])[j] == 0, "byte %d", (int)j);
    }
    CHECK(b->ops->allocated_bytes(b) == 1000004, "counts bytes");
    b->ops->free(b, &memory[1]);
    CHECK(memory[1] == NULL && b->ops->allocated_bytes(b) == 1, "free");
    CHECK(b->ops->peak_bytes(b) == 1000004, "peak");
    CHECK_FAILS(b->ops->alloc(b, &memory[1], -1, "activations", &err), &err, ZS_ERR_RUNTIME,
                "activations: out of memory");
    b->ops->close(&b);
    CHECK(b == NULL, "close leaves NULL");
    b = NULL;
    zx_backend_cpu.close(&b);
}

static void check_names(void)
{
    zs_error err;
    zx_backend *b = NULL;
    CHECK(zx_backend_find("cpu", &err) == &zx_backend_cpu, "cpu is always there");
    CHECK_FAILS(zx_backend_find("tpu", &err) != NULL, &err, ZS_ERR_INPUT, "\"tpu\" is unknown");
    CHECK_FAILS(zx_backend_cpu.open(&b, 0, -1, &err), &err, ZS_ERR_INPUT, "threads: -1");
}

int main(void)
{
    check_exp();
    check_normal_cdf();
    check_memory();
    check_names();
    check_repeatable();
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        zx_backend *b = support_open(n_threads);
        check_activations(b);
        check_cross_entropy(b);
        check_loss_by_hand(b);
        check_attention_extremes(b);
        check_adamw(b);
        check_flat(b, 1);
        check_flat(b, 3);
        check_nothing(b);
        b->ops->close(&b);
    }
    return check_done();
}
