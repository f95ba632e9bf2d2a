/* Plans that somebody edited by hand are refused with the layers, before any step; batches are
 * those of the plan, whole. */
#include "tests/e2e/runs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 8 };

/* The saved plan with `from` replaced by `to` in a new file; from must be there. */
static const char *edit(const char *path, const char *from, const char *to)
{
    static int n_edits;
    char *text = check_read_file(path, NULL), name[32];
    const char *at = text ? strstr(text, from) : NULL;
    if (!CHECK(at != NULL, "no \"%s\" in the plan", from))
        exit(check_done());
    const size_t before = (size_t)(at - text), behind = strlen(at + strlen(from));
    char *edited = malloc(before + strlen(to) + behind + 1);
    memcpy(edited, text, before);
    strcpy(edited + before, to);
    strcat(edited, at + strlen(from));
    snprintf(name, sizeof name, "edited%d.json", n_edits++);
    const char *result = check_write_file(name, edited, strlen(edited));
    free(edited);
    free(text);
    return result;
}

static void refuse(const char *plan, const char *data, const char *text)
{
    check_output output = runs_start(plan, data, "--steps 1", NULL);
    runs_check_refused(&output, 2, text);
}

static void test_layers(void)
{
    const check_run_plan d = {.model = {.n_blocks = 30,
                                        .n_channels = 64,
                                        .n_heads = 4,
                                        .n_vocab = 257,
                                        .n_positions = 64,
                                        .tied = true},
                              .samples = "1|1",
                              .micro_batches = "1",
                              .seq_len = T};
    const char *plan = check_run_plan_save("thirty.json", &d);
    const char *data = check_random_tokens("thirty.bin", 1, 4 * T + 1, 257);
    check_output output = runs_start(plan, data, "--steps 1 --quiet", NULL);
    CHECK(output.status == 0, "%s", output.err);
    /* 257 * 64 + 64 * 64 + 30 (12 * 64^2 + 13 * 64) + 2 * 64 */
    CHECK(strstr(output.out, "1,520,192 parameters\n") != NULL, "%s", output.out);
    check_output_free(&output);

    const char *second = "\"forward\": [15, 30]";
    const char *forward = edit(plan, "\"backward\": [15, 30]", "\"backward\": [15, 28]");
    refuse(edit(forward, second, "\"forward\": [15, 28]"), data, "blocks 28 to 29 of 30 are in no");
    forward = edit(plan, "\"backward\": [15, 30]", "\"backward\": [13, 30]");
    refuse(edit(forward, second, "\"forward\": [13, 30]"), data,
           "blocks 13 to 14 are already in stage 0");
    forward = edit(plan, "\"backward\": [15, 30]", "\"backward\": [17, 30]");
    refuse(edit(forward, second, "\"forward\": [17, 30]"), data, "blocks 15 to 16 of 30 are in no");
    forward = edit(plan, "\"forward\": [0, 15]", "\"forward\": [15, 30]");
    forward = edit(forward, "\"backward\": [0, 15]", "\"backward\": [15, 30]");
    refuse(forward, data, "blocks 0 to 14 of 30 are in no");
    refuse(edit(plan, "\"n_blocks\": 30", "\"n_blocks\": 32"), data,
           "blocks 30 to 31 of 32 are in");
    refuse(edit(plan, "\"n_blocks\": 30", "\"n_blocks\": 28"), data, "28 blocks");
    refuse(edit(plan, "\"n_channels\": 64", "\"n_channels\": 32"), data, "blocks [0,15)");
    refuse(edit(plan, "\"backward\": [0, 15]", "\"backward\": [0, 14]"), data, "backward");
    refuse(edit(plan, "\"zero_stage\": 1", "\"zero_stage\": 4"), data, "zero_stage");
    refuse(edit(plan, "\"precision\": \"fp32\"", "\"precision\": \"bf16\""), data, "bf16");
    refuse(edit(plan, "\"seq_len\": 8", "\"seq_len\": 65"), data, "65");
    refuse(edit(plan, "\"family\": \"gpt2\"", "\"family\": \"opt\""), data, "n_params is");
}

static check_run_plan batch_of(const char *samples, const char *micro_batches)
{
    return (check_run_plan){.model = {.n_blocks = 2,
                                      .n_channels = 8,
                                      .n_heads = 2,
                                      .n_vocab = 16,
                                      .n_positions = T,
                                      .tied = true},
                            .samples = samples,
                            .micro_batches = micro_batches,
                            .seq_len = T};
}

/* Counts of each sequence in the "sequences" of all lines. */
static void count_sequences(int *counts, int n, const char *text)
{
    for (const char *at = text; (at = strstr(at, "\"sequences\": [")) != NULL;) {
        at += strlen("\"sequences\": [");
        while (*at != ']') {
            char *end;
            const long id = strtol(at, &end, 10);
            if (id >= 0 && id < n)
                counts[id]++;
            at = *end == ',' ? end + 1 : end;
        }
    }
}

/* Global batch 10, at most 3 per micro-batch: 10 steps use each of 100 sequences once. */
static void test_batches(void)
{
    static const char *const samples[] = {"3", "2+1", "1+1+1+0"};
    const char *data = check_random_tokens("hundred.bin", 2, 100 * T + 1, 16);
    char options[4096];
    snprintf(options, sizeof options, "--steps 10 --quiet --lr 0 --eval %s", data);
    for (int i = 0; i < 3; i++) {
        const check_run_plan d = batch_of(samples[i], "3+3+2+2");
        run_metrics run;
        if (!runs_metrics(&run, check_run_plan_save("ten.json", &d), data, options, NULL))
            continue;
        int counts[100] = {0}, n_once = 0;
        for (int k = 0; k < 10; k++)
            CHECK(run.tokens[k] == 10 * T, "step %d: %" PRId64 " tokens", k + 1, run.tokens[k]);
        count_sequences(counts, 100, run.stable);
        for (int q = 0; q < 100; q++)
            n_once += counts[q] == 1;
        CHECK(n_once == 100, "%s: %d sequences were used once", samples[i], n_once);
        /* The weights do not move, so the steps' losses average to that of all sequences. */
        double sum = 0;
        for (int k = 0; k < 10; k++)
            sum += run.loss[k];
        CHECK(fabs(sum / 10 - run.eval_loss[0]) < 1e-6 * run.eval_loss[0],
              "%s: mean loss of the steps %.9g, of the sequences %.9g", samples[i], sum / 10,
              run.eval_loss[0]);
        runs_metrics_free(&run);
    }
    /* Buffers are made for the largest micro-batch, wherever it stands. */
    const check_run_plan ten = batch_of("3", "3+3+2+2");
    const char *ten_path = check_run_plan_save("ten.json", &ten);
    refuse(edit(ten_path, "[3, 3, 2, 2]", "[1, 4, 3, 2]"), data,
           "samples sum to 3, expected 4, the largest micro-batch");
    const check_run_plan one = batch_of("1+0", "1");
    const char *plan = check_run_plan_save("single.json", &one);
    run_metrics run;
    if (runs_metrics(&run, plan, data, "--steps 2 --quiet", NULL)) {
        CHECK(run.tokens[0] == T && run.tokens[1] == T, "%" PRId64 " tokens", run.tokens[0]);
        runs_metrics_free(&run);
    }
    refuse(edit(plan, "\"global_batch\": 1", "\"global_batch\": 0"), data, "global_batch");
    refuse(edit(plan, "\"global_batch\": 1", "\"global_batch\": -4"), data, "global_batch");
    refuse(edit(plan, "\"global_batch\": 1", "\"global_batch\": 2.5"), data, "global_batch");
    refuse(edit(plan, "\"global_batch\": 1", "\"global_batch\": \"8\""), data, "global_batch");
    refuse(edit(plan, "\"global_batch\": 1", "\"global_batch\": 8"), data, "expected the global");
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    test_layers();
    test_batches();
    return check_done();
}
