/* Ranks are started without variables set by hand, say who they are, and end together. */
#include "executor/launch.h"
#include "tests/e2e/runs.h"

#include <stdlib.h>
#include <string.h>

enum { T = 8, V = 16 };

static const char *save_plan(const char *name, const char *samples, const char *micro_batches)
{
    const check_run_plan d = {.model = {.n_blocks = 2,
                                        .n_channels = 8,
                                        .n_heads = 2,
                                        .n_vocab = V,
                                        .n_positions = T,
                                        .tied = true},
                              .samples = samples,
                              .micro_batches = micro_batches,
                              .seq_len = T};
    return check_run_plan_save(name, &d);
}

/* The words of one rank of an MPI job that a shell starts: $OMPI_COMM_WORLD_RANK is there. */
static check_output mpirun(const char *n_ranks, const char *shell)
{
    static const char *const settings[] = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                           "OMPI_MCA_rmaps_base_oversubscribe=1",
                                           "OMPI_MCA_hwloc_base_binding_policy=none",
                                           "OMPI_MCA_orte_execute_quiet=1",
                                           NULL};
    const char *argv[] = {"mpirun", "-n", n_ranks, "sh", "-c", shell, NULL};
    return check_program(argv, settings);
}

/* Wall time of the second and third of three steps, from metrics.jsonl. */
static double two_steps_ms(const char *plan, const char *data, const char *const *settings)
{
    char words[4096];
    double sum = 0;
    int n = 0;
    const char *folder = check_path(settings ? "bound" : "free");
    snprintf(words, sizeof words, "--steps 3 --threads 4 --quiet --out %s", folder);
    check_output output = runs_start(plan, data, words, settings);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);
    snprintf(words, sizeof words, "%s/metrics.jsonl", folder);
    char *text = check_read_file(words, NULL);
    for (const char *at = text; at && (at = strstr(at, "\"step_ms\": ")) != NULL; n++) {
        at += strlen("\"step_ms\": ");
        sum += n > 0 ? strtod(at, NULL) : 0;
    }
    free(text);
    CHECK(n == 3, "%d steps", n);
    return sum;
}

/* 2 ranks of 4 threads as zexec starts them and with binding switched off by hand: the same speed,
 * so no rank is pinned to one core. Measures, so it needs the cores. */
static void test_binding(void)
{
    if (zx_launch_cores() < 8) {
        fprintf(stderr, "%d cores: 2 ranks of 4 threads not measured\n", zx_launch_cores());
        return;
    }
    static const char *const off[] = {"OMPI_MCA_hwloc_base_binding_policy=none",
                                      "PRTE_MCA_hwloc_default_binding_policy=none", NULL};
    const check_run_plan d = {.model = {.n_blocks = 2,
                                        .n_channels = 256,
                                        .n_heads = 4,
                                        .n_vocab = V,
                                        .n_positions = 128,
                                        .tied = true},
                              .samples = "8|8",
                              .micro_batches = "8+8",
                              .seq_len = 128};
    const char *plan = check_run_plan_save("wide.json", &d);
    const char *data = check_random_tokens("wide.bin", 1, 40 * 128 + 1, V);
    const double standard_ms = two_steps_ms(plan, data, NULL);
    const double free_ms = two_steps_ms(plan, data, off);
    CHECK(standard_ms < 1.3 * free_ms, "%g ms, with binding off %g ms", standard_ms, free_ms);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    unsetenv("OMPI_ALLOW_RUN_AS_ROOT");
    unsetenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    const char *data = check_random_tokens("tokens.bin", 1, 40 * T + 1, V);
    const char *four = save_plan("four.json", "2+2|1+3", "4+4");

    check_output output = runs_start(four, data, "--steps 2", NULL);
    CHECK(output.status == 0, "%s", output.err);
    for (int rank = 0; rank < 4; rank++) {
        char text[64];
        snprintf(text, sizeof text, "rank %d: stage %d, ", rank, rank / 2);
        const char *line = strstr(output.err, text);
        CHECK(line && strstr(line, "stands for node0 GPU") && strstr(line, "1 thread, ") &&
                  strstr(line, "cores allowed"),
              "no \"%s\" in %s", text, output.err);
    }
    check_output_free(&output);

    output = runs_start(four, data, "--steps 1 --threads 4096", NULL);
    CHECK(output.status == 0 && strstr(output.err, "4096 threads on ") &&
              strstr(output.err, "use --threads "),
          "%s", output.err);
    check_output_free(&output);

    /* Results are whole lines, one per step, and stdin is nobody's. */
    output = runs_start(four, data, "--steps 3 --quiet", NULL);
    CHECK(strstr(output.out, "\nstep 1/3 | loss ") && strstr(output.out, "\nstep 3/3 | loss ") &&
              output.err[0] == 0,
          "%s%s", output.out, output.err);
    check_output_free(&output);

    char shell[8192];
    snprintf(shell, sizeof shell, "exec %s run %s --data %s --steps 1 --quiet", runs_zexec, four,
             data);
    output = mpirun("4", shell);
    CHECK(output.status == 0 && strstr(output.out, "step 1/1"), "%s%s", output.out, output.err);
    check_output_free(&output);
    output = mpirun("3", shell);
    runs_check_refused(&output, 2, "the plan has 4 ranks, this MPI job has 3");

    /* Ranks that were given different things find out before the first step. */
    snprintf(shell, sizeof shell,
             "exec %s run %s --data %s --steps 1 --quiet --seed $OMPI_COMM_WORLD_RANK", runs_zexec,
             four, data);
    output = mpirun("4", shell);
    runs_check_refused(&output, 2, "rank 1 has seed 1, rank 0 has 0");
    const char *other = save_plan("other.json", "2+2|1+3", "4+3+1");
    snprintf(shell, sizeof shell,
             "p=%s; [ $OMPI_COMM_WORLD_RANK = 2 ] && p=%s; exec %s run $p --data %s --steps 1",
             four, other, runs_zexec, data);
    output = mpirun("4", shell);
    runs_check_refused(&output, 2, "rank 2 has micro-batches 3, ");
    snprintf(shell, sizeof shell,
             "d=%s; [ $OMPI_COMM_WORLD_RANK = 1 ] && d=nowhere.bin; exec %s run %s --data $d", data,
             runs_zexec, four);
    output = mpirun("4", shell);
    runs_check_refused(&output, 2, "nowhere.bin: No such file");

    /* A loss that is not finite ends all ranks with one message. */
    output = runs_start(four, data, "--steps 60 --lr 1e6 --clip 0 --quiet", NULL);
    CHECK(output.status == 1 && strstr(output.err, "training diverged"), "%d: %s", output.status,
          output.err);
    check_output_free(&output);
    test_binding();
    return check_done();
}
