/* Errors. A function that can fail returns bool, is marked ZS_MUST_CHECK, and fills the zs_error
 * that its caller passes. Whoever finds the fault writes the message; those above return false,
 * adding a prefix only where it tells more. The codes are the exit statuses of both programs. */
#ifndef SHARED_ERROR_H
#define SHARED_ERROR_H

#include <stdbool.h>
#include <stdio.h>

#define ZS_MUST_CHECK __attribute__((warn_unused_result))
#define ZS_PRINTF(format_arg, first_arg) __attribute__((format(printf, format_arg, first_arg)))

typedef enum zs_code {
    ZS_OK = 0,
    ZS_ERR_RUNTIME = 1,   /* failed while running */
    ZS_ERR_INPUT = 2,     /* bad input or usage */
    ZS_ERR_INFEASIBLE = 3 /* no feasible plan */
} zs_code;

#define ZS_ERROR_MESSAGE_SIZE 1024

typedef struct zs_error {
    zs_code code;
    const char *file; /* source file that found the fault; static */
    int line;
    char message[ZS_ERROR_MESSAGE_SIZE]; /* one line, without a final newline */
} zs_error;

/* Records code, place and message in *err and returns false:
 *     return ZS_FAIL(err, ZS_ERR_INPUT, "micro_batches[%d] is %d, expected 1 or more", i, n); */
#define ZS_FAIL(err, code, ...) zs_error_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Fills *err (which may be NULL: the message is dropped) and returns false. Control characters and
 * invalid UTF-8 that the message quotes become '?'. */
bool zs_error_set(zs_error *err, zs_code code, const char *file, int line, const char *format, ...)
    ZS_PRINTF(5, 6);

/* Puts "prefix: " before the message of *err, keeping code and place; returns false. */
bool zs_error_prefix(zs_error *err, const char *format, ...) ZS_PRINTF(2, 3);

/* Prints "program: message\n" to out. */
void zs_error_print(FILE *out, const char *program, const zs_error *err);

#endif
