#include "tests/support/check.h"

#include "models/layers.h"

#include <inttypes.h>
#include <string.h>

static const zm_model gpt2 = {.name = "gpt2-124m",
                              .family = ZM_GPT2,
                              .n_blocks = 12,
                              .n_channels = 768,
                              .n_heads = 12,
                              .n_kv_heads = 12,
                              .n_ffn = 3072,
                              .n_vocab = 50257,
                              .n_positions = 1024,
                              .activation = ZM_GELU_TANH,
                              .norm_eps = 1e-5,
                              .tied = true};
static const zm_model opt = {.name = "opt-125m",
                             .family = ZM_OPT,
                             .n_blocks = 12,
                             .n_channels = 768,
                             .n_heads = 12,
                             .n_kv_heads = 12,
                             .n_ffn = 3072,
                             .n_vocab = 50272,
                             .n_positions = 2048,
                             .activation = ZM_RELU,
                             .norm_eps = 1e-5,
                             .tied = true};
static const zm_model llama = {.name = "llama-3-8b",
                               .family = ZM_LLAMA,
                               .n_blocks = 32,
                               .n_channels = 4096,
                               .n_heads = 32,
                               .n_kv_heads = 8,
                               .n_ffn = 14336,
                               .n_vocab = 128256,
                               .n_positions = 8192,
                               .activation = ZM_SILU,
                               .norm_eps = 1e-5,
                               .rope_theta = 5e5,
                               .tied = false};

static const zm_tensor *find(const zm_tensor *tensors, int n, zm_role role)
{
    for (int i = 0; i < n; i++)
        if (tensors[i].role == role)
            return &tensors[i];
    return NULL;
}

/* Published counts of the real models. */
static void check_counts(void)
{
    CHECK(zm_model_n_params(&gpt2) == 124439808, "%" PRId64, zm_model_n_params(&gpt2));
    CHECK(zm_model_n_params(&opt) == 125239296, "%" PRId64, zm_model_n_params(&opt));
    CHECK(zm_model_n_params(&llama) == INT64_C(8030261248), "%" PRId64, zm_model_n_params(&llama));

    zm_model untied = gpt2;
    untied.tied = false;
    CHECK(zm_model_n_params(&untied) - zm_model_n_params(&gpt2) == INT64_C(50257) * 768,
          "V C more");

    zm_model small = gpt2;
    small.n_vocab = 257;
    small.n_channels = small.n_positions = 64;
    small.n_heads = small.n_kv_heads = 4;
    small.n_ffn = 256;
    small.n_blocks = 30;
    CHECK(zm_model_n_params(&small) == 1520192, "%" PRId64, zm_model_n_params(&small));
    small.n_blocks = 28;
    CHECK(zm_model_n_params(&small) == 1420224, "%" PRId64, zm_model_n_params(&small));
}

static void check_gpt2_tensors(void)
{
    zm_tensor tensors[ZM_MAX_TENSORS];
    int n = zm_layer_tensors(tensors, &gpt2, 11);
    CHECK(n == 12, "%d", n);
    const zm_tensor *qkv = find(tensors, n, ZM_QKV_W);
    CHECK_STRING(qkv->name, "transformer.h.10.attn.c_attn.weight");
    CHECK(qkv->n_dims == 2 && qkv->shape[0] == 768 && qkv->shape[1] == 2304, "(C,3C)");
    CHECK(qkv->input_major && qkv->decay && qkv->init == ZM_INIT_NORMAL, "Conv1D");
    const zm_tensor *bias = find(tensors, n, ZM_QKV_B);
    CHECK(bias->n_dims == 1 && bias->shape[0] == 2304 && bias->shape[1] == 1, "(3C)");
    CHECK(!bias->decay && !bias->input_major && bias->init == ZM_INIT_ZEROS, "bias");
    CHECK(find(tensors, n, ZM_FCPROJ_W)->init == ZM_INIT_RESIDUAL, "into the residual stream");
    CHECK(find(tensors, n, ZM_PROJ_W)->init == ZM_INIT_RESIDUAL, "into the residual stream");
    CHECK(!find(tensors, n, ZM_NORM1_W)->decay, "norms do not decay");
    CHECK(!find(tensors, n, ZM_Q_W), "GPT-2 has one matrix for q, k, v");

    n = zm_layer_tensors(tensors, &gpt2, 0);
    CHECK(n == 2 && tensors[0].role == ZM_WTE && tensors[1].role == ZM_WPE, "embedding");
    CHECK(!tensors[0].input_major && tensors[0].decay, "embedding decays");
    n = zm_layer_tensors(tensors, &gpt2, 13);
    CHECK(n == 3 && tensors[2].role == ZM_WTE && tensors[2].shared, "tied head");
    CHECK_STRING(tensors[2].name, "transformer.wte.weight");
}

static void check_opt_tensors(void)
{
    zm_tensor tensors[ZM_MAX_TENSORS];
    int n = zm_layer_tensors(tensors, &opt, 0);
    CHECK(find(tensors, n, ZM_WPE)->shape[0] == 2050, "two rows before position 0");
    n = zm_layer_tensors(tensors, &opt, 1);
    CHECK(n == 16, "%d", n);
    const zm_tensor *fc = find(tensors, n, ZM_FC_W);
    CHECK_STRING(fc->name, "model.decoder.layers.0.fc1.weight");
    CHECK(fc->shape[0] == 3072 && fc->shape[1] == 768 && !fc->input_major, "(F,C)");
    CHECK_STRING(find(tensors, n, ZM_NORM2_B)->name,
                 "model.decoder.layers.0.final_layer_norm.bias");
    n = zm_layer_tensors(tensors, &opt, 13);
    CHECK_STRING(tensors[0].name, "model.decoder.final_layer_norm.weight");
}

static void check_llama_tensors(void)
{
    zm_tensor tensors[ZM_MAX_TENSORS];
    int n = zm_layer_tensors(tensors, &llama, 32);
    CHECK(n == 9, "%d", n);
    const zm_tensor *k = find(tensors, n, ZM_K_W);
    CHECK_STRING(k->name, "model.layers.31.self_attn.k_proj.weight");
    CHECK(k->shape[0] == 1024 && k->shape[1] == 4096, "(KV,C)");
    n = zm_layer_tensors(tensors, &llama, 33);
    CHECK(n == 2 && !tensors[1].shared, "untied");
    CHECK_STRING(tensors[1].name, "lm_head.weight");

    /* Keys and values of a layer with 64 channels, 8 heads and 8 or 2 of keys. */
    zm_model small = llama;
    small.n_channels = 64;
    small.n_heads = 8;
    for (int kv = 8; kv >= 2; kv -= 6) {
        small.n_kv_heads = kv;
        n = zm_layer_tensors(tensors, &small, 1);
        int64_t count = find(tensors, n, ZM_K_W)->count + find(tensors, n, ZM_V_W)->count;
        CHECK(count == (kv == 8 ? 8192 : 2048), "%" PRId64, count);
    }
}

/* However a model is cut: stages tile it, offsets tile each stage, and a tensor has the same name
 * and global place in every cut. */
static void check_any_cut(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    zm_model model = (const zm_model[]){gpt2, opt, llama}[check_rng_int(&rng, 0, 2)];
    model.n_blocks = (int)check_rng_int(&rng, 1, 9);
    model.tied = check_rng_int(&rng, 0, 1);

    zs_error err;
    zs_arena *arena;
    CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    zm_stage_tensor *whole, *part;
    int n_whole, n_part, n_seen = 0;
    CHECK(zm_stage_tensors(&whole, &n_whole, arena, &model, 0, model.n_blocks, &err), "%s",
          err.message);

    int64_t n_params = 0;
    for (int first = 0; first < model.n_blocks;) {
        int end = (int)check_rng_int(&rng, first + 1, model.n_blocks);
        const int64_t n_stage = zm_stage_n_params(&model, first, end);
        CHECK(zm_stage_tensors(&part, &n_part, arena, &model, first, end, &err), "%s", err.message);
        int64_t offset = 0;
        for (int i = 0; i < n_part; i++) {
            const zm_stage_tensor *t = &part[i], *same = &whole[n_seen++];
            CHECK_STRING(t->tensor.name, same->tensor.name);
            CHECK(t->layer == same->layer && t->global_offset == same->global_offset,
                  "seed %" PRIu64 ": %s", seed, t->tensor.name);
            if (t->tensor.shared) {
                CHECK(t->offset == (first == 0 ? 0 : n_stage), "shared copy");
                CHECK(zm_stage_n_tied(&model, first, end) == (first == 0 ? 0 : t->tensor.count),
                      "kept where the embedding is not");
                continue;
            }
            CHECK(t->offset == offset && t->global_offset == n_params + offset,
                  "seed %" PRIu64 ": %s", seed, t->tensor.name);
            offset += t->tensor.count;
        }
        CHECK(offset == n_stage, "seed %" PRIu64 ": stage tiled", seed);
        if (end < model.n_blocks)
            CHECK(zm_stage_n_tied(&model, first, end) == 0, "only the head keeps a copy");
        n_params += n_stage;
        first = end;
    }
    CHECK(n_seen == n_whole && n_params == zm_model_n_params(&model), "seed %" PRIu64, seed);
    zs_arena_close(&arena);
}

static void check_names_differ(void)
{
    zs_error err;
    zs_arena *arena;
    CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    zm_stage_tensor *t;
    int n;
    CHECK(zm_stage_tensors(&t, &n, arena, &opt, 0, 12, &err), "%s", err.message);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            CHECK(t[i].tensor.shared || strcmp(t[i].tensor.name, t[j].tensor.name) != 0, "%s",
                  t[i].tensor.name);
    zs_arena_close(&arena);
}

static void check_activations(void)
{
    CHECK(zm_act_floats(&gpt2, ZM_ACT_QKV) == 2304, "3 C");
    CHECK(zm_act_floats(&gpt2, ZM_ACT_LSE) == 12, "NH");
    /* 7 C + 2 F + NH + 4, by hand */
    CHECK(zm_block_act_floats(&gpt2) == 7 * 768 + 2 * 3072 + 12 + 4, "%" PRId64,
          zm_block_act_floats(&gpt2));
    CHECK(zm_block_act_floats(&opt) == zm_block_act_floats(&gpt2), "the same shapes");
    /* norm1 4096, q 4096, k v 1024 each, attention 4096, residual 4096, norm2 4096, three of F */
    CHECK(zm_block_act_floats(&llama) == 5 * 4096 + 2 * 1024 + 3 * 14336 + 32 + 2, "%" PRId64,
          zm_block_act_floats(&llama));
    /* mean and deviation of two norms, and one number per head; RMSNorm has no mean */
    CHECK(zm_block_fp32_act_floats(&gpt2) == 4 + 12 && zm_norm_floats(&gpt2) == 2, "LayerNorm");
    CHECK(zm_block_fp32_act_floats(&llama) == 2 + 32 && zm_norm_floats(&llama) == 1, "RMSNorm");
    CHECK(zm_act_floats(&gpt2, ZM_ACT_GATE) == 0 && zm_act_floats(&llama, ZM_ACT_GATE) == 14336,
          "gate");
}

int main(void)
{
    check_counts();
    check_gpt2_tensors();
    check_opt_tensors();
    check_llama_tensors();
    check_seeds(check_any_cut, 1, 60);
    check_names_differ();
    check_activations();
    return check_done();
}
