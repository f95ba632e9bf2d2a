/* Command lines from one table: values, ranges and --help come from the same rows. GNU
 * conventions: --name value, --name=value, -n value, "--" ends options, --no-name for flags. */
#ifndef SHARED_OPTIONS_H
#define SHARED_OPTIONS_H

#include "shared/arena.h"
#include "shared/error.h"

#include <stdint.h>

typedef enum zs_option_kind {
    ZS_OPTION_FLAG,
    ZS_OPTION_INT,    /* within [min, max] */
    ZS_OPTION_DOUBLE, /* within [min, max] */
    ZS_OPTION_STRING,
    ZS_OPTION_CHOICE, /* one of choices */
    ZS_OPTION_BYTES,  /* "512MiB" */
    ZS_OPTION_MS      /* "10s" */
} zs_option_kind;

typedef struct zs_option {
    const char *name; /* without "--" */
    char letter;      /* 0: none */
    zs_option_kind kind;
    const char *value_name;   /* "FILE", "N"; NULL for flags */
    const char *default_text; /* parsed like a given value; NULL: unset; a flag: "true" */
    double min, max;          /* of INT and DOUBLE; ignored when both are 0 */
    const char *choices;      /* "fp32|bf16" for CHOICE */
    const char *help;         /* one or two sentences; wrapped by the printer */
} zs_option;

typedef struct zs_command {
    const char *name;      /* "solve" */
    const char *arguments; /* "PLAN" or "" */
    int min_arguments, max_arguments;
    const char *summary; /* one line for the list of commands */
    const char *details; /* paragraphs for its own --help, with an example */
    const zs_option *options;
    int n_options;
} zs_command;

typedef struct zs_options zs_options; /* parsed values, in arena */

/* Parses argv[0..argc) (what follows the command's name). Unknown options are refused with the
 * nearest known one; each message names the option and the value. *help is set when --help or -h
 * was given; the rest is then not checked. */
ZS_MUST_CHECK bool zs_options_parse(zs_options **out, bool *help, zs_arena *arena,
                                    const zs_command *command, int argc, char **argv,
                                    zs_error *err);

/* The named option must be in the table with that kind. Unset numbers are 0, strings NULL. */
bool zs_options_is_set(const zs_options *o, const char *name); /* given, not defaulted */
bool zs_options_flag(const zs_options *o, const char *name);
int64_t zs_options_int(const zs_options *o, const char *name);
double zs_options_double(const zs_options *o, const char *name);
const char *zs_options_string(const zs_options *o, const char *name); /* STRING or CHOICE */
int64_t zs_options_bytes(const zs_options *o, const char *name);
double zs_options_ms(const zs_options *o, const char *name);
int zs_options_n_arguments(const zs_options *o);
const char *zs_options_argument(const zs_options *o, int i);

/* NULL when unknown; then *err has "unknown command ..., did you mean ...?" (ZS_ERR_INPUT). */
const zs_command *zs_options_find_command(const zs_command *commands, int n_commands,
                                          const char *name, zs_error *err);

/* --help of a program (command NULL) or of one command; at most 80 columns. */
void zs_options_print_help(FILE *out, const char *program, const char *about,
                           const zs_command *commands, int n_commands, const zs_command *command);

/* The word among n that is nearest to text (edit distance at most 1/3 of its length,
 * rounded up; case is ignored), or NULL. */
const char *zs_options_nearest(const char *text, const char *const *words, int n);

#endif
