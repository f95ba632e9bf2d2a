#include "shared/json.h"

#include "shared/files.h"
#include "shared/json_scan.h"
#include "shared/options.h"
#include "shared/units.h"

#include <cjson/cJSON.h>

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MAX_EXACT = INT64_C(9007199254740991); /* 2^53 - 1 */

static const char *const type_names[] = {"null",     "true or false", "a number",
                                         "a string", "an array",      "an object"};

/* ---- From text to nodes ---- */

typedef struct builder {
    zs_arena *arena;
    const zs_json_source *source;
    const double *numbers;    /* the next one */
    const size_t *key_places; /* the next one */
    zs_error *err;
} builder;

static int compare_keys(const void *a, const void *b)
{
    const zs_json *x = *(const zs_json *const *)a, *y = *(const zs_json *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static bool sort_members(builder *b, zs_json *object, const size_t *places)
{
    object->by_key = ZS_NEW(b->arena, const zs_json *, object->n_items, b->err);
    if (!object->by_key)
        return false;
    for (int i = 0; i < object->n_items; i++)
        object->by_key[i] = object->items[i];
    qsort(object->by_key, (size_t)object->n_items, sizeof(object->by_key[0]), compare_keys);
    for (int i = 1; i < object->n_items; i++) {
        const zs_json *second = object->by_key[i];
        if (strcmp(object->by_key[i - 1]->key, second->key) == 0)
            return zs_json_scan_fail(b->source, places[second->index], b->err,
                                     "duplicate key \"%.100s\"", second->key);
    }
    return true;
}

static zs_json *build(builder *b, const cJSON *from, const zs_json *parent);

static bool build_items(builder *b, zs_json *to, const cJSON *from)
{
    for (const cJSON *child = from->child; child; child = child->next)
        to->n_items++;
    to->items = ZS_NEW(b->arena, const zs_json *, to->n_items, b->err);
    size_t *places = ZS_NEW(b->arena, size_t, to->type == ZS_JSON_OBJECT ? to->n_items : 0, b->err);
    if (!to->items || !places)
        return false;
    int i = 0;
    for (const cJSON *child = from->child; child; child = child->next, i++) {
        if (to->type == ZS_JSON_OBJECT)
            places[i] = *b->key_places++;
        zs_json *item = build(b, child, to);
        if (!item)
            return false;
        item->index = i;
        if (to->last)
            to->last->next = item;
        else
            to->first = item;
        to->last = item;
        to->items[i] = item;
    }
    return to->type != ZS_JSON_OBJECT || sort_members(b, to, places);
}

static zs_json *build(builder *b, const cJSON *from, const zs_json *parent)
{
    zs_json *to = ZS_NEW(b->arena, zs_json, 1, b->err);
    if (!to)
        return NULL;
    to->parent = parent;
    to->source = b->source;
    if (from->string && !(to->key = zs_arena_strdup(b->arena, from->string, b->err)))
        return NULL;
    if (cJSON_IsBool(from)) {
        to->type = ZS_JSON_BOOL;
        to->boolean = cJSON_IsTrue(from);
    } else if (cJSON_IsNumber(from)) {
        to->type = ZS_JSON_NUMBER;
        to->number = *b->numbers++;
    } else if (cJSON_IsString(from)) {
        to->type = ZS_JSON_STRING;
        to->string = zs_arena_strdup(b->arena, from->valuestring, b->err);
        if (!to->string)
            return NULL;
    } else if (cJSON_IsArray(from) || cJSON_IsObject(from)) {
        to->type = cJSON_IsArray(from) ? ZS_JSON_ARRAY : ZS_JSON_OBJECT;
        if (!build_items(b, to, from))
            return NULL;
    }
    return to;
}

bool zs_json_parse(const zs_json **root, zs_arena *arena, const char *text, size_t size,
                   const char *name, zs_error *err)
{
    zs_json_source *source = ZS_NEW(arena, zs_json_source, 1, err);
    char *name_copy = zs_arena_strdup(arena, name, err);
    if (!source || !name_copy)
        return false;
    *source = (zs_json_source){.name = name_copy, .text = text, .size = size};
    zs_json_scan scan;
    if (!zs_json_scan_text(&scan, arena, source, err))
        return false;
    cJSON *tree = cJSON_ParseWithLength(scan.plain, size);
    if (!tree)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%.300s: out of memory while reading", name);
    builder b = {arena, source, scan.numbers, scan.key_places, err};
    const zs_json *built = build(&b, tree, NULL);
    cJSON_Delete(tree);
    source->text = NULL; /* the caller's text need not live on */
    source->size = 0;
    if (!built)
        return false;
    *root = built;
    return true;
}

bool zs_json_load(const zs_json **root, zs_arena *arena, const char *path, zs_error *err)
{
    const char *text = NULL;
    size_t size = 0;
    return zs_files_load(&text, &size, arena, path, err) &&
           zs_json_parse(root, arena, text, size, strcmp(path, "-") == 0 ? "stdin" : path, err);
}

/* ---- Places ---- */

zs_json_type zs_json_type_of(const zs_json *value)
{
    return value->type;
}

const char *zs_json_document(const zs_json *value)
{
    return value->source->name;
}

static bool is_plain_key(const char *key)
{
    for (const char *c = key; *c; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
        if (!letter && !(c > key && ((*c >= '0' && *c <= '9') || *c == '-')))
            return false;
    }
    return *key != 0;
}

/* Writes the path of value to buffer, cut off where it does not fit; returns what it needs. */
static size_t print_path(char *buffer, size_t size, size_t used, const zs_json *value)
{
    if (value->parent)
        used = print_path(buffer, size, used, value->parent);
    char *to = buffer + (used < size ? used : size - 1);
    const size_t room = used < size ? size - used : 1;
    int n = 0;
    if (!value->parent)
        n = snprintf(to, room, "$");
    else if (!value->key)
        n = snprintf(to, room, "[%d]", value->index);
    else
        n = snprintf(to, room, is_plain_key(value->key) ? ".%s" : "[\"%s\"]", value->key);
    return used + (size_t)n;
}

bool zs_json_fail(const zs_json *value, zs_error *err, const char *format, ...)
{
    char path[ZS_ERROR_MESSAGE_SIZE / 4];
    char message[ZS_ERROR_MESSAGE_SIZE / 2];
    print_path(path, sizeof path, 0, value);
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return ZS_FAIL(err, ZS_ERR_INPUT, "%.250s: %s: %s", value->source->name, path, message);
}

/* ---- Checks of one value ---- */

/* The value as it may stand in a message. */
static const char *describe(char *buffer, size_t size, const zs_json *value)
{
    if (value->type == ZS_JSON_STRING)
        snprintf(buffer, size, "\"%.60s\"", value->string);
    else if (value->type == ZS_JSON_NUMBER)
        zs_units_print_double(buffer, size, value->number);
    else if (value->type == ZS_JSON_BOOL)
        snprintf(buffer, size, value->boolean ? "true" : "false");
    else
        snprintf(buffer, size, "%s", type_names[value->type]);
    return buffer;
}

static bool check_type(const zs_json *value, zs_json_type type, const char *expected, zs_error *err)
{
    char text[80];
    return value->type == type || zs_json_fail(value, err, "is %s, expected %s",
                                               describe(text, sizeof text, value), expected);
}

bool zs_json_int(int64_t *out, const zs_json *value, int64_t min, int64_t max, zs_error *err)
{
    char text[80];
    if (!check_type(value, ZS_JSON_NUMBER, "an integer", err))
        return false;
    const double number = value->number;
    if (number != floor(number))
        return zs_json_fail(value, err, "is %s, expected an integer",
                            describe(text, sizeof text, value));
    if (fabs(number) > (double)MAX_EXACT)
        return zs_json_fail(value, err, "is beyond 2^53 - 1, the largest integer that is exact");
    const int64_t integer = (int64_t)number;
    if (integer < min && max >= MAX_EXACT)
        return zs_json_fail(value, err, "is %lld, expected %lld or more", (long long)integer,
                            (long long)min);
    if (integer < min || integer > max)
        return zs_json_fail(value, err, "is %lld, expected %lld .. %lld", (long long)integer,
                            (long long)min, (long long)max);
    *out = integer;
    return true;
}

bool zs_json_double(double *out, const zs_json *value, double min, double max, zs_error *err)
{
    char text[80], low[40], high[40];
    if (!check_type(value, ZS_JSON_NUMBER, "a number", err))
        return false;
    const double number = value->number;
    if (number >= min && number <= max) {
        *out = number;
        return true;
    }
    describe(text, sizeof text, value);
    zs_units_print_double(low, sizeof low, min);
    if (number < min && max >= 1e300)
        return zs_json_fail(value, err, "is %s, expected %s or more", text, low);
    zs_units_print_double(high, sizeof high, max);
    return zs_json_fail(value, err, "is %s, expected %s .. %s", text, low, high);
}

bool zs_json_string(const char **out, const zs_json *value, zs_error *err)
{
    if (!check_type(value, ZS_JSON_STRING, "a string", err))
        return false;
    *out = value->string;
    return true;
}

bool zs_json_bool(bool *out, const zs_json *value, zs_error *err)
{
    if (!check_type(value, ZS_JSON_BOOL, "true or false", err))
        return false;
    *out = value->boolean;
    return true;
}

bool zs_json_choice(int *out, const zs_json *value, const char *const *names, int n, zs_error *err)
{
    char list[300] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        if (value->type == ZS_JSON_STRING && strcmp(value->string, names[i]) == 0) {
            *out = i;
            return true;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\"",
                                     i == 0       ? ""
                                     : i == n - 1 ? " or "
                                                  : ", ",
                                     names[i]);
    }
    char text[80];
    return zs_json_fail(value, err, "is %s, expected %s", describe(text, sizeof text, value), list);
}

bool zs_json_is_object(const zs_json *value, zs_error *err)
{
    return check_type(value, ZS_JSON_OBJECT, "an object", err);
}

bool zs_json_is_array(int *n_items, const zs_json *value, int min_items, int max_items,
                      zs_error *err)
{
    if (!check_type(value, ZS_JSON_ARRAY, "an array", err))
        return false;
    if (value->n_items < min_items || value->n_items > max_items)
        return zs_json_fail(value, err, "has %d items, expected %d .. %d", value->n_items,
                            min_items, max_items);
    *n_items = value->n_items;
    return true;
}

/* ---- Navigation ---- */

const zs_json *zs_json_find(const zs_json *object, const char *key)
{
    if (object->type != ZS_JSON_OBJECT)
        return NULL;
    int low = 0, high = object->n_items;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const int order = strcmp(object->by_key[middle]->key, key);
        if (order == 0)
            return object->by_key[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool zs_json_get(const zs_json **out, const zs_json *object, const char *key, zs_error *err)
{
    if (!zs_json_is_object(object, err))
        return false;
    const zs_json *value = zs_json_find(object, key);
    if (!value)
        return zs_json_fail(object, err, "\"%s\" is missing", key);
    *out = value;
    return true;
}

int zs_json_n_items(const zs_json *value)
{
    return value->n_items;
}

const zs_json *zs_json_item(const zs_json *value, int i)
{
    return value->items[i];
}

const char *zs_json_key_at(const zs_json *object, int i)
{
    return object->items[i]->key;
}

bool zs_json_only_keys(const zs_json *object, const char *const *keys, int n, zs_error *err)
{
    if (!zs_json_is_object(object, err))
        return false;
    for (int i = 0; i < object->n_items; i++) {
        const char *key = object->items[i]->key;
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = strcmp(key, keys[k]) == 0;
        if (known)
            continue;
        const char *nearest = zs_options_nearest(key, keys, n);
        if (nearest)
            return zs_json_fail(object, err, "unknown key \"%.60s\", did you mean \"%s\"?", key,
                                nearest);
        return zs_json_fail(object, err, "unknown key \"%.60s\"", key);
    }
    return true;
}

/* ---- Members ---- */

/* Is the optional key there? An object is required in any case. */
static bool find_optional(const zs_json **out, const zs_json *object, const char *key,
                          zs_error *err)
{
    *out = NULL;
    if (!zs_json_is_object(object, err))
        return false;
    *out = zs_json_find(object, key);
    return true;
}

bool zs_json_get_int(int64_t *out, const zs_json *object, const char *key, int64_t min, int64_t max,
                     zs_error *err)
{
    const zs_json *value = NULL;
    return zs_json_get(&value, object, key, err) && zs_json_int(out, value, min, max, err);
}

bool zs_json_opt_int(int64_t *out, const zs_json *object, const char *key, int64_t min, int64_t max,
                     zs_error *err)
{
    const zs_json *value = NULL;
    return find_optional(&value, object, key, err) &&
           (!value || zs_json_int(out, value, min, max, err));
}

bool zs_json_get_double(double *out, const zs_json *object, const char *key, double min, double max,
                        zs_error *err)
{
    const zs_json *value = NULL;
    return zs_json_get(&value, object, key, err) && zs_json_double(out, value, min, max, err);
}

bool zs_json_opt_double(double *out, const zs_json *object, const char *key, double min, double max,
                        zs_error *err)
{
    const zs_json *value = NULL;
    return find_optional(&value, object, key, err) &&
           (!value || zs_json_double(out, value, min, max, err));
}

bool zs_json_get_string(const char **out, const zs_json *object, const char *key, zs_error *err)
{
    const zs_json *value = NULL;
    return zs_json_get(&value, object, key, err) && zs_json_string(out, value, err);
}

bool zs_json_opt_string(const char **out, const zs_json *object, const char *key, zs_error *err)
{
    const zs_json *value = NULL;
    return find_optional(&value, object, key, err) && (!value || zs_json_string(out, value, err));
}

bool zs_json_opt_bool(bool *out, const zs_json *object, const char *key, zs_error *err)
{
    const zs_json *value = NULL;
    return find_optional(&value, object, key, err) && (!value || zs_json_bool(out, value, err));
}

bool zs_json_get_choice(int *out, const zs_json *object, const char *key, const char *const *names,
                        int n, zs_error *err)
{
    const zs_json *value = NULL;
    return zs_json_get(&value, object, key, err) && zs_json_choice(out, value, names, n, err);
}

bool zs_json_opt_choice(int *out, const zs_json *object, const char *key, const char *const *names,
                        int n, zs_error *err)
{
    const zs_json *value = NULL;
    return find_optional(&value, object, key, err) &&
           (!value || zs_json_choice(out, value, names, n, err));
}

/* ---- Quantities ---- */

typedef struct quantity {
    const char *suffix;   /* of the key that takes a bare number */
    const char *expected; /* for messages */
} quantity;

static const quantity bytes_quantity = {"bytes", "bytes such as \"80GiB\""};
static const quantity bandwidth_quantity = {"bytes_per_s",
                                            "a bandwidth such as \"12.5GB/s\" or \"100Gb/s\""};
static const quantity ms_quantity = {"ms", "a time such as \"5us\", \"1.5ms\" or \"10s\""};

/* Finds the text form (*as_text) or the numeric one; both NULL when an optional one is absent. */
static bool find_quantity(const zs_json **as_text, const zs_json **as_number, const zs_json *object,
                          const char *stem, const quantity *q, bool required, zs_error *err)
{
    char key[100], text[80];
    if (!zs_json_is_object(object, err))
        return false;
    snprintf(key, sizeof key, "%s_%s", stem, q->suffix);
    *as_text = zs_json_find(object, stem);
    *as_number = zs_json_find(object, key);
    if (*as_text && *as_number)
        return zs_json_fail(*as_number, err, "is given together with \"%s\", expected one of them",
                            stem);
    if (*as_text && (*as_text)->type != ZS_JSON_STRING)
        return zs_json_fail(*as_text, err, "%s has no unit, expected %s (or a number as \"%s\")",
                            describe(text, sizeof text, *as_text), q->expected, key);
    if (required && !*as_text && !*as_number)
        return zs_json_fail(object, err, "\"%s\" (or \"%s\") is missing", stem, key);
    return true;
}

static bool read_bytes(int64_t *out, const zs_json *object, const char *stem, bool required,
                       zs_error *err)
{
    const zs_json *as_text = NULL, *as_number = NULL;
    if (!find_quantity(&as_text, &as_number, object, stem, &bytes_quantity, required, err))
        return false;
    if (as_number)
        return zs_json_int(out, as_number, 0, INT64_MAX, err);
    zs_error cause;
    int64_t bytes = *out;
    if (as_text && !zs_units_parse_bytes(&bytes, as_text->string, &cause))
        return zs_json_fail(as_text, err, "%s", cause.message);
    if (as_text && bytes > MAX_EXACT) /* could not be written as a number again */
        return zs_json_fail(as_text, err, "\"%.60s\" is beyond 2^53 - 1 bytes", as_text->string);
    *out = bytes;
    return true;
}

static bool read_scaled(double *out, const zs_json *object, const char *stem, const quantity *q,
                        bool (*parse)(double *, const char *, zs_error *), bool required,
                        zs_error *err)
{
    const zs_json *as_text = NULL, *as_number = NULL;
    if (!find_quantity(&as_text, &as_number, object, stem, q, required, err))
        return false;
    if (as_number)
        return zs_json_double(out, as_number, 0, HUGE_VAL, err);
    zs_error cause;
    if (as_text && !parse(out, as_text->string, &cause))
        return zs_json_fail(as_text, err, "%s", cause.message);
    return true;
}

bool zs_json_get_bytes(int64_t *out, const zs_json *object, const char *stem, zs_error *err)
{
    return read_bytes(out, object, stem, true, err);
}

bool zs_json_opt_bytes(int64_t *out, const zs_json *object, const char *stem, zs_error *err)
{
    return read_bytes(out, object, stem, false, err);
}

bool zs_json_get_bandwidth(double *bytes_per_s, const zs_json *object, const char *stem,
                           zs_error *err)
{
    return read_scaled(bytes_per_s, object, stem, &bandwidth_quantity, zs_units_parse_bandwidth,
                       true, err);
}

bool zs_json_opt_bandwidth(double *bytes_per_s, const zs_json *object, const char *stem,
                           zs_error *err)
{
    return read_scaled(bytes_per_s, object, stem, &bandwidth_quantity, zs_units_parse_bandwidth,
                       false, err);
}

bool zs_json_opt_ms(double *ms, const zs_json *object, const char *stem, zs_error *err)
{
    return read_scaled(ms, object, stem, &ms_quantity, zs_units_parse_ms, false, err);
}

bool zs_json_check_format(const zs_json *root, const char *format, int version, zs_error *err)
{
    const char *found = NULL;
    const zs_json *number = NULL;
    int64_t value = 0;
    if (!zs_json_is_object(root, err))
        return false;
    if (!zs_json_find(root, "format"))
        return zs_json_fail(root, err, "\"format\" is missing, expected \"%s\"", format);
    if (!zs_json_get_string(&found, root, "format", err))
        return false;
    if (strcmp(found, format) != 0)
        return zs_json_fail(zs_json_find(root, "format"), err,
                            "is \"%.60s\", expected \"%s\": this is another kind of file", found,
                            format);
    if (!zs_json_get(&number, root, "version", err) ||
        !zs_json_int(&value, number, 1, INT64_MAX, err))
        return false;
    if (value > version)
        return zs_json_fail(number, err, "is %lld, this program reads %s versions 1 .. %d",
                            (long long)value, format, version);
    return true;
}
