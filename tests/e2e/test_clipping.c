/* Clipping by the norm of the whole gradient, over stages and shards. */
#include "tests/e2e/runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 8, V = 11, N_LAYOUTS = 6 };

static const char *const layouts[N_LAYOUTS][4] = {/* samples, micro-batches, shards, ZeRO */
                                                  {"4", "4", NULL, NULL},
                                                  {"2|2", "2+2", NULL, NULL},
                                                  {"2|2|2", "2+2", NULL, NULL},
                                                  {"3+1", "4", "90+10", NULL},
                                                  {"3+1", "4", "90+10", "2"},
                                                  {"2+0|1+1", "2+2", "90+10|0+1", "3|3"}};

static const char *save_layout(int i)
{
    const check_run_plan d = {.model = {.n_blocks = 3,
                                        .n_channels = 12,
                                        .n_heads = 3,
                                        .n_vocab = V,
                                        .n_positions = T,
                                        .tied = true},
                              .samples = layouts[i][0],
                              .micro_batches = layouts[i][1],
                              .shards = layouts[i][2],
                              .zero = layouts[i][3],
                              .seq_len = T};
    return check_run_plan_save("layout.json", &d);
}

/* Relative L2 distance of the weights of two files of equal layout. */
static double distance(const char *a, const char *b)
{
    size_t size_a, size_b;
    char *x = check_read_file(a, &size_a), *y = check_read_file(b, &size_b);
    double difference = 0, norm = 0;
    uint64_t header = 0;
    if (x && y && size_a == size_b)
        memcpy(&header, x, sizeof header);
    for (size_t at = 8 + header; header && at + 4 <= size_a; at += 4) {
        float u, v;
        memcpy(&u, x + at, sizeof u);
        memcpy(&v, y + at, sizeof v);
        difference += ((double)u - (double)v) * ((double)u - (double)v);
        norm += (double)v * (double)v;
    }
    free(x);
    free(y);
    return norm > 0 ? sqrt(difference / norm) : INFINITY;
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    const char *data = check_random_tokens("tokens.bin", 9, 40 * T + 1, V);
    char options[4096];
    run_metrics free_run, loose, reference, run;
    const char *one = save_layout(0);
    if (!runs_metrics(&free_run, one, data, "--steps 5 --lr 1e-2 --quiet --clip 0", NULL) ||
        !runs_metrics(&loose, one, data, "--steps 5 --lr 1e-2 --quiet --clip 1e9", NULL))
        return check_done();
    CHECK_STRING(loose.params_digest, free_run.params_digest);

    const double limit = free_run.grad_norm[0] / 2;
    for (int i = 0; i < N_LAYOUTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "clipped%d.safetensors", i);
        const char *weights = check_path(name);
        snprintf(options, sizeof options, "--steps 5 --lr 1e-2 --quiet --clip %.17g --save %s",
                 limit, weights);
        if (!runs_metrics(&run, save_layout(i), data, options, NULL))
            return check_done();
        if (i == 0) {
            reference = run;
            CHECK(strcmp(run.params_digest, free_run.params_digest) != 0, "nothing was clipped");
            continue;
        }
        runs_check_near(&run, &reference, 1e-5, layouts[i][0]);
        const double apart = distance(weights, check_path("clipped0.safetensors"));
        CHECK(apart < 1e-5, "%s: weights are %g apart", layouts[i][0], apart);
        runs_metrics_free(&run);
    }
    runs_metrics_free(&reference);
    runs_metrics_free(&free_run);
    runs_metrics_free(&loose);
    return check_done();
}
