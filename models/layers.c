#include "models/layers.h"

#include <assert.h>
#include <stdio.h>

/* Sizes that shapes are made of. */
typedef enum dim {
    DIM_1, /* second dimension of a vector */
    DIM_C,
    DIM_3C,
    DIM_KV, /* n_kv_heads * C / n_heads */
    DIM_F,
    DIM_V,
    DIM_P /* rows of the position table */
} dim;

typedef struct row {
    zm_role role;
    const char *name; /* in a block: what follows the index */
    dim rows, columns;
    zm_init init;
} row;

typedef struct table {
    const char *block_prefix; /* what comes before the index */
    int n_embedding, n_block, n_norm;
    const row *embedding, *block, *norm; /* norm: the head without its matrix */
} table;

/* Names: transformers, modeling_gpt2.py, modeling_opt.py and modeling_llama.py, as their language
 * models save them. Initial values: the same files, _init_weights; only GPT-2 scales the
 * projections into the residual stream (Radford et al., Language Models are Unsupervised Multitask
 * Learners, 2019, sec. 2.3). */
/* clang-format off */
static const row gpt2_embedding[] = {
    {ZM_WTE, "transformer.wte.weight", DIM_V, DIM_C, ZM_INIT_NORMAL},
    {ZM_WPE, "transformer.wpe.weight", DIM_P, DIM_C, ZM_INIT_NORMAL},
};
static const row gpt2_block[] = {
    {ZM_NORM1_W,  ".ln_1.weight",        DIM_C,  DIM_1, ZM_INIT_ONES},
    {ZM_NORM1_B,  ".ln_1.bias",          DIM_C,  DIM_1, ZM_INIT_ZEROS},
    {ZM_QKV_W,    ".attn.c_attn.weight", DIM_C,  DIM_3C,  ZM_INIT_NORMAL},
    {ZM_QKV_B,    ".attn.c_attn.bias",   DIM_3C, DIM_1, ZM_INIT_ZEROS},
    {ZM_PROJ_W,   ".attn.c_proj.weight", DIM_C,  DIM_C,   ZM_INIT_RESIDUAL},
    {ZM_PROJ_B,   ".attn.c_proj.bias",   DIM_C,  DIM_1, ZM_INIT_ZEROS},
    {ZM_NORM2_W,  ".ln_2.weight",        DIM_C,  DIM_1, ZM_INIT_ONES},
    {ZM_NORM2_B,  ".ln_2.bias",          DIM_C,  DIM_1, ZM_INIT_ZEROS},
    {ZM_FC_W,     ".mlp.c_fc.weight",    DIM_C,  DIM_F,   ZM_INIT_NORMAL},
    {ZM_FC_B,     ".mlp.c_fc.bias",      DIM_F,  DIM_1, ZM_INIT_ZEROS},
    {ZM_FCPROJ_W, ".mlp.c_proj.weight",  DIM_F,  DIM_C,   ZM_INIT_RESIDUAL},
    {ZM_FCPROJ_B, ".mlp.c_proj.bias",    DIM_C,  DIM_1, ZM_INIT_ZEROS},
};
static const row gpt2_norm[] = {
    {ZM_NORMF_W, "transformer.ln_f.weight", DIM_C, DIM_1, ZM_INIT_ONES},
    {ZM_NORMF_B, "transformer.ln_f.bias",   DIM_C, DIM_1, ZM_INIT_ZEROS},
};

static const row opt_embedding[] = {
    {ZM_WTE, "model.decoder.embed_tokens.weight",    DIM_V, DIM_C, ZM_INIT_NORMAL},
    {ZM_WPE, "model.decoder.embed_positions.weight", DIM_P, DIM_C, ZM_INIT_NORMAL},
};
static const row opt_block[] = {
    {ZM_NORM1_W,  ".self_attn_layer_norm.weight", DIM_C, DIM_1, ZM_INIT_ONES},
    {ZM_NORM1_B,  ".self_attn_layer_norm.bias",   DIM_C, DIM_1, ZM_INIT_ZEROS},
    {ZM_Q_W,      ".self_attn.q_proj.weight",     DIM_C, DIM_C,   ZM_INIT_NORMAL},
    {ZM_Q_B,      ".self_attn.q_proj.bias",       DIM_C, DIM_1, ZM_INIT_ZEROS},
    {ZM_K_W,      ".self_attn.k_proj.weight",     DIM_C, DIM_C,   ZM_INIT_NORMAL},
    {ZM_K_B,      ".self_attn.k_proj.bias",       DIM_C, DIM_1, ZM_INIT_ZEROS},
    {ZM_V_W,      ".self_attn.v_proj.weight",     DIM_C, DIM_C,   ZM_INIT_NORMAL},
    {ZM_V_B,      ".self_attn.v_proj.bias",       DIM_C, DIM_1, ZM_INIT_ZEROS},
    {ZM_PROJ_W,   ".self_attn.out_proj.weight",   DIM_C, DIM_C,   ZM_INIT_NORMAL},
    {ZM_PROJ_B,   ".self_attn.out_proj.bias",     DIM_C, DIM_1, ZM_INIT_ZEROS},
    {ZM_NORM2_W,  ".final_layer_norm.weight",     DIM_C, DIM_1, ZM_INIT_ONES},
    {ZM_NORM2_B,  ".final_layer_norm.bias",       DIM_C, DIM_1, ZM_INIT_ZEROS},
    {ZM_FC_W,     ".fc1.weight",                  DIM_F, DIM_C,   ZM_INIT_NORMAL},
    {ZM_FC_B,     ".fc1.bias",                    DIM_F, DIM_1, ZM_INIT_ZEROS},
    {ZM_FCPROJ_W, ".fc2.weight",                  DIM_C, DIM_F,   ZM_INIT_NORMAL},
    {ZM_FCPROJ_B, ".fc2.bias",                    DIM_C, DIM_1, ZM_INIT_ZEROS},
};
static const row opt_norm[] = {
    {ZM_NORMF_W, "model.decoder.final_layer_norm.weight", DIM_C, DIM_1, ZM_INIT_ONES},
    {ZM_NORMF_B, "model.decoder.final_layer_norm.bias",   DIM_C, DIM_1, ZM_INIT_ZEROS},
};

static const row llama_embedding[] = {
    {ZM_WTE, "model.embed_tokens.weight", DIM_V, DIM_C, ZM_INIT_NORMAL},
};
static const row llama_block[] = {
    {ZM_NORM1_W,  ".input_layernorm.weight",          DIM_C,  DIM_1, ZM_INIT_ONES},
    {ZM_Q_W,      ".self_attn.q_proj.weight",         DIM_C,  DIM_C,   ZM_INIT_NORMAL},
    {ZM_K_W,      ".self_attn.k_proj.weight",         DIM_KV, DIM_C,   ZM_INIT_NORMAL},
    {ZM_V_W,      ".self_attn.v_proj.weight",         DIM_KV, DIM_C,   ZM_INIT_NORMAL},
    {ZM_PROJ_W,   ".self_attn.o_proj.weight",         DIM_C,  DIM_C,   ZM_INIT_NORMAL},
    {ZM_NORM2_W,  ".post_attention_layernorm.weight", DIM_C,  DIM_1, ZM_INIT_ONES},
    {ZM_GATE_W,   ".mlp.gate_proj.weight",            DIM_F,  DIM_C,   ZM_INIT_NORMAL},
    {ZM_UP_W,     ".mlp.up_proj.weight",              DIM_F,  DIM_C,   ZM_INIT_NORMAL},
    {ZM_FCPROJ_W, ".mlp.down_proj.weight",            DIM_C,  DIM_F,   ZM_INIT_NORMAL},
};
static const row llama_norm[] = {
    {ZM_NORMF_W, "model.norm.weight", DIM_C, DIM_1, ZM_INIT_ONES},
};
/* clang-format on */

#define ROWS(array) ((int)(sizeof(array) / sizeof(array)[0]))
#define TABLE(prefix, family)                                                                      \
    {                                                                                              \
        .block_prefix = (prefix), .n_embedding = ROWS(family##_embedding),                         \
        .n_block = ROWS(family##_block), .n_norm = ROWS(family##_norm),                            \
        .embedding = family##_embedding, .block = family##_block, .norm = family##_norm            \
    }
static const table tables[ZM_N_FAMILIES] = {
    [ZM_GPT2] = TABLE("transformer.h.", gpt2),
    [ZM_OPT] = TABLE("model.decoder.layers.", opt),
    [ZM_LLAMA] = TABLE("model.layers.", llama),
};

static const zm_form forms[ZM_N_FAMILIES] = {
    [ZM_GPT2] = {.input_major = true, .packed_qkv = true},
    /* OPT looks positions up at index + 2: its first two rows belong to padding. */
    [ZM_OPT] = {.n_reserved_positions = 2},
    [ZM_LLAMA] = {.rms_norm = true, .rotary = true, .gated = true},
};

const zm_form *zm_model_form(const zm_model *model)
{
    return &forms[model->family];
}

static int64_t dim_size(const zm_model *model, dim d)
{
    switch (d) {
    case DIM_1:
        return 1;
    case DIM_C:
        return model->n_channels;
    case DIM_3C:
        return 3 * (int64_t)model->n_channels;
    case DIM_KV:
        return (int64_t)model->n_kv_heads * (model->n_channels / model->n_heads);
    case DIM_F:
        return model->n_ffn;
    case DIM_V:
        return model->n_vocab;
    case DIM_P:
        return (int64_t)model->n_positions + zm_model_form(model)->n_reserved_positions;
    }
    assert(false);
    return 0;
}

static void fill(zm_tensor *out, const zm_model *model, const row *r)
{
    *out = (zm_tensor){.role = r->role, .init = r->init};
    out->n_dims = r->columns == DIM_1 ? 1 : 2;
    out->shape[0] = dim_size(model, r->rows);
    out->shape[1] = dim_size(model, r->columns);
    out->count = out->shape[0] * out->shape[1];
    out->decay = out->n_dims == 2;
}

static void fill_named(zm_tensor *out, const zm_model *model, const row *r)
{
    fill(out, model, r);
    snprintf(out->name, sizeof out->name, "%s", r->name);
}

zs_layer_kind zm_layer_kind(const zm_model *model, int layer)
{
    assert(layer >= 0 && layer <= model->n_blocks + 1);
    if (layer == 0)
        return ZS_LAYER_EMBEDDING;
    return layer <= model->n_blocks ? ZS_LAYER_BLOCK : ZS_LAYER_HEAD;
}

int zm_layer_tensors(zm_tensor tensors[ZM_MAX_TENSORS], const zm_model *model, int layer)
{
    const table *t = &tables[model->family];
    int n = 0;
    switch (zm_layer_kind(model, layer)) {
    case ZS_LAYER_EMBEDDING:
        for (int i = 0; i < t->n_embedding; i++)
            fill_named(&tensors[n++], model, &t->embedding[i]);
        break;
    case ZS_LAYER_BLOCK:
        for (int i = 0; i < t->n_block; i++) {
            zm_tensor *tensor = &tensors[n++];
            fill(tensor, model, &t->block[i]);
            tensor->input_major = zm_model_form(model)->input_major && tensor->n_dims == 2;
            snprintf(tensor->name, sizeof tensor->name, "%s%d%s", t->block_prefix, layer - 1,
                     t->block[i].name);
        }
        break;
    case ZS_LAYER_HEAD:
        for (int i = 0; i < t->n_norm; i++)
            fill_named(&tensors[n++], model, &t->norm[i]);
        fill_named(&tensors[n], model, &t->embedding[0]);
        tensors[n].shared = model->tied;
        if (!model->tied)
            snprintf(tensors[n].name, sizeof tensors[n].name, "lm_head.weight");
        n++;
        break;
    case ZS_N_LAYER_KINDS:
        break;
    }
    assert(n <= ZM_MAX_TENSORS);
    return n;
}

int64_t zm_layer_n_params(const zm_model *model, int layer)
{
    zm_tensor tensors[ZM_MAX_TENSORS];
    int n = zm_layer_tensors(tensors, model, layer);
    int64_t n_params = 0;
    for (int i = 0; i < n; i++)
        if (!tensors[i].shared)
            n_params += tensors[i].count;
    return n_params;
}

int64_t zm_stage_n_params(const zm_model *model, int first_block, int end_block)
{
    int64_t n_params = (end_block - first_block) * zm_layer_n_params(model, 1);
    if (first_block == 0)
        n_params += zm_layer_n_params(model, 0);
    if (end_block == model->n_blocks)
        n_params += zm_layer_n_params(model, model->n_blocks + 1);
    return n_params;
}

int64_t zm_stage_n_tied(const zm_model *model, int first_block, int end_block)
{
    bool keeps_copy = model->tied && end_block == model->n_blocks && first_block > 0;
    return keeps_copy ? dim_size(model, DIM_V) * dim_size(model, DIM_C) : 0;
}

int64_t zm_model_n_params(const zm_model *model)
{
    return zm_stage_n_params(model, 0, model->n_blocks);
}

bool zm_stage_tensors(zm_stage_tensor **out, int *n, zs_arena *arena, const zm_model *model,
                      int first_block, int end_block, zs_error *err)
{
    assert(first_block >= 0 && first_block <= end_block && end_block <= model->n_blocks);
    const int first_layer = first_block == 0 ? 0 : first_block + 1;
    const int end_layer = end_block == model->n_blocks ? model->n_blocks + 2 : end_block + 1;
    zm_stage_tensor *list =
        ZS_NEW(arena, zm_stage_tensor, (int64_t)(end_layer - first_layer) * ZM_MAX_TENSORS, err);
    if (!list)
        return false;

    int64_t global_offset = 0;
    if (first_layer > 0)
        global_offset = zm_layer_n_params(model, 0) + first_block * zm_layer_n_params(model, 1);
    int64_t offset = 0;
    int n_list = 0;
    for (int layer = first_layer; layer < end_layer; layer++) {
        zm_tensor tensors[ZM_MAX_TENSORS];
        int n_layer = zm_layer_tensors(tensors, model, layer);
        for (int i = 0; i < n_layer; i++) {
            zm_stage_tensor *t = &list[n_list++];
            *t = (zm_stage_tensor){.tensor = tensors[i], .layer = layer};
            if (tensors[i].shared) {
                /* The embedding is the model's first tensor. The head comes last, so offset is
                 * n_params already. */
                t->offset = first_block == 0 ? 0 : offset;
                t->global_offset = 0;
                continue;
            }
            t->offset = offset;
            t->global_offset = global_offset;
            offset += tensors[i].count;
            global_offset += tensors[i].count;
        }
    }
    *out = list;
    *n = n_list;
    return true;
}

static const bool act_is_fp32[ZM_N_ACTS] = {
#define ACT(symbol, floats, fp32) [ZM_ACT_##symbol] = fp32,
    ZM_ACTS(ACT)
#undef ACT
};

int64_t zm_act_floats(const zm_model *model, zm_act act)
{
    const zm_form *form = zm_model_form(model);
    const int64_t C = model->n_channels, F = model->n_ffn, NH = model->n_heads;
    const int64_t KV = dim_size(model, DIM_KV);
    const int64_t MEAN = form->rms_norm ? 0 : 1, GATE = form->gated ? F : 0;
    switch (act) {
#define ACT(symbol, floats, fp32)                                                                  \
    case ZM_ACT_##symbol:                                                                          \
        return floats;
        ZM_ACTS(ACT)
#undef ACT
    case ZM_N_ACTS:
        break;
    }
    assert(false);
    return 0;
}

int64_t zm_block_act_floats(const zm_model *model)
{
    int64_t floats = 0;
    for (int act = 0; act < ZM_N_ACTS; act++)
        floats += zm_act_floats(model, (zm_act)act);
    return floats;
}

int64_t zm_block_fp32_act_floats(const zm_model *model)
{
    int64_t floats = 0;
    for (int act = 0; act < ZM_N_ACTS; act++)
        if (act_is_fp32[act])
            floats += zm_act_floats(model, (zm_act)act);
    return floats;
}

int64_t zm_norm_floats(const zm_model *model)
{
    return zm_model_form(model)->rms_norm ? 1 : 2;
}

int64_t zm_block_scratch_floats(const zm_model *model)
{
    const int64_t C = model->n_channels, F = model->n_ffn;
    const int64_t qkv = C + 2 * dim_size(model, DIM_KV);
    /* A gated MLP has two inner gradients at a time. */
    const int64_t inner = zm_model_form(model)->gated ? 2 * F : F;
    return (inner > qkv ? inner : qkv) + C;
}
