/* Runs a program and keeps what it said. */
#ifndef TESTS_SUPPORT_PROGRAMS_H
#define TESTS_SUPPORT_PROGRAMS_H

typedef struct check_output {
    int status; /* exit status; 128 + signal when it was killed */
    char *out, *err;
    double wall_s;
} check_output;

/* argv ends with NULL; argv[0] is looked up in PATH. settings: "NAME=value" that are added to the
 * environment, up to a NULL; NULL: none. stdin is empty. */
check_output check_program(const char *const *argv, const char *const *settings);
void check_output_free(check_output *output);

#endif
