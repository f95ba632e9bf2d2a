/* Any text is refused with a message, or read, written and read again to the same value. */
#include "shared/json.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void check_again(zs_arena *arena, const zs_json *root, bool compact)
{
    zs_json_writer *w = NULL;
    const zs_json *again = NULL;
    const char *text = NULL;
    size_t size = 0;
    zs_error err = {0};
    FUZZ_CHECK(zs_json_writer_open(&w, &err), "%s", err.message);
    if (compact)
        zs_json_writer_set_compact(w);
    zs_json_put_value(w, NULL, root);
    FUZZ_CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message);
    FUZZ_CHECK(strlen(text) == size && text[size - 1] == '\n', "%s", text);
    FUZZ_CHECK(!compact || strchr(text, '\n') == text + size - 1, "%s", text);
    FUZZ_CHECK(zs_json_parse(&again, arena, text, size, "again", &err), "%s: %s", err.message,
               text);
    FUZZ_CHECK(zs_json_digest(root) == zs_json_digest(again), "%s", text);
    zs_json_writer_close(&w);
}

/* Every getter on every value: right type or a message. */
static void walk(const zs_json *value)
{
    int64_t integer = 0;
    double number = 0;
    const char *string = NULL;
    bool flag = false;
    zs_error err;
    if (!zs_json_int(&integer, value, -1000, INT64_MAX, &err))
        fuzz_check_error(&err);
    if (!zs_json_double(&number, value, 0, 1e6, &err))
        fuzz_check_error(&err);
    if (!zs_json_string(&string, value, &err))
        fuzz_check_error(&err);
    if (!zs_json_bool(&flag, value, &err))
        fuzz_check_error(&err);
    if (zs_json_type_of(value) == ZS_JSON_OBJECT) {
        if (!zs_json_opt_bytes(&integer, value, "memory", &err))
            fuzz_check_error(&err);
        if (!zs_json_get_bandwidth(&number, value, "nic", &err))
            fuzz_check_error(&err);
        if (!zs_json_opt_ms(&number, value, "latency", &err))
            fuzz_check_error(&err);
        for (int i = 0; i < zs_json_n_items(value); i++)
            FUZZ_CHECK(zs_json_find(value, zs_json_key_at(value, i)) == zs_json_item(value, i),
                       "key %d", i);
    }
    for (int i = 0; i < zs_json_n_items(value); i++)
        walk(zs_json_item(value, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    zs_arena *arena = NULL;
    zs_error err = {0};
    const zs_json *root = NULL;
    FUZZ_CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    if (zs_json_parse(&root, arena, (const char *)data, size, "input", &err)) {
        walk(root);
        check_again(arena, root, false);
        check_again(arena, root, true);
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.code == ZS_ERR_INPUT, "%s", err.message);
    }
    zs_arena_close(&arena);
    return 0;
}
