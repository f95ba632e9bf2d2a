/* Complete plans that zexec runs, for a small model, and the tokens to run them on. Built on
 * the shapes of plans.h: "2+1|3" are two stages, the first of two ranks. */
#ifndef TESTS_SUPPORT_RUN_PLANS_H
#define TESTS_SUPPORT_RUN_PLANS_H

#include "models/model.h"
#include "tests/support/plans.h"

typedef struct check_model {
    zm_family family;
    int n_blocks, n_channels, n_heads, n_vocab, n_positions;
    int n_kv_heads; /* 0: n_heads */
    bool tied;
} check_model;

/* What a plan has beside its shape. */
typedef struct check_run_plan {
    check_model model;
    const char *samples;       /* "2+1|3" */
    const char *micro_batches; /* "3+3+2" */
    zs_schedule_kind schedule;
    int seq_len;
    const char *blocks;    /* of each stage, "2|1"; NULL: as even as can be */
    const char *shards;    /* weights of each rank, "70+30|1"; NULL: even */
    const char *recompute; /* "0|1" by stage; NULL: nowhere */
    const char *zero;      /* ZeRO level of each stage, "1|3"; NULL: 1 */
} check_run_plan;

/* In arena; ends the test program when the description makes no valid plan. */
zs_plan check_run_plan_build(zs_arena *arena, const check_run_plan *description);

/* Builds it, saves it under this name (files.h) and returns the path. */
const char *check_run_plan_save(const char *name, const check_run_plan *description);

/* A random plan for the model: 1 .. 4 stages of 1 .. 4 ranks, at most max_ranks ranks, a cut of
 * global_batch into micro-batches, samples with zeros, uneven and empty shards, recompute or not,
 * any ZeRO level of each stage.
 * In arena. */
check_run_plan check_rng_run_plan(check_rng *rng, zs_arena *arena, const check_model *model,
                                  int seq_len, int global_batch, int max_ranks);

/* The description in one line, for messages. In arena. */
const char *check_run_plan_text(zs_arena *arena, const check_run_plan *description);

/* n random ids below n_vocab, in llm.c's layout; returns the path. */
const char *check_random_tokens(const char *name, uint64_t seed, int64_t n, int n_vocab);

#endif
