#include "shared/arena.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024 };

typedef struct block {
    struct block *next;
    size_t size;
    size_t used;
    _Alignas(max_align_t) char data[];
} block;

struct zs_arena {
    block *blocks; /* newest first */
};

bool zs_arena_open(zs_arena **out, zs_error *err)
{
    zs_arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory");
    *out = arena;
    return true;
}

void zs_arena_close(zs_arena **arena)
{
    if (!*arena)
        return;
    block *b = (*arena)->blocks;
    while (b) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(*arena);
    *arena = NULL;
}

void *zs_arena_alloc(zs_arena *arena, int64_t n, int64_t size_bytes, zs_error *err)
{
    int64_t total = 0;
    if (n < 0 || size_bytes < 0 || __builtin_mul_overflow(n, size_bytes, &total) ||
        total > PTRDIFF_MAX / 2) {
        ZS_FAIL(err, ZS_ERR_RUNTIME, "cannot allocate %lld items of %lld bytes", (long long)n,
                (long long)size_bytes);
        return NULL;
    }
    const size_t align = _Alignof(max_align_t);
    size_t need = ((size_t)total + align) / align * align; /* at least one unit, also for 0 */
    block *b = arena->blocks;
    if (!b || b->size - b->used < need) {
        size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;
        b = calloc(1, sizeof *b + size);
        if (!b) {
            ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory: cannot allocate %zu bytes", size);
            return NULL;
        }
        b->size = size;
        b->next = arena->blocks;
        arena->blocks = b;
    }
    void *result = b->data + b->used;
    b->used += need;
    return result;
}

char *zs_arena_strndup(zs_arena *arena, const char *text, size_t n, zs_error *err)
{
    char *copy = zs_arena_alloc(arena, (int64_t)n + 1, 1, err);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

char *zs_arena_strdup(zs_arena *arena, const char *text, zs_error *err)
{
    return zs_arena_strndup(arena, text, strlen(text), err);
}

char *zs_arena_printf(zs_arena *arena, zs_error *err, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : zs_arena_alloc(arena, (int64_t)n + 1, 1, err);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}
