#include "models/hf_config.h"

#include <limits.h>
#include <string.h>

/* What each family calls the fields of zm_model; NULL: it has none. */
typedef struct key_row {
    const char *field;
    const char *keys[ZM_N_FAMILIES];
} key_row;

/* clang-format off */
static const key_row key_rows[] = {
    /*               gpt2                  opt                        llama */
    {"n_blocks",    {"n_layer",            "num_hidden_layers",       "num_hidden_layers"}},
    {"n_channels",  {"n_embd",             "hidden_size",             "hidden_size"}},
    {"n_heads",     {"n_head",             "num_attention_heads",     "num_attention_heads"}},
    {"n_kv_heads",  {NULL,                 NULL,                      "num_key_value_heads"}},
    {"n_ffn",       {"n_inner",            "ffn_dim",                 "intermediate_size"}},
    {"n_vocab",     {"vocab_size",         "vocab_size",              "vocab_size"}},
    {"n_positions", {"n_positions",        "max_position_embeddings", "max_position_embeddings"}},
    {"activation",  {"activation_function","activation_function",     "hidden_act"}},
    {"norm_eps",    {"layer_norm_epsilon", NULL,                      "rms_norm_eps"}},
    {"rope_theta",  {NULL,                 NULL,                      "rope_theta"}},
    {"dropout",     {"resid_pdrop",        "dropout",                 "attention_dropout"}},
};

/* Switches that must have this value when they are there. */
static const struct {
    zm_family family;
    const char *key;
    bool value;
    const char *meaning; /* of the other value */
} switches[] = {
    {ZM_GPT2,  "scale_attn_weights",              true,  "attention without scaling"},
    {ZM_GPT2,  "scale_attn_by_inverse_layer_idx", false, "attention scaled by the layer"},
    {ZM_GPT2,  "reorder_and_upcast_attn",         false, "reordered attention"},
    {ZM_GPT2,  "add_cross_attention",             false, "cross-attention"},
    {ZM_OPT,   "do_layer_norm_before",            true,  "the norm after attention and MLP"},
    {ZM_OPT,   "enable_bias",                     true,  "linear layers without bias"},
    {ZM_OPT,   "layer_norm_elementwise_affine",   true,  "norms without weights"},
    {ZM_OPT,   "_remove_final_layer_norm",        false, "no final norm"},
    {ZM_LLAMA, "attention_bias",                  false, "biases in attention"},
    {ZM_LLAMA, "mlp_bias",                        false, "biases in the MLP"},
};

static const struct {
    const char *name;
    zm_activation activation;
} activations[] = {
    {"gelu_new",          ZM_GELU_TANH},
    {"gelu_pytorch_tanh", ZM_GELU_TANH},
    {"gelu_fast",         ZM_GELU_TANH},
    {"gelu",              ZM_GELU},
    {"relu",              ZM_RELU},
    {"silu",              ZM_SILU},
    {"swish",             ZM_SILU},
};
/* clang-format on */

#define N_OF(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* The value of a key; NULL also when it is null, which means the default. */
static const zs_json *find_set(const zs_json *object, const char *key)
{
    const zs_json *value = key ? zs_json_find(object, key) : NULL;
    return value && zs_json_type_of(value) != ZS_JSON_NULL ? value : NULL;
}

static const char *key_of(zm_family family, const char *field)
{
    for (int i = 0; i < N_OF(key_rows); i++)
        if (strcmp(key_rows[i].field, field) == 0)
            return key_rows[i].keys[family];
    return NULL;
}

/* Reads a count over *out; one that is 0 is required. */
static bool read_count(int *out, const zs_json *object, zm_family family, const char *field,
                       zs_error *err)
{
    const char *key = key_of(family, field);
    const zs_json *value = find_set(object, key);
    if (!value && *out > 0)
        return true;
    int64_t count;
    if (value ? !zs_json_int(&count, value, 1, INT_MAX, err)
              : !zs_json_get_int(&count, object, key, 1, INT_MAX, err))
        return false;
    *out = (int)count;
    return true;
}

static bool read_double(double *out, const zs_json *object, const char *key, double max,
                        zs_error *err)
{
    const zs_json *value = find_set(object, key);
    return !value || zs_json_double(out, value, 0, max, err);
}

static bool read_activation(zm_activation *out, const zs_json *object, const char *key,
                            zs_error *err)
{
    const zs_json *value = find_set(object, key);
    if (!value)
        return true;
    const char *name;
    if (!zs_json_string(&name, value, err))
        return false;
    for (int i = 0; i < N_OF(activations); i++) {
        if (strcmp(name, activations[i].name) == 0) {
            *out = activations[i].activation;
            return true;
        }
    }
    return zs_json_fail(value, err, "unknown activation function \"%s\"", name);
}

static bool check_switches(const zs_json *object, zm_family family, zs_error *err)
{
    for (int i = 0; i < N_OF(switches); i++) {
        const zs_json *value = find_set(object, switches[i].key);
        if (switches[i].family != family || !value)
            continue;
        bool is_set;
        if (!zs_json_bool(&is_set, value, err))
            return false;
        if (is_set != switches[i].value)
            return zs_json_fail(value, err, "%s: %s is not supported", is_set ? "true" : "false",
                                switches[i].meaning);
    }
    return true;
}

/* A key that must equal what the model has anyway. */
static bool check_equal(const zs_json *object, const char *key, double expected, const char *rule,
                        zs_error *err)
{
    double number = expected;
    if (!read_double(&number, object, key, INT_MAX, err))
        return false;
    if (number != expected)
        return zs_json_fail(find_set(object, key), err, "%g is not supported, only %s: %g", number,
                            rule, expected);
    return true;
}

/* Rotary positions: "rope_theta" and "rope_scaling" (whose type was once called "type"), newer
 * files have all of it in "rope_parameters". Only the plain form is supported. */
static bool read_rope(double *theta, const zs_json *config, zs_error *err)
{
    if (!read_double(theta, config, "rope_theta", 1e12, err) ||
        !check_equal(config, "partial_rotary_factor", 1, "all channels of a head", err))
        return false;
    static const char *const places[] = {"rope_scaling", "rope_parameters"};
    for (int i = 0; i < N_OF(places); i++) {
        const zs_json *rope = find_set(config, places[i]);
        if (!rope)
            continue;
        if (!zs_json_is_object(rope, err))
            return false;
        const zs_json *type = find_set(rope, "rope_type");
        if (!type)
            type = find_set(rope, "type");
        const char *name = "default";
        if (type && !zs_json_string(&name, type, err))
            return false;
        if (!type && find_set(rope, "factor"))
            return zs_json_fail(rope, err, "a factor without \"rope_type\"");
        if (strcmp(name, "default") != 0)
            return zs_json_fail(type, err,
                                "rotary positions of type \"%s\" are not supported, only "
                                "\"default\"",
                                name);
        if (!check_equal(rope, "partial_rotary_factor", 1, "all channels of a head", err))
            return false;
        double inner = *theta;
        if (!read_double(&inner, rope, "rope_theta", 1e12, err))
            return false;
        if (inner != *theta && find_set(config, "rope_theta"))
            return zs_json_fail(find_set(rope, "rope_theta"), err, "%g, but $.rope_theta says %g",
                                inner, *theta);
        *theta = inner;
    }
    return true;
}

/* What else makes another model of it. */
static bool check_shape(const zs_json *object, const zm_model *m, zs_error *err)
{
    switch (m->family) {
    case ZM_OPT:
        return check_equal(object, "word_embed_proj_dim", m->n_channels, "the hidden size", err) &&
               check_equal(object, "layerdrop", 0, "training of all layers", err);
    case ZM_LLAMA:
        return m->n_channels % m->n_heads != 0 || /* the rules say that better */
               check_equal(object, "head_dim", m->n_channels / m->n_heads, "hidden size / heads",
                           err);
    case ZM_GPT2:
    case ZM_N_FAMILIES:
        break;
    }
    return true;
}

bool zm_hf_config_parse(zm_model *out, const zs_json *object, const char *name, zs_error *err)
{
    int index;
    if (!find_set(object, "model_type"))
        return zs_json_fail(
            object, err,
            "neither \"format\" (a model of ours) nor \"model_type\" (a config.json "
            "of Hugging Face)");
    if (!zs_json_get_choice(&index, object, "model_type", zm_family_names, ZM_N_FAMILIES, err))
        return false;
    const zm_family family = (zm_family)index;
    const bool llama = family == ZM_LLAMA;
    zm_model m = {.name = name,
                  .family = family,
                  .n_positions = llama ? 2048 : 0,
                  .activation = llama              ? ZM_SILU
                                : family == ZM_OPT ? ZM_RELU
                                                   : ZM_GELU_TANH,
                  .norm_eps = llama ? 1e-6 : 1e-5,
                  .rope_theta = llama ? 1e4 : 0,
                  .tied = !llama,
                  .dropout = llama ? 0 : 0.1};
    if (!check_switches(object, family, err) ||
        !read_count(&m.n_blocks, object, family, "n_blocks", err) ||
        !read_count(&m.n_channels, object, family, "n_channels", err) ||
        !read_count(&m.n_heads, object, family, "n_heads", err) ||
        !read_count(&m.n_vocab, object, family, "n_vocab", err) ||
        !read_count(&m.n_positions, object, family, "n_positions", err))
        return false;
    m.n_kv_heads = m.n_heads;
    /* A width beyond the rules' bounds is reported as the channels' fault. */
    if (family == ZM_GPT2)
        m.n_ffn = m.n_channels <= INT_MAX / 4 ? 4 * m.n_channels : INT_MAX;
    if (!read_count(&m.n_kv_heads, object, family, "n_kv_heads", err) ||
        !read_count(&m.n_ffn, object, family, "n_ffn", err) ||
        !read_activation(&m.activation, object, key_of(family, "activation"), err) ||
        !read_double(&m.norm_eps, object, key_of(family, "norm_eps"), 1, err) ||
        !read_double(&m.dropout, object, key_of(family, "dropout"), 1, err) ||
        (llama && !read_rope(&m.rope_theta, object, err)))
        return false;
    const zs_json *tie = find_set(object, "tie_word_embeddings");
    if ((tie && !zs_json_bool(&m.tied, tie, err)) || !check_shape(object, &m, err))
        return false;

    char fault[ZM_FAULT_SIZE];
    const char *field = zm_model_find_fault(&m, fault);
    if (field) {
        const char *key = key_of(family, field);
        const zs_json *value = find_set(object, key);
        if (value)
            return zs_json_fail(value, err, "%s", fault);
        return zs_json_fail(object, err, "%s: %s", key ? key : field, fault);
    }
    *out = m;
    return true;
}
