/* Token files that are refused before ranks are started, and small ones that are not. */
#include "tests/e2e/runs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 16, V = 32000, N = 20 * T + 1 };

static const char *save_plan(const char *name, const char *samples, const char *micro_batches,
                             int n_vocab)
{
    const check_run_plan d = {.model = {.n_blocks = 2,
                                        .n_channels = 4,
                                        .n_heads = 1,
                                        .n_vocab = n_vocab,
                                        .n_positions = T,
                                        .tied = true},
                              .samples = samples,
                              .micro_batches = micro_batches,
                              .seq_len = T};
    return check_run_plan_save(name, &d);
}

static void refuse(const char *plan, const char *data, const char *options, const char *text)
{
    check_output output = runs_start(plan, data, options, NULL);
    CHECK(output.wall_s < 5, "%g s", output.wall_s);
    runs_check_refused(&output, 2, text);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    const char *plan = save_plan("two.json", "2|1+1", "2", V);
    int ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = i * 37 % V;
    ids[N - 5] = V - 1;
    const char *good = check_write_tokens("good.bin", ids, N);
    check_output output = runs_start(plan, good, "--steps 2 --quiet", NULL);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);

    char text[128], options[4096];
    const char *out = check_path("refused");
    ids[N - 5] = V;
    const char *high = check_write_tokens("high.bin", ids, N);
    snprintf(text, sizeof text, "id 32000 at byte %d (token %d), the vocabulary has 32000",
             1024 + 2 * (N - 5), N - 5);
    snprintf(options, sizeof options, "--steps 2 --out %s --eval %s", out, good);
    refuse(plan, high, options, text);
    CHECK(access(out, F_OK) != 0, "a refused run left %s", out);
    snprintf(options, sizeof options, "--steps 2 --eval %s", high);
    refuse(plan, good, options, text);

    size_t size;
    char *bytes = check_read_file(good, &size);
    refuse(plan, check_write_file("odd.bin", bytes, size - 1), "", "bytes, but the header's 321");
    refuse(plan, good, "--dtype u32", "the header says u16 ids");
    refuse(plan, check_write_file("raw.bin", bytes + 1024, size - 1026), "", "no token header");
    refuse(plan, check_path("raw.bin"), "--dtype u32", "the vocabulary has 32000");
    free(bytes);
    refuse(save_plan("large.json", "1", "1", 70000), good, "", "16-bit ids cannot hold");

    const char *small = save_plan("small.json", "4+4", "8", V);
    refuse(small, check_write_tokens("none.bin", ids, T), "", "expected 17 or more");
    output =
        runs_start(small, check_write_tokens("one.bin", ids, T + 1), "--steps 1 --quiet", NULL);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);
    /* 3 sequences against a batch of 8: epochs follow each other inside the batch. */
    run_metrics run;
    if (runs_metrics(&run, small, check_write_tokens("three.bin", ids, 3 * T + 1),
                     "--steps 2 --quiet --data-order sequential", NULL)) {
        CHECK(strstr(run.stable, "[0, 1, 2, 0, 1, 2, 0, 1]") &&
                  strstr(run.stable, "[2, 0, 1, 2, 0, 1, 2, 0]"),
              "%s", run.stable);
        runs_metrics_free(&run);
    }
    return check_done();
}
