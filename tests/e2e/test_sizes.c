/* Activations of 64 B, 64 KiB and 4 MiB, which MPI buffers or not: every size, depth and number of
 * micro-batches ends, with the reference's loss. Each at MPI's own eager limit and at the
 * smallest: 54 runs. */
#include "tests/e2e/runs.h"

#include <stdlib.h>
#include <string.h>

typedef struct size {
    int n_channels, seq_len, samples; /* of a micro-batch: 4 * C * T * samples bytes */
} size;

static const size sizes[] = {{4, 4, 1}, {16, 64, 16}, {16, 16, 4096}};
static const int micro_batches[] = {1, 2, 8};

/* Open MPI 4 calls its shared memory vader, Open MPI 5 sm. */
static const char *const small_limits[] = {
    "OMPI_MCA_btl_vader_eager_limit=64", "OMPI_MCA_btl_sm_eager_limit=64",
    "OMPI_MCA_btl_tcp_eager_limit=64", "OMPI_MCA_btl_self_eager_limit=64", NULL};

static const char *save_plan(const size *s, int n_stages, int m)
{
    char samples[64] = "", batches[64] = "", part[16];
    for (int i = 0; i < n_stages; i++) {
        snprintf(part, sizeof part, "%s%d", i ? "|" : "", s->samples);
        strcat(samples, part);
    }
    for (int i = 0; i < m; i++) {
        snprintf(part, sizeof part, "%s%d", i ? "+" : "", s->samples);
        strcat(batches, part);
    }
    const check_run_plan d = {.model = {.n_blocks = 4,
                                        .n_channels = s->n_channels,
                                        .n_heads = 1,
                                        .n_vocab = 8,
                                        .n_positions = s->seq_len,
                                        .tied = true},
                              .samples = samples,
                              .micro_batches = batches,
                              .schedule = m == 2 ? ZS_SCHEDULE_GPIPE : ZS_SCHEDULE_1F1B,
                              .seq_len = s->seq_len};
    return check_run_plan_save("sizes.json", &d);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    const char *options = "--steps 1 --threads 1 --quiet";
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size *s = &sizes[i];
        const char *data = check_random_tokens("tokens.bin", 4, 40 * s->seq_len + 1, 8);
        for (size_t k = 0; k < 3; k++) {
            run_metrics reference, run;
            if (!runs_metrics(&reference, save_plan(s, 1, micro_batches[k]), data, options, NULL))
                return check_done();
            for (int n_stages = 2; n_stages <= 4; n_stages++)
                for (int limit = 0; limit < 2; limit++) {
                    char what[96];
                    snprintf(what, sizeof what, "C %d, %d stages, %d micro-batches, limit %d",
                             s->n_channels, n_stages, micro_batches[k], limit);
                    if (!runs_metrics(&run, save_plan(s, n_stages, micro_batches[k]), data, options,
                                      limit ? small_limits : NULL))
                        continue;
                    runs_check_near(&run, &reference, 1e-5, what);
                    runs_metrics_free(&run);
                }
            runs_metrics_free(&reference);
        }
    }
    return check_done();
}
