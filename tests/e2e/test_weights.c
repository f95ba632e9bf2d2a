/* Weights go from a checkpoint to safetensors and back without a changed bit, start a run under any
 * plan, with or without the prefix in their names; what is not the model's is refused. */
#include "tests/e2e/runs.h"

#include <stdlib.h>
#include <string.h>

enum { T = 8, V = 32 };

static zs_arena *arena;
static zs_error err;
static const char *data;

static bool is_same_file(const char *a, const char *b)
{
    size_t n_a = 0, n_b = 0;
    char *x = check_read_file(a, &n_a), *y = check_read_file(b, &n_b);
    const bool same = x && y && n_a == n_b && memcmp(x, y, n_a) == 0;
    free(x);
    free(y);
    return same;
}

static void convert(const char *kind, const char *in, const char *out, const char *model)
{
    const char *argv[] = {runs_zexec, "convert", kind, in, "-o", out, model ? "--model" : NULL,
                          model,      NULL};
    check_output output = check_program(argv, NULL);
    CHECK(output.status == 0, "convert %s: %s", kind, output.err);
    check_output_free(&output);
}

static void refuse_conversion(const char *kind, const char *in, const char *out, const char *text)
{
    const char *argv[] = {runs_zexec, "convert", kind, in, "-o", out, "--model", "tiny", NULL};
    check_output output = check_program(
        kind[0] == 'c' ? (const char *[]){argv[0], argv[1], argv[2], in, "-o", out, NULL} : argv,
        NULL);
    runs_check_refused(&output, 2, text);
}

/* The same file with another header. extra: bytes behind its data. */
static const char *rewrite(const char *name, const char *from, const char *(*edit)(const char *),
                           const void *extra, size_t extra_bytes)
{
    size_t size;
    uint64_t n_header, n_padded;
    char *bytes = check_read_file(from, &size);
    if (!CHECK(bytes && size > 8, "%s", from))
        return from;
    memcpy(&n_header, bytes, 8);
    const char *header = edit(zs_arena_strndup(arena, bytes + 8, (size_t)n_header, &err));
    const size_t n = strlen(header), n_data = size - 8 - (size_t)n_header;
    n_padded = (n + 7) / 8 * 8;
    char *out = calloc(1, 8 + (size_t)n_padded + n_data + extra_bytes);
    memcpy(out, &n_padded, 8);
    memset(out + 8, ' ', (size_t)n_padded);
    memcpy(out + 8, header, n);
    memcpy(out + 8 + n_padded, bytes + 8 + n_header, n_data);
    if (extra_bytes > 0)
        memcpy(out + 8 + n_padded + n_data, extra, extra_bytes);
    const char *path = check_write_file(name, out, 8 + (size_t)n_padded + n_data + extra_bytes);
    free(bytes);
    free(out);
    return path;
}

static const char *without_prefix(const char *header)
{
    static char out[65536];
    size_t used = 0;
    while (*header && used + 1 < sizeof out) {
        out[used++] = *header;
        if (*header++ != '"')
            continue;
        for (const char *prefix = "transformer."; prefix;
             prefix = prefix[0] == 't' ? "model." : NULL)
            if (strncmp(header, prefix, strlen(prefix)) == 0)
                header += strlen(prefix);
    }
    out[used] = 0;
    return out;
}

static char added[256];

static const char *with_added(const char *header)
{
    return zs_arena_printf(arena, &err, "{%s,%s", added, header + 1);
}

static void check_digest(const char *plan, const char *options, const char *digest)
{
    run_metrics m;
    if (runs_metrics(&m, plan, data, options, NULL))
        CHECK(strcmp(m.params_digest, digest) == 0, "%s: %s, expected %s", options, m.params_digest,
              digest);
    runs_metrics_free(&m);
}

static void write_model(const zs_plan *plan, const char *path)
{
    zs_json_writer *w;
    CHECK(zs_json_writer_open(&w, &err), "%s", err.message);
    zs_json_put_value(w, NULL, plan->model);
    CHECK(zs_json_writer_save(w, path, &err), "%s", err.message);
    zs_json_writer_close(&w);
}

static void check_family(zm_family family)
{
    char name[64], options[9000];
    const char *f = zm_family_names[family];
    const check_run_plan three = {.model = {.family = family,
                                            .n_blocks = 3,
                                            .n_channels = 16,
                                            .n_heads = 4,
                                            .n_kv_heads = family == ZM_LLAMA ? 2 : 0,
                                            .n_vocab = V,
                                            .n_positions = T,
                                            .tied = family != ZM_LLAMA},
                                  .samples = "2+1|3",
                                  .micro_batches = "3+3",
                                  .seq_len = T,
                                  .shards = "90+10|1"};
    check_run_plan one = three;
    one.samples = "3";
    one.shards = NULL;
#define NAME(format) (snprintf(name, sizeof name, format, f), name)
    const char *plan = check_run_plan_save(NAME("%s-three.json"), &three);
    const char *plan_one = check_run_plan_save(NAME("%s-one.json"), &one);
    const char *run = check_path(NAME("%s-run")), *saved = check_path(NAME("%s-a.safetensors"));
    const char *converted = check_path(NAME("%s-b.safetensors"));
    const char *seed = check_folder(NAME("%s-seed"));
    const char *again = check_path(NAME("%s-c.safetensors"));
    char config[4200];

    snprintf(options, sizeof options, "--steps 2 --out %s --save-every 2 --save %s -q", run, saved);
    check_output output = runs_start(plan, data, options, NULL);
    run_metrics m;
    CHECK(output.status == 0, "%s: %s", f, output.err);
    check_output_free(&output);
    if (!runs_read_metrics(&m, run))
        return;

    convert("checkpoint", run, converted, NULL);
    CHECK(is_same_file(converted, saved), "%s: the checkpoint has other weights", f);
    zs_plan loaded;
    CHECK(zs_plan_load(&loaded, arena, plan, &err), "%s", err.message);
    snprintf(config, sizeof config, "%s/config.json", seed);
    write_model(&loaded, config);
    convert("safetensors", converted, seed, config);
    convert("checkpoint", seed, again, NULL);
    CHECK(is_same_file(again, converted), "%s: back and forth", f);

    snprintf(options, sizeof options, "--steps 0 --init %s", converted);
    check_digest(plan, options, m.params_digest);
    check_digest(plan_one, options, m.params_digest);
    snprintf(options, sizeof options, "--steps 0 --resume %s", seed);
    check_digest(plan, options, m.params_digest);
    const char *bare = rewrite(NAME("%s-bare.safetensors"), saved, without_prefix, NULL, 0);
    CHECK(!is_same_file(bare, saved), "%s: no prefix", f);
    snprintf(options, sizeof options, "--steps 0 --init %s", bare);
    check_digest(plan_one, options, m.params_digest);
#undef NAME
    runs_metrics_free(&m);
}

static void refuse_init(const char *plan, const char *file, const char *text)
{
    char options[4200];
    snprintf(options, sizeof options, "--steps 1 -q --init %s", file);
    check_output output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, text);
}

static void check_other_tensors(void)
{
    const char *plan = check_path("gpt2-one.json"), *file = check_path("gpt2-a.safetensors");
    char options[4200];
    size_t size;
    char *bytes = check_read_file(file, &size);
    uint64_t n_header;
    if (!CHECK(bytes, "%s", file))
        return;
    memcpy(&n_header, bytes, 8);
    const size_t n_data = size - 8 - (size_t)n_header;
    enum { N_HEAD = V * 16 };
    const char *embedding;
    const char *entry = strstr(bytes + 8, "\"transformer.wte.weight\"");
    const char *offsets = entry ? strstr(entry, "\"data_offsets\"") : NULL;
    offsets = offsets ? strchr(offsets, '[') : NULL;
    if (!CHECK(offsets != NULL, "no embedding"))
        return;
    embedding = bytes + 8 + n_header + strtoull(offsets + 1, NULL, 10);
    float head[N_HEAD];
    memcpy(head, embedding, sizeof head);
    snprintf(added, sizeof added,
             "\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[%d,16],\"data_offsets\":[%zu,%zu]}",
             V, n_data, n_data + sizeof head);
    snprintf(options, sizeof options, "--steps 0 -q --init %s",
             rewrite("tied.safetensors", file, with_added, head, sizeof head));
    check_output output = runs_start(plan, data, options, NULL);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);
    head[N_HEAD - 1] += 1;
    refuse_init(plan, rewrite("untied.safetensors", file, with_added, head, sizeof head),
                "tensor lm_head.weight differs from transformer.wte.weight, but the model ties");
    snprintf(
        added, sizeof added,
        "\"transformer.h.3.ln_1.bias\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[%zu,"
        "%zu]}",
        n_data, n_data + 64);
    refuse_init(plan, rewrite("deeper.safetensors", file, with_added, head, 64),
                "tensor transformer.h.3.ln_1.bias is none of model small");
    snprintf(added, sizeof added,
             "\"h.0.attn.bias\":{\"dtype\":\"BOOL\",\"shape\":[8,8],\"data_offsets\":[%zu,%zu]}",
             n_data, n_data + 64);
    snprintf(options, sizeof options, "--steps 0 -q --init %s",
             rewrite("mask.safetensors", file, with_added, head, 64));
    output = runs_start(plan, data, options, NULL);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);
    free(bytes);

    refuse_init(check_path("opt-one.json"), file,
                "tensor model.decoder.embed_tokens.weight of model small is missing");
    refuse_init(plan, "nowhere.safetensors", "nowhere.safetensors: No such file");
    refuse_init(plan, data, data);
    snprintf(options, sizeof options, "--init %s --resume %s", file, check_path("gpt2-run"));
    output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, "brings its own weights; give one of them");

    refuse_conversion("checkpoint", check_path("gpt2-run"), check_path("weights.bin"),
                      "expected a name that ends in .safetensors");
    refuse_conversion("checkpoint", check_folder("nothing"), check_path("x.safetensors"),
                      "nothing: holds no checkpoint");
    refuse_conversion("safetensors", file, check_path("x"), "has shape (32,16), the model needs");
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    if (!zs_arena_open(&arena, &err))
        return 1;
    data = check_random_tokens("tokens.bin", 1, 40 * T + 1, V);
    for (int family = 0; family < ZM_N_FAMILIES; family++)
        check_family((zm_family)family);
    check_other_tensors();
    zs_arena_close(&arena);
    return check_done();
}
