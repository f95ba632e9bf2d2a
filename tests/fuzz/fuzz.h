/* What the fuzz programs share. Each defines LLVMFuzzerTestOneInput, the entry of libFuzzer;
 * driver.c calls it without libFuzzer. A broken promise aborts, so that both notice. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "shared/json.h"

#include <stddef.h>
#include <stdint.h>

/* 0: the input was used; it fails by crashing. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition, ...)                                                                 \
    fuzz_check((condition), #condition, __FILE__, __LINE__, __VA_ARGS__)

void fuzz_check(bool ok, const char *condition, const char *file, int line, const char *format, ...)
    ZS_PRINTF(5, 6);

/* A refusal has a code and a message of one line. */
void fuzz_check_error(const zs_error *err);

/* Opens an arena and parses size bytes of JSON into it; *root is NULL when they are refused. */
zs_arena *fuzz_open(const zs_json **root, const uint8_t *data, size_t size);

/* The document as its write function prints it. In arena. */
const char *fuzz_print(zs_arena *arena, void (*write)(zs_json_writer *w, const void *document),
                       const void *document);

/* A printed document is valid JSON. */
const zs_json *fuzz_parse(zs_arena *arena, const char *text);

#endif
