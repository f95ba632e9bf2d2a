#include "shared/arena.h"
#include "tests/support/check.h"

#include <stddef.h>
#include <stdint.h>

static void test_alloc_is_zeroed_and_aligned(zs_arena *arena)
{
    zs_error err;
    for (int64_t n = 0; n < 3000; n += 37) {
        char *p = zs_arena_alloc(arena, n, 1, &err);
        CHECK(p && (uintptr_t)p % _Alignof(max_align_t) == 0, "n %lld", (long long)n);
        for (int64_t i = 0; i < n; i++) {
            if (!CHECK(p[i] == 0, "byte %lld", (long long)i))
                break;
            p[i] = 1;
        }
    }
}

static void test_overflow_is_refused(zs_arena *arena)
{
    zs_error err;
    CHECK(!zs_arena_alloc(arena, INT64_MAX, 2, &err) && err.code == ZS_ERR_RUNTIME, "overflow");
    CHECK(!zs_arena_alloc(arena, -1, 8, &err), "negative");
}

static void test_text(zs_arena *arena)
{
    zs_error err;
    CHECK_STRING(zs_arena_strdup(arena, "abc", &err), "abc");
    CHECK_STRING(zs_arena_strndup(arena, "abcdef", 2, &err), "ab");
    CHECK_STRING(zs_arena_printf(arena, &err, "%d-%s", 7, "x"), "7-x");
}

int main(void)
{
    zs_arena *arena = NULL;
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_alloc_is_zeroed_and_aligned(arena);
    test_overflow_is_refused(arena);
    test_text(arena);
    zs_arena_close(&arena);
    CHECK(arena == NULL, "closed");
    zs_arena_close(&arena);
    return check_done();
}
