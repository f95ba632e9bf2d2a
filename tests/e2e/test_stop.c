/* A run that is told to stop ends at a step, saves it, and goes on from there as if nothing had
 * been: whoever is told, whenever, and however often. */
#include "tests/e2e/runs.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 32, V = 256, N_STEPS = 40, STATUS = 4 };
static const double limit_s = 60; /* until something shows, on a busy machine */
static const double stop_s = 15;  /* one step, one save and 5 s, on a busy machine */

static const char *plan, *data, *eval;
static run_metrics whole;

static const char *options_of(const char *folder, const char *more)
{
    static char text[9000];
    snprintf(text, sizeof text, "--steps %d --out %s %s", N_STEPS, folder, more);
    return text;
}

/* Steps that the output has as saved when it stopped; -1: it says something else. */
static int stopped_step(const check_output *output, const char *folder)
{
    char format[4200];
    int step = -1, end = 0;
    const char *at = strstr(output->out, "stopped by a signal behind step ");
    snprintf(format, sizeof format, "stopped by a signal behind step %%d, saved as %s/step-%%*d%%n",
             folder);
    if (!at || sscanf(at, format, &step, &end) != 1 || end == 0)
        return -1;
    return step;
}

static check_output end(check_process *process, double told_s, const char *what)
{
    check_output output = check_program_wait(process, limit_s);
    CHECK(output.status == STATUS, "%s: status %d: %s%s", what, output.status, output.out,
          output.err);
    CHECK(check_now_s() - told_s < stop_s, "%s: %g s", what, check_now_s() - told_s);
    return output;
}

/* What was stopped becomes the undisturbed run. */
static void go_on(const char *folder, const char *what)
{
    run_metrics again;
    char more[4200];
    snprintf(more, sizeof more, "--resume %s", folder);
    check_output output = runs_start(plan, data, options_of(folder, more), NULL);
    CHECK(output.status == 0, "%s: %s", what, output.err);
    check_output_free(&output);
    if (runs_read_metrics(&again, folder))
        CHECK(strcmp(again.stable, whole.stable) == 0, "%s: other numbers than undisturbed", what);
    runs_metrics_free(&again);
}

/* rank -1: the process that was started. */
static void tell(const check_process *process, int rank, int number)
{
    const int pid = rank < 0 ? process->pid : check_rank_pid(process, rank);
    CHECK(pid > 0 && kill(pid, number) == 0, "rank %d has no process", rank);
}

/* During a step, again after a second where it still runs. */
static void check_step(int rank, int number, bool twice)
{
    char folder_name[32], what[64];
    snprintf(folder_name, sizeof folder_name, "step%d-%d-%d", rank, number, twice);
    snprintf(what, sizeof what, "signal %d to rank %d%s", number, rank, twice ? ", twice" : "");
    const char *folder = check_path(folder_name);
    check_process process = runs_begin(plan, data, options_of(folder, ""));
    CHECK(check_wait_for_text(process.out, "step 4/", limit_s), "%s: no step", what);
    const double told_s = check_now_s();
    tell(&process, rank, number);
    if (twice) {
        tell(&process, rank, number);
        check_sleep_ms(1000);
        kill(check_rank_pid(&process, 0), number);
    }
    check_output output = end(&process, told_s, what);
    const int step = stopped_step(&output, folder);
    CHECK(step >= 4 && step < N_STEPS, "%s: %s", what, output.out);
    check_output_free(&output);
    go_on(folder, what);
}

static void check_evaluation(void)
{
    const char *folder = check_path("evaluation");
    char more[4200];
    snprintf(more, sizeof more, "--eval %s --eval-every 1", eval);
    check_process process = runs_begin(plan, data, options_of(folder, more));
    CHECK(check_wait_for_text(process.out, "step 1/", limit_s), "no step");
    check_sleep_ms(50);
    const double told_s = check_now_s();
    tell(&process, 3, SIGTERM);
    check_output output = end(&process, told_s, "evaluation");
    CHECK(stopped_step(&output, folder) == 1 && !strstr(output.out, "step 1/40 | eval loss"),
          "not in the evaluation: %s", output.out);
    check_output_free(&output);
}

/* As soon as the rank listens, long before it computes. */
static void check_start_up(int rank)
{
    const char *folder = check_path(rank < 0 ? "parent" : "start-up");
    check_process process = runs_begin(plan, data, options_of(folder, ""));
    char path[64];
    bool listens = false;
    const double begin_s = check_now_s();
    while (!listens && check_now_s() < begin_s + limit_s) {
        const int pid = check_rank_pid(&process, 0);
        snprintf(path, sizeof path, "/proc/%d/status", pid);
        char *text = pid > 0 ? check_read_file(path, NULL) : NULL;
        const char *caught = text ? strstr(text, "SigCgt:") : NULL;
        listens = caught && (strtoull(caught + 7, NULL, 16) >> (SIGTERM - 1) & 1);
        free(text);
        check_sleep_ms(1);
    }
    const double told_s = check_now_s();
    if (rank < 0)
        kill(process.pid, SIGTERM);
    else
        tell(&process, 0, SIGTERM);
    check_output output = end(&process, told_s, "start-up");
    CHECK(strstr(output.out, "stopped by a signal before the first step: nothing was saved") &&
              !strstr(output.out, "| loss"),
          "%s", output.out);
    check_output_free(&output);
    char *left = check_read_file(check_path("start-up/step-00000001/manifest.json"), NULL);
    CHECK(left == NULL, "a checkpoint of nothing");
    free(left);
}

/* The save that runs is finished, and no other step is done. */
static void check_save(void)
{
    const char *folder = check_path("save");
    char temporary[4200];
    snprintf(temporary, sizeof temporary, "%s/step-00000003.tmp", folder);
    check_process process = runs_begin(plan, data, options_of(folder, "--save-every 3"));
    const double begin_s = check_now_s();
    while (access(temporary, F_OK) != 0 && check_now_s() < begin_s + limit_s)
        check_sleep_ms(0.2);
    const double told_s = check_now_s();
    tell(&process, 1, SIGUSR1);
    check_output output = end(&process, told_s, "save");
    const int step = stopped_step(&output, folder);
    CHECK(step == 3 || step == 4, "told while step 3 was saved: %s", output.out);
    check_output_free(&output);
    go_on(folder, "save");
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    const check_run_plan four = {.model = {.n_blocks = 4,
                                           .n_channels = 64,
                                           .n_heads = 4,
                                           .n_vocab = V,
                                           .n_positions = T,
                                           .tied = true},
                                 .samples = "3+1|2+2",
                                 .micro_batches = "4+4",
                                 .seq_len = T,
                                 .shards = "70+30|1+1"};
    plan = check_run_plan_save("four.json", &four);
    data = check_random_tokens("tokens.bin", 1, 100 * T + 1, V);
    eval = check_random_tokens("eval.bin", 2, 1600 * T + 1, V);
    if (!runs_metrics(&whole, plan, data, "--steps 40", NULL))
        return check_done();
    check_step(2, SIGTERM, false);
    check_step(-1, SIGTERM, false);
    check_step(1, SIGUSR1, true);
    check_evaluation();
    check_start_up(0);
    check_start_up(-1);
    check_save();

    /* Without a place to save in it stops all the same. */
    check_process process = runs_begin(plan, data, "--steps 100000");
    CHECK(check_wait_for_text(process.out, "step 1/", limit_s), "no step");
    const double told_s = check_now_s();
    tell(&process, -1, SIGUSR1);
    check_output output = end(&process, told_s, "no --out");
    CHECK(strstr(output.out, ": nothing was saved, there is no --out DIR"), "%s", output.out);
    check_output_free(&output);
    runs_metrics_free(&whole);
    return check_done();
}
