#define _GNU_SOURCE
#include "executor/data.h"

#include "shared/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES ((int64_t)ZX_DATA_HEADER_INTS * 4)

/* Ids read at a time. */
#define SCAN_BLOCK 65536

/* Leaves the file open in *out. */
static bool map_file(zx_data *d, int *out, const char *path, zs_error *err)
{
    /* A pipe without a writer is refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %s", path, strerror(errno));
    struct stat info;
    if (fstat(fd, &info) != 0) {
        ZS_FAIL(err, ZS_ERR_INPUT, "%s: %s", path, strerror(errno));
        goto err_close_fd;
    }
    if (!S_ISREG(info.st_mode)) {
        ZS_FAIL(err, ZS_ERR_INPUT, "%s: not a regular file", path);
        goto err_close_fd;
    }
    if (info.st_size == 0) {
        ZS_FAIL(err, ZS_ERR_INPUT, "%s: empty, expected a token file", path);
        goto err_close_fd;
    }
    d->map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (d->map == MAP_FAILED) {
        d->map = NULL;
        ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot be mapped: %s", path, strerror(errno));
        goto err_close_fd;
    }
    d->path = path;
    d->map_bytes = (int64_t)info.st_size;
    *out = fd;
    return true;

err_close_fd:
    close(fd);
    return false;
}

static uint32_t header_word(const zx_data *d, int i)
{
    const unsigned char *p = (const unsigned char *)d->map + 4 * (size_t)i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool read_header(zx_data *d, zx_data_dtype dtype, uint32_t magic, zs_error *err)
{
    const bool wide = magic == ZX_DATA_MAGIC_U32;
    const uint32_t version = wide ? ZX_DATA_VERSION_U32 : ZX_DATA_VERSION_U16;
    d->id_bytes = wide ? 4 : 2;
    if (dtype != ZX_DATA_AUTO && (dtype == ZX_DATA_U32) != wide)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: the header says %s ids (magic %" PRIu32 "), --dtype says %s", d->path,
                       wide ? "u32" : "u16", magic, wide ? "u16" : "u32");
    if (d->map_bytes < HEADER_BYTES)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %" PRId64 " bytes, expected a header of %" PRId64,
                       d->path, d->map_bytes, HEADER_BYTES);
    if (header_word(d, 1) != version)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: version %" PRIu32 " at byte 4, expected %" PRIu32 " for magic %" PRIu32,
                       d->path, header_word(d, 1), version, magic);
    d->n_tokens = (int64_t)header_word(d, 2);
    const int64_t size_bytes = HEADER_BYTES + d->n_tokens * d->id_bytes;
    if (d->map_bytes != size_bytes)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: %" PRId64 " bytes, but the header's %" PRId64 " tokens of %d bytes "
                       "need %" PRId64,
                       d->path, d->map_bytes, d->n_tokens, d->id_bytes, size_bytes);
    d->ids = (const unsigned char *)d->map + HEADER_BYTES;
    return true;
}

static bool read_raw(zx_data *d, zx_data_dtype dtype, zs_error *err)
{
    if (dtype == ZX_DATA_AUTO)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: no token header (magic %d or %d); say --dtype u16 or --dtype u32 for a "
                       "file of ids alone",
                       d->path, ZX_DATA_MAGIC_U16, ZX_DATA_MAGIC_U32);
    d->id_bytes = dtype == ZX_DATA_U32 ? 4 : 2;
    if (d->map_bytes % d->id_bytes != 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %" PRId64 " bytes are not whole ids of %d bytes",
                       d->path, d->map_bytes, d->id_bytes);
    d->n_tokens = d->map_bytes / d->id_bytes;
    d->ids = d->map;
    return true;
}

static uint32_t id_at(const zx_data *d, int64_t i)
{
    const unsigned char *p = d->ids + i * d->id_bytes;
    uint32_t id = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    if (d->id_bytes == 4)
        id |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return id;
}

/* Largest of n ids at p; the plain loops become vector code. */
static uint32_t largest_id(const unsigned char *p, int64_t n, int id_bytes)
{
    uint32_t largest = 0;
    if (id_bytes == 2) {
        uint16_t largest16 = 0;
        for (int64_t i = 0; i < n; i++) {
            uint16_t id;
            memcpy(&id, p + 2 * i, 2);
            largest16 = id > largest16 ? id : largest16;
        }
        return largest16;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t id;
        memcpy(&id, p + 4 * i, 4);
        largest = id > largest ? id : largest;
    }
    return largest;
}

static bool fail_id(const zx_data *d, int64_t first, int n_vocab, zs_error *err)
{
    int64_t i = first;
    while (id_at(d, i) < (uint32_t)n_vocab)
        i++;
    const int64_t place = (int64_t)(d->ids - (unsigned char *)d->map) + i * d->id_bytes;
    return ZS_FAIL(err, ZS_ERR_INPUT,
                   "%s: id %" PRIu32 " at byte %" PRId64 " (token %" PRId64
                   "), the vocabulary has %d",
                   d->path, id_at(d, i), place, i, n_vocab);
}

/* The first token at or behind `first` that is not in a hole of the file: holes read as id 0, which
 * every vocabulary has. n_tokens when only holes follow. */
static int64_t skip_hole(const zx_data *d, int fd, int64_t first)
{
    const int64_t header = (int64_t)(d->ids - (unsigned char *)d->map);
    const off_t at = (off_t)(header + first * d->id_bytes);
    const off_t data = lseek(fd, at, SEEK_DATA);
    if (data < 0)
        return errno == ENXIO ? d->n_tokens : first;
    return data > at ? ((int64_t)data - header) / d->id_bytes : first;
}

/* Looks at every id. Reads rather than touches the mapping: a file larger than memory then costs no
 * page of ours. */
static bool check_ids(const zx_data *d, int fd, int n_vocab, zs_error *err)
{
    unsigned char *block = malloc(SCAN_BLOCK * 4);
    if (!block)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory to check %s", d->path);
    bool ok = true;
    const int64_t header = (int64_t)(d->ids - (unsigned char *)d->map);
    for (int64_t first = skip_hole(d, fd, 0); ok && first < d->n_tokens;
         first = skip_hole(d, fd, first + SCAN_BLOCK)) {
        int64_t n = d->n_tokens - first < SCAN_BLOCK ? d->n_tokens - first : SCAN_BLOCK;
        int64_t size = n * d->id_bytes, got = 0;
        while (ok && got < size) {
            ssize_t part = pread(fd, block + got, (size_t)(size - got),
                                 (off_t)(header + first * d->id_bytes + got));
            if (part <= 0)
                ok = ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot be read: %s", d->path,
                             part < 0 ? strerror(errno) : "it became shorter");
            got += part;
        }
        if (ok && largest_id(block, n, d->id_bytes) >= (uint32_t)n_vocab)
            ok = fail_id(d, first, n_vocab, err);
    }
    free(block);
    return ok;
}

/* 32-bit ids read as 16-bit ones have all their high halves 0. A text beyond a few tokens does not
 * have the id 0 at each odd place by itself. */
static bool check_width(const zx_data *d, zs_error *err)
{
    if (d->ids != d->map || d->id_bytes != 2 || d->map_bytes % 4 != 0 || d->n_tokens < 16)
        return true;
    uint32_t low_halves = 0, high_halves = 0;
    for (int64_t i = 0; i < d->n_tokens && i < SCAN_BLOCK; i += 2) {
        low_halves |= id_at(d, i);
        high_halves |= id_at(d, i + 1);
    }
    if (low_halves && !high_halves)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: each second 16-bit id is 0: these are 32-bit ids, say --dtype u32",
                       d->path);
    return true;
}

static bool read_layout(zx_data *d, zx_data_dtype dtype, zs_error *err)
{
    const uint32_t magic = d->map_bytes >= 4 ? header_word(d, 0) : 0;
    const uint32_t swapped = __builtin_bswap32(magic);
    if (swapped == ZX_DATA_MAGIC_U16 || swapped == ZX_DATA_MAGIC_U32)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: the header's bytes are swapped (big-endian), expected little-endian",
                       d->path);
    if (magic == ZX_DATA_MAGIC_U16 || magic == ZX_DATA_MAGIC_U32)
        return read_header(d, dtype, magic, err);
    return read_raw(d, dtype, err);
}

static bool check_sequences(zx_data *d, zs_error *err)
{
    d->n_sequences = d->n_tokens > 0 ? (d->n_tokens - 1) / d->seq_len : 0;
    if (d->n_sequences == 0)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: %" PRId64 " tokens hold no sequence of %d tokens and its targets; "
                       "expected %" PRId64 " or more",
                       d->path, d->n_tokens, d->seq_len, (int64_t)d->seq_len + 1);
    return true;
}

bool zx_data_open(zx_data *out, const char *path, zx_data_dtype dtype, int seq_len, int n_vocab,
                  zs_error *err)
{
    zx_data d = {.seq_len = seq_len};
    int fd = -1;
    if (!map_file(&d, &fd, path, err))
        return false;
    bool ok = read_layout(&d, dtype, err);
    if (ok && d.id_bytes == 2 && n_vocab > 65536)
        ok = ZS_FAIL(err, ZS_ERR_INPUT,
                     "%s: 16-bit ids cannot hold a vocabulary of %d; write 32-bit ids", path,
                     n_vocab);
    ok = ok && check_width(&d, err) && check_ids(&d, fd, n_vocab, err) && check_sequences(&d, err);
    close(fd);
    if (!ok) {
        zx_data_close(&d);
        return false;
    }
    *out = d;
    return true;
}

void zx_data_close(zx_data *data)
{
    if (data->map)
        munmap(data->map, (size_t)data->map_bytes);
    *data = (zx_data){0};
}

int64_t zx_data_sequence(const zx_data *data, zx_data_order order, uint64_t seed, int64_t position)
{
    const int64_t epoch = position / data->n_sequences;
    const int64_t index = position % data->n_sequences;
    if (order == ZX_DATA_SEQUENTIAL)
        return index;
    /* The low byte keeps the stream apart from other uses, the rest is the epoch. */
    const uint64_t stream = (uint64_t)epoch << 8 | ZS_RNG_DATA;
    return zs_rng_permute(seed, stream, index, data->n_sequences);
}

void zx_data_read(const zx_data *data, int32_t *tokens, int32_t *targets, zx_data_order order,
                  uint64_t seed, int64_t position, int n)
{
    const int T = data->seq_len;
    for (int sample = 0; sample < n; sample++) {
        const int64_t first = zx_data_sequence(data, order, seed, position + sample) * T;
        const int64_t row = (int64_t)sample * T;
        for (int t = 0; t < T; t++) {
            if (tokens)
                tokens[row + t] = (int32_t)id_at(data, first + t);
            if (targets)
                targets[row + t] = (int32_t)id_at(data, first + t + 1);
        }
    }
}
