#include "tests/support/check.h"

#include "models/cost.h"

#include <inttypes.h>

/* 64 channels, 4 heads, MLP of 256, 97 tokens of vocabulary, 3 blocks. */
static const zm_model small = {.name = "small",
                               .family = ZM_GPT2,
                               .n_blocks = 3,
                               .n_channels = 64,
                               .n_heads = 4,
                               .n_kv_heads = 4,
                               .n_ffn = 256,
                               .n_vocab = 97,
                               .n_positions = 128,
                               .activation = ZM_GELU_TANH,
                               .norm_eps = 1e-5,
                               .tied = true};

/* Counts the operations of a block one by one. */
static double count_forward(int T, int C, int KV, int F, int n_ffn_in)
{
    double flops = 0;
    for (int t = 0; t < T; t++) {
        flops += 2.0 * C * (C + 2 * KV) + 2.0 * C * C; /* q k v, projection */
        for (int u = 0; u <= t; u++)
            flops += 2.0 * C + 2.0 * C; /* score, share of the output */
        flops += 2.0 * C * F * n_ffn_in + 2.0 * F * C;
    }
    return flops;
}

static void check_flops(void)
{
    CHECK_NEAR(zm_cost_forward_flops(&small, ZS_LAYER_BLOCK, 33), count_forward(33, 64, 64, 256, 1),
               1e-12);
    CHECK_NEAR(zm_cost_forward_flops(&small, ZS_LAYER_HEAD, 33), 2.0 * 33 * 64 * 97, 1e-12);
    CHECK(zm_cost_forward_flops(&small, ZS_LAYER_EMBEDDING, 33) == 0, "no products");
    CHECK(zm_cost_backward_flops(&small, ZS_LAYER_EMBEDDING, 33) == 0, "no products");

    zm_model llama = small;
    llama.family = ZM_LLAMA;
    llama.n_kv_heads = 2;
    CHECK_NEAR(zm_cost_forward_flops(&llama, ZS_LAYER_BLOCK, 17), count_forward(17, 64, 32, 256, 2),
               1e-12);

    /* Backward: 2 of forward's for matrices, 5/2 for attention. */
    const double attention = 4.0 * 64 * (33 * 34 / 2);
    CHECK_NEAR(zm_cost_backward_flops(&small, ZS_LAYER_BLOCK, 33),
               2 * zm_cost_forward_flops(&small, ZS_LAYER_BLOCK, 33) + attention / 2, 1e-12);
    CHECK_NEAR(zm_cost_backward_flops(&small, ZS_LAYER_HEAD, 33), 4.0 * 33 * 64 * 97, 1e-12);
}

/* Weights are moved once per micro-batch, activations once per sample; bf16 halves what is not
 * fp32 anyway. */
static void check_traffic(void)
{
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
        double forward[4], backward[4];
        for (int samples = 1; samples <= 3; samples++) {
            forward[samples] =
                zm_cost_forward_bytes(&small, (zs_layer_kind)kind, 16, samples, ZS_FP32);
            backward[samples] =
                zm_cost_backward_bytes(&small, (zs_layer_kind)kind, 16, samples, ZS_FP32);
        }
        CHECK_NEAR(forward[3] - forward[2], forward[2] - forward[1], 1e-12);
        CHECK_NEAR(backward[3] - backward[2], backward[2] - backward[1], 1e-12);
        const double n_weights = kind == ZS_LAYER_BLOCK  ? 12.0 * 64 * 64
                                 : kind == ZS_LAYER_HEAD ? 64.0 * 97
                                                         : 0;
        CHECK_NEAR(2 * forward[1] - forward[2], 4 * n_weights, 1e-12);
        CHECK_NEAR(2 * backward[1] - backward[2], 3 * 4 * n_weights, 1e-12);
        CHECK(backward[1] > forward[1] || kind == ZS_LAYER_HEAD, "kind %d", kind);
        CHECK(zm_cost_forward_bytes(&small, (zs_layer_kind)kind, 16, 1, ZS_BF16) < forward[1],
              "kind %d", kind);
    }
    CHECK_NEAR(zm_cost_forward_bytes(&small, ZS_LAYER_BLOCK, 16, 1, ZS_BF16) * 2,
               zm_cost_forward_bytes(&small, ZS_LAYER_BLOCK, 16, 1, ZS_FP32), 1e-12);
    CHECK_NEAR(zm_cost_forward_bytes(&small, ZS_LAYER_EMBEDDING, 16, 2, ZS_FP32),
               4.0 * 2 * 16 * 3 * 64, 1e-12);
}

static void check_state(void)
{
    zm_state_bytes fp32 = zm_cost_state(ZS_FP32), bf16 = zm_cost_state(ZS_BF16);
    CHECK(fp32.weights == 4 && fp32.gradients == 4 && fp32.optimizer == 8, "fp32");
    CHECK(bf16.weights == 2 && bf16.gradients == 2 && bf16.optimizer == 12, "bf16");
}

static void check_bytes(void)
{
    CHECK(zm_cost_boundary_bytes(&small, 100, ZS_FP32) == 100 * 64 * 4, "(T,C)");
    CHECK(zm_cost_boundary_bytes(&small, 100, ZS_BF16) == 100 * 64 * 2, "(T,C)");
    CHECK(zm_cost_block_act_bytes(&small, 100, ZS_FP32) ==
              4 * 100 * (zm_block_act_floats(&small) + 64),
          "the table and the input");
    /* 8 C + 2 F of two bytes; two means, two deviations and 4 heads of four */
    CHECK(zm_cost_block_act_bytes(&small, 100, ZS_BF16) ==
              100 * (2 * (8 * 64 + 2 * 256) + 4 * (4 + 4)),
          "%" PRId64, zm_cost_block_act_bytes(&small, 100, ZS_BF16));

    CHECK(zm_cost_scratch_bytes(&small, 100, ZS_FP32) == 100 * (256 + 64) * 4, "(T,F) and (T,C)");

    /* A vocabulary of 128256 in 1024 tokens of 4 samples: 525,336,576 logits. */
    zm_model wide = small;
    wide.n_vocab = 128256;
    const int64_t bytes = 4 * zm_cost_logits_bytes(&wide, 1024, ZS_FP32);
    CHECK(bytes - INT64_C(4) * 1024 * (64 + 2) * 4 == INT64_C(2101346304), "%" PRId64, bytes);

    /* Beyond 2^31 elements: 64 * 1024 * 50257. */
    wide.n_vocab = 50257;
    CHECK(zm_cost_logits_bytes(&wide, 64 * 1024, ZS_BF16) ==
              INT64_C(13174571008) + 64 * 1024 * (2 * 64 + 4 * 2),
          "%" PRId64, zm_cost_logits_bytes(&wide, 64 * 1024, ZS_BF16));
}

int main(void)
{
    check_flops();
    check_traffic();
    check_state();
    check_bytes();
    return check_done();
}
