/* The strict reader in front of cJSON, and the node that a document consists of; for shared/json*.c
 * only. The scanner checks the grammar of RFC 8259 with line and column, reads the numbers in the C
 * locale and leaves cJSON a text in which they are zeros: cJSON builds the tree and decodes the
 * strings, the numbers are taken from the list in document order. */
#ifndef SHARED_JSON_SCAN_H
#define SHARED_JSON_SCAN_H

#include "shared/json.h"

typedef struct zs_json_source {
    const char *name;
    const char *text; /* size bytes */
    size_t size;
} zs_json_source;

struct zs_json {
    zs_json_type type;
    int index;             /* in the parent */
    const char *key;       /* in an object, else NULL */
    const zs_json *parent; /* NULL for the root */
    const zs_json_source *source;
    union {
        bool boolean;
        double number;
        const char *string;
    };
    int n_items;
    zs_json *first, *last, *next; /* children and neighbour, in document order */
    const zs_json **items;        /* of a parsed array or object */
    const zs_json **by_key;       /* of a parsed object, sorted */
};

typedef struct zs_json_scan {
    char *plain;        /* the text with every number as 0 and blanks */
    double *numbers;    /* in document order */
    size_t *key_places; /* offset of each key, in document order */
} zs_json_scan;

/* All in arena. */
ZS_MUST_CHECK bool zs_json_scan_text(zs_json_scan *out, zs_arena *arena,
                                     const zs_json_source *source, zs_error *err);

/* Fails with "name:line:column: message"; columns count characters. */
bool zs_json_scan_fail(const zs_json_source *source, size_t offset, zs_error *err,
                       const char *format, ...) ZS_PRINTF(4, 5);

#endif
