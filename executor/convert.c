#include "executor/convert.h"

#include "executor/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_TOKENS = 65536 };

static void put_u32(unsigned char *p, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(value >> (8 * i));
}

static bool write_tokens(FILE *file, const unsigned char *text, int64_t n)
{
    unsigned char header[ZX_DATA_HEADER_INTS * 4] = {0};
    put_u32(header, ZX_DATA_MAGIC_U16);
    put_u32(header + 4, ZX_DATA_VERSION_U16);
    put_u32(header + 8, (uint32_t)n);
    if (fwrite(header, 1, sizeof header, file) != sizeof header)
        return false;
    static unsigned char ids[2 * BUFFER_TOKENS];
    for (int64_t first = 0; first < n; first += BUFFER_TOKENS) {
        int64_t count = n - first < BUFFER_TOKENS ? n - first : BUFFER_TOKENS;
        for (int64_t i = 0; i < count; i++) {
            ids[2 * i] = text[first + i];
            ids[2 * i + 1] = 0;
        }
        if (fwrite(ids, 2, (size_t)count, file) != (size_t)count)
            return false;
    }
    return fflush(file) == 0 && fsync(fileno(file)) == 0;
}

/* All or nothing: a temporary file beside it, then a rename. */
static bool save_tokens(const char *path, const unsigned char *text, int64_t n, zs_error *err)
{
    char temporary[4200];
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: is no regular file and would be replaced", path);
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    FILE *file = fopen(temporary, "wb");
    if (!file)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    bool ok = write_tokens(file, text, n);
    int saved = errno;
    if (fclose(file) != 0 && ok) {
        saved = errno;
        ok = false;
    }
    if (ok && rename(temporary, path) != 0) {
        saved = errno;
        ok = false;
    }
    if (!ok) {
        unlink(temporary);
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot be written: %s", path, strerror(saved));
    }
    return true;
}

/* out with ".train" or ".val" before its ".bin". */
static bool split_path(char *path, size_t size, const char *out, const char *part, zs_error *err)
{
    size_t stem = strlen(out);
    if (stem >= 4 && strcmp(out + stem - 4, ".bin") == 0)
        stem -= 4;
    int n = snprintf(path, size, "%.*s%s.bin", (int)stem, out, part);
    if (n < 0 || (size_t)n >= size)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: path too long", out);
    return true;
}

static bool convert_mapped(zx_convert_result *result, const unsigned char *text, int64_t n,
                           const char *out, double split, zs_error *err)
{
    zx_convert_result r = {.n_tokens = n};
    if (split <= 0) {
        if (snprintf(r.path, sizeof r.path, "%s", out) >= (int)sizeof r.path)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: path too long", out);
        if (!save_tokens(r.path, text, n, err))
            return false;
        *result = r;
        return true;
    }
    int64_t held_back = (int64_t)((double)n * split);
    if (held_back < 1)
        held_back = 1;
    if (n - held_back < 1)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--split %g leaves nothing of %" PRId64 " tokens", split,
                       n);
    r.n_held_back = held_back;
    if (!split_path(r.path, sizeof r.path, out, ".train", err) ||
        !split_path(r.held_back_path, sizeof r.held_back_path, out, ".val", err) ||
        !save_tokens(r.path, text, n - held_back, err) ||
        !save_tokens(r.held_back_path, text + (n - held_back), held_back, err))
        return false;
    *result = r;
    return true;
}

bool zx_convert_text(zx_convert_result *result, const char *in, const char *out, double split,
                     zs_error *err)
{
    int fd = open(in, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %s", in, strerror(errno));
    bool ok = false;
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ZS_FAIL(err, ZS_ERR_INPUT, "%s: not a regular file", in);
        goto err_close_fd;
    }
    const int64_t n = (int64_t)info.st_size;
    if (n == 0) {
        ZS_FAIL(err, ZS_ERR_INPUT, "%s: empty, expected text", in);
        goto err_close_fd;
    }
    if (n > INT32_MAX) {
        ZS_FAIL(err, ZS_ERR_INPUT,
                "%s: %" PRId64 " bytes; a token file counts up to %d tokens, cut the text", in, n,
                INT32_MAX);
        goto err_close_fd;
    }
    void *text = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) {
        ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot be mapped: %s", in, strerror(errno));
        goto err_close_fd;
    }
    ok = convert_mapped(result, text, n, out, split, err);
    munmap(text, (size_t)n);
err_close_fd:
    close(fd);
    return ok;
}
