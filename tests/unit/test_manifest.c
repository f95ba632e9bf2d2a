/* A manifest reads back as it was; each flipped bit and each cut is noticed; what is wrong in it is
 * named. */
#include "executor/manifest.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static zs_arena *arena;
static zs_error err;

static const zm_model model = {.name = "small",
                               .family = ZM_LLAMA,
                               .n_blocks = 2,
                               .n_channels = 8,
                               .n_heads = 2,
                               .n_kv_heads = 1,
                               .n_ffn = 12,
                               .n_vocab = 16,
                               .n_positions = 8,
                               .activation = ZM_SILU,
                               .norm_eps = 1e-6,
                               .rope_theta = 1e4};

static zx_manifest make(void)
{
    static zx_manifest_file files[2] = {
        {.name = "a.bin", .elements = {0, 100}, .size_bytes = 1200, .crc32 = 0x12345678}};
    const int64_t n = zm_model_n_params(&model);
    files[1] = (zx_manifest_file){.name = "b.bin",
                                  .elements = {100, n - 100},
                                  .size_bytes = 12 * (n - 100),
                                  .crc32 = 0xfedcba98};
    return (zx_manifest){.model = model,
                         .n_params = n,
                         .step = 100,
                         .n_updates = 99,
                         .options = {.lr = {.max = 1e-3,
                                            .min = 1e-5,
                                            .n_warmup = 10,
                                            .n_steps = 1000,
                                            .decay = ZX_LR_LINEAR},
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .weight_decay = 0.1,
                                     .clip = 1,
                                     .seed = 7,
                                     .order = ZX_DATA_SEQUENTIAL},
                         .n_tokens = 801,
                         .n_sequences = 100,
                         .seq_len = 8,
                         .position = 250,
                         .n_files = 2,
                         .files = files};
}

static void check_equal(const zx_manifest *a, const zx_manifest *b)
{
    const zx_run_options *x = &a->options, *y = &b->options;
    CHECK(a->n_params == b->n_params && a->step == b->step && a->n_updates == b->n_updates &&
              a->n_tokens == b->n_tokens && a->n_sequences == b->n_sequences &&
              a->seq_len == b->seq_len && a->position == b->position && a->n_files == b->n_files,
          "counts");
    CHECK(x->lr.max == y->lr.max && x->lr.min == y->lr.min && x->lr.n_warmup == y->lr.n_warmup &&
              x->lr.n_steps == y->lr.n_steps && x->lr.decay == y->lr.decay &&
              x->beta1 == y->beta1 && x->beta2 == y->beta2 && x->eps == y->eps &&
              x->weight_decay == y->weight_decay && x->clip == y->clip && x->seed == y->seed &&
              x->order == y->order,
          "options");
    for (int i = 0; i < a->n_files && i < b->n_files; i++) {
        const zx_manifest_file *f = &a->files[i], *g = &b->files[i];
        CHECK_STRING(f->name, g->name);
        CHECK(f->elements.first == g->elements.first && f->elements.count == g->elements.count &&
                  f->size_bytes == g->size_bytes && f->crc32 == g->crc32,
              "%s", f->name);
    }
    CHECK_STRING(a->model.name, b->model.name);
}

/* In place: file systems flush what replaces a file that was cut to nothing. */
static void rewrite(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "r+b");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "%s", path);
}

static void check_damage(const char *folder)
{
    zx_manifest m;
    char path[4096];
    size_t size;
    snprintf(path, sizeof path, "%s/" ZX_MANIFEST_NAME, folder);
    char *bytes = check_read_file(path, &size);
    if (!CHECK(bytes && size > 0, "%s", path))
        return;
    int n_unnoticed = 0, n_unnamed = 0;
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
        rewrite(path, bytes, size);
        n_unnoticed += zx_manifest_load(&m, arena, folder, &err);
        n_unnamed += !strstr(err.message, path);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
    }
    CHECK(n_unnoticed == 0 && n_unnamed == 0, "%d of %zu bits unnoticed, %d unnamed", n_unnoticed,
          8 * size, n_unnamed);
    rewrite(path, bytes, size);
    for (size_t n = size; n-- > 0;) {
        CHECK(truncate(path, (off_t)n) == 0, "%s", path);
        CHECK(!zx_manifest_load(&m, arena, folder, &err), "%zu of %zu bytes", n, size);
    }
    rewrite(path, bytes, size);
    CHECK(zx_manifest_load(&m, arena, folder, &err), "%s", err.message);
    free(bytes);
}

/* The text with one piece replaced is refused, saying what. */
static void check_refused(const char *from, const char *to, const char *message)
{
    static char text[16384];
    zx_manifest m = make();
    zs_json_writer *w;
    const char *good;
    size_t size;
    const zs_json *root;
    if (!CHECK(zs_json_writer_open(&w, &err), "%s", err.message))
        return;
    zx_manifest_write(w, NULL, &m);
    CHECK(zs_json_writer_text(w, &good, &size, &err), "%s", err.message);
    const char *at = strstr(good, from);
    if (CHECK(at != NULL, "no %s in %s", from, good)) {
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
        CHECK(zs_json_parse(&root, arena, text, strlen(text), "m.json", &err), "%s", err.message);
        CHECK_FAILS(zx_manifest_parse(&m, arena, root, &err), &err, ZS_ERR_INPUT, message);
    }
    zs_json_writer_close(&w);
}

static void check_rules(void)
{
    check_refused("\"version\": 1", "\"version\": 2", "$.version");
    check_refused("zexec-checkpoint", "zplan-plan", "$.format");
    check_refused("\"epoch\": 2", "\"epoch\": 1", "$.data.epoch: 1, but position 250 of 100");
    check_refused("\"n_params\": ", "\"n_params\": 1", "$.n_params: 1");
    check_refused("a.bin", "../a.bin", "$.files[0].name: \"../a.bin\" is no plain file name");
    check_refused("a.bin", ".a", "$.files[0].name");
    check_refused("\"first\": 100", "\"first\": 99", "$.files[1].first: 99, expected 100");
    check_refused("\"count\": 100", "\"count\": 101", "$.files[0].size_bytes: 1200, but 3 arrays");
    check_refused("\"count\": 100", "\"count\": 0", "$.files[0].count");
    check_refused("\"count\": 100", "\"count\": 9007199254740991",
                  "$.files[0].count: 9007199254740991 elements from 0 on, but the model has");
    check_refused("12345678", "1234567", "$.files[0].crc32: \"1234567\", expected 8 hexa");
    check_refused("\"seed\": 7", "\"seed\": 7.5", "$.seed");
    check_refused("\"dtype\": \"F32\"", "\"dtype\": \"BF16\"", "$.dtype");
    check_refused("\"first_moments\"", "\"second_moments\"", "$.arrays[1]");
    check_refused("\"beta1\": 0.9", "\"beta_1\": 0.9", "$.optimizer");
}

static void check_model_fields(void)
{
    zx_manifest m = make();
    m.place = "m.json";
    zm_model other = model;
    other.name = "another name";
    other.dropout = 0.1;
    CHECK(zx_manifest_check_model(&m, &other, &err), "%s", err.message);
    other.n_kv_heads = 2;
    CHECK_FAILS(zx_manifest_check_model(&m, &other, &err), &err, ZS_ERR_INPUT,
                "m.json: $.model.n_kv_heads is 1, but the plan's model has 2");
    other = model;
    other.rope_theta = 5e5;
    CHECK_FAILS(zx_manifest_check_model(&m, &other, &err), &err, ZS_ERR_INPUT,
                "$.model.rope_theta is 10000, but the plan's model has 500000");
}

static void check_changes(void)
{
    const zx_manifest m = make();
    zx_run_options now = m.options;
    char text[512];
    zx_manifest_changes(text, sizeof text, &m, &now);
    CHECK_STRING(text, "");
    now.beta2 = 0.999;
    now.lr.decay = ZX_LR_COSINE;
    zx_manifest_changes(text, sizeof text, &m, &now);
    CHECK_STRING(text, "--beta2 0.95, now 0.999; --lr-decay linear, now cosine");
    zx_manifest_changes(text, 10, &m, &now);
    CHECK(strlen(text) == 9, "\"%s\"", text);
}

int main(void)
{
    if (!zs_arena_open(&arena, &err))
        return 1;
    const char *folder = check_folder("one");
    const zx_manifest m = make();
    zx_manifest again;
    CHECK(zx_manifest_save(&m, folder, &err) && zx_manifest_load(&again, arena, folder, &err), "%s",
          err.message);
    check_equal(&again, &m);
    check_damage(folder);
    check_rules();
    check_model_fields();
    check_changes();
    zs_arena_close(&arena);
    return check_done();
}
