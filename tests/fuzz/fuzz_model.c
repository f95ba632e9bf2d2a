/* A model config, ours or Hugging Face's, is refused with a message, or its sizes are positive,
 * each split of its blocks holds every parameter once, and its normal form reads back to itself. */
#include "models/model.h"
#include "models/cost.h"
#include "models/layers.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static void write(zs_json_writer *w, const void *document)
{
    zm_model_write(w, NULL, document);
}

static void check_sizes(const zm_model *model)
{
    const int64_t n_params = zm_model_n_params(model);
    FUZZ_CHECK(n_params > 0, "%lld parameters", (long long)n_params);
    const int cut = model->n_blocks / 2;
    if (cut > 0) {
        const int64_t low = zm_stage_n_params(model, 0, cut);
        const int64_t high = zm_stage_n_params(model, cut, model->n_blocks);
        FUZZ_CHECK(low > 0 && high > 0 && low + high == n_params, "%lld + %lld of %lld",
                   (long long)low, (long long)high, (long long)n_params);
    }
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
        const double flops = zm_cost_forward_flops(model, (zs_layer_kind)kind, 1);
        FUZZ_CHECK(flops >= 0 && isfinite(flops), "%g flops", flops);
    }
    FUZZ_CHECK(zm_cost_block_act_bytes(model, 1, ZS_FP32) > 0 &&
                   zm_cost_logits_bytes(model, 1, ZS_FP32) > 0 &&
                   zm_cost_boundary_bytes(model, 1, ZS_BF16) > 0,
               "bytes of activations");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const zs_json *root = NULL;
    zm_model model = {0}, again = {0};
    zs_error err = {0};
    zs_arena *arena = fuzz_open(&root, data, size);
    if (root && !zm_model_parse(&model, arena, root, "input", &err)) {
        fuzz_check_error(&err);
    } else if (root) {
        FUZZ_CHECK(zm_model_check(&model, &err), "%s", err.message);
        check_sizes(&model);
        const char *text = fuzz_print(arena, write, &model);
        FUZZ_CHECK(zm_model_parse(&again, arena, fuzz_parse(arena, text), "again", &err), "%s\n%s",
                   err.message, text);
        const char *second = fuzz_print(arena, write, &again);
        FUZZ_CHECK(strcmp(text, second) == 0, "%s\nbecame\n%s", text, second);
    }
    zs_arena_close(&arena);
    return 0;
}
