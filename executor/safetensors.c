#include "executor/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian; writing them here needs a byte swap"
#endif

enum { SIZE_BYTES = 8, ELEMENT_BYTES = 4, ALIGNMENT = 8 };

static int compare_names(const void *a, const void *b)
{
    const zm_stage_tensor *x = a, *y = b;
    return strcmp(x->tensor.name, y->tensor.name);
}

static int compare_first(const void *a, const void *b)
{
    const zx_safetensors_tensor *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* The header's JSON of tensors in file order. */
static bool write_json(zs_json_writer *w, const zm_stage_tensor *tensors, int n, const char **text,
                       size_t *size, zs_error *err)
{
    zs_json_writer_set_compact(w);
    zs_json_begin_object(w, NULL);
    zs_json_begin_object(w, "__metadata__");
    zs_json_put_string(w, "format", "pt"); /* transformers refuses files without it */
    zs_json_end_object(w);
    int64_t begin = 0;
    for (int i = 0; i < n; i++) {
        const zm_tensor *t = &tensors[i].tensor;
        zs_json_begin_object(w, t->name);
        zs_json_put_string(w, "dtype", "F32");
        zs_json_begin_array(w, "shape");
        for (int d = 0; d < t->n_dims; d++)
            zs_json_put_int(w, NULL, t->shape[d]);
        zs_json_end_array(w);
        zs_json_begin_array(w, "data_offsets");
        zs_json_put_int(w, NULL, begin);
        begin += t->count * ELEMENT_BYTES;
        zs_json_put_int(w, NULL, begin);
        zs_json_end_array(w);
        zs_json_end_object(w);
    }
    zs_json_end_object(w);
    if (!zs_json_writer_text(w, text, size, err))
        return false;
    while (*size > 0 && (*text)[*size - 1] == '\n')
        --*size;
    return true;
}

bool zx_safetensors_build(zx_safetensors *out, zs_arena *arena, const zm_model *model,
                          zs_error *err)
{
    zm_stage_tensor *sorted;
    int n_all, n = 0;
    if (!zm_stage_tensors(&sorted, &n_all, arena, model, 0, model->n_blocks, err))
        return false;
    for (int i = 0; i < n_all; i++)
        if (!sorted[i].tensor.shared)
            sorted[n++] = sorted[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_names);
    zx_safetensors_tensor *tensors = ZS_NEW(arena, zx_safetensors_tensor, n, err);
    if (!tensors)
        return false;

    zs_json_writer *w;
    if (!zs_json_writer_open(&w, err))
        return false;
    const char *json;
    size_t json_size;
    if (!write_json(w, sorted, n, &json, &json_size, err))
        goto err_close_writer;

    const int64_t padded = ((int64_t)json_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *header = ZS_NEW(arena, char, SIZE_BYTES + padded, err);
    if (!header)
        goto err_close_writer;
    const uint64_t size_field = (uint64_t)padded;
    memcpy(header, &size_field, SIZE_BYTES);
    memcpy(header + SIZE_BYTES, json, json_size);
    memset(header + SIZE_BYTES + json_size, ' ', (size_t)padded - json_size);
    zs_json_writer_close(&w);

    int64_t end_bytes = SIZE_BYTES + padded;
    *out = (zx_safetensors){.header = header,
                            .header_bytes = end_bytes,
                            .n_params = zm_model_n_params(model),
                            .n_tensors = n,
                            .tensors = tensors};
    for (int i = 0; i < n; i++) {
        tensors[i] = (zx_safetensors_tensor){.name = sorted[i].tensor.name,
                                             .first = sorted[i].global_offset,
                                             .count = sorted[i].tensor.count,
                                             .begin_bytes = end_bytes};
        end_bytes += tensors[i].count * ELEMENT_BYTES;
    }
    out->file_bytes = end_bytes;
    qsort(tensors, (size_t)n, sizeof *tensors, compare_first);
    return true;

err_close_writer:
    zs_json_writer_close(&w);
    return false;
}

static bool fail(zs_error *err, const char *path, const char *what)
{
    return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot %s: %s", path, what, strerror(errno));
}

static bool print_path(char out[PATH_MAX], const char *path, zs_error *err)
{
    if (snprintf(out, PATH_MAX, "%s.tmp", path) >= PATH_MAX)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: the path is too long", path);
    return true;
}

static bool write_at(int file, const void *data, int64_t n_bytes, int64_t at)
{
    const char *next = data;
    while (n_bytes > 0) {
        ssize_t n = pwrite(file, next, (size_t)n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : ENOSPC;
            return false;
        }
        next += n;
        at += n;
        n_bytes -= n;
    }
    return true;
}

bool zx_safetensors_create(const zx_safetensors *s, const char *path, zs_error *err)
{
    char temporary[PATH_MAX];
    if (!print_path(temporary, path, err))
        return false;
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return fail(err, temporary, "create");
    if (ftruncate(file, (off_t)s->file_bytes) != 0 ||
        !write_at(file, s->header, s->header_bytes, 0)) {
        fail(err, temporary, "write");
        goto err_remove;
    }
    if (close(file) != 0) {
        fail(err, temporary, "write");
        unlink(temporary);
        return false;
    }
    return true;

err_remove:
    close(file);
    unlink(temporary);
    return false;
}

/* The tensor that holds element first. */
static int find_tensor(const zx_safetensors *s, int64_t first)
{
    int low = 0, high = s->n_tensors;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (s->tensors[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool zx_safetensors_write(const zx_safetensors *s, const char *path, const float *values,
                          int64_t first, int64_t count, zs_error *err)
{
    assert(first >= 0 && count >= 0 && count <= s->n_params - first);
    if (count == 0)
        return true;
    char temporary[PATH_MAX];
    if (!print_path(temporary, path, err))
        return false;
    int file = open(temporary, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return fail(err, temporary, "open");
    for (int i = find_tensor(s, first); count > 0; i++) {
        const zx_safetensors_tensor *t = &s->tensors[i];
        const int64_t skipped = first - t->first;
        const int64_t n = count < t->count - skipped ? count : t->count - skipped;
        if (!write_at(file, values, n * ELEMENT_BYTES, t->begin_bytes + skipped * ELEMENT_BYTES)) {
            fail(err, temporary, "write");
            goto err_close;
        }
        values += n;
        first += n;
        count -= n;
    }
    /* Each rank flushes what it wrote: on a shared file system nobody else can. */
    if (fsync(file) != 0) {
        fail(err, temporary, "flush");
        goto err_close;
    }
    if (close(file) != 0)
        return fail(err, temporary, "write");
    return true;

err_close:
    close(file);
    return false;
}

/* A rename lasts once the folder is flushed. */
static bool sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int length = slash == path ? 1 : slash ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s", length, path);
    int file = open(length ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return false;
    /* Some file systems cannot flush folders and say EINVAL. */
    bool ok = fsync(file) == 0 || errno == EINVAL;
    close(file);
    return ok;
}

bool zx_safetensors_publish(const zx_safetensors *s, const char *path, zs_error *err)
{
    char temporary[PATH_MAX];
    if (!print_path(temporary, path, err))
        return false;
    int file = open(temporary, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return fail(err, temporary, "open");
    const int64_t size = (int64_t)lseek(file, 0, SEEK_END);
    if (size != s->file_bytes) {
        close(file);
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: has %lld bytes, expected %lld", temporary,
                       (long long)size, (long long)s->file_bytes);
    }
    bool flushed = fsync(file) == 0;
    if (close(file) != 0 || !flushed)
        return fail(err, temporary, "flush");
    if (rename(temporary, path) != 0)
        return fail(err, path, "rename to this name");
    if (!sync_folder(path))
        return fail(err, path, "flush its folder");
    return true;
}

void zx_safetensors_discard(const char *path)
{
    char temporary[PATH_MAX];
    if (print_path(temporary, path, NULL))
        unlink(temporary);
}
