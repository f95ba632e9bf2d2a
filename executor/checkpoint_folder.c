#define _GNU_SOURCE
#include "executor/checkpoint_folder.h"

#include "shared/log.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints are little-endian; writing them here needs a byte swap"
#endif

/* Elements that pass through host memory at a time. */
enum { CHUNK = 1 << 18, ELEMENT_BYTES = 4 };

static const char prefix[] = "step-", suffix[] = ".tmp", replaced[] = ".old.tmp";

static bool fail(zs_error *err, const char *path, const char *what)
{
    return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot %s: %s", path, what, strerror(errno));
}

static bool join(char out[ZX_CHECKPOINT_PATH_SIZE], const char *folder, const char *name,
                 zs_error *err)
{
    if (snprintf(out, ZX_CHECKPOINT_PATH_SIZE, "%s/%s", folder, name) >= ZX_CHECKPOINT_PATH_SIZE)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%.200s...: the path is too long", folder);
    return true;
}

static bool step_path(char out[ZX_CHECKPOINT_PATH_SIZE], const char *dir, int64_t step,
                      const char *end, zs_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s%08" PRId64 "%s", prefix, step, end);
    return join(out, dir, name, err);
}

bool zx_checkpoint_path(char out[ZX_CHECKPOINT_PATH_SIZE], const char *dir, int64_t step,
                        bool temporary, zs_error *err)
{
    return step_path(out, dir, step, temporary ? suffix : "", err);
}

/* The step in a name, -1 when it is no checkpoint's. */
static int64_t step_of(const char *name)
{
    const size_t n = sizeof prefix - 1;
    if (strncmp(name, prefix, n) != 0)
        return -1;
    const size_t n_digits = strspn(name + n, "0123456789");
    if (n_digits < 8 || n_digits > 16 || name[n + n_digits])
        return -1;
    return strtoll(name + n, NULL, 10);
}

static bool flush_folder(const char *path, zs_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(err, path, "open");
    /* Some file systems cannot flush folders and say EINVAL. */
    const bool ok = fsync(fd) == 0 || errno == EINVAL || fail(err, path, "flush");
    close(fd);
    return ok;
}

/* A checkpoint has files only; what else is in the folder is nobody's we know, and stays. */
static bool remove_folder(const char *path, zs_error *err)
{
    char file[ZX_CHECKPOINT_PATH_SIZE];
    DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT || fail(err, path, "open");
    bool ok = true;
    for (struct dirent *e = readdir(dir); ok && e; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        ok = join(file, path, e->d_name, err) &&
             (unlink(file) == 0 || errno == ENOENT || fail(err, file, "remove"));
    }
    closedir(dir);
    return ok && (rmdir(path) == 0 || errno == ENOENT || fail(err, path, "remove"));
}

bool zx_checkpoint_begin(const char *dir, int64_t step, zs_error *err)
{
    char folder[ZX_CHECKPOINT_PATH_SIZE];
    return step_path(folder, dir, step, suffix, err) && remove_folder(folder, err) &&
           (mkdir(folder, 0777) == 0 || fail(err, folder, "create"));
}

void zx_checkpoint_discard(const char *dir, int64_t step)
{
    char folder[ZX_CHECKPOINT_PATH_SIZE];
    zs_error err;
    if (step_path(folder, dir, step, suffix, &err) && !remove_folder(folder, &err))
        zs_log_warn("%s", err.message);
}

static bool write_all(int fd, const void *data, size_t size)
{
    const char *next = data;
    while (size > 0) {
        const ssize_t n = write(fd, next, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : ENOSPC;
            return false;
        }
        next += n;
        size -= (size_t)n;
    }
    return true;
}

/* One array behind what is in the file; *crc goes on over it. */
static bool write_array(int fd, uLong *crc, zx_real *buffer, const zx_checkpoint_values *v,
                        const zx_real *array, const char *path, zs_error *err)
{
    for (int64_t done = 0; done < v->elements.count; done += CHUNK) {
        const int64_t left = v->elements.count - done, n = left < CHUNK ? left : CHUNK;
        const size_t size = (size_t)n * ELEMENT_BYTES;
        const zx_real *from = array ? array + done : NULL;
        if (!from)
            memset(buffer, 0, size);
        else if (!v->backend)
            memcpy(buffer, from, size);
        else if (!v->backend->ops->to_host(v->backend, buffer, from, (int64_t)size, err) ||
                 !v->backend->ops->sync(v->backend, err))
            return false;
        *crc = crc32_z(*crc, (const Bytef *)buffer, size);
        if (!write_all(fd, buffer, size))
            return fail(err, path, "write");
    }
    return true;
}

static void print_file_name(char out[64], zs_shard elements)
{
    snprintf(out, 64, "elements-%012" PRId64 "-%012" PRId64 ".bin", elements.first,
             elements.first + elements.count);
}

bool zx_checkpoint_describe(zx_manifest_file *out, zs_arena *arena, zs_shard elements,
                            uint32_t crc32, zs_error *err)
{
    char name[64];
    print_file_name(name, elements);
    const char *copy = zs_arena_strdup(arena, name, err);
    if (!copy)
        return false;
    *out = (zx_manifest_file){.name = copy,
                              .elements = elements,
                              .size_bytes = ZX_N_ARRAYS * elements.count * ELEMENT_BYTES,
                              .crc32 = crc32};
    return true;
}

bool zx_checkpoint_write(uint32_t *crc32, const char *folder, const zx_checkpoint_values *v,
                         zs_error *err)
{
    static_assert(sizeof(zx_real) == ELEMENT_BYTES, "checkpoints are float32");
    char path[ZX_CHECKPOINT_PATH_SIZE], name[64];
    print_file_name(name, v->elements);
    if (!join(path, folder, name, err))
        return false;
    zx_real *buffer = malloc((size_t)CHUNK * sizeof *buffer);
    if (!buffer)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        free(buffer);
        return fail(err, path, "create");
    }
    uLong crc = crc32_z(0, NULL, 0);
    bool ok = true;
    for (int i = 0; ok && i < ZX_N_ARRAYS; i++)
        ok = write_array(fd, &crc, buffer, v, v->arrays[i], path, err);
    ok = ok && (fsync(fd) == 0 || fail(err, path, "flush"));
    free(buffer);
    if (close(fd) != 0 && ok)
        ok = fail(err, path, "write");
    if (ok)
        *crc32 = (uint32_t)crc;
    return ok;
}

/* Both names at once, so that one of them is complete at any time; false where the file system
 * cannot do that. */
static bool exchange(const char *a, const char *b)
{
    return renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0;
}

bool zx_checkpoint_publish(const char *dir, int64_t step, zs_error *err)
{
    char from[ZX_CHECKPOINT_PATH_SIZE], to[ZX_CHECKPOINT_PATH_SIZE], old[ZX_CHECKPOINT_PATH_SIZE];
    if (!step_path(from, dir, step, suffix, err) || !step_path(to, dir, step, "", err) ||
        !step_path(old, dir, step, replaced, err) || !flush_folder(from, err))
        return false;
    /* A folder that holds files cannot be renamed over. */
    const bool exists = access(to, F_OK) == 0;
    const bool exchanged = exists && exchange(from, to);
    if (exists && !exchanged &&
        (!remove_folder(old, err) || (rename(to, old) != 0 && !fail(err, to, "move"))))
        return false;
    if (!exchanged && rename(from, to) != 0)
        return fail(err, from, "rename to its final name");
    if (!flush_folder(dir, err))
        return false;
    zs_error left;
    if (exists && !remove_folder(exchanged ? from : old, &left))
        zs_log_warn("%s", left.message);
    return true;
}

static int compare_steps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

bool zx_checkpoint_list(int64_t **steps, int *n, zs_arena *arena, const char *dir, zs_error *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %s", dir, strerror(errno));
    int n_found = 0, capacity = 0;
    int64_t *found = NULL;
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        const int64_t step = step_of(e->d_name);
        if (step < 0)
            continue;
        if (n_found == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            int64_t *larger = realloc(found, (size_t)capacity * sizeof *found);
            if (!larger) {
                ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", dir);
                goto err_free_found;
            }
            found = larger;
        }
        found[n_found++] = step;
    }
    *steps = ZS_NEW(arena, int64_t, n_found, err);
    if (!*steps)
        goto err_free_found;
    if (n_found > 0) {
        qsort(found, (size_t)n_found, sizeof *found, compare_steps);
        memcpy(*steps, found, (size_t)n_found * sizeof *found);
    }
    *n = n_found;
    free(found);
    closedir(d);
    return true;

err_free_found:
    free(found);
    closedir(d);
    return false;
}

bool zx_checkpoint_is_one(const char *dir)
{
    char path[ZX_CHECKPOINT_PATH_SIZE];
    zs_error err;
    return join(path, dir, ZX_MANIFEST_NAME, &err) && access(path, F_OK) == 0;
}

/* It loses its name first: no half of it is ever taken for a checkpoint. */
static bool remove_checkpoint(const char *dir, int64_t step, zs_error *err)
{
    char from[ZX_CHECKPOINT_PATH_SIZE], to[ZX_CHECKPOINT_PATH_SIZE];
    return step_path(from, dir, step, "", err) && step_path(to, dir, step, replaced, err) &&
           remove_folder(to, err) && (rename(from, to) == 0 || fail(err, from, "remove")) &&
           remove_folder(to, err);
}

void zx_checkpoint_keep_last(const char *dir, int64_t step, int64_t n)
{
    zs_arena *arena;
    zs_error err;
    int64_t *steps;
    int n_steps;
    if (!zs_arena_open(&arena, &err)) {
        zs_log_warn("%s", err.message);
        return;
    }
    bool ok = zx_checkpoint_list(&steps, &n_steps, arena, dir, &err);
    int64_t kept = 0;
    for (int i = 0; ok && i < n_steps; i++)
        if (steps[i] <= step && ++kept > n)
            ok = remove_checkpoint(dir, steps[i], &err);
    if (!ok)
        zs_log_warn("old checkpoints: %s", err.message);
    zs_arena_close(&arena);
}

/* Opens a file of the checkpoint and checks its size. */
static bool open_file(int *out, char path[ZX_CHECKPOINT_PATH_SIZE], const zx_manifest *m,
                      const char *folder, int file, zs_error *err)
{
    const zx_manifest_file *f = &m->files[file];
    struct stat info;
    if (!join(path, folder, f->name, err))
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != f->size_bytes) {
        close(fd);
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: has %lld bytes, " ZX_MANIFEST_NAME " says %" PRId64,
                       path, (long long)info.st_size, f->size_bytes);
    }
    *out = fd;
    return true;
}

static bool read_all(int fd, void *data, size_t size, int64_t at, const char *path, zs_error *err)
{
    char *next = data;
    while (size > 0) {
        const ssize_t n = pread(fd, next, size, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: cannot read byte %" PRId64 ": %s", path, at,
                           n < 0 ? strerror(errno) : "the file ends there");
        next += n;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

bool zx_checkpoint_verify(const zx_manifest *m, const char *folder, int file, zs_error *err)
{
    char path[ZX_CHECKPOINT_PATH_SIZE];
    int fd;
    if (!open_file(&fd, path, m, folder, file, err))
        return false;
    const int64_t size = m->files[file].size_bytes, step = (int64_t)CHUNK * ELEMENT_BYTES;
    unsigned char *buffer = malloc((size_t)step);
    bool ok = buffer || ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", path);
    uLong crc = crc32_z(0, NULL, 0);
    for (int64_t done = 0; ok && done < size; done += step) {
        const size_t n = (size_t)(size - done < step ? size - done : step);
        ok = read_all(fd, buffer, n, done, path, err);
        if (ok)
            crc = crc32_z(crc, buffer, n);
    }
    free(buffer);
    close(fd);
    if (ok && crc != m->files[file].crc32)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: its contents have crc32 %08lx, " ZX_MANIFEST_NAME " says %08" PRIx32,
                       path, crc, m->files[file].crc32);
    return ok;
}

bool zx_checkpoint_read(zx_real *values, const zx_manifest *m, const char *folder, zx_array array,
                        zs_shard elements, zs_error *err)
{
    char path[ZX_CHECKPOINT_PATH_SIZE];
    for (int i = 0; i < m->n_files; i++) {
        const zs_shard has = m->files[i].elements;
        const zs_shard part = zs_shards_intersect(has, elements.first, elements.count);
        if (part.count == 0)
            continue;
        int fd;
        if (!open_file(&fd, path, m, folder, i, err))
            return false;
        const int64_t at = (int64_t)array * has.count + part.first - has.first;
        const bool ok = read_all(fd, values + part.first - elements.first,
                                 (size_t)part.count * ELEMENT_BYTES, at * ELEMENT_BYTES, path, err);
        close(fd);
        if (!ok)
            return false;
    }
    return true;
}
