/* What each layer holds: parameter tensors with shapes and Hugging Face names, and the activations
 * that its backward pass needs. Planner (bytes), executor (buffers) and files (names) read the same
 * tables. Layers are numbered 0 (embedding), 1..L (block 0..L-1), L+1 (head). */
#ifndef MODELS_LAYERS_H
#define MODELS_LAYERS_H

#include "models/model.h"
#include "shared/profile.h"

enum { ZM_MAX_TENSORS = 20 }; /* of one layer */
enum { ZM_NAME_SIZE = 96 };

/* How a tensor starts: normal with std 0.02, normal scaled by 1/sqrt(2 L) (projections into the
 * residual stream), zeros, ones. */
typedef enum zm_init { ZM_INIT_NORMAL, ZM_INIT_RESIDUAL, ZM_INIT_ZEROS, ZM_INIT_ONES } zm_init;

/* Roles: the executor finds a tensor by its role. */
typedef enum zm_role {
    ZM_WTE,     /* (V,C) token embedding; in the head layer: the output matrix (V,C) */
    ZM_WPE,     /* (n_positions,C); OPT has two rows more */
    ZM_NORM1_W, /* (C) norm before attention */
    ZM_NORM1_B,
    ZM_QKV_W, /* GPT-2: (C,3C) input-major, order q,k,v */
    ZM_QKV_B,
    ZM_Q_W,
    ZM_Q_B,
    ZM_K_W,
    ZM_K_B,
    ZM_V_W,
    ZM_V_B,    /* OPT, LLaMA: (out,in) */
    ZM_PROJ_W, /* attention output; GPT-2 (C,C) input-major, else (C,C) (out,in) */
    ZM_PROJ_B,
    ZM_NORM2_W,
    ZM_NORM2_B,
    ZM_FC_W, /* GPT-2: (C,F) input-major; OPT: (F,C) */
    ZM_FC_B,
    ZM_GATE_W,
    ZM_UP_W,     /* LLaMA: (F,C) */
    ZM_FCPROJ_W, /* GPT-2: (F,C) input-major; else (C,F) */
    ZM_FCPROJ_B,
    ZM_NORMF_W,
    ZM_NORMF_B, /* head: final norm */
    ZM_N_ROLES
} zm_role;

typedef struct zm_tensor {
    zm_role role;
    char name[ZM_NAME_SIZE]; /* Hugging Face name with the global block index */
    int n_dims;              /* 1 or 2 */
    int64_t shape[2];
    int64_t count;    /* elements */
    bool input_major; /* GPT-2's Conv1D: (in,out); y = x W. Otherwise (out,in); y = x W^T */
    bool decay;       /* weight decay applies: matrices and embeddings, no biases, no norms */
    bool shared;      /* the head's copy of a tied embedding: elements live in layer 0's tensor */
    zm_init init;
} zm_tensor;

/* Tensors of one layer in storage order. Returns their number (<= ZM_MAX_TENSORS). The head of a
 * tied model lists its ZM_WTE last with shared = true and the embedding's name; of an untied one
 * last with shared = false. */
int zm_layer_tensors(zm_tensor tensors[ZM_MAX_TENSORS], const zm_model *model, int layer);

zs_layer_kind zm_layer_kind(const zm_model *model, int layer);

/* Elements of a layer; shared ones not counted. */
int64_t zm_layer_n_params(const zm_model *model, int layer);

/* Elements of a stage with blocks [first_block, end_block), plus embedding when first_block is 0
 * and head when end_block is L: the plan's n_params. On the embedding's own stage a tied head adds
 * nothing; elsewhere neither (its copy is extra_tied). */
int64_t zm_stage_n_params(const zm_model *model, int first_block, int end_block);

/* Elements of the copy of the tied embedding that the last stage keeps when the embedding is on
 * another stage; 0 otherwise. */
int64_t zm_stage_n_tied(const zm_model *model, int first_block, int end_block);

int64_t zm_model_n_params(const zm_model *model);

/* Where each tensor of a stage lies in its flattened parameters: layers in order, tensors in table
 * order, no padding. The shared tensor of a tied head has the embedding's offset on the
 * embedding's own stage (it is the same memory); elsewhere the copy follows behind n_params (offset
 * n_params). */
typedef struct zm_stage_tensor {
    zm_tensor tensor;
    int layer;
    int64_t offset;        /* in the stage's flattened parameters */
    int64_t global_offset; /* in the whole model's, for random initial values and digests; the
                              shared copy has the embedding's */
} zm_stage_tensor;

/* In arena. *n tensors. */
ZS_MUST_CHECK bool zm_stage_tensors(zm_stage_tensor **out, int *n, zs_arena *arena,
                                    const zm_model *model, int first_block, int end_block,
                                    zs_error *err);

/* What the layers of a family are made of. */
typedef struct zm_form {
    bool input_major;         /* matrices of a block are (in,out) */
    bool packed_qkv;          /* ZM_QKV_W; otherwise ZM_Q_W, ZM_K_W, ZM_V_W */
    bool rms_norm;            /* RMSNorm; otherwise LayerNorm */
    bool rotary;              /* positions turn queries and keys; otherwise they have a ZM_WPE */
    bool gated;               /* the MLP's inner width is activation(gate) * up */
    int n_reserved_positions; /* rows of ZM_WPE before that of position 0 */
} zm_form;

const zm_form *zm_model_form(const zm_model *model);

/* Activations that the backward pass of a block reads: floats per token, and whether they stay
 * fp32 under bf16. The families differ in sizes, some of which are 0: KV is the width of the keys,
 * MEAN 1 with LayerNorm, GATE F with a gated MLP; F = n_ffn. */
/* clang-format off */
#define ZM_ACTS(ACT)                                                                               \
    ACT(NORM1,      C,          false) /* output of the first norm */                              \
    ACT(NORM1_MEAN, MEAN,       true)                                                              \
    ACT(NORM1_RSTD, 1,          true)                                                              \
    ACT(QKV,        C + 2 * KV, false) /* packed by token, or q, k and v behind each other */      \
    ACT(ATT,        C,          false) /* attention output before its projection */                \
    ACT(LSE,        NH,         true)  /* log of the sum of exponentials, per head */              \
    ACT(RESIDUAL,   C,          false) /* after attention and skip connection */                   \
    ACT(NORM2,      C,          false)                                                             \
    ACT(NORM2_MEAN, MEAN,       true)                                                              \
    ACT(NORM2_RSTD, 1,          true)                                                              \
    ACT(GATE,       GATE,       false)                                                             \
    ACT(FC,         F,          false) /* before the activation function; with a gate: up */       \
    ACT(INNER,      F,          false) /* after it: what the second matrix reads */
/* clang-format on */

typedef enum zm_act {
#define ACT(symbol, floats, fp32) ZM_ACT_##symbol,
    ZM_ACTS(ACT)
#undef ACT
        ZM_N_ACTS
} zm_act;

/* Floats per token of one saved activation, of all of them, and of those that stay fp32. The
 * block's input is not counted here: it is the output of the layer before. */
int64_t zm_act_floats(const zm_model *model, zm_act act);
int64_t zm_block_act_floats(const zm_model *model);
int64_t zm_block_fp32_act_floats(const zm_model *model);

/* Floats per token that a norm keeps for backward: mean (LayerNorm) and reciprocal deviation. */
int64_t zm_norm_floats(const zm_model *model);

/* Floats per token that a block's backward pass needs beside them, for one block at a time: a
 * gradient of the MLP's or the attention's inner width, and one of C. */
int64_t zm_block_scratch_floats(const zm_model *model);

#endif
