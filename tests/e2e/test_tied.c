/* An embedding that the first and the last stage share: one gradient, one update, equal copies. */
#include "tests/e2e/runs.h"

#include <stdlib.h>
#include <string.h>

enum { T = 8, V = 11 };

static const char *data;

static check_run_plan describe(const char *samples, const char *micro_batches, const char *shards)
{
    return (check_run_plan){.model = {.n_blocks = 3,
                                      .n_channels = 12,
                                      .n_heads = 3,
                                      .n_vocab = V,
                                      .n_positions = T,
                                      .tied = true},
                            .samples = samples,
                            .micro_batches = micro_batches,
                            .shards = shards,
                            .seq_len = T};
}

static void check_inside(const char *mode, const check_run_plan *d, int n_ranks, const char *text)
{
    char *out = runs_inside_all(mode, check_run_plan_save("tied.json", d), data, n_ranks);
    int n_lines = 0;
    for (const char *at = out; at && (at = strstr(at, text)); at++)
        n_lines++;
    CHECK(n_lines == n_ranks, "%s: %d of %d ranks: %s", mode, n_lines, n_ranks, out ? out : "");
    free(out);
}

static check_run_plan with_levels(check_run_plan d, const char *zero)
{
    d.zero = zero;
    return d;
}

/* In every family a shared matrix has one sum of both uses; two matrices stay two. */
static void check_family(zm_family family, bool tied)
{
    const char *options = "--steps 5 --lr 1e-2 --threads 1 --quiet --data-order sequential";
    check_run_plan one = describe("4", "4", NULL);
    check_run_plan many = describe("1+1|2", "2+2", "70+30|1");
    run_metrics reference, run;
    one.model.family = many.model.family = family;
    one.model.tied = many.model.tied = tied;
    if (!runs_metrics(&reference, check_run_plan_save("one.json", &one), data, options, NULL))
        return;
    const char *const levels[] = {"1|1", tied ? "3|1" : "2|1"};
    for (int i = 0; i < 2; i++) {
        many.zero = levels[i];
        if (runs_metrics(&run, check_run_plan_save("many.json", &many), data, options, NULL)) {
            runs_check_near(&run, &reference, 1e-5, zm_family_names[family]);
            runs_metrics_free(&run);
        }
    }
    runs_metrics_free(&reference);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    data = check_random_tokens("tokens.bin", 9, 40 * T + 1, V);
    const check_run_plan one = describe("4", "4", NULL);
    const check_run_plan two = describe("2|2", "2+2", NULL);
    const check_run_plan four = describe("1+1|1+1", "2+2", "70+30|70+30");
    const check_run_plan five = describe("2|2|0+2+0", "2+2", "1|1|0+5+2");
    /* Shards that end inside the embedding's 132 elements of stage 0, and one owner of nothing. */
    const check_run_plan cut = describe("1+1+0|2", "2+2", "3+0+97|1");
    check_inside("tied", &two, 2, "copies equal");
    check_inside("tied", &four, 4, "copies equal");
    check_inside("tied", &five, 5, "copies equal");
    check_inside("tied_sum", &four, 4, "owns");
    check_inside("tied_sum", &cut, 4, "owns");
    /* Sharded on either side, or on both. */
    const check_run_plan four_12 = with_levels(four, "1|2"), four_31 = with_levels(four, "3|1");
    const check_run_plan four_23 = with_levels(four, "2|3"), four_33 = with_levels(four, "3|3");
    const check_run_plan five_23 = with_levels(five, "1|1|3"), cut_2 = with_levels(cut, "2|1");
    const check_run_plan cut_3 = with_levels(cut, "3|1");
    const check_run_plan single = describe("2+1+1", "4", "3+0+97");
    const check_run_plan single_2 = with_levels(single, "2"), single_3 = with_levels(single, "3");
    check_inside("tied", &four_23, 4, "copies equal");
    check_inside("tied", &four_33, 4, "copies equal");
    check_inside("tied", &four_31, 4, "copies equal");
    check_inside("tied", &five_23, 5, "copies equal");
    check_inside("tied", &cut_3, 4, "copies equal");
    check_inside("tied_sum", &four_12, 4, "owns");
    check_inside("tied_sum", &four_33, 4, "owns");
    check_inside("tied_sum", &cut_2, 4, "owns");
    check_inside("tied_sum", &cut_3, 4, "owns");

    const char *options = "--steps 5 --lr 1e-2 --threads 1 --quiet --data-order sequential";
    run_metrics reference, run;
    if (!runs_metrics(&reference, check_run_plan_save("one.json", &one), data, options, NULL))
        return check_done();
    const check_run_plan *const plans[] = {&two,     &four,    &five,     &cut,     &four_12,
                                           &four_31, &four_23, &four_33,  &five_23, &cut_2,
                                           &cut_3,   &single,  &single_2, &single_3};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
        if (runs_metrics(&run, check_run_plan_save("tied.json", plans[i]), data, options, NULL)) {
            runs_check_near(&run, &reference, 1e-5, plans[i]->samples);
            runs_metrics_free(&run);
        }
    runs_metrics_free(&reference);
    for (int i = 0; i < 2 * ZM_N_FAMILIES; i++)
        check_family((zm_family)(i / 2), i % 2);
    return check_done();
}
