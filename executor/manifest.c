#include "executor/manifest.h"

#include "shared/files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { ELEMENT_BYTES = 4, MAX_FILES = 1 << 20 };
#define MAX_INT ((INT64_C(1) << 53) - 1)

const char *const zx_array_names[ZX_N_ARRAYS] = {[ZX_ARRAY_WEIGHTS] = "weights",
                                                 [ZX_ARRAY_FIRST_MOMENTS] = "first_moments",
                                                 [ZX_ARRAY_SECOND_MOMENTS] = "second_moments"};

static const char *const order_names[] = {
    [ZX_DATA_SHUFFLED] = "shuffled", [ZX_DATA_SEQUENTIAL] = "sequential"};

/* Reading. */

static bool parse_optimizer(zx_manifest *m, const zs_json *root, zs_error *err)
{
    static const char *const keys[] = {"kind", "n_updates",    "beta1", "beta2",
                                       "eps",  "weight_decay", "clip"};
    static const char *const kinds[] = {"adamw"};
    const zs_json *o;
    int kind;
    zx_run_options *to = &m->options;
    return zs_json_get(&o, root, "optimizer", err) && zs_json_is_object(o, err) &&
           zs_json_only_keys(o, keys, 7, err) &&
           zs_json_get_choice(&kind, o, "kind", kinds, 1, err) &&
           zs_json_get_int(&m->n_updates, o, "n_updates", 0, MAX_INT, err) &&
           zs_json_get_double(&to->beta1, o, "beta1", 0, 1, err) &&
           zs_json_get_double(&to->beta2, o, "beta2", 0, 1, err) &&
           zs_json_get_double(&to->eps, o, "eps", 0, 1, err) &&
           zs_json_get_double(&to->weight_decay, o, "weight_decay", 0, 1e6, err) &&
           zs_json_get_double(&to->clip, o, "clip", 0, 1e30, err);
}

static bool parse_learning_rate(zx_manifest *m, const zs_json *root, zs_error *err)
{
    static const char *const keys[] = {"max", "min", "n_warmup", "n_steps", "decay"};
    const zs_json *o;
    int decay;
    zx_lr *lr = &m->options.lr;
    if (!zs_json_get(&o, root, "lr", err) || !zs_json_is_object(o, err) ||
        !zs_json_only_keys(o, keys, 5, err) ||
        !zs_json_get_double(&lr->max, o, "max", 0, 1e6, err) ||
        !zs_json_get_double(&lr->min, o, "min", 0, 1e6, err) ||
        !zs_json_get_int(&lr->n_warmup, o, "n_warmup", 0, MAX_INT, err) ||
        !zs_json_get_int(&lr->n_steps, o, "n_steps", 0, MAX_INT, err) ||
        !zs_json_get_choice(&decay, o, "decay", zx_lr_decay_names, ZX_N_LR_DECAYS, err))
        return false;
    lr->decay = (zx_lr_decay)decay;
    return true;
}

static int64_t epoch_of(const zx_manifest *m)
{
    return m->n_sequences > 0 ? m->position / m->n_sequences : 0;
}

static bool parse_data(zx_manifest *m, const zs_json *root, zs_error *err)
{
    static const char *const keys[] = {"order",   "n_tokens", "n_sequences",
                                       "seq_len", "position", "epoch"};
    const zs_json *o;
    int order;
    int64_t seed, seq_len, epoch;
    if (!zs_json_get_int(&seed, root, "seed", 0, MAX_INT, err) ||
        !zs_json_get(&o, root, "data", err) || !zs_json_is_object(o, err) ||
        !zs_json_only_keys(o, keys, 6, err) ||
        !zs_json_get_choice(&order, o, "order", order_names, 2, err) ||
        !zs_json_get_int(&m->n_tokens, o, "n_tokens", 0, MAX_INT, err) ||
        !zs_json_get_int(&m->n_sequences, o, "n_sequences", 0, MAX_INT, err) ||
        !zs_json_get_int(&seq_len, o, "seq_len", 0, INT32_MAX, err) ||
        !zs_json_get_int(&m->position, o, "position", 0, MAX_INT, err) ||
        !zs_json_get_int(&epoch, o, "epoch", 0, MAX_INT, err))
        return false;
    if (m->n_sequences == 0 && m->position != 0)
        return zs_json_fail(zs_json_find(o, "position"), err,
                            "%" PRId64 " samples taken of no sequences", m->position);
    if (epoch != epoch_of(m))
        return zs_json_fail(zs_json_find(o, "epoch"), err,
                            "%" PRId64 ", but position %" PRId64 " of %" PRId64
                            " sequences is in epoch %" PRId64,
                            epoch, m->position, m->n_sequences, epoch_of(m));
    m->options.seed = (uint64_t)seed;
    m->options.order = (zx_data_order)order;
    m->seq_len = (int)seq_len;
    return true;
}

static bool is_plain_name(const char *name)
{
    const size_t n = strlen(name);
    return n > 0 && n < 256 && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static bool parse_crc32(uint32_t *out, const zs_json *object, zs_error *err)
{
    const zs_json *value;
    const char *text;
    if (!zs_json_get(&value, object, "crc32", err) || !zs_json_string(&text, value, err))
        return false;
    if (strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8)
        return zs_json_fail(value, err, "\"%.40s\", expected 8 hexadecimal digits", text);
    *out = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

static bool parse_file(zx_manifest_file *out, const zs_json *object, int64_t first,
                       int64_t n_params, zs_error *err)
{
    static const char *const keys[] = {"name", "first", "count", "size_bytes", "crc32"};
    zs_shard *e = &out->elements;
    if (!zs_json_is_object(object, err) || !zs_json_only_keys(object, keys, 5, err) ||
        !zs_json_get_string(&out->name, object, "name", err) ||
        !zs_json_get_int(&e->first, object, "first", 0, MAX_INT, err) ||
        !zs_json_get_int(&e->count, object, "count", 1, MAX_INT, err) ||
        !zs_json_get_int(&out->size_bytes, object, "size_bytes", 0, MAX_INT, err) ||
        !parse_crc32(&out->crc32, object, err))
        return false;
    if (!is_plain_name(out->name))
        return zs_json_fail(zs_json_find(object, "name"), err,
                            "\"%.80s\" is no plain file name (letters, digits, \".\", \"_\", "
                            "\"-\"; no leading \".\")",
                            out->name);
    if (e->first != first)
        return zs_json_fail(zs_json_find(object, "first"), err,
                            "%" PRId64 ", expected %" PRId64 ", where the file before it ends",
                            e->first, first);
    if (e->count > n_params - first)
        return zs_json_fail(zs_json_find(object, "count"), err,
                            "%" PRId64 " elements from %" PRId64 " on, but the model has %" PRId64,
                            e->count, first, n_params);
    const int64_t size_bytes = ZX_N_ARRAYS * e->count * ELEMENT_BYTES;
    if (out->size_bytes != size_bytes)
        return zs_json_fail(zs_json_find(object, "size_bytes"), err,
                            "%" PRId64 ", but %d arrays of %" PRId64 " elements have %" PRId64
                            " bytes",
                            out->size_bytes, ZX_N_ARRAYS, e->count, size_bytes);
    return true;
}

static bool parse_files(zx_manifest *m, zs_arena *arena, const zs_json *root, zs_error *err)
{
    const zs_json *list;
    if (!zs_json_get(&list, root, "files", err) ||
        !zs_json_is_array(&m->n_files, list, 1, MAX_FILES, err))
        return false;
    m->files = ZS_NEW(arena, zx_manifest_file, m->n_files, err);
    if (!m->files)
        return false;
    int64_t end = 0;
    for (int i = 0; i < m->n_files; i++) {
        if (!parse_file(&m->files[i], zs_json_item(list, i), end, m->n_params, err))
            return false;
        end += m->files[i].elements.count;
    }
    if (end != m->n_params)
        return zs_json_fail(list, err, "hold %" PRId64 " of %" PRId64 " elements", end,
                            m->n_params);
    return true;
}

/* The names are fixed in version 1; the list is there for readers of the bytes. */
static bool parse_arrays(const zs_json *root, zs_error *err)
{
    const zs_json *list;
    int n, dtype;
    static const char *const dtypes[] = {"F32"};
    if (!zs_json_get_choice(&dtype, root, "dtype", dtypes, 1, err) ||
        !zs_json_get(&list, root, "arrays", err) ||
        !zs_json_is_array(&n, list, ZX_N_ARRAYS, ZX_N_ARRAYS, err))
        return false;
    for (int i = 0; i < n; i++) {
        const char *name;
        if (!zs_json_string(&name, zs_json_item(list, i), err))
            return false;
        if (strcmp(name, zx_array_names[i]) != 0)
            return zs_json_fail(zs_json_item(list, i), err, "\"%.40s\", expected \"%s\"", name,
                                zx_array_names[i]);
    }
    return true;
}

bool zx_manifest_parse(zx_manifest *out, zs_arena *arena, const zs_json *root, zs_error *err)
{
    static const char *const keys[] = {
        "format", "version", "step",      "model", "model_name", "n_params", "seed",
        "data",   "lr",      "optimizer", "dtype", "arrays",     "files",    "manifest_crc32"};
    zx_manifest m = {.place = zs_json_document(root)};
    const zs_json *model;
    const char *name;
    if (!zs_json_is_object(root, err) ||
        !zs_json_check_format(root, ZX_MANIFEST_FORMAT, ZX_MANIFEST_VERSION, err) ||
        !zs_json_only_keys(root, keys, sizeof keys / sizeof keys[0], err) ||
        !zs_json_get_int(&m.step, root, "step", 0, MAX_INT, err) ||
        !zs_json_get_string(&name, root, "model_name", err) ||
        !zs_json_get(&model, root, "model", err) ||
        !zm_model_parse(&m.model, arena, model, name, err) ||
        !zs_json_get_int(&m.n_params, root, "n_params", 1, MAX_INT, err))
        return false;
    if (m.n_params != zm_model_n_params(&m.model))
        return zs_json_fail(zs_json_find(root, "n_params"), err,
                            "%" PRId64 ", but the model has %" PRId64, m.n_params,
                            zm_model_n_params(&m.model));
    if (!parse_data(&m, root, err) || !parse_learning_rate(&m, root, err) ||
        !parse_optimizer(&m, root, err) || !parse_arrays(root, err) ||
        !parse_files(&m, arena, root, err))
        return false;
    *out = m;
    return true;
}

/* The file ends in "manifest_crc32", of all bytes before the comma, in exactly this form. */
static const char seal_head[] = ",\n  \"manifest_crc32\": \"", seal_tail[] = "\"\n}\n";
enum { SEAL_SIZE = sizeof seal_head - 1 + 8 + sizeof seal_tail - 1 };

static void print_seal(char out[SEAL_SIZE + 1], const char *text, size_t size)
{
    const uLong crc = crc32_z(0, (const Bytef *)text, size);
    snprintf(out, SEAL_SIZE + 1, "%s%08lx%s", seal_head, crc, seal_tail);
}

bool zx_manifest_load(zx_manifest *out, zs_arena *arena, const char *folder, zs_error *err)
{
    const zs_json *root;
    const char *text, *path = zs_arena_printf(arena, err, "%s/" ZX_MANIFEST_NAME, folder);
    char seal[SEAL_SIZE + 1];
    size_t size;
    if (!path || !zs_files_load(&text, &size, arena, path, err) ||
        !zs_json_parse(&root, arena, text, size, path, err) ||
        !zx_manifest_parse(out, arena, root, err))
        return false;
    if (size > SEAL_SIZE)
        print_seal(seal, text, size - SEAL_SIZE);
    if (size <= SEAL_SIZE || memcmp(text + size - SEAL_SIZE, seal, SEAL_SIZE) != 0)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: its contents do not fit their checksum, $.manifest_crc32, in its last "
                       "lines",
                       path);
    return true;
}

/* Writing. */

static void write_data(zs_json_writer *w, const zx_manifest *m)
{
    zs_json_put_int(w, "seed", (int64_t)m->options.seed);
    zs_json_begin_object(w, "data");
    zs_json_put_string(w, "order", order_names[m->options.order]);
    zs_json_put_int(w, "n_tokens", m->n_tokens);
    zs_json_put_int(w, "n_sequences", m->n_sequences);
    zs_json_put_int(w, "seq_len", m->seq_len);
    zs_json_put_int(w, "position", m->position);
    zs_json_put_int(w, "epoch", epoch_of(m));
    zs_json_end_object(w);
}

static void write_settings(zs_json_writer *w, const zx_manifest *m)
{
    const zx_run_options *o = &m->options;
    zs_json_begin_object(w, "lr");
    zs_json_put_double(w, "max", o->lr.max);
    zs_json_put_double(w, "min", o->lr.min);
    zs_json_put_int(w, "n_warmup", o->lr.n_warmup);
    zs_json_put_int(w, "n_steps", o->lr.n_steps);
    zs_json_put_string(w, "decay", zx_lr_decay_names[o->lr.decay]);
    zs_json_end_object(w);
    zs_json_begin_object(w, "optimizer");
    zs_json_put_string(w, "kind", "adamw");
    zs_json_put_int(w, "n_updates", m->n_updates);
    zs_json_put_double(w, "beta1", o->beta1);
    zs_json_put_double(w, "beta2", o->beta2);
    zs_json_put_double(w, "eps", o->eps);
    zs_json_put_double(w, "weight_decay", o->weight_decay);
    zs_json_put_double(w, "clip", o->clip);
    zs_json_end_object(w);
}

static void write_files(zs_json_writer *w, const zx_manifest *m)
{
    zs_json_put_string(w, "dtype", "F32");
    zs_json_begin_array(w, "arrays");
    for (int i = 0; i < ZX_N_ARRAYS; i++)
        zs_json_put_string(w, NULL, zx_array_names[i]);
    zs_json_end_array(w);
    zs_json_begin_array(w, "files");
    for (int i = 0; i < m->n_files; i++) {
        const zx_manifest_file *f = &m->files[i];
        char crc[16];
        snprintf(crc, sizeof crc, "%08" PRIx32, f->crc32);
        zs_json_begin_object(w, NULL);
        zs_json_put_string(w, "name", f->name);
        zs_json_put_int(w, "first", f->elements.first);
        zs_json_put_int(w, "count", f->elements.count);
        zs_json_put_int(w, "size_bytes", f->size_bytes);
        zs_json_put_string(w, "crc32", crc);
        zs_json_end_object(w);
    }
    zs_json_end_array(w);
}

void zx_manifest_write(zs_json_writer *w, const char *key, const zx_manifest *m)
{
    zs_json_begin_object(w, key);
    zs_json_put_string(w, "format", ZX_MANIFEST_FORMAT);
    zs_json_put_int(w, "version", ZX_MANIFEST_VERSION);
    zs_json_put_int(w, "step", m->step);
    zs_json_put_string(w, "model_name", m->model.name);
    zm_model_write(w, "model", &m->model);
    zs_json_put_int(w, "n_params", m->n_params);
    write_data(w, m);
    write_settings(w, m);
    write_files(w, m);
    zs_json_end_object(w);
}

static bool save_sealed(const char *text, size_t size, const char *path, zs_error *err)
{
    const size_t kept = size - 3; /* without the final "\n}\n" */
    char *sealed = malloc(kept + SEAL_SIZE + 1);
    if (!sealed)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", path);
    memcpy(sealed, text, kept);
    print_seal(sealed + kept, text, kept);
    const bool ok = zs_files_save(path, sealed, kept + SEAL_SIZE, err);
    free(sealed);
    return ok;
}

bool zx_manifest_save(const zx_manifest *m, const char *folder, zs_error *err)
{
    char path[4096];
    zs_json_writer *w;
    const char *text;
    size_t size;
    if (snprintf(path, sizeof path, "%s/" ZX_MANIFEST_NAME, folder) >= (int)sizeof path)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: the path is too long", folder);
    if (!zs_json_writer_open(&w, err))
        return false;
    zx_manifest_write(w, NULL, m);
    const bool ok = zs_json_writer_text(w, &text, &size, err) && save_sealed(text, size, path, err);
    zs_json_writer_close(&w);
    return ok;
}

/* Comparing. */

/* A value as text, in arena; NULL where that failed. */
static const char *value_text(zs_arena *arena, const zs_json *value, zs_error *err)
{
    zs_json_writer *w;
    const char *text = NULL;
    size_t size = 0;
    if (!value)
        return "absent";
    if (!zs_json_writer_open(&w, err))
        return NULL;
    zs_json_writer_set_compact(w);
    zs_json_put_value(w, NULL, value);
    char *copy = NULL;
    if (zs_json_writer_text(w, &text, &size, err))
        copy = zs_arena_strndup(arena, text, size > 0 ? size - 1 : 0, err);
    zs_json_writer_close(&w);
    return copy;
}

static bool model_json(const zs_json **out, zs_arena *arena, const zm_model *model, zs_error *err)
{
    zs_json_writer *w;
    const char *text;
    size_t size;
    if (!zs_json_writer_open(&w, err))
        return false;
    zm_model_write(w, NULL, model);
    const bool ok = zs_json_writer_text(w, &text, &size, err) &&
                    zs_json_parse(out, arena, text, size, "model", err);
    zs_json_writer_close(&w);
    return ok;
}

/* The first member of either object that the other has not, or has otherwise. */
static bool compare_members(const zx_manifest *m, zs_arena *arena, const zs_json *ours,
                            const zs_json *theirs, zs_error *err)
{
    for (int i = 0; i < zs_json_n_items(theirs); i++) {
        const char *key = zs_json_key_at(theirs, i);
        const zs_json *a = zs_json_item(theirs, i), *b = zs_json_find(ours, key);
        if (strcmp(key, "dropout") == 0)
            continue;
        const char *a_text = value_text(arena, a, err), *b_text = value_text(arena, b, err);
        if (!a_text || !b_text)
            return false;
        if (strcmp(a_text, b_text) != 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: $.model.%s is %s, but the plan's model has %s",
                           m->place, key, b_text, a_text);
    }
    return true;
}

bool zx_manifest_check_model(const zx_manifest *m, const zm_model *model, zs_error *err)
{
    const zs_json *ours, *theirs;
    zs_arena *arena;
    if (!zs_arena_open(&arena, err))
        return false;
    const bool ok = model_json(&ours, arena, &m->model, err) &&
                    model_json(&theirs, arena, model, err) &&
                    compare_members(m, arena, ours, theirs, err);
    zs_arena_close(&arena);
    return ok;
}

bool zx_manifest_check_data(const zx_manifest *m, const zx_run_options *options,
                            const zx_data *data, zs_error *err)
{
    const zx_run_options *o = &m->options;
    if (m->n_sequences == 0)
        return true;
    if (o->seed != options->seed)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: $.seed is %" PRIu64 ", this run has --seed %" PRIu64,
                       m->place, o->seed, options->seed);
    if (o->order != options->order)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: $.data.order is %s, this run has --data-order %s",
                       m->place, order_names[o->order], order_names[options->order]);
    if (m->seq_len != data->seq_len)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: $.data.seq_len is %d, the plan has %d", m->place,
                       m->seq_len, data->seq_len);
    if (m->n_tokens != data->n_tokens || m->n_sequences != data->n_sequences)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: $.data.n_tokens is %" PRId64 ", %s has %" PRId64
                       ": a run goes on with the data it was trained on (for other data start "
                       "with the weights alone: zexec convert checkpoint, run --init)",
                       m->place, m->n_tokens, data->path, data->n_tokens);
    return true;
}

typedef struct changes {
    char *text;
    size_t size, used;
} changes;

static void add_change(changes *c, const char *option, double then, double now)
{
    if (then == now || c->used >= c->size)
        return;
    const int n = snprintf(c->text + c->used, c->size - c->used, "%s%s %.9g, now %.9g",
                           c->used ? "; " : "", option, then, now);
    c->used += n > 0 ? (size_t)n : 0;
}

void zx_manifest_changes(char *text, size_t size, const zx_manifest *m, const zx_run_options *now)
{
    const zx_run_options *then = &m->options;
    changes c = {.text = text, .size = size};
    text[0] = 0;
    if (m->n_sequences == 0)
        return;
    add_change(&c, "--lr", then->lr.max, now->lr.max);
    add_change(&c, "--min-lr", then->lr.min, now->lr.min);
    add_change(&c, "--warmup", (double)then->lr.n_warmup, (double)now->lr.n_warmup);
    add_change(&c, "--steps", (double)then->lr.n_steps, (double)now->lr.n_steps);
    add_change(&c, "--beta1", then->beta1, now->beta1);
    add_change(&c, "--beta2", then->beta2, now->beta2);
    add_change(&c, "--eps", then->eps, now->eps);
    add_change(&c, "--weight-decay", then->weight_decay, now->weight_decay);
    add_change(&c, "--clip", then->clip, now->clip);
    if (then->lr.decay != now->lr.decay && c.used < size)
        snprintf(text + c.used, size - c.used, "%s--lr-decay %s, now %s", c.used ? "; " : "",
                 zx_lr_decay_names[then->lr.decay], zx_lr_decay_names[now->lr.decay]);
}
