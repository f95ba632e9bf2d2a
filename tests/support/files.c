#define _GNU_SOURCE
#include "tests/support/files.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[4096];
static pid_t owner;

/* Paths are handed out until exit; the list keeps leak checkers quiet. */
typedef struct kept_path {
    struct kept_path *next;
    char text[];
} kept_path;

static kept_path *kept_paths;

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

static void remove_folder(void)
{
    /* A forked child that exits leaves the folder to its parent. */
    if (getpid() == owner)
        nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void die(const char *what, const char *path)
{
    fprintf(stderr, "%s %s failed\n", what, path);
    exit(1);
}

const char *check_path(const char *name)
{
    if (!folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/zplan-test-XXXXXX", base && *base ? base : "/tmp");
        if (!mkdtemp(folder))
            die("mkdtemp", folder);
        owner = getpid();
        atexit(remove_folder);
    }
    const size_t size = strlen(folder) + strlen(name) + 2;
    kept_path *kept = malloc(sizeof *kept + size);
    if (!kept)
        die("memory for", name);
    snprintf(kept->text, size, "%s/%s", folder, name);
    kept->next = kept_paths;
    kept_paths = kept;
    return kept->text;
}

const char *check_folder(const char *name)
{
    const char *path = check_path(name);
    if (mkdir(path, 0777) != 0)
        die("mkdir", path);
    return path;
}

void check_remove_path(const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        die("remove", path);
}

const char *check_write_file(const char *name, const void *data, size_t size)
{
    const char *path = check_path(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        die("write", path);
    return path;
}

const char *check_write_tokens(const char *name, const int *ids, int64_t n)
{
    size_t size = 1024 + 2 * (size_t)n;
    unsigned char *bytes = calloc(1, size);
    if (!bytes)
        die("memory for", name);
    const int32_t header[3] = {20240520, 1, (int32_t)n};
    memcpy(bytes, header, sizeof header);
    for (int64_t i = 0; i < n; i++) {
        bytes[1024 + 2 * i] = (unsigned char)(ids[i] & 255);
        bytes[1025 + 2 * i] = (unsigned char)(ids[i] >> 8);
    }
    const char *path = check_write_file(name, bytes, size);
    free(bytes);
    return path;
}

char *check_read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = NULL;
    size_t n = 0, capacity = 0;
    for (;;) {
        if (n + 4096 + 1 > capacity) {
            capacity = 2 * capacity + 8192;
            text = realloc(text, capacity);
            if (!text)
                die("memory for", path);
        }
        size_t got = fread(text + n, 1, 4096, file);
        n += got;
        if (got == 0)
            break;
    }
    fclose(file);
    text[n] = 0;
    if (size)
        *size = n;
    return text;
}
