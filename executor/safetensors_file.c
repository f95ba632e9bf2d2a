#define _GNU_SOURCE
#include "executor/safetensors_file.h"

#include "shared/json.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian; reading them here needs a byte swap"
#endif

enum { SIZE_BYTES = 8, CHUNK = 1 << 16 /* elements */ };
#define MAX_INT ((INT64_C(1) << 53) - 1)

/* clang-format off */
static const char *const dtype_names[ZX_N_DTYPES] = {
    [ZX_DTYPE_F64] = "F64",         [ZX_DTYPE_F32] = "F32",
    [ZX_DTYPE_F16] = "F16",         [ZX_DTYPE_BF16] = "BF16",
    [ZX_DTYPE_I64] = "I64",         [ZX_DTYPE_I32] = "I32",
    [ZX_DTYPE_I16] = "I16",         [ZX_DTYPE_I8] = "I8",
    [ZX_DTYPE_U64] = "U64",         [ZX_DTYPE_U32] = "U32",
    [ZX_DTYPE_U16] = "U16",         [ZX_DTYPE_U8] = "U8",
    [ZX_DTYPE_BOOL] = "BOOL",       [ZX_DTYPE_F8_E4M3] = "F8_E4M3",
    [ZX_DTYPE_F8_E5M2] = "F8_E5M2",
};
static const int dtype_bytes[ZX_N_DTYPES] = {
    [ZX_DTYPE_F64] = 8,  [ZX_DTYPE_F32] = 4,     [ZX_DTYPE_F16] = 2,     [ZX_DTYPE_BF16] = 2,
    [ZX_DTYPE_I64] = 8,  [ZX_DTYPE_I32] = 4,     [ZX_DTYPE_I16] = 2,     [ZX_DTYPE_I8] = 1,
    [ZX_DTYPE_U64] = 8,  [ZX_DTYPE_U32] = 4,     [ZX_DTYPE_U16] = 2,     [ZX_DTYPE_U8] = 1,
    [ZX_DTYPE_BOOL] = 1, [ZX_DTYPE_F8_E4M3] = 1, [ZX_DTYPE_F8_E5M2] = 1,
};
/* clang-format on */

/* The header. */

static bool parse_shape(zx_safetensors_entry *e, zs_arena *arena, const zs_json *object,
                        zs_error *err)
{
    const zs_json *list;
    if (!zs_json_get(&list, object, "shape", err) ||
        !zs_json_is_array(&e->n_dims, list, 0, ZX_SAFETENSORS_MAX_DIMS, err))
        return false;
    int64_t *shape = ZS_NEW(arena, int64_t, e->n_dims, err);
    if (!shape)
        return false;
    e->count = 1;
    for (int d = 0; d < e->n_dims; d++)
        if (!zs_json_int(&shape[d], zs_json_item(list, d), 0, MAX_INT, err))
            return false;
    for (int d = 0; d < e->n_dims; d++)
        if (__builtin_mul_overflow(e->count, shape[d], &e->count))
            return zs_json_fail(list, err, "the product of its sizes is beyond 64 bits");
    e->shape = shape;
    return true;
}

/* Its members are there: each tensor has its bytes in the header before memory is taken for it. */
static bool check_members(const zs_json *object, zs_error *err)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const zs_json *member;
    if (!zs_json_is_object(object, err) || !zs_json_only_keys(object, keys, 3, err))
        return false;
    for (int i = 0; i < 3; i++)
        if (!zs_json_get(&member, object, keys[i], err))
            return false;
    return true;
}

static bool parse_entry(zx_safetensors_entry *e, zs_arena *arena, const zs_json *object,
                        int64_t data_bytes, zs_error *err)
{
    const zs_json *offsets;
    int dtype, n_offsets;
    int64_t begin, end, size_bytes;
    if (!zs_json_get_choice(&dtype, object, "dtype", dtype_names, ZX_N_DTYPES, err) ||
        !parse_shape(e, arena, object, err) ||
        !zs_json_get(&offsets, object, "data_offsets", err) ||
        !zs_json_is_array(&n_offsets, offsets, 2, 2, err) ||
        !zs_json_int(&begin, zs_json_item(offsets, 0), 0, MAX_INT, err) ||
        !zs_json_int(&end, zs_json_item(offsets, 1), 0, MAX_INT, err))
        return false;
    if (begin > end)
        return zs_json_fail(offsets, err, "begins at %" PRId64 ", behind its end at %" PRId64,
                            begin, end);
    if (end > data_bytes)
        return zs_json_fail(offsets, err,
                            "ends at byte %" PRId64 ", but %" PRId64
                            " bytes follow the header in this file",
                            end, data_bytes);
    if (__builtin_mul_overflow(e->count, (int64_t)dtype_bytes[dtype], &size_bytes) ||
        size_bytes != end - begin)
        return zs_json_fail(offsets, err,
                            "%" PRId64 " bytes, but %" PRId64 " elements of %s have %d bytes each",
                            end - begin, e->count, dtype_names[dtype], dtype_bytes[dtype]);
    e->dtype = (zx_dtype)dtype;
    e->begin_bytes = begin;
    e->size_bytes = size_bytes;
    return true;
}

static bool check_metadata(const zs_json *object, zs_error *err)
{
    if (!zs_json_is_object(object, err))
        return false;
    for (int i = 0; i < zs_json_n_items(object); i++) {
        const char *text;
        if (!zs_json_string(&text, zs_json_item(object, i), err))
            return false;
    }
    return true;
}

static int compare_begin(const void *a, const void *b)
{
    const zx_safetensors_entry *x = a, *y = b;
    if (x->begin_bytes != y->begin_bytes)
        return x->begin_bytes < y->begin_bytes ? -1 : 1;
    /* An empty tensor lies before the one that begins where it ends. */
    if (x->size_bytes != y->size_bytes)
        return x->size_bytes < y->size_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_name(const void *a, const void *b)
{
    const zx_safetensors_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The tensors, sorted by place, follow each other from 0 to the end of the data. */
static bool check_places(const zx_safetensors_entry *entries, int n, int64_t data_bytes,
                         const char *path, zs_error *err)
{
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        const zx_safetensors_entry *e = &entries[i];
        if (e->begin_bytes < end)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "%s: tensor %.100s begins at %" PRId64 ", inside tensor %.100s, which "
                           "ends at %" PRId64,
                           path, e->name, e->begin_bytes, entries[i - 1].name, end);
        if (e->begin_bytes > end)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "%s: bytes %" PRId64 " to %" PRId64 ", before tensor %.100s, belong to "
                           "no tensor",
                           path, end, e->begin_bytes, e->name);
        end = e->begin_bytes + e->size_bytes;
    }
    if (end != data_bytes)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: the last tensor, %.100s, ends at %" PRId64 ", but %" PRId64
                       " bytes follow the header in this file",
                       path, n > 0 ? entries[n - 1].name : "of none", end, data_bytes);
    return true;
}

bool zx_safetensors_parse(zx_safetensors_entry **out, int *n, zs_arena *arena, const char *header,
                          size_t header_bytes, int64_t file_bytes, const char *path, zs_error *err)
{
    const zs_json *root;
    const int64_t data_bytes = file_bytes - SIZE_BYTES - (int64_t)header_bytes;
    if (header_bytes == 0 || header[0] != '{')
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: its header does not begin with \"{\"", path);
    if (!zs_json_parse(&root, arena, header, header_bytes, path, err) ||
        !zs_json_is_object(root, err))
        return false;
    int n_entries = 0;
    for (int i = 0; i < zs_json_n_items(root); i++) {
        const bool is_metadata = strcmp(zs_json_key_at(root, i), "__metadata__") == 0;
        const zs_json *item = zs_json_item(root, i);
        if (is_metadata ? !check_metadata(item, err) : !check_members(item, err))
            return false;
        n_entries += !is_metadata;
    }
    zx_safetensors_entry *entries = ZS_NEW(arena, zx_safetensors_entry, n_entries, err);
    if (!entries)
        return false;
    zx_safetensors_entry *e = entries;
    for (int i = 0; i < zs_json_n_items(root); i++) {
        if (strcmp(zs_json_key_at(root, i), "__metadata__") == 0)
            continue;
        e->name = zs_json_key_at(root, i);
        if (!parse_entry(e++, arena, zs_json_item(root, i), data_bytes, err))
            return false;
    }
    if (n_entries > 0)
        qsort(entries, (size_t)n_entries, sizeof *entries, compare_begin);
    if (!check_places(entries, n_entries, data_bytes, path, err))
        return false;
    for (int i = 0; i < n_entries; i++)
        entries[i].begin_bytes += SIZE_BYTES + (int64_t)header_bytes;
    if (n_entries > 0)
        qsort(entries, (size_t)n_entries, sizeof *entries, compare_name);
    *out = entries;
    *n = n_entries;
    return true;
}

static bool read_all(int fd, void *data, int64_t size, int64_t at, const char *path, zs_error *err)
{
    char *next = data;
    while (size > 0) {
        const ssize_t n = pread(fd, next, (size_t)size, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: cannot read byte %" PRId64 ": %s", path, at,
                           n < 0 ? strerror(errno) : "the file ends there");
        next += n;
        at += n;
        size -= n;
    }
    return true;
}

/* The header's size is believed only within the file and the limit. */
static bool read_header(zx_safetensors_file *f, zs_arena *arena, zs_error *err)
{
    uint64_t size;
    if (f->file_bytes < SIZE_BYTES)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: %" PRId64 " bytes, expected a safetensors file: 8 bytes of header size "
                       "and the header",
                       f->path, f->file_bytes);
    if (!read_all(f->fd, &size, SIZE_BYTES, 0, f->path, err))
        return false;
    if (size > (uint64_t)(f->file_bytes - SIZE_BYTES))
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: its first 8 bytes say that %" PRIu64 " bytes of header follow, but the "
                       "file has %" PRId64 " bytes",
                       f->path, size, f->file_bytes);
    if (size > (uint64_t)ZX_SAFETENSORS_MAX_HEADER_BYTES)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: a header of %" PRIu64 " bytes, at most %" PRId64 " are read", f->path,
                       size, ZX_SAFETENSORS_MAX_HEADER_BYTES);
    char *header = malloc(size > 0 ? (size_t)size : 1);
    if (!header)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", f->path);
    const bool ok = read_all(f->fd, header, (int64_t)size, SIZE_BYTES, f->path, err) &&
                    zx_safetensors_parse(&f->entries, &f->n_entries, arena, header, (size_t)size,
                                         f->file_bytes, f->path, err);
    free(header);
    return ok;
}

bool zx_safetensors_open(zx_safetensors_file *out, zs_arena *arena, const char *path, zs_error *err)
{
    struct stat info;
    /* A pipe without a writer is refused, not waited for. */
    zx_safetensors_file f = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (f.fd < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %s", path, strerror(errno));
    bool ok = fstat(f.fd, &info) == 0 && S_ISREG(info.st_mode);
    if (!ok)
        ZS_FAIL(err, ZS_ERR_INPUT, "%s: not a regular file", path);
    f.file_bytes = ok ? (int64_t)info.st_size : 0;
    if (!ok || !read_header(&f, arena, err)) {
        zx_safetensors_close(&f);
        return false;
    }
    *out = f;
    return true;
}

void zx_safetensors_close(zx_safetensors_file *f)
{
    if (f->fd > 0)
        close(f->fd);
    *f = (zx_safetensors_file){0};
}

const zx_safetensors_entry *zx_safetensors_find(const zx_safetensors_file *f, const char *name)
{
    const zx_safetensors_entry key = {.name = name};
    return f->n_entries == 0
               ? NULL
               : bsearch(&key, f->entries, (size_t)f->n_entries, sizeof key, compare_name);
}

/* Values. */

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. */
static float half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half >> 15) << 31, fraction = half & 0x3ff;
    const int exponent = half >> 10 & 31;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent > 0)
        return float_of_bits(sign | (uint32_t)(exponent + 127 - 15) << 23 | fraction << 13);
    const float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

static void to_floats(float *out, const void *raw, int64_t n, zx_dtype dtype)
{
    const unsigned char *bytes = raw;
    for (int64_t i = 0; i < n; i++) {
        double wide;
        uint16_t half;
        switch (dtype) {
        case ZX_DTYPE_F64:
            memcpy(&wide, bytes + 8 * i, sizeof wide);
            out[i] = (float)wide;
            break;
        case ZX_DTYPE_F32:
            memcpy(&out[i], bytes + 4 * i, sizeof out[i]);
            break;
        case ZX_DTYPE_F16:
            memcpy(&half, bytes + 2 * i, sizeof half);
            out[i] = half_to_float(half);
            break;
        case ZX_DTYPE_BF16:
            memcpy(&half, bytes + 2 * i, sizeof half);
            out[i] = float_of_bits((uint32_t)half << 16);
            break;
        default:
            break;
        }
    }
}

bool zx_safetensors_read(float *values, const zx_safetensors_file *f, const zx_safetensors_entry *e,
                         int64_t first, int64_t n, zs_error *err)
{
    assert(first >= 0 && n >= 0 && n <= e->count - first);
    if (e->dtype > ZX_DTYPE_BF16)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: tensor %.100s has dtype %s, weights are F32, F16, "
                       "BF16 or F64",
                       f->path, e->name, dtype_names[e->dtype]);
    if (n == 0)
        return true;
    const int64_t element_bytes = e->size_bytes / e->count;
    char *raw = malloc((size_t)((n < CHUNK ? n : CHUNK) * element_bytes));
    if (!raw)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", f->path);
    bool ok = true;
    for (int64_t done = 0; ok && done < n; done += CHUNK) {
        const int64_t part = n - done < CHUNK ? n - done : CHUNK;
        ok = read_all(f->fd, raw, part * element_bytes,
                      e->begin_bytes + (first + done) * element_bytes, f->path, err);
        if (ok)
            to_floats(values + done, raw, part, e->dtype);
    }
    free(raw);
    return ok;
}
