#include "tests/support/check.h"

#include "models/layers.h"

#include <inttypes.h>
#include <string.h>

static zs_arena *arena;
static zs_error err;
static const char *golden;

/* Parameters of the presets: the published checkpoints' counts where there are any, else the sum
 * over shapes by hand: GPT-2 and OPT L (12 C^2 + 13 C) + (V + positions) C + 2 C, LLaMA
 * L (2 C^2 + 2 C KV + 3 C F + 2 C) + 2 V C + C. */
static const struct {
    const char *name;
    int64_t n_params;
} presets[] = {
    {"tiny", 4 * (12 * 64 * 64 + 13 * 64) + (256 + 128) * 64 + 2 * 64},
    {"gpt2-bytes", 6 * (12 * 128 * 128 + 13 * 128) + (256 + 256) * 128 + 2 * 128},
    {"gpt2-124m", 124439808},
    {"gpt2-355m", 354823168},
    {"gpt2-774m", 774030080},
    {"gpt2-1558m", 1557611200},
    {"opt-tiny", 4 * (12 * 64 * 64 + 13 * 64) + (256 + 130) * 64 + 2 * 64},
    {"opt-125m", 125239296},
    {"opt-1.3b", 1315758080},
    {"opt-2.7b", INT64_C(2651596800)},
    {"opt-6.7b", INT64_C(6658473984)},
    {"opt-13b", INT64_C(12853473280)},
    {"opt-30b", INT64_C(29974540288)},
    {"opt-66b",
     INT64_C(64) * (INT64_C(12) * 9216 * 9216 + 13 * 9216) + INT64_C(52322) * 9216 + 2 * 9216},
    {"llama-tiny", 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176 + 2 * 64) + 2 * 256 * 64 + 64},
    {"llama-7b", INT64_C(6738415616)},
    {"llama-13b", INT64_C(13015864320)},
    {"llama-30b", INT64_C(32528943616)},
    {"llama-65b", INT64_C(65285660672)},
    {"llama-2-7b", INT64_C(6738415616)},
    {"llama-2-13b", INT64_C(13015864320)},
    {"llama-2-70b", INT64_C(68976648192)},
    {"llama-3-8b", INT64_C(8030261248)},
    {"llama-3-70b", INT64_C(70553706496)},
};

static void check_presets(void)
{
    int n;
    const char *const *names = zm_model_presets(&n);
    CHECK(n == (int)(sizeof presets / sizeof presets[0]), "%d presets", n);
    for (int i = 0; i < n; i++) {
        zm_model model;
        CHECK_STRING(names[i], presets[i].name);
        if (!CHECK(zm_model_load(&model, arena, names[i], &err), "%s", err.message))
            continue;
        CHECK_STRING(model.name, names[i]);
        CHECK(zm_model_check(&model, &err), "%s", err.message);
        CHECK(zm_model_n_params(&model) == presets[i].n_params, "%s has %" PRId64, names[i],
              zm_model_n_params(&model));
    }
}

static bool same(const zm_model *a, const zm_model *b)
{
    return a->family == b->family && a->n_blocks == b->n_blocks && a->n_channels == b->n_channels &&
           a->n_heads == b->n_heads && a->n_kv_heads == b->n_kv_heads && a->n_ffn == b->n_ffn &&
           a->n_vocab == b->n_vocab && a->n_positions == b->n_positions &&
           a->activation == b->activation && a->norm_eps == b->norm_eps &&
           a->rope_theta == b->rope_theta && a->tied == b->tied && a->dropout == b->dropout;
}

/* Writing and reading gives the same model, and the same text again. */
static void check_round_trip(void)
{
    int n;
    const char *const *names = zm_model_presets(&n);
    for (int i = 0; i < n; i++) {
        zm_model model, again;
        CHECK(zm_model_load(&model, arena, names[i], &err), "%s", err.message);
        zs_json_writer *w;
        CHECK(zs_json_writer_open(&w, &err), "%s", err.message);
        zm_model_write(w, NULL, &model);
        const char *text;
        size_t size;
        const zs_json *root;
        CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message);
        CHECK(zs_json_parse(&root, arena, text, size, "written", &err), "%s", err.message);
        CHECK(zm_model_parse(&again, arena, root, "again", &err), "%s", err.message);
        CHECK(same(&model, &again), "%s:\n%s", names[i], text);
        CHECK_STRING(again.name, "again");
        zs_json_writer_close(&w);
    }
}

static bool load_golden(zm_model *model, const char *file)
{
    const char *path = zs_arena_printf(arena, &err, "%s/models/%s", golden, file);
    return path && zm_model_load(model, arena, path, &err);
}

static void check_golden(void)
{
    static const char *const pairs[][2] = {{"gpt2.json", "gpt2-124m"},
                                           {"opt-125m.json", "opt-125m"},
                                           {"llama-7b.json", "llama-7b"},
                                           {"llama-3-8b.json", "llama-3-8b"}};
    zm_model model, preset;
    for (int i = 0; i < 4; i++) {
        CHECK(load_golden(&model, pairs[i][0]), "%s", err.message);
        CHECK(zm_model_load(&preset, arena, pairs[i][1], &err), "%s", err.message);
        CHECK(same(&model, &preset), "%s", pairs[i][0]);
    }
    CHECK(load_golden(&model, "gpt2.json"), "%s", err.message);
    CHECK_STRING(model.name, "gpt2");
    CHECK_FAILS(load_golden(&model, "opt-350m.json"), &err, ZS_ERR_INPUT,
                "$.do_layer_norm_before: false");
    CHECK_FAILS(load_golden(&model, "llama-3.1-8b.json"), &err, ZS_ERR_INPUT,
                "$.rope_scaling.rope_type: ");
    CHECK(strstr(err.message, "\"llama3\""), "%s", err.message);
    CHECK_FAILS(zm_model_load(&model, arena, "gpt2-123m", &err), &err, ZS_ERR_INPUT,
                "did you mean \"gpt2-124m\"?");
    CHECK_FAILS(load_golden(&model, "absent.json"), &err, ZS_ERR_INPUT, "absent.json");
}

#define GPT2                                                                                       \
    "\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":8,\"vocab_size\":97,"          \
    "\"n_positions\":32"
#define OPT                                                                                        \
    "\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":64,"                           \
    "\"num_attention_heads\":8,\"ffn_dim\":256,\"vocab_size\":97,"                                 \
    "\"max_position_embeddings\":32"
#define LLAMA                                                                                      \
    "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":64,"                         \
    "\"num_attention_heads\":8,\"intermediate_size\":176,\"vocab_size\":97,"                       \
    "\"max_position_embeddings\":32"
#define OURS                                                                                       \
    "\"format\":\"zplan-model\",\"version\":1,\"n_blocks\":2,\"n_channels\":64,"                   \
    "\"n_heads\":8,\"n_vocab\":97,\"n_positions\":32"

static bool parse(zm_model *out, const char *members, const char *more)
{
    const zs_json *root;
    const char *text = zs_arena_printf(arena, &err, "{%s%s}", members, more);
    return text && zs_json_parse(&root, arena, text, strlen(text), "config.json", &err) &&
           zm_model_parse(out, arena, root, "m", &err);
}

#define READS(members, more, condition)                                                            \
    do {                                                                                           \
        zm_model m;                                                                                \
        if (CHECK(parse(&m, members, more), "%s", err.message))                                    \
            CHECK(condition, "%s", more);                                                          \
    } while (0)
#define REFUSES(members, more, text)                                                               \
    do {                                                                                           \
        zm_model m;                                                                                \
        CHECK_FAILS(parse(&m, members, more), &err, ZS_ERR_INPUT, text);                           \
        CHECK(strncmp(err.message, "config.json", 11) == 0, "%s", err.message);                    \
    } while (0)

static void check_variants(void)
{
    READS(LLAMA, "", m.n_kv_heads == 8 && !m.tied && m.rope_theta == 1e4 && m.norm_eps == 1e-6);
    READS(LLAMA, ",\"num_key_value_heads\":null", m.n_kv_heads == 8);
    READS(LLAMA, ",\"num_key_value_heads\":8", m.n_kv_heads == 8);
    READS(LLAMA, ",\"num_key_value_heads\":2", m.n_kv_heads == 2);
    REFUSES(LLAMA, ",\"num_key_value_heads\":3", "$.num_key_value_heads: 3 ");
    READS(LLAMA, ",\"tie_word_embeddings\":true", m.tied);
    READS(LLAMA, ",\"head_dim\":8", m.n_channels == 64);
    REFUSES(LLAMA, ",\"head_dim\":16", "$.head_dim: 16");
    REFUSES(LLAMA, ",\"attention_bias\":true", "$.attention_bias: true");
    REFUSES(LLAMA, ",\"mlp_bias\":true", "$.mlp_bias: true");
    REFUSES(LLAMA, ",\"hidden_act\":\"gelu\"", "$.hidden_act: ");

    READS(LLAMA, ",\"rope_scaling\":{\"rope_type\":\"default\"}", m.rope_theta == 1e4);
    READS(LLAMA, ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}",
          m.rope_theta == 5e5);
    REFUSES(LLAMA, ",\"rope_scaling\":{\"rope_type\":\"odd\",\"factor\":2}",
            "$.rope_scaling.rope_type: ");
    REFUSES(LLAMA, ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", "\"linear\"");
    REFUSES(LLAMA, ",\"rope_scaling\":{\"factor\":2}", "$.rope_scaling: ");
    REFUSES(LLAMA, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", "\"yarn\"");
    REFUSES(LLAMA, ",\"partial_rotary_factor\":0.5", "$.partial_rotary_factor: 0.5");
    REFUSES(LLAMA, ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":2e4}",
            "$.rope_parameters.rope_theta: 20000");

    READS(GPT2, "", m.tied && m.n_ffn == 256 && m.activation == ZM_GELU_TANH && m.dropout == 0.1);
    READS(GPT2, ",\"n_inner\":null", m.n_ffn == 256);
    READS(GPT2, ",\"n_inner\":100", m.n_ffn == 100);
    READS(GPT2, ",\"activation_function\":\"gelu_new\"", m.activation == ZM_GELU_TANH);
    READS(GPT2, ",\"activation_function\":\"gelu\"", m.activation == ZM_GELU);
    REFUSES(GPT2, ",\"activation_function\":\"snake\"", "$.activation_function: ");
    REFUSES(GPT2, ",\"activation_function\":\"silu\"", "$.activation_function: ");
    READS(GPT2, ",\"tie_word_embeddings\":false", !m.tied);
    REFUSES(GPT2, ",\"scale_attn_weights\":false", "$.scale_attn_weights: false");
    REFUSES(GPT2, ",\"scale_attn_by_inverse_layer_idx\":true", "$.scale_attn_by_inverse_layer");
    REFUSES(GPT2, ",\"reorder_and_upcast_attn\":true", "$.reorder_and_upcast_attn: true");
    REFUSES(GPT2, ",\"add_cross_attention\":true", "$.add_cross_attention: true");

    READS(OPT, "", m.tied && m.activation == ZM_RELU && m.n_kv_heads == 8);
    READS(OPT, ",\"word_embed_proj_dim\":64", m.n_channels == 64);
    REFUSES(OPT, ",\"word_embed_proj_dim\":32", "$.word_embed_proj_dim: 32");
    REFUSES(OPT, ",\"do_layer_norm_before\":false", "$.do_layer_norm_before: false");
    REFUSES(OPT, ",\"enable_bias\":false", "$.enable_bias: false");
    REFUSES(OPT, ",\"_remove_final_layer_norm\":true", "$._remove_final_layer_norm: true");
    REFUSES(OPT, ",\"layerdrop\":0.1", "$.layerdrop: 0.1");

    REFUSES("\"model_type\":\"bert\"", "", "$.model_type: ");
    REFUSES("\"n_layer\":2", "", "model_type");
    REFUSES("\"model_type\":\"gpt2\"", "", "n_layer");
    REFUSES("\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":64,\"n_head\":5,\"vocab_size\":97,"
            "\"n_positions\":32",
            "", "$.n_head: 5 ");
    REFUSES("\"model_type\":\"gpt2\",\"n_layer\":2.5", "", "$.n_layer");
}

static void check_normal_form(void)
{
    READS(OURS, ",\"family\":\"gpt2\"", m.n_ffn == 256 && m.tied && m.dropout == 0);
    READS(OURS, ",\"family\":\"llama\",\"n_ffn\":100,\"n_kv_heads\":4",
          m.n_kv_heads == 4 && !m.tied && m.activation == ZM_SILU);
    REFUSES(OURS, ",\"family\":\"llama\"", "n_ffn");
    REFUSES(OURS, ",\"family\":\"gpt2\",\"n_kv_heads\":4", "$.n_kv_heads: ");
    REFUSES(OURS, ",\"family\":\"gpt2\",\"rope_theta\":4", "$.rope_theta: ");
    REFUSES(OURS, ",\"family\":\"gpt2\",\"dropout\":1", "$.dropout: ");
    REFUSES(OURS, ",\"family\":\"gpt3\"", "$.family: ");
    REFUSES(OURS, ",\"family\":\"gpt2\",\"n_layers\":3", "n_layers");
    REFUSES(OURS, "", "family");
    REFUSES("\"format\":\"zplan-plan\",\"version\":1", "", "zplan-plan");
}

static void check_seq_len(void)
{
    zm_model model;
    CHECK(zm_model_load(&model, arena, "tiny", &err), "%s", err.message);
    CHECK(zm_model_check_seq_len(&model, 128, &err), "%s", err.message);
    CHECK_FAILS(zm_model_check_seq_len(&model, 129, &err), &err, ZS_ERR_INPUT, "129");
    CHECK(strstr(err.message, "128"), "%s", err.message);
    CHECK_FAILS(zm_model_check_seq_len(&model, 0, &err), &err, ZS_ERR_INPUT, "0");
}

/* Numbers of any origin never pass as a model that layers.h could not lay out. */
static void check_faults(void)
{
    zm_model good;
    CHECK(zm_model_load(&good, arena, "llama-3-8b", &err), "%s", err.message);
#define BREAKS(change, field)                                                                      \
    do {                                                                                           \
        zm_model m = good;                                                                         \
        change;                                                                                    \
        CHECK_FAILS(zm_model_check(&m, &err), &err, ZS_ERR_INPUT,                                  \
                    "model llama-3-8b: " field ": ");                                              \
    } while (0)
    BREAKS(m.n_blocks = 0, "n_blocks");
    BREAKS(m.n_blocks = 1 << 20, "n_blocks");
    BREAKS(m.n_channels = -4096, "n_channels");
    BREAKS(m.n_heads = 0, "n_heads");
    BREAKS(m.n_heads = 33, "n_heads");
    BREAKS(m.n_heads = 4096, "n_heads");
    BREAKS(m.n_kv_heads = 5, "n_kv_heads");
    BREAKS(m.n_ffn = 0, "n_ffn");
    BREAKS(m.n_vocab = 0, "n_vocab");
    BREAKS(m.n_positions = 0, "n_positions");
    BREAKS(m.norm_eps = 0, "norm_eps");
    BREAKS(m.rope_theta = 0, "rope_theta");
    BREAKS(m.dropout = -0.1, "dropout");
    BREAKS(m.activation = ZM_RELU, "activation");
}

/* The largest model that passes: its bytes of state, at 16 per parameter, and its last name fit. */
static void check_largest(void)
{
    zm_model m;
    CHECK(zm_model_load(&m, arena, "llama-7b", &err), "%s", err.message);
    m.n_blocks = 1 << 14;
    m.n_channels = 1 << 18;
    m.n_heads = m.n_kv_heads = 1 << 17;
    m.n_ffn = 1 << 20;
    m.n_vocab = m.n_positions = 1 << 24;
    for (int family = 0; family < ZM_N_FAMILIES; family++) {
        m.family = (zm_family)family;
        m.activation = m.family == ZM_LLAMA ? ZM_SILU : ZM_RELU;
        m.rope_theta = m.family == ZM_LLAMA ? 1e4 : 0;
        CHECK(zm_model_check(&m, &err), "%s", err.message);
        /* Attention 4 C^2, MLP 3 or 2 C F; embedding, head and (not LLaMA) positions. */
        const bool llama = m.family == ZM_LLAMA;
        const double expected =
            16384.0 * (4 * 0x1p36 + (llama ? 3 : 2) * 0x1p38) + (llama ? 2 : 3) * 0x1p42;
        const int64_t n_params = zm_model_n_params(&m);
        CHECK(n_params < INT64_MAX / 16, "%" PRId64, n_params);
        CHECK_NEAR((double)n_params, expected, 1e-5);
        zm_tensor tensors[ZM_MAX_TENSORS];
        int n = zm_layer_tensors(tensors, &m, m.n_blocks);
        for (int i = 0; i < n; i++)
            CHECK(strstr(tensors[i].name, ".16383.") &&
                      (strstr(tensors[i].name, ".weight") || strstr(tensors[i].name, ".bias")),
                  "%s", tensors[i].name);
    }
}

int main(int argc, char **argv)
{
    golden = argc > 1 ? argv[1] : "tests/golden";
    if (!zs_arena_open(&arena, &err))
        return 1;
    check_presets();
    check_round_trip();
    check_golden();
    check_variants();
    check_normal_form();
    check_seq_len();
    check_faults();
    check_largest();
    zs_arena_close(&arena);
    return check_done();
}
