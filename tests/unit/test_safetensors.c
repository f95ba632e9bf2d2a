#include "tests/support/check.h"
#include "tests/support/files.h"

#include "executor/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static zs_arena *arena;
static zs_error err;

/* The value that stands for an element: exact in fp32 and different for each. */
static float *make_values(int64_t n)
{
    float *values = malloc((size_t)n * sizeof *values);
    for (int64_t i = 0; values && i < n; i++)
        values[i] = (float)(i + 1);
    return values;
}

/* Reads the file as a stranger would: header, then each tensor by its offsets. The values of the
 * tensors, put into the order of the model's layers, must be 1, 2, 3, ... */
static void check_file(const char *path, const zm_model *model)
{
    size_t size;
    char *bytes = check_read_file(path, &size);
    if (!CHECK(bytes && size > 8, "%s", path))
        return;
    uint64_t header_size = 0;
    for (int i = 7; i >= 0; i--)
        header_size = header_size << 8 | (unsigned char)bytes[i];
    if (!CHECK(header_size % 8 == 0 && header_size <= size - 8 && bytes[8] == '{', "%s", path)) {
        free(bytes);
        return;
    }
    const zs_json *root, *metadata;
    const char *format;
    CHECK(zs_json_parse(&root, arena, bytes + 8, (size_t)header_size, "header", &err), "%s",
          err.message);
    CHECK(zs_json_get(&metadata, root, "__metadata__", &err), "%s", err.message);
    CHECK(zs_json_get_string(&format, metadata, "format", &err), "%s", err.message);
    CHECK_STRING(format, "pt");

    int64_t next = 0;
    for (int i = 1; i < zs_json_n_items(root); i++) {
        const zs_json *entry = zs_json_item(root, i), *offsets, *shape;
        const char *name = zs_json_key_at(root, i), *dtype;
        CHECK(i == 1 || strcmp(zs_json_key_at(root, i - 1), name) < 0, "%s in order", name);
        CHECK(zs_json_get_string(&dtype, entry, "dtype", &err), "%s", err.message);
        CHECK_STRING(dtype, "F32");
        int64_t begin, end, extent, n_bytes = 4;
        CHECK(zs_json_get(&offsets, entry, "data_offsets", &err) &&
                  zs_json_int(&begin, zs_json_item(offsets, 0), 0, INT64_MAX, &err) &&
                  zs_json_int(&end, zs_json_item(offsets, 1), 0, INT64_MAX, &err) &&
                  zs_json_get(&shape, entry, "shape", &err),
              "%s", err.message);
        for (int d = 0; d < zs_json_n_items(shape); d++) {
            CHECK(zs_json_int(&extent, zs_json_item(shape, d), 1, INT64_MAX, &err), "%s",
                  err.message);
            n_bytes *= extent;
        }
        CHECK(begin == next && end - begin == n_bytes, "%s: no gap", name);
        next = end;
    }
    CHECK(8 + (int64_t)header_size + next == (int64_t)size, "%s ends with its last tensor", path);

    float expected = 1;
    for (int layer = 0; layer < model->n_blocks + 2; layer++) {
        zm_tensor tensors[ZM_MAX_TENSORS];
        int n = zm_layer_tensors(tensors, model, layer);
        for (int i = 0; i < n; i++) {
            const zs_json *entry = zs_json_find(root, tensors[i].name), *offsets;
            int64_t begin;
            if (tensors[i].shared) {
                CHECK(!zs_json_find(root, "lm_head.weight"), "a tied head is not stored");
                continue;
            }
            if (!CHECK(entry && zs_json_get(&offsets, entry, "data_offsets", &err) &&
                           zs_json_int(&begin, zs_json_item(offsets, 0), 0, INT64_MAX, &err),
                       "%s", tensors[i].name))
                continue;
            int64_t n_wrong = 0;
            for (int64_t k = 0; k < tensors[i].count; k++) {
                float value;
                memcpy(&value, bytes + 8 + header_size + begin + 4 * k, 4);
                n_wrong += value != expected;
                expected += 1;
            }
            CHECK(n_wrong == 0, "%s: %" PRId64 " wrong", tensors[i].name, n_wrong);
        }
    }
    free(bytes);
}

/* Any division of the elements among ranks, written in any order, gives the same file. */
static void check_any_division(uint64_t seed)
{
    enum { MAX_RANKS = 5 };
    static const char *const names[] = {"tiny", "opt-125m", "llama-3-8b"};
    check_rng rng = check_rng_from(seed);
    zm_model model;
    CHECK(zm_model_load(&model, arena, names[check_rng_int(&rng, 0, 2)], &err), "%s", err.message);
    model.n_channels = 32;
    model.n_heads = 4;
    model.n_kv_heads = model.family == ZM_LLAMA ? 2 : 4;
    model.n_ffn = 48;
    model.n_vocab = 101;
    model.n_positions = 40;
    model.n_blocks = (int)check_rng_int(&rng, 1, 11);
    model.tied = check_rng_int(&rng, 0, 1);

    zx_safetensors file;
    const char *path = check_path("model.safetensors");
    CHECK(zx_safetensors_build(&file, arena, &model, &err), "%s", err.message);
    CHECK(file.n_params == zm_model_n_params(&model), "seed %" PRIu64, seed);
    CHECK(zx_safetensors_create(&file, path, &err), "%s", err.message);

    const int n_ranks = (int)check_rng_int(&rng, 1, MAX_RANKS);
    int64_t cut[MAX_RANKS + 1] = {0};
    for (int rank = 1; rank < n_ranks; rank++)
        cut[rank] = check_rng_int(&rng, cut[rank - 1], file.n_params);
    cut[n_ranks] = file.n_params;
    float *values = make_values(file.n_params);
    const int start = (int)check_rng_int(&rng, 0, n_ranks - 1);
    for (int i = 0; values && i < n_ranks; i++) {
        int rank = (start + i) % n_ranks;
        CHECK(zx_safetensors_write(&file, path, values + cut[rank], cut[rank],
                                   cut[rank + 1] - cut[rank], &err),
              "seed %" PRIu64 ": %s", seed, err.message);
    }
    free(values);
    CHECK(zx_safetensors_publish(&file, path, &err), "seed %" PRIu64 ": %s", seed, err.message);
    check_file(path, &model);
}

/* A stage's parameters are one range: what a rank passes for its shard. */
static void check_stage_ranges(void)
{
    zm_model model;
    CHECK(zm_model_load(&model, arena, "tiny", &err), "%s", err.message);
    int64_t next = 0;
    for (int first = 0; first < 4; first += 2) {
        zm_stage_tensor *tensors;
        int n;
        CHECK(zm_stage_tensors(&tensors, &n, arena, &model, first, first + 2, &err), "%s",
              err.message);
        CHECK(tensors[0].global_offset == next, "block %d", first);
        for (int i = 0; i < n; i++)
            if (!tensors[i].tensor.shared)
                CHECK(tensors[i].global_offset - tensors[i].offset == next, "%s",
                      tensors[i].tensor.name);
        next += zm_stage_n_params(&model, first, first + 2);
    }
    CHECK(next == zm_model_n_params(&model), "%" PRId64, next);
}

static void check_failures(void)
{
    zm_model model;
    zx_safetensors file;
    const float values[2] = {1, 2};
    CHECK(zm_model_load(&model, arena, "tiny", &err), "%s", err.message);
    CHECK(zx_safetensors_build(&file, arena, &model, &err), "%s", err.message);
    const char *path = check_path("absent.safetensors");
    CHECK_FAILS(zx_safetensors_write(&file, path, values, 0, 2, &err), &err, ZS_ERR_RUNTIME,
                "absent.safetensors.tmp: cannot open");
    CHECK_FAILS(zx_safetensors_publish(&file, path, &err), &err, ZS_ERR_RUNTIME,
                "absent.safetensors.tmp: cannot open");
    CHECK_FAILS(zx_safetensors_create(&file, "/nowhere/to/be/found", &err), &err, ZS_ERR_RUNTIME,
                "/nowhere/to/be/found.tmp: cannot create");

    /* Another model's file under the same name is noticed; nothing appears until all is there. */
    const char *temporary = check_write_file("absent.safetensors.tmp", values, sizeof values);
    CHECK_FAILS(zx_safetensors_publish(&file, path, &err), &err, ZS_ERR_RUNTIME, "has 8 bytes");
    CHECK(access(path, F_OK) != 0, "%s", path);
    zx_safetensors_discard(path);
    CHECK(access(temporary, F_OK) != 0, "%s", temporary);
}

int main(void)
{
    if (!zs_arena_open(&arena, &err))
        return 1;
    check_seeds(check_any_division, 1, 25);
    check_stage_ranges();
    check_failures();
    zs_arena_close(&arena);
    return check_done();
}
