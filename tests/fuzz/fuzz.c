#include "tests/fuzz/fuzz.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void fuzz_check(bool ok, const char *condition, const char *file, int line, const char *format, ...)
{
    if (ok)
        return;
    fprintf(stderr, "%s:%d: %s: ", file, line, condition);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

void fuzz_check_error(const zs_error *err)
{
    FUZZ_CHECK(err->code == ZS_ERR_INPUT || err->code == ZS_ERR_RUNTIME ||
                   err->code == ZS_ERR_INFEASIBLE,
               "code %d", (int)err->code);
    FUZZ_CHECK(err->message[0], "the message is empty");
    FUZZ_CHECK(memchr(err->message, 0, sizeof err->message), "the message has no end");
    FUZZ_CHECK(!strchr(err->message, '\n'), "%s", err->message);
}

zs_arena *fuzz_open(const zs_json **root, const uint8_t *data, size_t size)
{
    zs_arena *arena = NULL;
    zs_error err = {0};
    *root = NULL;
    FUZZ_CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    if (!zs_json_parse(root, arena, (const char *)data, size, "input", &err))
        fuzz_check_error(&err);
    return arena;
}

const char *fuzz_print(zs_arena *arena, void (*write)(zs_json_writer *w, const void *document),
                       const void *document)
{
    zs_json_writer *w = NULL;
    const char *text = NULL;
    size_t size = 0;
    zs_error err = {0};
    FUZZ_CHECK(zs_json_writer_open(&w, &err), "%s", err.message);
    write(w, document);
    FUZZ_CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message);
    const char *copy = zs_arena_strndup(arena, text, size, &err);
    FUZZ_CHECK(copy != NULL, "%s", err.message);
    zs_json_writer_close(&w);
    return copy;
}

const zs_json *fuzz_parse(zs_arena *arena, const char *text)
{
    const zs_json *root = NULL;
    zs_error err = {0};
    FUZZ_CHECK(zs_json_parse(&root, arena, text, strlen(text), "again", &err), "%s", err.message);
    return root;
}
