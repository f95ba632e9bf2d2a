#include "executor/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

static const char *const prefixes[] = {"transformer.", "model."};

/* Under its own name, or without the prefix. */
static const zx_safetensors_entry *find(const zx_safetensors_file *file, const char *name)
{
    const zx_safetensors_entry *e = zx_safetensors_find(file, name);
    for (size_t i = 0; !e && i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) == 0)
            e = zx_safetensors_find(file, name + n);
    }
    return e;
}

static void print_shape(char *text, size_t size, const int64_t *shape, int n_dims)
{
    size_t used = 0;
    text[0] = 0;
    for (int d = 0; d < n_dims && used < size; d++) {
        const int n = snprintf(text + used, size - used, "%s%" PRId64, d ? "," : "", shape[d]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static bool check_shape(const zx_safetensors_file *file, const zx_safetensors_entry *e,
                        const zm_tensor *t, zs_error *err)
{
    bool equal = e->n_dims == t->n_dims;
    for (int d = 0; equal && d < t->n_dims; d++)
        equal = e->shape[d] == t->shape[d];
    if (equal)
        return true;
    char has[128], needs[128];
    print_shape(has, sizeof has, e->shape, e->n_dims);
    print_shape(needs, sizeof needs, t->shape, t->n_dims);
    return ZS_FAIL(err, ZS_ERR_INPUT, "%s: tensor %.100s has shape (%s), the model needs (%s)",
                   file->path, e->name, has, needs);
}

/* Buffers, not parameters: masks and frequencies that follow from the configuration. */
static bool is_buffer(const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t n_end = strlen(ends[i]);
        if (n >= n_end && strcmp(name + n - n_end, ends[i]) == 0)
            return true;
    }
    return false;
}

/* A head that is saved beside the embedding it is tied to must be the same matrix. */
static bool check_tied_head(const zx_safetensors_file *file, const zx_safetensors_entry *head,
                            const zx_safetensors_entry *embedding, zs_error *err)
{
    if (head->count != embedding->count)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: tensor %.100s and %.100s differ in size, but the model "
                       "ties them",
                       file->path, head->name, embedding->name);
    float *a = malloc(2 * (size_t)CHUNK * sizeof *a);
    if (!a)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", file->path);
    float *b = a + CHUNK;
    bool ok = true;
    for (int64_t done = 0; ok && done < head->count; done += CHUNK) {
        const int64_t n = head->count - done < CHUNK ? head->count - done : CHUNK;
        ok = zx_safetensors_read(a, file, head, done, n, err) &&
             zx_safetensors_read(b, file, embedding, done, n, err);
        if (ok && memcmp(a, b, (size_t)n * sizeof *a) != 0)
            ok = ZS_FAIL(err, ZS_ERR_INPUT,
                         "%s: tensor %.100s differs from %.100s, but the model ties them (its "
                         "tie_word_embeddings would be false)",
                         file->path, head->name, embedding->name);
    }
    free(a);
    return ok;
}

/* What is in the file and was not taken. */
static bool check_rest(const zx_weights *w, zs_arena *arena, const zm_model *model, zs_error *err)
{
    const zx_safetensors_file *file = &w->file;
    bool *used = ZS_NEW(arena, bool, file->n_entries, err);
    if (!used)
        return false;
    for (int i = 0; i < w->n_tensors; i++)
        used[w->tensors[i].entry - file->entries] = true;
    for (int i = 0; i < file->n_entries; i++) {
        const zx_safetensors_entry *e = &file->entries[i];
        if (used[i] || is_buffer(e->name))
            continue;
        if (!model->tied || strcmp(e->name, "lm_head.weight") != 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: tensor %.100s is none of model %s", file->path,
                           e->name, model->name);
        if (!check_tied_head(file, e, w->tensors[0].entry, err))
            return false;
    }
    return true;
}

static bool open_tensors(zx_weights *w, zs_arena *arena, const zm_model *model, zs_error *err)
{
    zm_stage_tensor *all;
    int n;
    if (!zm_stage_tensors(&all, &n, arena, model, 0, model->n_blocks, err))
        return false;
    w->tensors = ZS_NEW(arena, zx_weights_tensor, n, err);
    if (!w->tensors)
        return false;
    for (int i = 0; i < n; i++) {
        const zm_tensor *t = &all[i].tensor;
        if (t->shared)
            continue;
        const zx_safetensors_entry *e = find(&w->file, t->name);
        if (!e)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: tensor %s of model %s is missing", w->file.path,
                           t->name, model->name);
        if (!check_shape(&w->file, e, t, err))
            return false;
        if (e->dtype > ZX_DTYPE_BF16)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: tensor %.100s holds no F32, F16, BF16 or F64",
                           w->file.path, e->name);
        w->tensors[w->n_tensors++] = (zx_weights_tensor){.entry = e, .first = all[i].global_offset};
    }
    return check_rest(w, arena, model, err);
}

bool zx_weights_open(zx_weights *out, zs_arena *arena, const char *path, const zm_model *model,
                     zs_error *err)
{
    zx_weights w = {0};
    if (!zx_safetensors_open(&w.file, arena, path, err))
        return false;
    if (!open_tensors(&w, arena, model, err)) {
        zx_weights_close(&w);
        return false;
    }
    *out = w;
    return true;
}

void zx_weights_close(zx_weights *w)
{
    zx_safetensors_close(&w->file);
    *w = (zx_weights){0};
}

bool zx_weights_read(float *values, const zx_weights *w, zs_shard elements, zs_error *err)
{
    for (int i = 0; i < w->n_tensors; i++) {
        const zx_weights_tensor *t = &w->tensors[i];
        const zs_shard part = zs_shards_intersect(elements, t->first, t->entry->count);
        if (part.count > 0 &&
            !zx_safetensors_read(values + part.first - elements.first, &w->file, t->entry,
                                 part.first - t->first, part.count, err))
            return false;
    }
    return true;
}
