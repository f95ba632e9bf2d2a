/* Runs of zexec and their metrics. */
#ifndef TESTS_E2E_RUNS_H
#define TESTS_E2E_RUNS_H

#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/programs.h"
#include "tests/support/run_plans.h"

enum { RUNS_MAX_STEPS = 64, RUNS_MAX_EVALS = 16, RUNS_MAX_LISTED = 16 };

typedef struct run_metrics {
    int n_steps;
    double loss[RUNS_MAX_STEPS], grad_norm[RUNS_MAX_STEPS], lr[RUNS_MAX_STEPS];
    int64_t tokens[RUNS_MAX_STEPS];
    int64_t sequences[RUNS_MAX_STEPS][RUNS_MAX_LISTED]; /* the first ids of each batch */
    int n_evals;
    double eval_loss[RUNS_MAX_EVALS];
    int64_t eval_sequences[RUNS_MAX_EVALS];
    bool done;
    char params_digest[32];
    char *stable; /* all lines without their time fields, to compare runs of one plan */
} run_metrics;

/* Path of zexec, the first argument of main. */
extern const char *runs_zexec;

/* zexec run PLAN --data DATA and the words of `options` (split at blanks). settings as in
 * check_program. */
check_output runs_start(const char *plan, const char *data, const char *options,
                        const char *const *settings);

/* The same without waiting for its end. */
check_process runs_begin(const char *plan, const char *data, const char *options);

/* The same with --out in a folder of its own; checks status 0 and reads the metrics. False when
 * that failed. */
bool runs_metrics(run_metrics *out, const char *plan, const char *data, const char *options,
                  const char *const *settings);
/* Those of a run that is over, from the folder of its --out. */
bool runs_read_metrics(run_metrics *out, const char *folder);
void runs_metrics_free(run_metrics *metrics);

/* Runs the program `inside` (second argument of main) in a mode, on all ranks of the plan; returns
 * the lines that its ranks printed, to be freed, or NULL after a failed check. */
extern const char *runs_inside;
char *runs_inside_all(const char *mode, const char *plan, const char *data, int n_ranks);

/* Takes both paths from the arguments of main. */
void runs_open(int argc, char **argv);

/* Refused cleanly: that status, one line on stderr that holds text, no step. */
void runs_check_refused(check_output *output, int status, const char *text);

/* Losses and gradient norms of all steps and evaluations within tolerance of the reference. */
void runs_check_near(const run_metrics *run, const run_metrics *reference, double tolerance,
                     const char *what);

#endif
