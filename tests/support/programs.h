/* Runs a program and keeps what it said. */
#ifndef TESTS_SUPPORT_PROGRAMS_H
#define TESTS_SUPPORT_PROGRAMS_H

#include <stdbool.h>

typedef struct check_output {
    int status; /* exit status; 128 + signal when it was killed */
    char *out, *err;
    double wall_s;
} check_output;

/* argv ends with NULL; argv[0] is looked up in PATH. settings: "NAME=value" that are added to the
 * environment, up to a NULL; NULL: none. stdin is empty. */
check_output check_program(const char *const *argv, const char *const *settings);
void check_output_free(check_output *output);

/* The same in two halves: what runs meanwhile is looked at by its output files, and signalled. */
typedef struct check_process {
    int pid;
    double start_s;
    const char *out, *err; /* files */
} check_process;

check_process check_program_start(const char *const *argv, const char *const *settings);

/* Waits for it; after limit_s seconds it and all it has started are killed, and that is a failed
 * check. */
check_output check_program_wait(check_process *process, double limit_s);

/* The process of this rank of an MPI job among those that process has started; 0: there is none
 * (yet). */
int check_rank_pid(const check_process *process, int rank);

/* A handle on a process, which is then signalled even if its number was given to another; to be
 * closed. -1: it is gone. */
int check_hold(int pid);
bool check_signal(int handle, int number);

/* SIGKILL to all processes that it has started, to begin with their parents, and to itself. */
void check_kill_all(const check_process *process);

/* Polls each millisecond until text is in the file; false after limit_s. */
bool check_wait_for_text(const char *path, const char *text, double limit_s);
void check_sleep_ms(double ms);
double check_now_s(void);

#endif
