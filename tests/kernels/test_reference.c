/* Logits and loss of whole models, as they are trained in float, against their definition written
 * out in double precision: one loop per sum, weights found by their Hugging Face names. The
 * formulas are those of transformers' modeling_gpt2.py, modeling_opt.py and modeling_llama.py. */
#include "tests/kernels/stack.h"
#include "tests/kernels/support.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the families' names and formulas differ. */
typedef struct family_names {
    const char *block; /* with the index, before what follows */
    const char *norm1, *norm2, *out_proj, *inner, *outer, *final_norm, *embedding, *positions;
} family_names;

static const family_names names[ZM_N_FAMILIES] = {
    [ZM_GPT2] = {"transformer.h.%d.", "ln_1", "ln_2", "attn.c_proj", "mlp.c_fc", "mlp.c_proj",
                 "transformer.ln_f", "transformer.wte.weight", "transformer.wpe.weight"},
    [ZM_OPT] = {"model.decoder.layers.%d.", "self_attn_layer_norm", "final_layer_norm",
                "self_attn.out_proj", "fc1", "fc2", "model.decoder.final_layer_norm",
                "model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight"},
    [ZM_LLAMA] = {"model.layers.%d.", "input_layernorm", "post_attention_layernorm",
                  "self_attn.o_proj", NULL, "mlp.down_proj", "model.norm",
                  "model.embed_tokens.weight", NULL},
};

/* NULL: no such tensor. */
static const zx_real *find(const stack *s, const char *name)
{
    for (int i = 0; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i].tensor.name, name) == 0)
            return s->params + s->tensors[i].offset;
    return NULL;
}

/* "module.weight" or "module.bias"; in a block unless block is -1. */
static const zx_real *find_in(const stack *s, int block, const char *module, const char *what)
{
    char prefix[64] = "", name[ZM_NAME_SIZE];
    const char *format = names[s->model.family].block;
    const char *index = strstr(format, "%d");
    if (block >= 0)
        snprintf(prefix, sizeof prefix, "%.*s%d%s", (int)(index - format), format, block,
                 index + 2);
    snprintf(name, sizeof name, "%s%s.%s", prefix, module, what);
    return find(s, name);
}

/* out (n_out) = W x + bias. */
static void project(const stack *s, double *out, const double *x, int block, const char *module,
                    int n_in, int n_out)
{
    const zx_real *w = find_in(s, block, module, "weight");
    const zx_real *bias = find_in(s, block, module, "bias");
    assert(w != NULL);
    for (int o = 0; o < n_out; o++) {
        double sum = bias != NULL ? (double)bias[o] : 0;
        for (int i = 0; i < n_in; i++)
            sum += x[i] * (double)(s->model.family == ZM_GPT2 ? w[i * n_out + o] : w[o * n_in + i]);
        out[o] = sum;
    }
}

static void normalise(const stack *s, double *out, const double *x, int block, const char *module)
{
    const zx_real *w = find_in(s, block, module, "weight");
    const zx_real *bias = find_in(s, block, module, "bias");
    const int C = s->model.n_channels;
    double mean = 0, variance = 0;
    if (s->model.family != ZM_LLAMA)
        for (int i = 0; i < C; i++)
            mean += x[i] / C;
    for (int i = 0; i < C; i++)
        variance += (x[i] - mean) * (x[i] - mean) / C;
    for (int i = 0; i < C; i++)
        out[i] = (x[i] - mean) / sqrt(variance + s->model.norm_eps) * (double)w[i] +
                 (bias != NULL ? (double)bias[i] : 0);
}

/* (x1, x2) of each head become x cos + (-x2, x1) sin, with the angles of both halves equal. */
static void rotate(double *x, int n_heads, int d, int t, double theta)
{
    double *turned = calloc((size_t)(n_heads * d), sizeof *turned);
    for (int i = 0; i < n_heads * d; i++) {
        const int c = i % d;
        const double angle = t * pow(theta, -2.0 * (c % (d / 2)) / d);
        const double other = c < d / 2 ? -x[i + d / 2] : x[i - d / 2];
        turned[i] = x[i] * cos(angle) + other * sin(angle);
    }
    memcpy(x, turned, (size_t)(n_heads * d) * sizeof *x);
    free(turned);
}

/* q, k, v of one token behind each other. */
static void project_qkv(const stack *s, double *qkv, const double *x, int block, int t)
{
    const zm_model *m = &s->model;
    const int C = m->n_channels, d = C / m->n_heads, KV = m->n_kv_heads * d;
    if (m->family == ZM_GPT2) {
        project(s, qkv, x, block, "attn.c_attn", C, 3 * C);
        return;
    }
    project(s, qkv, x, block, "self_attn.q_proj", C, C);
    project(s, qkv + C, x, block, "self_attn.k_proj", C, KV);
    project(s, qkv + C + KV, x, block, "self_attn.v_proj", C, KV);
    if (m->family == ZM_LLAMA) {
        rotate(qkv, m->n_heads, d, t, m->rope_theta);
        rotate(qkv + C, m->n_kv_heads, d, t, m->rope_theta);
    }
}

/* out (C) of token t, whose sample's q, k, v are rows of qkv. */
static void attend(const stack *s, double *out, const double *qkv, int t)
{
    const zm_model *m = &s->model;
    const int C = m->n_channels, d = C / m->n_heads, KV = m->n_kv_heads * d;
    const int width = C + 2 * KV;
    for (int h = 0; h < m->n_heads; h++) {
        const int kv = h / (m->n_heads / m->n_kv_heads);
        double sum = 0;
        for (int i = 0; i < d; i++)
            out[h * d + i] = 0;
        for (int u = 0; u <= t; u++) {
            double score = 0;
            for (int i = 0; i < d; i++)
                score += qkv[t * width + h * d + i] * qkv[u * width + C + kv * d + i];
            const double e = exp(score / sqrt(d));
            sum += e;
            for (int i = 0; i < d; i++)
                out[h * d + i] += e * qkv[u * width + C + KV + kv * d + i];
        }
        for (int i = 0; i < d; i++)
            out[h * d + i] /= sum;
    }
}

static double activate(zm_activation kind, double x)
{
    switch (kind) {
    case ZM_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case ZM_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case ZM_RELU:
        return fmax(x, 0);
    default:
        return x / (1 + exp(-x));
    }
}

static void mlp(const stack *s, double *out, const double *x, int block)
{
    const zm_model *m = &s->model;
    const int C = m->n_channels, F = m->n_ffn;
    double *inner = calloc((size_t)(2 * F), sizeof *inner);
    if (m->family == ZM_LLAMA) {
        project(s, inner, x, block, "mlp.gate_proj", C, F);
        project(s, inner + F, x, block, "mlp.up_proj", C, F);
    } else {
        project(s, inner, x, block, names[m->family].inner, C, F);
    }
    for (int i = 0; i < F; i++)
        inner[i] = activate(m->activation, inner[i]) * (m->family == ZM_LLAMA ? inner[F + i] : 1);
    project(s, out, inner, block, names[m->family].outer, F, C);
    free(inner);
}

/* stream (T,C) of one sample through a block. */
static void block_of(const stack *s, double *stream, int block)
{
    const zm_model *m = &s->model;
    const family_names *f = &names[m->family];
    const int C = m->n_channels, width = C + 2 * m->n_kv_heads * (C / m->n_heads);
    double *qkv = calloc((size_t)(s->T * width), sizeof *qkv);
    double *x = calloc((size_t)(2 * C), sizeof *x);
    double *y = x + C;
    for (int t = 0; t < s->T; t++) {
        normalise(s, x, stream + t * C, block, f->norm1);
        project_qkv(s, qkv + t * width, x, block, t);
    }
    for (int t = 0; t < s->T; t++) {
        attend(s, x, qkv, t);
        project(s, y, x, block, f->out_proj, C, C);
        for (int i = 0; i < C; i++)
            stream[t * C + i] += y[i];
        normalise(s, x, stream + t * C, block, f->norm2);
        mlp(s, y, x, block);
        for (int i = 0; i < C; i++)
            stream[t * C + i] += y[i];
    }
    free(x);
    free(qkv);
}

/* Logits (T,V) of one sample. */
static void logits_of(const stack *s, double *logits, const int32_t *tokens)
{
    const zm_model *m = &s->model;
    const family_names *f = &names[m->family];
    const int C = m->n_channels, V = m->n_vocab;
    const zx_real *wte = find(s, f->embedding);
    const zx_real *wpe = f->positions != NULL ? find(s, f->positions) : NULL;
    const zx_real *head = m->tied ? wte : find(s, "lm_head.weight");
    double *stream = calloc((size_t)(s->T * C), sizeof *stream);
    double *x = calloc((size_t)C, sizeof *x);
    assert(head != NULL);
    for (int t = 0; t < s->T; t++) {
        const int position = m->family == ZM_OPT ? t + 2 : t;
        for (int i = 0; i < C; i++)
            stream[t * C + i] =
                (double)wte[tokens[t] * C + i] + (wpe != NULL ? (double)wpe[position * C + i] : 0);
    }
    for (int block = 0; block < m->n_blocks; block++)
        block_of(s, stream, block);
    for (int t = 0; t < s->T; t++) {
        normalise(s, x, stream + t * C, -1, f->final_norm);
        for (int v = 0; v < V; v++) {
            double sum = 0;
            for (int i = 0; i < C; i++)
                sum += x[i] * (double)head[v * C + i];
            logits[t * V + v] = sum;
        }
    }
    free(x);
    free(stream);
}

static void check_model_of(zm_model model, int B, int T)
{
    zx_backend *b = support_open(2);
    stack s;
    stack_open(&s, b, &model, B, T, 10);
    const int V = model.n_vocab;
    support_tokens(s.tokens, 73, (int64_t)B * T, V);
    support_tokens(s.targets, 74, (int64_t)B * T, V);
    const double loss = stack_forward(&s, 0);
    const zx_real *got = s.head_acts + (int64_t)B * T * (model.n_channels + zm_norm_floats(&model));
    double *logits = calloc((size_t)(T * V), sizeof *logits);
    double expected = 0;
    for (int sample = 0; sample < B; sample++) {
        logits_of(&s, logits, s.tokens + sample * T);
        for (int t = 0; t < T; t++) {
            double sum = 0;
            for (int v = 0; v < V; v++) {
                const double g = (double)got[((int64_t)sample * T + t) * V + v];
                CHECK(fabs(g - logits[t * V + v]) <= 1e-5,
                      "%s, NKV %d: logit %d of token %d: %.9g, defined as %.9g",
                      zm_family_names[model.family], model.n_kv_heads, v, t, g, logits[t * V + v]);
                sum += exp(logits[t * V + v]);
            }
            expected += log(sum) - logits[t * V + s.targets[sample * T + t]];
        }
    }
    CHECK_NEAR(loss, expected, 1e-5);
    free(logits);
    stack_close(&s);
    b->ops->close(&b);
}

int main(void)
{
    zm_model gelu = stack_model(2, 24, 3, 29, 7, false);
    zm_model wide_angles = stack_family(ZM_LLAMA, 1, 24, 3, 3, 29, 300, true);
    gelu.activation = ZM_GELU;
    wide_angles.rope_theta = 5e5;
    check_model_of(stack_model(2, 24, 3, 29, 7, true), 3, 7);
    check_model_of(gelu, 2, 7);
    check_model_of(stack_family(ZM_OPT, 2, 27, 3, 3, 31, 9, true), 3, 7);
    check_model_of(stack_family(ZM_OPT, 3, 24, 4, 4, 31, 65, false), 2, 65);
    for (int n_kv_heads = 1; n_kv_heads <= 4; n_kv_heads *= 2)
        check_model_of(stack_family(ZM_LLAMA, 2, 24, 4, n_kv_heads, 29, 67, n_kv_heads == 2), 2,
                       65);
    check_model_of(wide_angles, 1, 299);
    return check_done();
}
