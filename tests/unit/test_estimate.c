/* The roofline: right order between GPUs, sizes and passes, and within reach of known times. */
#include "planner/estimate.h"
#include "tests/support/check.h"

#include <string.h>

static zm_model gpt(int n_channels, int n_heads)
{
    return (zm_model){.name = "gpt",
                      .family = ZM_GPT2,
                      .n_blocks = 12,
                      .n_channels = n_channels,
                      .n_heads = n_heads,
                      .n_kv_heads = n_heads,
                      .n_ffn = 4 * n_channels,
                      .n_vocab = 50257,
                      .n_positions = 2048,
                      .activation = ZM_GELU_TANH,
                      .norm_eps = 1e-5,
                      .tied = true};
}

static void test_order(void)
{
    const zm_model model = gpt(768, 12);
    const zs_gpu *a100 = zs_gpus_find("A100-80"), *v100 = zs_gpus_find("V100-32");
    if (!CHECK(a100 && v100, "table of GPUs"))
        return;
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
        const zs_layer_kind k = (zs_layer_kind)kind;
        double before = 0;
        for (int b = 1; b <= 64; b *= 2) {
            const double ms = zp_estimate_layer_ms(v100, &model, k, false, ZS_FP32, 1024, b);
            CHECK(ms > before, "kind %d: %d samples %g ms, half of them %g", kind, b, ms, before);
            CHECK(zp_estimate_layer_ms(a100, &model, k, false, ZS_FP32, 1024, b) < ms,
                  "kind %d on an A100", kind);
            before = ms;
        }
    }
    const double forward =
        zp_estimate_layer_ms(v100, &model, ZS_LAYER_BLOCK, false, ZS_FP32, 1024, 8);
    const double backward =
        zp_estimate_layer_ms(v100, &model, ZS_LAYER_BLOCK, true, ZS_FP32, 1024, 8);
    CHECK(backward > 1.7 * forward && backward < 2.6 * forward, "%g, %g", forward, backward);
    /* small layers are slow: one sample of 16 tokens takes more than 1/64 of 1024 tokens */
    CHECK(64 * zp_estimate_layer_ms(v100, &model, ZS_LAYER_BLOCK, false, ZS_FP32, 16, 1) >
              2 * zp_estimate_layer_ms(v100, &model, ZS_LAYER_BLOCK, false, ZS_FP32, 1024, 1),
          "efficiency curve");
}

/* Sailor (SOSP 2025), GPT-Neo-2.7B, 2048 tokens: a block's forward pass takes 27.5 ms on a V100-16
 * in fp32. */
static void test_known_time(void)
{
    const zm_model model = gpt(2560, 32);
    const double ms = zp_estimate_layer_ms(zs_gpus_find("V100-16"), &model, ZS_LAYER_BLOCK, false,
                                           ZS_FP32, 2048, 1);
    CHECK(ms > 0.75 * 27.5 && ms < 1.25 * 27.5, "%g ms", ms);
}

static void test_profile(zs_arena *arena)
{
    zs_error err;
    const zm_model model = gpt(768, 12);
    zs_device devices[] = {{"A100-80", INT64_C(80) << 30, 80, NULL, NULL},
                           {"T4", INT64_C(15) << 30, 75, NULL, NULL},
                           {"A100-80", INT64_C(80) << 30, 80, NULL, NULL}};
    zs_node node = {.name = "node0", .site = "", .n_devices = 3, .devices = devices};
    const zs_cluster cluster = {"c", 1, &node};
    zs_profile profile;
    if (!CHECK(zp_estimate(&profile, arena, &cluster, &model, ZS_FP32, 1024, 10, &err), "%s",
               err.message))
        return;
    CHECK(profile.estimated && profile.n_entries == 6, "%d entries", profile.n_entries);
    static const int sizes[] = {1, 2, 3, 4, 6, 8, 10};
    for (int i = 0; i < profile.n_entries; i++) {
        const zs_profile_entry *entry = &profile.entries[i];
        CHECK(entry->n_points == 7, "%d points", entry->n_points);
        for (int k = 0; k < entry->n_points && k < 7; k++)
            CHECK(entry->points[k].samples == sizes[k], "%d", entry->points[k].samples);
    }
    CHECK(strcmp(profile.entries[0].device_type, "A100-80") == 0 &&
              strcmp(profile.entries[5].device_type, "T4") == 0,
          "order of the cluster");

    CHECK_FAILS(zp_estimate(&profile, arena, &cluster, &model, ZS_BF16, 1024, 10, &err), &err,
                ZS_ERR_INPUT, "T4 has no bf16");
    devices[1].type = "T5";
    CHECK_FAILS(zp_estimate(&profile, arena, &cluster, &model, ZS_FP32, 1024, 10, &err), &err,
                ZS_ERR_INPUT, "T5");
    /* sizes end where one block's activations or the logits fill the memory */
    devices[1] = (zs_device){"V100-16", INT64_C(16) << 30, 70, NULL, NULL};
    if (CHECK(zp_estimate(&profile, arena, &cluster, &model, ZS_FP32, 1024, 4096, &err), "%s",
              err.message)) {
        const zs_profile_entry *v100 = &profile.entries[3];
        const int largest = v100->points[v100->n_points - 1].samples;
        CHECK(largest > 32 && largest < 100, "%d samples", largest);
    }
}

int main(void)
{
    zs_arena *arena = NULL;
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_order();
    test_known_time();
    test_profile(arena);
    zs_arena_close(&arena);
    return check_done();
}
