#include "shared/json.h"

#include "shared/files.h"
#include "shared/json_scan.h"
#include "shared/units.h"
#include "shared/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MAX_EXACT = INT64_C(9007199254740991); /* 2^53 - 1 */

/* ---- From nodes to text ---- */

typedef enum layout {
    INDENTED,
    COMPACT,
    CANONICAL /* compact, members sorted by key */
} layout;

typedef struct text_buffer {
    char *text;
    size_t size, capacity;
    bool out_of_memory;
} text_buffer;

static void append(text_buffer *b, const char *text, size_t size)
{
    if (b->out_of_memory)
        return;
    if (b->capacity - b->size <= size) {
        const size_t capacity = 2 * (b->capacity + size) + 256;
        char *larger = realloc(b->text, capacity);
        if (!larger) {
            b->out_of_memory = true;
            return;
        }
        b->text = larger;
        b->capacity = capacity;
    }
    memcpy(b->text + b->size, text, size);
    b->size += size;
    b->text[b->size] = 0;
}

static void append_text(text_buffer *b, const char *text)
{
    append(b, text, strlen(text));
}

static void append_string(text_buffer *b, const char *text)
{
    append(b, "\"", 1);
    for (const char *c = text; *c; c++) {
        static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        const char *special = strchr(plain, *c);
        if (special) {
            const char escape[2] = {'\\', letters[special - plain]};
            append(b, escape, 2);
        } else if ((unsigned char)*c < 0x20 || *c == 0x7F) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)(unsigned char)*c);
            append(b, escape, 6);
        } else {
            append(b, c, 1);
        }
    }
    append(b, "\"", 1);
}

static bool is_container(const zs_json *value)
{
    return value->type == ZS_JSON_ARRAY || value->type == ZS_JSON_OBJECT;
}

/* Objects and arrays that hold any of them take a line per item. */
static bool takes_lines(const zs_json *value, layout how)
{
    if (how != INDENTED || !value->first)
        return false;
    if (value->type == ZS_JSON_OBJECT)
        return true;
    for (const zs_json *item = value->first; item; item = item->next) {
        if (is_container(item))
            return true;
    }
    return false;
}

static void break_line(text_buffer *b, int depth)
{
    append(b, "\n", 1);
    for (int i = 0; i < depth; i++)
        append(b, "  ", 2);
}

static void append_value(text_buffer *b, const zs_json *value, layout how, int depth);

static void append_items(text_buffer *b, const zs_json *value, layout how, int depth)
{
    const bool object = value->type == ZS_JSON_OBJECT, lines = takes_lines(value, how);
    append_text(b, object ? "{" : "[");
    const zs_json *item = value->first;
    for (int i = 0; i < value->n_items; i++, item = item->next) {
        const zs_json *next = object && how == CANONICAL ? value->by_key[i] : item;
        if (i > 0)
            append_text(b, lines ? "," : ", ");
        if (lines)
            break_line(b, depth + 1);
        if (object) {
            append_string(b, next->key);
            append_text(b, ": ");
        }
        append_value(b, next, how, depth + 1);
    }
    if (lines)
        break_line(b, depth);
    append_text(b, object ? "}" : "]");
}

static void append_value(text_buffer *b, const zs_json *value, layout how, int depth)
{
    char number[40];
    switch (value->type) {
    case ZS_JSON_NULL:
        append_text(b, "null");
        break;
    case ZS_JSON_BOOL:
        append_text(b, value->boolean ? "true" : "false");
        break;
    case ZS_JSON_NUMBER:
        append_text(b, zs_units_print_double(number, sizeof number, value->number));
        break;
    case ZS_JSON_STRING:
        append_string(b, value->string);
        break;
    case ZS_JSON_ARRAY:
    case ZS_JSON_OBJECT:
        append_items(b, value, how, depth);
        break;
    }
}

uint64_t zs_json_digest(const zs_json *value)
{
    text_buffer b = {0};
    append_value(&b, value, CANONICAL, 0);
    /* Fowler, Noll and Vo, FNV-1a with 64 bits: draft-eastlake-fnv, offset basis and prime. */
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < b.size; i++)
        hash = (hash ^ (unsigned char)b.text[i]) * UINT64_C(1099511628211);
    if (b.out_of_memory)
        abort(); /* a wrong digest would be worse */
    free(b.text);
    return hash;
}

/* ---- The writer: collects nodes, prints them at the end ---- */

struct zs_json_writer {
    zs_arena *arena;
    zs_json *root;
    zs_json *open; /* innermost object or array that is not ended */
    int depth;
    bool compact;
    bool failed;
    zs_error err;
    text_buffer out;
};

bool zs_json_writer_open(zs_json_writer **out, zs_error *err)
{
    zs_json_writer *w = calloc(1, sizeof *w);
    if (!w)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory");
    if (!zs_arena_open(&w->arena, err)) {
        free(w);
        return false;
    }
    *out = w;
    return true;
}

void zs_json_writer_close(zs_json_writer **writer)
{
    if (!*writer)
        return;
    zs_arena_close(&(*writer)->arena);
    free((*writer)->out.text);
    free(*writer);
    *writer = NULL;
}

void zs_json_writer_set_compact(zs_json_writer *w)
{
    w->compact = true;
}

/* Only the first failure counts. */
#define WRITER_FAIL(w, ...)                                                                        \
    do {                                                                                           \
        if (!(w)->failed)                                                                          \
            ZS_FAIL(&(w)->err, ZS_ERR_RUNTIME, __VA_ARGS__);                                       \
        (w)->failed = true;                                                                        \
    } while (0)

static bool is_utf8(const char *text)
{
    size_t size = strlen(text);
    while (size > 0) {
        const int n = zs_utf8_size(text, size);
        if (n == 0)
            return false;
        text += n;
        size -= (size_t)n;
    }
    return true;
}

static char *copy_string(zs_json_writer *w, const char *key, const char *text)
{
    if (!is_utf8(text)) {
        WRITER_FAIL(w, "JSON: \"%s\": the text is not valid UTF-8", key ? key : "");
        return NULL;
    }
    char *copy = zs_arena_strdup(w->arena, text, w->failed ? NULL : &w->err);
    w->failed = w->failed || !copy;
    return copy;
}

/* Adds an empty node where the writer stands; NULL after a failure. */
static zs_json *add(zs_json_writer *w, const char *key, zs_json_type type)
{
    if (w->failed)
        return NULL;
    zs_json *parent = w->open;
    const bool in_object = parent && parent->type == ZS_JSON_OBJECT;
    if ((!parent && w->root) || in_object != (key != NULL)) {
        WRITER_FAIL(w, "JSON: wrong nesting at \"%s\"", key ? key : "");
        return NULL;
    }
    zs_json *value = ZS_NEW(w->arena, zs_json, 1, &w->err);
    if (!value) {
        w->failed = true;
        return NULL;
    }
    value->type = type;
    value->parent = parent;
    if (key && !(value->key = copy_string(w, key, key)))
        return NULL;
    if (!parent) {
        w->root = value;
        return value;
    }
    if (parent->last)
        parent->last->next = value;
    else
        parent->first = value;
    parent->last = value;
    value->index = parent->n_items++;
    return value;
}

static void begin(zs_json_writer *w, const char *key, zs_json_type type)
{
    zs_json *value = add(w, key, type);
    if (!value)
        return;
    w->open = value;
    if (++w->depth > ZS_JSON_MAX_DEPTH)
        WRITER_FAIL(w, "JSON: \"%s\" is nested deeper than %d levels", key ? key : "",
                    (int)ZS_JSON_MAX_DEPTH);
}

static void end(zs_json_writer *w, zs_json_type type)
{
    if (w->failed)
        return;
    if (!w->open || w->open->type != type) {
        WRITER_FAIL(w, "JSON: wrong nesting at an end");
        return;
    }
    w->open = (zs_json *)w->open->parent;
    w->depth--;
}

void zs_json_begin_object(zs_json_writer *w, const char *key)
{
    begin(w, key, ZS_JSON_OBJECT);
}

void zs_json_end_object(zs_json_writer *w)
{
    end(w, ZS_JSON_OBJECT);
}

void zs_json_begin_array(zs_json_writer *w, const char *key)
{
    begin(w, key, ZS_JSON_ARRAY);
}

void zs_json_end_array(zs_json_writer *w)
{
    end(w, ZS_JSON_ARRAY);
}

void zs_json_put_int(zs_json_writer *w, const char *key, int64_t value)
{
    if (value > MAX_EXACT || value < -MAX_EXACT)
        WRITER_FAIL(w, "JSON: \"%s\" is %" PRId64 ", beyond 2^53 - 1", key ? key : "", value);
    zs_json *node = add(w, key, ZS_JSON_NUMBER);
    if (node)
        node->number = (double)value;
}

void zs_json_put_double(zs_json_writer *w, const char *key, double value)
{
    if (!isfinite(value))
        WRITER_FAIL(w, "JSON: \"%s\" is %g, expected a finite number", key ? key : "", value);
    zs_json *node = add(w, key, ZS_JSON_NUMBER);
    if (node)
        node->number = value;
}

void zs_json_put_string(zs_json_writer *w, const char *key, const char *value)
{
    zs_json *node = add(w, key, ZS_JSON_STRING);
    if (node)
        node->string = copy_string(w, key, value);
}

void zs_json_put_bool(zs_json_writer *w, const char *key, bool value)
{
    zs_json *node = add(w, key, ZS_JSON_BOOL);
    if (node)
        node->boolean = value;
}

void zs_json_put_null(zs_json_writer *w, const char *key)
{
    (void)add(w, key, ZS_JSON_NULL);
}

void zs_json_put_value(zs_json_writer *w, const char *key, const zs_json *value)
{
    switch (value->type) {
    case ZS_JSON_NULL:
        zs_json_put_null(w, key);
        break;
    case ZS_JSON_BOOL:
        zs_json_put_bool(w, key, value->boolean);
        break;
    case ZS_JSON_NUMBER:
        zs_json_put_double(w, key, value->number);
        break;
    case ZS_JSON_STRING:
        zs_json_put_string(w, key, value->string);
        break;
    case ZS_JSON_ARRAY:
    case ZS_JSON_OBJECT:
        begin(w, key, value->type);
        for (const zs_json *item = value->first; item; item = item->next)
            zs_json_put_value(w, item->key, item);
        end(w, value->type);
        break;
    }
}

bool zs_json_writer_text(zs_json_writer *w, const char **text, size_t *size, zs_error *err)
{
    if (!w->failed && (!w->root || w->open))
        WRITER_FAIL(w, "JSON: the document is not ended");
    if (!w->failed && !w->out.text) {
        append_value(&w->out, w->root, w->compact ? COMPACT : INDENTED, 0);
        append_text(&w->out, "\n");
        if (w->out.out_of_memory)
            WRITER_FAIL(w, "out of memory while writing JSON");
    }
    if (w->failed) {
        if (err)
            *err = w->err;
        return false;
    }
    *text = w->out.text;
    *size = w->out.size;
    return true;
}

bool zs_json_writer_save(zs_json_writer *w, const char *path, zs_error *err)
{
    const char *text = NULL;
    size_t size = 0;
    return zs_json_writer_text(w, &text, &size, err) && zs_files_save(path, text, size, err);
}
