/* JSON over cJSON, with what cJSON lacks: every message names file and JSON path; syntax errors
 * have line and column; duplicate keys, text after the value, invalid UTF-8, numbers that are not
 * finite and nesting beyond ZS_JSON_MAX_DEPTH are refused; integers are exact or refused; writing
 * is stable (one order, one layout, "." whatever the locale). Values live in the arena. */
#ifndef SHARED_JSON_H
#define SHARED_JSON_H

#include "shared/arena.h"
#include "shared/error.h"

#include <stddef.h>
#include <stdint.h>

enum { ZS_JSON_MAX_DEPTH = 64 };

typedef enum zs_json_type {
    ZS_JSON_NULL,
    ZS_JSON_BOOL,
    ZS_JSON_NUMBER,
    ZS_JSON_STRING,
    ZS_JSON_ARRAY,
    ZS_JSON_OBJECT
} zs_json_type;

typedef struct zs_json zs_json; /* one value of a document; knows its place */

/* Reads a whole document: file path, or "-" for stdin. In arena. */
ZS_MUST_CHECK bool zs_json_load(const zs_json **root, zs_arena *arena, const char *path,
                                zs_error *err);

/* The same from size bytes of text; name stands for the file in messages. */
ZS_MUST_CHECK bool zs_json_parse(const zs_json **root, zs_arena *arena, const char *text,
                                 size_t size, const char *name, zs_error *err);

zs_json_type zs_json_type_of(const zs_json *value);
const char *zs_json_document(const zs_json *value); /* the file's name; valid as the arena */

/* Fails with "file: $.path[3]: message" (ZS_ERR_INPUT); returns false. */
bool zs_json_fail(const zs_json *value, zs_error *err, const char *format, ...) ZS_PRINTF(3, 4);

/* Checks of one value. Ranges are inclusive. An integer may be written 12 or 12.0 or 1.2e1 but not
 * 12.5, and not beyond +-(2^53 - 1), where a double would lose digits. */
ZS_MUST_CHECK bool zs_json_int(int64_t *out, const zs_json *value, int64_t min, int64_t max,
                               zs_error *err);
ZS_MUST_CHECK bool zs_json_double(double *out, const zs_json *value, double min, double max,
                                  zs_error *err);
ZS_MUST_CHECK bool zs_json_string(const char **out, const zs_json *value, zs_error *err);
ZS_MUST_CHECK bool zs_json_bool(bool *out, const zs_json *value, zs_error *err);
/* Index of the text among n names; the message lists them. */
ZS_MUST_CHECK bool zs_json_choice(int *out, const zs_json *value, const char *const *names, int n,
                                  zs_error *err);
ZS_MUST_CHECK bool zs_json_is_object(const zs_json *value, zs_error *err);
ZS_MUST_CHECK bool zs_json_is_array(int *n_items, const zs_json *value, int min_items,
                                    int max_items, zs_error *err);

/* Navigation. find: NULL if the key is absent; get: absent is an error that names the key.
 * item and key_at: i in [0, n). n_items counts items of an array or members of an object. */
const zs_json *zs_json_find(const zs_json *object, const char *key);
ZS_MUST_CHECK bool zs_json_get(const zs_json **out, const zs_json *object, const char *key,
                               zs_error *err);
int zs_json_n_items(const zs_json *value);
const zs_json *zs_json_item(const zs_json *value, int i);
const char *zs_json_key_at(const zs_json *object, int i);

/* Refuses members whose key is not among the n keys, with the nearest known one as a hint. */
ZS_MUST_CHECK bool zs_json_only_keys(const zs_json *object, const char *const *keys, int n,
                                     zs_error *err);

/* Members of an object: get_ requires the key; opt_ leaves *out as it is when the key is absent. */
ZS_MUST_CHECK bool zs_json_get_int(int64_t *out, const zs_json *object, const char *key,
                                   int64_t min, int64_t max, zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_int(int64_t *out, const zs_json *object, const char *key,
                                   int64_t min, int64_t max, zs_error *err);
ZS_MUST_CHECK bool zs_json_get_double(double *out, const zs_json *object, const char *key,
                                      double min, double max, zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_double(double *out, const zs_json *object, const char *key,
                                      double min, double max, zs_error *err);
ZS_MUST_CHECK bool zs_json_get_string(const char **out, const zs_json *object, const char *key,
                                      zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_string(const char **out, const zs_json *object, const char *key,
                                      zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_bool(bool *out, const zs_json *object, const char *key,
                                    zs_error *err);
ZS_MUST_CHECK bool zs_json_get_choice(int *out, const zs_json *object, const char *key,
                                      const char *const *names, int n, zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_choice(int *out, const zs_json *object, const char *key,
                                      const char *const *names, int n, zs_error *err);

/* Quantities carry their unit in the text or in the key: stem "memory" reads either
 * "memory": "80GiB" or "memory_bytes": 85899345920; a bare number under "memory" and both keys at
 * once are refused. Bandwidth: "nic": "100Gb/s" or "nic_bytes_per_s"; time: "latency": "5us" or
 * "latency_ms". Results are >= 0. The opt_ forms leave *out as it is when both keys are absent. */
ZS_MUST_CHECK bool zs_json_get_bytes(int64_t *out, const zs_json *object, const char *stem,
                                     zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_bytes(int64_t *out, const zs_json *object, const char *stem,
                                     zs_error *err);
ZS_MUST_CHECK bool zs_json_get_bandwidth(double *bytes_per_s, const zs_json *object,
                                         const char *stem, zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_bandwidth(double *bytes_per_s, const zs_json *object,
                                         const char *stem, zs_error *err);
ZS_MUST_CHECK bool zs_json_opt_ms(double *ms, const zs_json *object, const char *stem,
                                  zs_error *err);

/* Every file begins with "format": NAME and "version": N; refuses another name or a version that
 * is not in [1, version] and says what this program reads. */
ZS_MUST_CHECK bool zs_json_check_format(const zs_json *root, const char *format, int version,
                                        zs_error *err);

/* Writer: builds the text in memory. key is NULL for the root and inside arrays. A failure
 * (memory, a number that is not finite, wrong nesting) is kept and reported by text or save.
 * Layout: two blanks of indentation; arrays of scalars on one line; doubles as the shortest text
 * that reads back to the same bits; a final newline. */
typedef struct zs_json_writer zs_json_writer;

ZS_MUST_CHECK bool zs_json_writer_open(zs_json_writer **out, zs_error *err);
void zs_json_writer_close(zs_json_writer **writer);
void zs_json_begin_object(zs_json_writer *w, const char *key);
void zs_json_end_object(zs_json_writer *w);
void zs_json_begin_array(zs_json_writer *w, const char *key);
void zs_json_end_array(zs_json_writer *w);
void zs_json_put_int(zs_json_writer *w, const char *key, int64_t value);
void zs_json_put_double(zs_json_writer *w, const char *key, double value);
void zs_json_put_string(zs_json_writer *w, const char *key, const char *value);
void zs_json_put_bool(zs_json_writer *w, const char *key, bool value);
void zs_json_put_null(zs_json_writer *w, const char *key);
void zs_json_put_value(zs_json_writer *w, const char *key, const zs_json *value); /* a subtree */

/* Compact layout, everything on one line (for .jsonl); set it right after open. */
void zs_json_writer_set_compact(zs_json_writer *w);

/* The finished text, owned by the writer. */
ZS_MUST_CHECK bool zs_json_writer_text(zs_json_writer *w, const char **text, size_t *size,
                                       zs_error *err);

/* Writes the finished text to path, all or nothing: temporary file in the same folder, flush,
 * rename. "-" is stdout. */
ZS_MUST_CHECK bool zs_json_writer_save(zs_json_writer *w, const char *path, zs_error *err);

/* FNV-1a 64 of a document's canonical text, so that a plan can name the inputs it came from. */
uint64_t zs_json_digest(const zs_json *value);

#endif
