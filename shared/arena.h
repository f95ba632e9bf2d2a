/* Arena: a bump allocator. A document or a solve lives in one arena and goes at once. Memory is
 * zeroed and aligned for any type; a pointer into it is valid until zs_arena_close. */
#ifndef SHARED_ARENA_H
#define SHARED_ARENA_H

#include "shared/error.h"

#include <stdint.h>

typedef struct zs_arena zs_arena;

ZS_MUST_CHECK bool zs_arena_open(zs_arena **out, zs_error *err);

/* Frees all of it and sets *arena to NULL; *arena may be NULL. */
void zs_arena_close(zs_arena **arena);

/* Returns n * size_bytes zeroed bytes (a valid pointer also for 0), or NULL with ZS_ERR_RUNTIME
 * when the product overflows, either is negative, or memory is out. */
void *zs_arena_alloc(zs_arena *arena, int64_t n, int64_t size_bytes, zs_error *err);

/* Typed form: type *p = ZS_NEW(arena, type, n, err). */
#define ZS_NEW(arena, type, n, err)                                                                \
    ((type *)zs_arena_alloc((arena), (int64_t)(n), (int64_t)sizeof(type), (err)))

/* Copies a string, or the first n bytes of one plus a final 0; NULL as above. */
char *zs_arena_strdup(zs_arena *arena, const char *text, zs_error *err);
char *zs_arena_strndup(zs_arena *arena, const char *text, size_t n, zs_error *err);

/* Formats into the arena; NULL as above. */
char *zs_arena_printf(zs_arena *arena, zs_error *err, const char *format, ...) ZS_PRINTF(3, 4);

#endif
