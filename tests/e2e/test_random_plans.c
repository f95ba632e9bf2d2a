/* Whatever the plan, losses and gradient norms are those of one rank that takes the whole batch in
 * one micro-batch; and the same plan twice gives the same bits. */
#include "tests/e2e/runs.h"

#include <stdlib.h>
#include <string.h>

enum { GLOBAL_BATCH = 8, SEQ_LEN = 12, N_STEPS = 20, MAX_RANKS = 8 };

static const char options[] =
    "--steps 20 --lr 3e-3 --min-lr 3e-4 --warmup 4 --threads 1 --quiet --seed 5";
static const char *data;
static run_metrics references[ZM_N_FAMILIES][2]; /* untied, tied */

static check_model small_model(zm_family family, bool tied)
{
    return (check_model){.family = family,
                         .n_blocks = 5,
                         .n_channels = 16,
                         .n_heads = 4,
                         .n_kv_heads = family == ZM_LLAMA ? 2 : 4,
                         .n_vocab = 19,
                         .n_positions = 16,
                         .tied = tied};
}

/* What the plans had, over all seeds. */
static struct drawn {
    bool stages[5], ranks[5], no_samples, no_shard, uneven;
} drawn;

static bool has_zero(const char *text)
{
    for (const char *at = text; *at; at++)
        if (*at == '0' && (at == text || at[-1] == '+' || at[-1] == '|'))
            return true;
    return false;
}

static void note(const check_run_plan *d)
{
    int n_stages = 1, n_ranks = 1;
    for (const char *at = d->samples; *at; at++) {
        if (*at == '|' || at[1] == 0)
            drawn.ranks[n_ranks] = true;
        n_ranks = *at == '|' ? 1 : n_ranks + (*at == '+');
        n_stages += *at == '|';
    }
    drawn.stages[n_stages] = true;
    drawn.no_samples |= has_zero(d->samples);
    drawn.no_shard |= has_zero(d->shards);
    const char *last = strrchr(d->micro_batches, '+');
    drawn.uneven |= last && last[1] != d->micro_batches[0];
}

static void check_drawn(void)
{
    for (int n = 1; n <= 4; n++)
        CHECK(drawn.stages[n] && drawn.ranks[n], "no plan had %d stages, or %d ranks in one", n, n);
    CHECK(drawn.no_samples && drawn.no_shard && drawn.uneven,
          "no plan had a rank without samples, an empty shard or uneven micro-batches");
}

static void check_plan_seed(uint64_t seed)
{
    zs_error err;
    zs_arena *arena;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    check_rng rng = check_rng_from(seed);
    const zm_family family = (zm_family)(seed % ZM_N_FAMILIES);
    const bool tied = check_rng_int(&rng, 0, 1) > 0;
    const check_model model = small_model(family, tied);
    const check_run_plan d =
        check_rng_run_plan(&rng, arena, &model, SEQ_LEN, GLOBAL_BATCH, MAX_RANKS);
    const char *text = check_run_plan_text(arena, &d);
    note(&d);
    const char *plan = check_run_plan_save("random.json", &d);
    run_metrics run, again;
    if (runs_metrics(&run, plan, data, options, NULL)) {
        runs_check_near(&run, &references[family][tied], 1e-5, text);
        if (seed % 4 == 0 && runs_metrics(&again, plan, data, options, NULL)) {
            CHECK_STRING(again.stable, run.stable);
            runs_metrics_free(&again);
        }
        runs_metrics_free(&run);
    }
    fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, text);
    zs_arena_close(&arena);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    data = check_random_tokens("tokens.bin", 3, 50 * SEQ_LEN + 1, 19);
    for (int i = 0; i < 2 * ZM_N_FAMILIES; i++) {
        run_metrics *reference = &references[i / 2][i % 2];
        const check_run_plan d = {.model = small_model((zm_family)(i / 2), i % 2),
                                  .samples = "8",
                                  .micro_batches = "8",
                                  .seq_len = SEQ_LEN};
        if (!runs_metrics(reference, check_run_plan_save("one.json", &d), data, options, NULL))
            return check_done();
        CHECK(reference->n_steps == N_STEPS, "%d steps", reference->n_steps);
    }
    check_seeds(check_plan_seed, 1, 18);
    if (!getenv("CHECK_SEED"))
        check_drawn();
    const check_run_plan d = {.model = small_model(ZM_GPT2, true),
                              .samples = "1+2|3+0|1+0+2",
                              .micro_batches = "3+3+2",
                              .shards = "1+3|0+1|5+3+0",
                              .seq_len = SEQ_LEN};
    run_metrics run;
    if (runs_metrics(&run, check_run_plan_save("uneven.json", &d), data, options, NULL)) {
        runs_check_near(&run, &references[ZM_GPT2][1], 1e-5, "3+3+2");
        runs_metrics_free(&run);
    }
    for (int i = 0; i < 2 * ZM_N_FAMILIES; i++)
        runs_metrics_free(&references[i / 2][i % 2]);
    return check_done();
}
