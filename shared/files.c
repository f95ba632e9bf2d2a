#include "shared/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 1 << 30, FIRST_BUFFER_BYTES = 64 * 1024 };

static bool read_all(char **out, size_t *size, FILE *file, const char *name, zs_error *err)
{
    size_t capacity = FIRST_BUFFER_BYTES, used = 0;
    char *text = malloc(capacity);
    while (text) {
        used += fread(text + used, 1, capacity - used, file);
        if (ferror(file)) {
            ZS_FAIL(err, ZS_ERR_INPUT, "%s: cannot read: %s", name, strerror(errno));
            free(text);
            return false;
        }
        if (used < capacity)
            break;
        if (capacity >= MAX_FILE_BYTES) {
            free(text);
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s: is larger than 1 GiB", name);
        }
        capacity *= 2;
        char *larger = realloc(text, capacity);
        if (!larger)
            free(text);
        text = larger;
    }
    if (!text)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory while reading", name);
    *out = text;
    *size = used;
    return true;
}

bool zs_files_load(const char **text, size_t *size, zs_arena *arena, const char *path,
                   zs_error *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (!file)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    char *buffer = NULL;
    size_t n = 0;
    bool ok = read_all(&buffer, &n, file, is_stdin ? "stdin" : path, err);
    if (!is_stdin)
        fclose(file);
    if (!ok)
        return false;
    char *copy = zs_arena_strndup(arena, buffer, n, err);
    free(buffer);
    if (!copy)
        return false;
    *text = copy;
    *size = n;
    return true;
}

static bool write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, text, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        text += n;
        size -= (size_t)n;
    }
    return true;
}

static bool save_stream(const char *path, const char *text, size_t size, zs_error *err)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot write: %s", path, strerror(errno));
    bool ok = write_all(fd, text, size);
    int cause = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        cause = errno;
    }
    return ok || ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot write: %s", path, strerror(cause));
}

/* The rename is on the disk only when its folder is; a file system that cannot do that still has
 * the file. */
static void flush_folder(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path ? 1 : 0] = 0;
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)fsync(fd);
    close(fd);
}

static bool save_regular(char *path, const char *text, size_t size, mode_t mode, bool exists,
                         zs_error *err)
{
    char temporary[PATH_MAX + 32];
    if (strlen(path) >= PATH_MAX)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%.200s...: path is too long", path);
    int fd = -1;
    for (int i = 0; i < 100 && fd < 0; i++) {
        snprintf(temporary, sizeof temporary, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot write: %s", path, strerror(errno));
    int cause = 0;
    if (!write_all(fd, text, size) || fsync(fd) != 0 || (exists && fchmod(fd, mode) != 0))
        cause = errno;
    if (close(fd) != 0 && cause == 0)
        cause = errno;
    if (cause == 0 && rename(temporary, path) != 0)
        cause = errno;
    if (cause != 0) {
        unlink(temporary);
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot write: %s", path, strerror(cause));
    }
    flush_folder(path);
    return true;
}

bool zs_files_save(const char *path, const char *text, size_t size, zs_error *err)
{
    if (strcmp(path, "-") == 0) {
        if (fwrite(text, 1, size, stdout) != size || fflush(stdout) != 0)
            return ZS_FAIL(err, ZS_ERR_RUNTIME, "stdout: cannot write: %s", strerror(errno));
        return true;
    }
    struct stat info;
    const bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return save_stream(path, text, size, err);
    char *target = exists ? realpath(path, NULL) : strdup(path);
    if (!target)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: cannot write: %s", path, strerror(errno));
    bool ok = save_regular(target, text, size, exists ? info.st_mode & 0777 : 0, exists, err);
    free(target);
    return ok;
}

void zs_files_keep_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) != fd)
            return;
}
