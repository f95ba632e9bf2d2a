#include "executor/layers.h"

/* The saved activations of a block, each B T rows, one behind the other in acts. */
typedef struct block_acts {
    zx_real *at[ZM_N_GPT2_ACTS];
} block_acts;

static block_acts point_acts(const zm_model *model, const zx_real *acts, int64_t n)
{
    block_acts out;
    zx_real *next = (zx_real *)acts; /* backward only reads them */
    for (int i = 0; i < ZM_N_GPT2_ACTS; i++) {
        out.at[i] = next;
        next += n * zm_gpt2_act_floats(model, (zm_gpt2_act)i);
    }
    return out;
}

static bool check_family(const zm_model *model, zs_error *err)
{
    if (model->family != ZM_GPT2)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "model %s: only the gpt2 family can be trained, others can be planned",
                       model->name);
    return true;
}

void zx_layer_point(zx_tensors *out, zx_real *flat, const zm_stage_tensor *tensors, int n_tensors,
                    int layer)
{
    *out = (zx_tensors){0};
    for (int i = 0; i < n_tensors; i++) {
        if (tensors[i].layer == layer)
            out->at[tensors[i].tensor.role] = flat + tensors[i].offset;
    }
}

int64_t zx_block_acts_size(const zm_model *model, int B, int T)
{
    return (int64_t)B * T * zm_block_act_floats(model);
}

int64_t zx_block_scratch_size(const zm_model *model, int B, int T)
{
    return (int64_t)B * T * zm_block_scratch_floats(model);
}

int64_t zx_head_acts_size(const zm_model *model, int B, int T)
{
    return (int64_t)B * T * ((int64_t)model->n_channels + 2 + model->n_vocab);
}

bool zx_embedding_forward(zx_backend *b, const zm_model *model, zx_real *out,
                          const zx_tensors *params, const int32_t *tokens, int B, int T,
                          zs_error *err)
{
    return check_family(model, err) &&
           b->ops->embedding_forward(b, out, tokens, params->at[ZM_WTE], params->at[ZM_WPE], B, T,
                                     model->n_channels, err);
}

bool zx_embedding_backward(zx_backend *b, const zm_model *model, zx_tensors *grads,
                           const int32_t *tokens, const zx_real *dout, int B, int T, zs_error *err)
{
    return check_family(model, err) &&
           b->ops->embedding_backward(b, grads->at[ZM_WTE], grads->at[ZM_WPE], tokens, dout, B, T,
                                      model->n_channels, err);
}

bool zx_block_forward(zx_backend *b, const zm_model *model, zx_real *out, zx_real *acts,
                      const zx_real *in, const zx_tensors *params, zx_real *scratch, int B, int T,
                      zs_error *err)
{
    const zx_backend_ops *ops = b->ops;
    const int64_t n = (int64_t)B * T;
    const int C = model->n_channels;
    const int F = model->n_ffn;
    zx_real *const *p = params->at;
    (void)scratch; /* all that forward computes is kept */
    if (!check_family(model, err))
        return false;
    const block_acts a = point_acts(model, acts, n);
    return ops->layernorm_forward(b, a.at[ZM_ACT_NORM1], a.at[ZM_ACT_NORM1_MEAN],
                                  a.at[ZM_ACT_NORM1_RSTD], in, p[ZM_NORM1_W], p[ZM_NORM1_B], n, C,
                                  model->norm_eps, err) &&
           ops->linear_forward(b, a.at[ZM_ACT_QKV], a.at[ZM_ACT_NORM1], p[ZM_QKV_W], p[ZM_QKV_B],
                               NULL, n, C, 3 * C, true, err) &&
           ops->attention_forward(b, a.at[ZM_ACT_ATT], a.at[ZM_ACT_LSE], a.at[ZM_ACT_QKV], B, T, C,
                                  model->n_heads, err) &&
           ops->linear_forward(b, a.at[ZM_ACT_RESIDUAL], a.at[ZM_ACT_ATT], p[ZM_PROJ_W],
                               p[ZM_PROJ_B], in, n, C, C, true, err) &&
           ops->layernorm_forward(b, a.at[ZM_ACT_NORM2], a.at[ZM_ACT_NORM2_MEAN],
                                  a.at[ZM_ACT_NORM2_RSTD], a.at[ZM_ACT_RESIDUAL], p[ZM_NORM2_W],
                                  p[ZM_NORM2_B], n, C, model->norm_eps, err) &&
           ops->linear_forward(b, a.at[ZM_ACT_FC], a.at[ZM_ACT_NORM2], p[ZM_FC_W], p[ZM_FC_B], NULL,
                               n, C, F, true, err) &&
           ops->activation_forward(b, a.at[ZM_ACT_GELU], a.at[ZM_ACT_FC], model->activation, n * F,
                                   err) &&
           ops->linear_forward(b, out, a.at[ZM_ACT_GELU], p[ZM_FCPROJ_W], p[ZM_FCPROJ_B],
                               a.at[ZM_ACT_RESIDUAL], n, F, C, true, err);
}

bool zx_block_backward(zx_backend *b, const zm_model *model, zx_real *din, zx_tensors *grads,
                       const zx_real *dout, const zx_real *acts, const zx_real *in,
                       const zx_tensors *params, zx_real *scratch, int B, int T, zs_error *err)
{
    const zx_backend_ops *ops = b->ops;
    const int64_t n = (int64_t)B * T;
    const int C = model->n_channels;
    const int F = model->n_ffn;
    zx_real *const *p = params->at;
    zx_real *const *g = grads->at;
    zx_real *narrow = scratch;       /* (n,C) */
    zx_real *wide = scratch + n * C; /* (n,F), then (n,3C) */
    if (!check_family(model, err))
        return false;
    const block_acts a = point_acts(model, acts, n);
    return ops->linear_backward(b, wide, g[ZM_FCPROJ_W], g[ZM_FCPROJ_B], dout, a.at[ZM_ACT_GELU],
                                p[ZM_FCPROJ_W], n, F, C, true, false, err) &&
           ops->activation_backward(b, wide, wide, a.at[ZM_ACT_FC], model->activation, n * F,
                                    err) &&
           ops->linear_backward(b, narrow, g[ZM_FC_W], g[ZM_FC_B], wide, a.at[ZM_ACT_NORM2],
                                p[ZM_FC_W], n, C, F, true, false, err) &&
           ops->layernorm_backward(b, din, g[ZM_NORM2_W], g[ZM_NORM2_B], dout, narrow,
                                   a.at[ZM_ACT_RESIDUAL], p[ZM_NORM2_W], a.at[ZM_ACT_NORM2_MEAN],
                                   a.at[ZM_ACT_NORM2_RSTD], n, C, err) &&
           ops->linear_backward(b, narrow, g[ZM_PROJ_W], g[ZM_PROJ_B], din, a.at[ZM_ACT_ATT],
                                p[ZM_PROJ_W], n, C, C, true, false, err) &&
           ops->attention_backward(b, wide, narrow, a.at[ZM_ACT_QKV], a.at[ZM_ACT_ATT],
                                   a.at[ZM_ACT_LSE], B, T, C, model->n_heads, err) &&
           ops->linear_backward(b, narrow, g[ZM_QKV_W], g[ZM_QKV_B], wide, a.at[ZM_ACT_NORM1],
                                p[ZM_QKV_W], n, C, 3 * C, true, false, err) &&
           ops->layernorm_backward(b, din, g[ZM_NORM1_W], g[ZM_NORM1_B], din, narrow, in,
                                   p[ZM_NORM1_W], a.at[ZM_ACT_NORM1_MEAN], a.at[ZM_ACT_NORM1_RSTD],
                                   n, C, err);
}

typedef struct head_acts {
    zx_real *norm, *mean, *rstd, *logits;
} head_acts;

static head_acts point_head_acts(const zm_model *model, const zx_real *acts, int64_t n)
{
    head_acts out;
    out.norm = (zx_real *)acts; /* backward only reads them */
    out.mean = out.norm + n * model->n_channels;
    out.rstd = out.mean + n;
    out.logits = out.rstd + n;
    return out;
}

bool zx_head_forward(zx_backend *b, const zm_model *model, double *loss_sum, zx_real *acts,
                     const zx_real *in, const zx_tensors *params, const int32_t *targets, int B,
                     int T, double scale, zs_error *err)
{
    const zx_backend_ops *ops = b->ops;
    const int64_t n = (int64_t)B * T;
    const int C = model->n_channels;
    const int V = model->n_vocab;
    const head_acts a = point_head_acts(model, acts, n);
    zx_real *const *p = params->at;
    return check_family(model, err) &&
           ops->layernorm_forward(b, a.norm, a.mean, a.rstd, in, p[ZM_NORMF_W], p[ZM_NORMF_B], n, C,
                                  model->norm_eps, err) &&
           ops->linear_forward(b, a.logits, a.norm, p[ZM_WTE], NULL, NULL, n, C, V, false, err) &&
           ops->cross_entropy(b, loss_sum, a.logits, targets, n, V, scale, err);
}

bool zx_head_backward(zx_backend *b, const zm_model *model, zx_real *din, zx_tensors *grads,
                      const zx_real *acts, const zx_real *in, const zx_tensors *params,
                      zx_real *scratch, int B, int T, zs_error *err)
{
    const zx_backend_ops *ops = b->ops;
    const int64_t n = (int64_t)B * T;
    const int C = model->n_channels;
    const head_acts a = point_head_acts(model, acts, n);
    zx_real *const *p = params->at;
    zx_real *const *g = grads->at;
    return check_family(model, err) &&
           ops->linear_backward(b, scratch, g[ZM_WTE], NULL, a.logits, a.norm, p[ZM_WTE], n, C,
                                model->n_vocab, false, false, err) &&
           ops->layernorm_backward(b, din, g[ZM_NORMF_W], g[ZM_NORMF_B], NULL, scratch, in,
                                   p[ZM_NORMF_W], a.mean, a.rstd, n, C, err);
}
