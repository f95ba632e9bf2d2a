#include "executor/layers.h"

#include <assert.h>

/* A matrix without a bias. */
static const zm_role NO_BIAS = ZM_N_ROLES;

/* One call of a layer: what all its operations need. */
typedef struct call {
    zx_backend *b;
    const zx_backend_ops *ops;
    const zm_model *model;
    const zm_form *form;
    zx_real *const *params;
    zx_real *const *grads; /* NULL in forward */
    int B, T;
    int64_t n; /* B T */
    int C, F;
    int KV; /* width of the keys, and of the values */
} call;

static call call_of(zx_backend *b, const zm_model *model, const zx_tensors *params,
                    zx_tensors *grads, int B, int T)
{
    return (call){.b = b,
                  .ops = b->ops,
                  .model = model,
                  .form = zm_model_form(model),
                  .params = params->at,
                  .grads = grads == NULL ? NULL : grads->at,
                  .B = B,
                  .T = T,
                  .n = (int64_t)B * T,
                  .C = model->n_channels,
                  .F = model->n_ffn,
                  .KV = model->n_kv_heads * (model->n_channels / model->n_heads)};
}

static zx_real *bias_of(zx_real *const *tensors, zm_role bias)
{
    return bias == NO_BIAS ? NULL : tensors[bias];
}

static bool linear_forward(const call *c, zx_real *out, const zx_real *x, zm_role weight,
                           zm_role bias, const zx_real *residual, int n_in, int n_out,
                           zs_error *err)
{
    return c->ops->linear_forward(c->b, out, x, c->params[weight], bias_of(c->params, bias),
                                  residual, c->n, n_in, n_out, c->form->input_major, err);
}

static bool linear_backward(const call *c, zx_real *dx, bool accumulate_dx, const zx_real *dout,
                            const zx_real *x, zm_role weight, zm_role bias, int n_in, int n_out,
                            zs_error *err)
{
    return c->ops->linear_backward(c->b, dx, c->grads[weight], bias_of(c->grads, bias), dout, x,
                                   c->params[weight], c->n, n_in, n_out, c->form->input_major,
                                   accumulate_dx, err);
}

static bool norm_forward(const call *c, zx_real *out, zx_real *mean, zx_real *rstd,
                         const zx_real *x, zm_role weight, zm_role bias, zs_error *err)
{
    const double eps = c->model->norm_eps;
    if (c->form->rms_norm)
        return c->ops->rmsnorm_forward(c->b, out, rstd, x, c->params[weight], c->n, c->C, eps, err);
    return c->ops->layernorm_forward(c->b, out, mean, rstd, x, c->params[weight], c->params[bias],
                                     c->n, c->C, eps, err);
}

static bool norm_backward(const call *c, zx_real *dx, const zx_real *dresidual, const zx_real *dout,
                          const zx_real *x, const zx_real *mean, const zx_real *rstd,
                          zm_role weight, zm_role bias, zs_error *err)
{
    if (c->form->rms_norm)
        return c->ops->rmsnorm_backward(c->b, dx, c->grads[weight], dresidual, dout, x,
                                        c->params[weight], rstd, c->n, c->C, err);
    return c->ops->layernorm_backward(c->b, dx, c->grads[weight], c->grads[bias], dresidual, dout,
                                      x, c->params[weight], mean, rstd, c->n, c->C, err);
}

/* The saved activations of a block, each B T rows, one behind the other in acts. */
typedef struct block_acts {
    zx_real *at[ZM_N_ACTS];
} block_acts;

static block_acts point_acts(const call *c, const zx_real *acts)
{
    block_acts out;
    zx_real *next = (zx_real *)acts; /* backward only reads them */
    for (int i = 0; i < ZM_N_ACTS; i++) {
        out.at[i] = next;
        next += c->n * zm_act_floats(c->model, (zm_act)i);
    }
    return out;
}

/* Queries, keys and values, or their gradients, in memory of B T (C + 2 KV) elements: packed by
 * token as one matrix makes them, else three tensors. */
typedef struct qkv {
    zx_real *q, *k, *v;
    zx_attention shape;
} qkv;

static qkv point_qkv(const call *c, zx_real *memory)
{
    const zm_model *m = c->model;
    const int64_t packed = c->C + 2 * (int64_t)c->KV;
    const bool is_packed = c->form->packed_qkv;
    qkv out = {.q = memory,
               .k = memory + c->C * (is_packed ? 1 : c->n),
               .shape = {.B = c->B,
                         .T = c->T,
                         .n_heads = m->n_heads,
                         .n_kv_heads = m->n_kv_heads,
                         .head_size = m->n_channels / m->n_heads,
                         .q_stride = is_packed ? packed : c->C,
                         .kv_stride = is_packed ? packed : c->KV}};
    out.v = out.k + c->KV * (is_packed ? 1 : c->n);
    return out;
}

static bool qkv_forward(const call *c, const qkv *out, const zx_real *x, zs_error *err)
{
    if (c->form->packed_qkv)
        return linear_forward(c, out->q, x, ZM_QKV_W, ZM_QKV_B, NULL, c->C, c->C + 2 * c->KV, err);
    return linear_forward(c, out->q, x, ZM_Q_W, ZM_Q_B, NULL, c->C, c->C, err) &&
           linear_forward(c, out->k, x, ZM_K_W, ZM_K_B, NULL, c->C, c->KV, err) &&
           linear_forward(c, out->v, x, ZM_V_W, ZM_V_B, NULL, c->C, c->KV, err);
}

static bool qkv_backward(const call *c, zx_real *dx, const qkv *dout, const zx_real *x,
                         zs_error *err)
{
    if (c->form->packed_qkv)
        return linear_backward(c, dx, false, dout->q, x, ZM_QKV_W, ZM_QKV_B, c->C, c->C + 2 * c->KV,
                               err);
    return linear_backward(c, dx, false, dout->q, x, ZM_Q_W, ZM_Q_B, c->C, c->C, err) &&
           linear_backward(c, dx, true, dout->k, x, ZM_K_W, ZM_K_B, c->C, c->KV, err) &&
           linear_backward(c, dx, true, dout->v, x, ZM_V_W, ZM_V_B, c->C, c->KV, err);
}

/* Turns queries and keys to their positions; inverse: their gradients back. */
static bool turn(const call *c, const qkv *x, bool inverse, zs_error *err)
{
    const zx_attention *s = &x->shape;
    if (!c->form->rotary)
        return true;
    assert(!c->form->packed_qkv);
    return c->ops->rotary(c->b, x->q, c->model->rope_theta, inverse, s->B, s->T, s->n_heads,
                          s->head_size, err) &&
           c->ops->rotary(c->b, x->k, c->model->rope_theta, inverse, s->B, s->T, s->n_kv_heads,
                          s->head_size, err);
}

static bool mlp_forward(const call *c, zx_real *out, const block_acts *a, zs_error *err)
{
    zx_real *gate = a->at[ZM_ACT_GATE], *fc = a->at[ZM_ACT_FC], *inner = a->at[ZM_ACT_INNER];
    const zx_real *x = a->at[ZM_ACT_NORM2];
    bool ok;
    if (c->form->gated)
        ok = linear_forward(c, gate, x, ZM_GATE_W, NO_BIAS, NULL, c->C, c->F, err) &&
             linear_forward(c, fc, x, ZM_UP_W, NO_BIAS, NULL, c->C, c->F, err) &&
             c->ops->swiglu_forward(c->b, inner, gate, fc, c->n * c->F, err);
    else
        ok = linear_forward(c, fc, x, ZM_FC_W, ZM_FC_B, NULL, c->C, c->F, err) &&
             c->ops->activation_forward(c->b, inner, fc, c->model->activation, c->n * c->F, err);
    return ok && linear_forward(c, out, inner, ZM_FCPROJ_W, ZM_FCPROJ_B, a->at[ZM_ACT_RESIDUAL],
                                c->F, c->C, err);
}

/* dx (n,C); wide: scratch of n F, with a gate of 2 n F. */
static bool mlp_backward(const call *c, zx_real *dx, const zx_real *dout, const block_acts *a,
                         zx_real *wide, zs_error *err)
{
    zx_real *up_grad = wide + c->n * c->F;
    const zx_real *gate = a->at[ZM_ACT_GATE], *fc = a->at[ZM_ACT_FC], *x = a->at[ZM_ACT_NORM2];
    const int64_t n_inner = c->n * c->F;
    if (!linear_backward(c, wide, false, dout, a->at[ZM_ACT_INNER], ZM_FCPROJ_W, ZM_FCPROJ_B, c->F,
                         c->C, err))
        return false;
    if (c->form->gated)
        return c->ops->swiglu_backward(c->b, wide, up_grad, wide, gate, fc, n_inner, err) &&
               linear_backward(c, dx, false, wide, x, ZM_GATE_W, NO_BIAS, c->C, c->F, err) &&
               linear_backward(c, dx, true, up_grad, x, ZM_UP_W, NO_BIAS, c->C, c->F, err);
    return c->ops->activation_backward(c->b, wide, wide, fc, c->model->activation, n_inner, err) &&
           linear_backward(c, dx, false, wide, x, ZM_FC_W, ZM_FC_B, c->C, c->F, err);
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
    return (int64_t)B * T * (model->n_channels + zm_norm_floats(model) + model->n_vocab);
}

/* The row of position 0; NULL when the family has no table. */
static zx_real *positions_of(const zm_model *model, const zx_tensors *tensors)
{
    zx_real *table = tensors->at[ZM_WPE];
    const int64_t reserved = zm_model_form(model)->n_reserved_positions;
    return table == NULL ? NULL : table + reserved * model->n_channels;
}

bool zx_embedding_forward(zx_backend *b, const zm_model *model, zx_real *out,
                          const zx_tensors *params, const int32_t *tokens, int B, int T,
                          zs_error *err)
{
    return b->ops->embedding_forward(b, out, tokens, params->at[ZM_WTE],
                                     positions_of(model, params), B, T, model->n_channels, err);
}

bool zx_embedding_backward(zx_backend *b, const zm_model *model, zx_tensors *grads,
                           const int32_t *tokens, const zx_real *dout, int B, int T, zs_error *err)
{
    return b->ops->embedding_backward(b, grads->at[ZM_WTE], positions_of(model, grads), tokens,
                                      dout, B, T, model->n_channels, err);
}

bool zx_block_forward(zx_backend *b, const zm_model *model, zx_real *out, zx_real *acts,
                      const zx_real *in, const zx_tensors *params, zx_real *scratch, int B, int T,
                      zs_error *err)
{
    const call c = call_of(b, model, params, NULL, B, T);
    const block_acts a = point_acts(&c, acts);
    const qkv x = point_qkv(&c, a.at[ZM_ACT_QKV]);
    (void)scratch; /* all that forward computes is kept */
    return norm_forward(&c, a.at[ZM_ACT_NORM1], a.at[ZM_ACT_NORM1_MEAN], a.at[ZM_ACT_NORM1_RSTD],
                        in, ZM_NORM1_W, ZM_NORM1_B, err) &&
           qkv_forward(&c, &x, a.at[ZM_ACT_NORM1], err) && turn(&c, &x, false, err) &&
           c.ops->attention_forward(b, a.at[ZM_ACT_ATT], a.at[ZM_ACT_LSE], x.q, x.k, x.v, &x.shape,
                                    err) &&
           linear_forward(&c, a.at[ZM_ACT_RESIDUAL], a.at[ZM_ACT_ATT], ZM_PROJ_W, ZM_PROJ_B, in,
                          c.C, c.C, err) &&
           norm_forward(&c, a.at[ZM_ACT_NORM2], a.at[ZM_ACT_NORM2_MEAN], a.at[ZM_ACT_NORM2_RSTD],
                        a.at[ZM_ACT_RESIDUAL], ZM_NORM2_W, ZM_NORM2_B, err) &&
           mlp_forward(&c, out, &a, err);
}

bool zx_block_backward(zx_backend *b, const zm_model *model, zx_real *din, zx_tensors *grads,
                       const zx_real *dout, const zx_real *acts, const zx_real *in,
                       const zx_tensors *params, zx_real *scratch, int B, int T, zs_error *err)
{
    const call c = call_of(b, model, params, grads, B, T);
    const block_acts a = point_acts(&c, acts);
    const qkv x = point_qkv(&c, a.at[ZM_ACT_QKV]);
    zx_real *narrow = scratch;           /* (n,C) */
    zx_real *wide = scratch + c.n * c.C; /* the MLP's inner gradients, then those of q, k, v */
    const qkv dx = point_qkv(&c, wide);
    return mlp_backward(&c, narrow, dout, &a, wide, err) &&
           norm_backward(&c, din, dout, narrow, a.at[ZM_ACT_RESIDUAL], a.at[ZM_ACT_NORM2_MEAN],
                         a.at[ZM_ACT_NORM2_RSTD], ZM_NORM2_W, ZM_NORM2_B, err) &&
           linear_backward(&c, narrow, false, din, a.at[ZM_ACT_ATT], ZM_PROJ_W, ZM_PROJ_B, c.C, c.C,
                           err) &&
           c.ops->attention_backward(b, dx.q, dx.k, dx.v, narrow, x.q, x.k, x.v, a.at[ZM_ACT_ATT],
                                     a.at[ZM_ACT_LSE], &x.shape, err) &&
           turn(&c, &dx, true, err) && qkv_backward(&c, narrow, &dx, a.at[ZM_ACT_NORM1], err) &&
           norm_backward(&c, din, din, narrow, in, a.at[ZM_ACT_NORM1_MEAN], a.at[ZM_ACT_NORM1_RSTD],
                         ZM_NORM1_W, ZM_NORM1_B, err);
}

typedef struct head_acts {
    zx_real *norm, *mean, *rstd, *logits;
} head_acts;

static head_acts point_head_acts(const call *c, const zx_real *acts)
{
    head_acts out;
    out.norm = (zx_real *)acts; /* backward only reads them */
    out.rstd = out.norm + c->n * c->C;
    out.mean = out.rstd + c->n; /* RMSNorm: none, and nothing reads it */
    out.logits = out.rstd + c->n * zm_norm_floats(c->model);
    return out;
}

bool zx_head_forward(zx_backend *b, const zm_model *model, double *loss_sum, zx_real *acts,
                     const zx_real *in, const zx_tensors *params, const int32_t *targets, int B,
                     int T, double scale, zs_error *err)
{
    const call c = call_of(b, model, params, NULL, B, T);
    const head_acts a = point_head_acts(&c, acts);
    const int V = model->n_vocab;
    return norm_forward(&c, a.norm, a.mean, a.rstd, in, ZM_NORMF_W, ZM_NORMF_B, err) &&
           c.ops->linear_forward(b, a.logits, a.norm, params->at[ZM_WTE], NULL, NULL, c.n, c.C, V,
                                 false, err) &&
           c.ops->cross_entropy(b, loss_sum, a.logits, targets, c.n, V, scale, err);
}

bool zx_head_backward(zx_backend *b, const zm_model *model, zx_real *din, zx_tensors *grads,
                      const zx_real *acts, const zx_real *in, const zx_tensors *params,
                      zx_real *scratch, int B, int T, zs_error *err)
{
    const call c = call_of(b, model, params, grads, B, T);
    const head_acts a = point_head_acts(&c, acts);
    return c.ops->linear_backward(b, scratch, grads->at[ZM_WTE], NULL, a.logits, a.norm,
                                  params->at[ZM_WTE], c.n, c.C, model->n_vocab, false, false,
                                  err) &&
           norm_backward(&c, din, NULL, scratch, in, a.mean, a.rstd, ZM_NORMF_W, ZM_NORMF_B, err);
}
