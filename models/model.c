#include "models/model.h"

#include "models/hf_config.h"
#include "models/presets.h"
#include "shared/options.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const zm_family_names[ZM_N_FAMILIES] = {"gpt2", "opt", "llama"};
const char *const zm_activation_names[ZM_N_ACTIVATIONS] = {"gelu_new", "gelu", "relu", "silu"};

/* Bounds that keep every count of parameters, bytes and logits far below 2^63; the largest
 * published models have 2^14 channels, 2^7 blocks and 2^18 words. */
enum {
    MAX_BLOCKS = 1 << 14,
    MAX_CHANNELS = 1 << 18,
    MAX_FFN = 1 << 20,
    MAX_VOCAB = 1 << 24,
    MAX_POSITIONS = 1 << 24
};

static bool allows(zm_family family, zm_activation activation)
{
    /* LLaMA's MLP is the gated one with SiLU (Shazeer, GLU Variants Improve Transformer, 2020). */
    return (family == ZM_LLAMA) == (activation == ZM_SILU);
}

const char *zm_model_find_fault(const zm_model *m, char fault[ZM_FAULT_SIZE])
{
#define RULE(field, condition, ...)                                                                \
    if (!(condition)) {                                                                            \
        snprintf(fault, ZM_FAULT_SIZE, __VA_ARGS__);                                               \
        return (field);                                                                            \
    }
#define RANGE(field, max)                                                                          \
    RULE(#field, m->field >= 1 && m->field <= (max), "%d is not in 1 .. %d", m->field, (int)(max))
    RULE("family", m->family >= 0 && m->family < ZM_N_FAMILIES, "%d is none", (int)m->family)
    const char *family = zm_family_names[m->family];
    RANGE(n_blocks, MAX_BLOCKS)
    RANGE(n_channels, MAX_CHANNELS)
    RANGE(n_heads, MAX_CHANNELS)
    RANGE(n_kv_heads, MAX_CHANNELS)
    RANGE(n_ffn, MAX_FFN)
    RANGE(n_vocab, MAX_VOCAB)
    RANGE(n_positions, MAX_POSITIONS)
    RULE("n_heads", m->n_channels % m->n_heads == 0, "%d heads do not divide %d channels",
         m->n_heads, m->n_channels)
    RULE("n_kv_heads", m->n_heads % m->n_kv_heads == 0,
         "%d key and value heads do not divide %d heads", m->n_kv_heads, m->n_heads)
    RULE("n_kv_heads", m->family == ZM_LLAMA || m->n_kv_heads == m->n_heads,
         "%s has as many key and value heads as heads: %d, not %d", family, m->n_heads,
         m->n_kv_heads)
    RULE("n_heads", m->family != ZM_LLAMA || m->n_channels / m->n_heads % 2 == 0,
         "rotary positions turn pairs of channels, a head of %d has no pairs",
         m->n_channels / m->n_heads)
    RULE("activation", m->activation >= 0 && m->activation < ZM_N_ACTIVATIONS, "%d is none",
         (int)m->activation)
    RULE("activation", allows(m->family, m->activation), "\"%s\", but %s takes %s",
         zm_activation_names[m->activation], family,
         m->family == ZM_LLAMA ? "silu" : "gelu_new, gelu or relu")
    RULE("norm_eps", m->norm_eps > 0 && m->norm_eps < 1, "%g is not above 0 and below 1",
         m->norm_eps)
    RULE("rope_theta", m->family == ZM_LLAMA || m->rope_theta == 0,
         "%g, but %s has no rotary positions", m->rope_theta, family)
    RULE("rope_theta", m->family != ZM_LLAMA || (m->rope_theta >= 1 && m->rope_theta <= 1e12),
         "%g is not in 1 .. 1e12", m->rope_theta)
    RULE("dropout", m->dropout >= 0 && m->dropout < 1, "%g is not at least 0 and below 1",
         m->dropout)
#undef RANGE
#undef RULE
    return NULL;
}

bool zm_model_check(const zm_model *model, zs_error *err)
{
    char fault[ZM_FAULT_SIZE];
    const char *field = zm_model_find_fault(model, fault);
    if (field)
        return ZS_FAIL(err, ZS_ERR_INPUT, "model %s: %s: %s", model->name, field, fault);
    return true;
}

bool zm_model_check_seq_len(const zm_model *model, int seq_len, zs_error *err)
{
    if (seq_len < 1 || seq_len > model->n_positions)
        return ZS_FAIL(err, ZS_ERR_INPUT, "sequence length %d: model %s has positions for 1 .. %d",
                       seq_len, model->name, model->n_positions);
    return true;
}

/* Reads a count over *out, which keeps its value when the key is absent and not required. */
static bool read_count(int *out, const zs_json *object, const char *key, bool required,
                       zs_error *err)
{
    int64_t value = *out;
    if (required ? !zs_json_get_int(&value, object, key, 1, INT_MAX, err)
                 : !zs_json_opt_int(&value, object, key, 1, INT_MAX, err))
        return false;
    *out = (int)value;
    return true;
}

static bool parse_normal(zm_model *out, const zs_json *object, const char *name, zs_error *err)
{
    static const char *const keys[] = {"format",     "version",     "family",     "n_blocks",
                                       "n_channels", "n_heads",     "n_kv_heads", "n_ffn",
                                       "n_vocab",    "n_positions", "activation", "norm_eps",
                                       "rope_theta", "tied",        "dropout"};
    if (!zs_json_check_format(object, ZM_MODEL_FORMAT, ZM_MODEL_VERSION, err) ||
        !zs_json_only_keys(object, keys, (int)(sizeof keys / sizeof keys[0]), err))
        return false;

    int family;
    if (!zs_json_get_choice(&family, object, "family", zm_family_names, ZM_N_FAMILIES, err))
        return false;
    zm_model m = {.name = name, .family = (zm_family)family};
    const bool llama = m.family == ZM_LLAMA;
    if (!read_count(&m.n_blocks, object, "n_blocks", true, err) ||
        !read_count(&m.n_channels, object, "n_channels", true, err) ||
        !read_count(&m.n_heads, object, "n_heads", true, err) ||
        !read_count(&m.n_vocab, object, "n_vocab", true, err) ||
        !read_count(&m.n_positions, object, "n_positions", true, err))
        return false;
    m.n_kv_heads = m.n_heads;
    m.n_ffn = m.n_channels <= MAX_CHANNELS ? 4 * m.n_channels : 0;
    m.norm_eps = llama ? 1e-6 : 1e-5;
    m.rope_theta = llama ? 1e4 : 0;
    m.tied = !llama;
    int activation = llama ? ZM_SILU : m.family == ZM_OPT ? ZM_RELU : ZM_GELU_TANH;
    if (!read_count(&m.n_kv_heads, object, "n_kv_heads", false, err) ||
        !read_count(&m.n_ffn, object, "n_ffn", llama, err) ||
        !zs_json_opt_choice(&activation, object, "activation", zm_activation_names,
                            ZM_N_ACTIVATIONS, err) ||
        !zs_json_opt_double(&m.norm_eps, object, "norm_eps", 0, 1, err) ||
        !zs_json_opt_double(&m.rope_theta, object, "rope_theta", 0, 1e12, err) ||
        !zs_json_opt_bool(&m.tied, object, "tied", err) ||
        !zs_json_opt_double(&m.dropout, object, "dropout", 0, 1, err))
        return false;
    m.activation = (zm_activation)activation;

    char fault[ZM_FAULT_SIZE];
    const char *field = zm_model_find_fault(&m, fault);
    if (field) {
        const zs_json *value = zs_json_find(object, field);
        if (value)
            return zs_json_fail(value, err, "%s", fault);
        return zs_json_fail(object, err, "%s: %s", field, fault);
    }
    *out = m;
    return true;
}

bool zm_model_parse(zm_model *out, zs_arena *arena, const zs_json *object, const char *name,
                    zs_error *err)
{
    if (!zs_json_is_object(object, err))
        return false;
    const char *copy = zs_arena_strdup(arena, name, err);
    if (!copy)
        return false;
    if (zs_json_find(object, "format"))
        return parse_normal(out, object, copy, err);
    return zm_hf_config_parse(out, object, copy, err);
}

const char *const *zm_model_presets(int *n)
{
    enum { MAX_PRESETS = 64 };
    static const char *names[MAX_PRESETS];
    *n = zm_n_presets < MAX_PRESETS ? zm_n_presets : MAX_PRESETS;
    for (int i = 0; i < *n; i++)
        names[i] = zm_presets[i].name;
    return names;
}

static bool fail_unknown(const char *source, zs_error *err)
{
    int n;
    const char *const *names = zm_model_presets(&n);
    char known[ZS_ERROR_MESSAGE_SIZE / 2] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = zs_options_nearest(source, names, n);
    return ZS_FAIL(err, ZS_ERR_INPUT, "\"%s\" is neither a file nor a known model%s%s%s known: %s",
                   source, nearest ? ", did you mean \"" : "", nearest ? nearest : "",
                   nearest ? "\"?" : ";", known);
}

/* The name of a model in path: its file's name without folder and extension; config.json says
 * nothing, so it takes the folder's. */
static const char *name_of(zs_arena *arena, const char *path, zs_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    if (slash && slash > path && strcmp(base, "config.json") == 0) {
        const char *start = slash;
        while (start > path && start[-1] != '/')
            start--;
        if (start < slash && *start != '.')
            return zs_arena_strndup(arena, start, (size_t)(slash - start), err);
    }
    const char *dot = strrchr(base, '.');
    return zs_arena_strndup(arena, base, dot && dot > base ? (size_t)(dot - base) : strlen(base),
                            err);
}

bool zm_model_load(zm_model *out, zs_arena *arena, const char *source, zs_error *err)
{
    const zs_json *root;
    for (int i = 0; i < zm_n_presets; i++) {
        const zm_preset *preset = &zm_presets[i];
        if (strcmp(source, preset->name) == 0)
            return zs_json_parse(&root, arena, preset->text, strlen(preset->text), preset->name,
                                 err) &&
                   zm_model_parse(out, arena, root, preset->name, err);
    }
    if (strcmp(source, "-") == 0)
        return zs_json_load(&root, arena, source, err) &&
               zm_model_parse(out, arena, root, "stdin", err);

    struct stat info;
    const char *path = source;
    if (stat(source, &info) == 0 && S_ISDIR(info.st_mode)) {
        size_t length = strlen(source);
        while (length > 1 && source[length - 1] == '/')
            length--;
        path = zs_arena_printf(arena, err, "%.*s/config.json", (int)length, source);
        if (!path)
            return false;
    } else if (access(source, F_OK) != 0 && !strpbrk(source, "/\\") && !strstr(source, ".json")) {
        return fail_unknown(source, err);
    }
    const char *name = name_of(arena, path, err);
    return name && zs_json_load(&root, arena, path, err) &&
           zm_model_parse(out, arena, root, name, err);
}

void zm_model_write(zs_json_writer *w, const char *key, const zm_model *model)
{
    zs_json_begin_object(w, key);
    zs_json_put_string(w, "format", ZM_MODEL_FORMAT);
    zs_json_put_int(w, "version", ZM_MODEL_VERSION);
    zs_json_put_string(w, "family", zm_family_names[model->family]);
    zs_json_put_int(w, "n_blocks", model->n_blocks);
    zs_json_put_int(w, "n_channels", model->n_channels);
    zs_json_put_int(w, "n_heads", model->n_heads);
    zs_json_put_int(w, "n_kv_heads", model->n_kv_heads);
    zs_json_put_int(w, "n_ffn", model->n_ffn);
    zs_json_put_int(w, "n_vocab", model->n_vocab);
    zs_json_put_int(w, "n_positions", model->n_positions);
    zs_json_put_string(w, "activation", zm_activation_names[model->activation]);
    zs_json_put_double(w, "norm_eps", model->norm_eps);
    if (model->family == ZM_LLAMA)
        zs_json_put_double(w, "rope_theta", model->rope_theta);
    zs_json_put_bool(w, "tied", model->tied);
    zs_json_put_double(w, "dropout", model->dropout);
    zs_json_end_object(w);
}
