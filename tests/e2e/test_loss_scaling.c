/* Loss and gradient are those of the whole batch, however it is cut. The model's gradient is known
 * in closed form (set_flat of inside.c): V 8, C 16, targets 3/4 zeros and 1/4 ones, so loss ln 8
 * and grad_norm sqrt(16 ((1/8 - 3/4)^2 + (1/8 - 1/4)^2 + 6/64)) = 2.828427. Averages of
 * micro-batches or of ranks give 2.449490 for 3+1, a dropped last micro-batch of 3+3+2
 * gives 3.741657. */
#include "tests/e2e/runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 6, V = 8, C = 16 };

/* n sequences: targets of the first 3/4 are 0, of the others 1. */
static const char *flat_tokens(const char *name, int n)
{
    const int zeros = 3 * n / 4 * T + 1, total = n * T + 1;
    int *ids = calloc((size_t)total, sizeof *ids);
    for (int i = zeros; i < total; i++)
        ids[i] = 1;
    const char *path = check_write_tokens(name, ids, total);
    free(ids);
    return path;
}

static void check_cut(const char *data, const char *samples, const char *micro_batches,
                      int n_blocks, int n_ranks, bool tied, const char *zero)
{
    for (int schedule = 0; schedule < ZS_N_SCHEDULES; schedule++) {
        const check_run_plan d = {.model = {.n_blocks = n_blocks,
                                            .n_channels = C,
                                            .n_heads = 2,
                                            .n_vocab = V,
                                            .n_positions = T,
                                            .tied = tied},
                                  .samples = samples,
                                  .micro_batches = micro_batches,
                                  .schedule = (zs_schedule_kind)schedule,
                                  .zero = zero,
                                  .seq_len = T};
        const char *plan = check_run_plan_save("flat.json", &d);
        char *out = runs_inside_all("flat", plan, data, n_ranks);
        int n_lines = 0;
        for (char *line = out ? strtok(out, "\n") : NULL; line; line = strtok(NULL, "\n")) {
            int rank;
            double loss = 0, grad_norm = 0;
            n_lines +=
                sscanf(line, "rank %d loss %lf grad_norm %lf", &rank, &loss, &grad_norm) == 3;
            CHECK(fabs(loss - 2.0794415) < 1e-5 * 2.0794415, "%s, %s: %s", samples, micro_batches,
                  line);
            CHECK(fabs(grad_norm - 2.828427) < 1e-5 * 2.828427, "%s, %s: %s", samples,
                  micro_batches, line);
        }
        CHECK(n_lines == n_ranks, "%s, %s: %d ranks said their loss, expected %d", samples,
              micro_batches, n_lines, n_ranks);
        free(out);
    }
}

/* 100 sequences with a global batch of 8: 12 batches of 8 and one of 4. */
static void test_eval(void)
{
    const char *options = "--steps 3 --lr 1e-2 --threads 1 --quiet --eval ";
    const char *data = check_random_tokens("eval_train.bin", 1, 30 * T + 1, V);
    const char *eval = check_random_tokens("eval.bin", 2, 100 * T + 3, V);
    const check_model model = {
        .n_blocks = 3, .n_channels = C, .n_heads = 2, .n_vocab = V, .n_positions = T, .tied = true};
    const check_run_plan plans[] = {
        {.model = model, .samples = "8", .micro_batches = "8", .seq_len = T},
        {.model = model, .samples = "2+1|3", .micro_batches = "3+3+2", .seq_len = T},
        {.model = model,
         .samples = "2+1|3+0",
         .micro_batches = "3+3+2",
         .zero = "3|3",
         .seq_len = T},
        {.model = model,
         .samples = "3|1+2|3",
         .micro_batches = "3+3+2",
         .schedule = ZS_SCHEDULE_GPIPE,
         .seq_len = T}};
    run_metrics runs[4];
    char words[4096];
    snprintf(words, sizeof words, "%s%s", options, eval);
    for (int i = 0; i < 4; i++) {
        if (!runs_metrics(&runs[i], check_run_plan_save("eval.json", &plans[i]), data, words, NULL))
            return;
        CHECK(runs[i].n_evals == 1 && runs[i].eval_sequences[0] == 100, "%d evaluations",
              runs[i].n_evals);
        runs_check_near(&runs[i], &runs[0], 1e-5, plans[i].samples);
    }
    for (int i = 0; i < 4; i++)
        runs_metrics_free(&runs[i]);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    const char *four = flat_tokens("four.bin", 4), *eight = flat_tokens("eight.bin", 8);
    check_cut(four, "4", "4", 2, 1, true, "1");
    check_cut(four, "3", "3+1", 2, 1, true, "1");
    check_cut(four, "3", "1+3", 2, 1, true, "1");
    check_cut(four, "1+3", "4", 2, 2, true, "1");
    check_cut(four, "1+3", "4", 2, 2, true, "3");
    check_cut(four, "2", "2+1+1", 2, 1, false, "1");
    check_cut(four, "2+1", "3+1", 2, 2, true, "1");
    check_cut(four, "2+1", "3+1", 2, 2, true, "2");
    check_cut(four, "2+1", "3+1", 2, 2, false, "3");
    check_cut(four, "2+1+1", "4", 1, 3, true, "1");
    check_cut(four, "2+1+1", "4", 1, 3, true, "3");
    check_cut(eight, "3|3", "3+3+2", 2, 2, true, "1|1");
    check_cut(eight, "3|1+2|3", "3+3+2", 3, 4, true, "1|1|1");
    check_cut(eight, "3|1+2|3", "2+3+3", 3, 4, true, "1|3|1");
    check_cut(eight, "3|1+2|3", "2+3+3", 3, 4, true, "1|1|1");
    check_cut(eight, "2+1|3+0", "3+3+2", 2, 4, false, "1|1");
    check_cut(eight, "2+1|3+0", "3+3+2", 2, 4, true, "2|3");
    check_cut(eight, "2+1|3+0", "3+3+2", 2, 4, false, "3|2");
    test_eval();
    return check_done();
}
