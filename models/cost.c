#include "models/cost.h"

#include <assert.h>

static int element_bytes(zs_precision precision)
{
    return precision == ZS_BF16 ? 2 : 4;
}

zm_state_bytes zm_cost_state(zs_precision precision)
{
    /* Rajbhandari et al., ZeRO, SC 2020, sec. 3.1: K = 12 under mixed precision. */
    if (precision == ZS_BF16)
        return (zm_state_bytes){.weights = 2, .gradients = 2, .optimizer = 12};
    return (zm_state_bytes){.weights = 4, .gradients = 4, .optimizer = 8};
}

/* The matrices of a layer that tokens are multiplied with: sums over them. */
typedef struct matrices {
    int64_t n_weights;  /* in * out */
    int64_t n_features; /* in + out: elements that one token reads and writes */
} matrices;

static matrices sum_matrices(const zm_model *model, int layer)
{
    zm_tensor tensors[ZM_MAX_TENSORS];
    int n = zm_layer_tensors(tensors, model, layer);
    matrices sum = {0};
    for (int i = 0; i < n; i++) {
        if (tensors[i].n_dims != 2)
            continue;
        sum.n_weights += tensors[i].count;
        sum.n_features += tensors[i].shape[0] + tensors[i].shape[1];
    }
    return sum;
}

static int first_layer_of(const zm_model *model, zs_layer_kind kind)
{
    return kind == ZS_LAYER_BLOCK ? 1 : model->n_blocks + 1;
}

/* Token t attends to t + 1 positions: T (T + 1) / 2 scores per head. A score, its share of the
 * output, and each of their gradients is a dot product over C / NH channels: over all heads, one
 * such product is 2 C FLOPs per pair of tokens. */
static double attention_product_flops(const zm_model *model, int seq_len)
{
    return (double)seq_len * ((double)seq_len + 1) * model->n_channels;
}

double zm_cost_forward_flops(const zm_model *model, zs_layer_kind kind, int seq_len)
{
    if (kind == ZS_LAYER_EMBEDDING)
        return 0;
    double flops =
        2.0 * seq_len * (double)sum_matrices(model, first_layer_of(model, kind)).n_weights;
    if (kind == ZS_LAYER_BLOCK)
        flops += 2 * attention_product_flops(model, seq_len);
    return flops;
}

double zm_cost_backward_flops(const zm_model *model, zs_layer_kind kind, int seq_len)
{
    if (kind == ZS_LAYER_EMBEDDING)
        return 0;
    double flops =
        4.0 * seq_len * (double)sum_matrices(model, first_layer_of(model, kind)).n_weights;
    if (kind == ZS_LAYER_BLOCK)
        flops += 5 * attention_product_flops(model, seq_len);
    return flops;
}

static int64_t kv_width(const zm_model *model)
{
    return (int64_t)model->n_kv_heads * (model->n_channels / model->n_heads);
}

/* Elements per token that the embedding reads and writes. */
static double embedding_features(const zm_model *model, bool backward)
{
    const double C = model->n_channels;
    const bool has_positions = !zm_model_form(model)->rotary;
    /* forward: a row of each table, the sum. backward: dout, and each row read and written. */
    return (has_positions ? 2 : 1) * (backward ? 2 : 1) * C + C;
}

/* Elements per token outside the matrix products of a block:
 * forward: two norms (read, write), attention (q k v, output), two additions (two read, one
 * written), the activation function (read, write; LLaMA reads gate and up).
 * backward: two norms (dout, x, dx read and written), attention (q k v, output and its gradient,
 * gradients of q k v), the activation function (dout, x, dx; LLaMA: dout, gate, up, their
 * gradients). The additions pass gradients on and cost nothing. */
static double block_features(const zm_model *model, bool backward)
{
    const double C = model->n_channels, F = model->n_ffn;
    const double qkv = C + 2 * (double)kv_width(model);
    const bool gated = zm_model_form(model)->gated;
    if (backward)
        return 2 * 4 * C + 2 * qkv + 2 * C + (gated ? 5 : 3) * F;
    return 2 * 2 * C + qkv + C + 2 * 3 * C + (gated ? 3 : 2) * F;
}

double zm_cost_forward_bytes(const zm_model *model, zs_layer_kind kind, int seq_len, int samples,
                             zs_precision precision)
{
    const double n = (double)samples * seq_len, size = element_bytes(precision);
    if (kind == ZS_LAYER_EMBEDDING)
        return n * size * embedding_features(model, false);
    const matrices m = sum_matrices(model, first_layer_of(model, kind));
    const double products = size * ((double)m.n_weights + n * (double)m.n_features);
    if (kind == ZS_LAYER_BLOCK)
        return products + n * size * block_features(model, false);
    /* Head: the norm; the loss reads the logits for the maximum and the sum, and again to put
     * their gradient in their place. Logits are fp32. */
    const double C = model->n_channels, V = model->n_vocab;
    return products + n * (size * 2 * C + (4 - size) * V + 4 * 3 * V);
}

double zm_cost_backward_bytes(const zm_model *model, zs_layer_kind kind, int seq_len, int samples,
                              zs_precision precision)
{
    const double n = (double)samples * seq_len, size = element_bytes(precision);
    if (kind == ZS_LAYER_EMBEDDING)
        return n * size * embedding_features(model, true);
    /* Two products for each of forward's: weights are read, their gradient is read and written. */
    const matrices m = sum_matrices(model, first_layer_of(model, kind));
    const double products = size * (3 * (double)m.n_weights + 2 * n * (double)m.n_features);
    if (kind == ZS_LAYER_BLOCK)
        return products + n * size * block_features(model, true);
    const double C = model->n_channels, V = model->n_vocab;
    return products + n * (size * 4 * C + 2 * (4 - size) * V);
}

int64_t zm_cost_block_act_bytes(const zm_model *model, int seq_len, zs_precision precision)
{
    const int64_t n_fp32 = zm_block_fp32_act_floats(model);
    const int64_t n_other = zm_block_act_floats(model) - n_fp32;
    return seq_len * (4 * n_fp32 + element_bytes(precision) * n_other) +
           zm_cost_boundary_bytes(model, seq_len, precision);
}

int64_t zm_cost_scratch_bytes(const zm_model *model, int seq_len, zs_precision precision)
{
    return seq_len * zm_block_scratch_floats(model) * element_bytes(precision);
}

int64_t zm_cost_boundary_bytes(const zm_model *model, int seq_len, zs_precision precision)
{
    return (int64_t)seq_len * model->n_channels * element_bytes(precision);
}

int64_t zm_cost_logits_bytes(const zm_model *model, int seq_len, zs_precision precision)
{
    const int64_t n_fp32 = zm_norm_floats(model) + model->n_vocab;
    return INT64_C(4) * seq_len * n_fp32 + zm_cost_boundary_bytes(model, seq_len, precision);
}
