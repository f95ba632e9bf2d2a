/* Memory of a rank against sums done by hand, and against the rule of the assignment problem. */
#include "planner/memory.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { V = 257, C = 64, MAX_T = 64, F = 256, NH = 4, T = 32 };
enum { WTE = V * C, WPE = MAX_T * C, BLOCK = 12 * C * C + 13 * C, HEAD = 2 * C };
/* Floats per token of a block: norms 2 C, their means and deviations 4, q k v 3 C, attention C, log
 * sums NH, residual C, MLP 2 F, and the block's input C. */
enum { BLOCK_FLOATS = 8 * C + 4 + NH + 2 * F };
/* Floats per token of backward's scratch, whatever the number of blocks. */
enum { SCRATCH_FLOATS = (F > 3 * C ? F : 3 * C) + C };

static const int64_t MIB = 1048576;

static zm_model tiny(bool tied)
{
    return (zm_model){.name = "tiny",
                      .family = ZM_GPT2,
                      .n_blocks = 4,
                      .n_channels = C,
                      .n_heads = NH,
                      .n_kv_heads = NH,
                      .n_ffn = F,
                      .n_vocab = V,
                      .n_positions = MAX_T,
                      .activation = ZM_GELU_TANH,
                      .norm_eps = 1e-5,
                      .tied = tied};
}

static zs_job small_job(void)
{
    return (zs_job){.context_bytes = 3 * MIB, .reserve_bytes = 5 * MIB};
}

static void test_first_stage_of_zero_1(void)
{
    const zm_model model = tiny(true);
    const zs_job job = small_job();
    zp_memory_rule rule;
    zp_memory_rule_build(&rule, &model, T, ZS_FP32);
    const int64_t params = WTE + WPE + 2 * BLOCK;
    const zp_memory_place place = {.kind = ZP_FIRST,
                                   .n_blocks = 2,
                                   .zero_stage = 1,
                                   .in_flight = 3,
                                   .n_ranks = 2,
                                   .samples = 2,
                                   .shard = {500, 1000}};
    zs_memory m;
    zp_memory_of_rank(&m, &rule, &place, &job);
    CHECK(m.weights_bytes == 4 * params, "%" PRId64, m.weights_bytes);
    CHECK(m.gradients_bytes == 4 * (params + 1000), "own and summed: %" PRId64, m.gradients_bytes);
    CHECK(m.optimizer_bytes == 8 * 1000, "%" PRId64, m.optimizer_bytes);
    /* 3 in flight: what two blocks keep, the output and the token ids */
    CHECK(m.activations_bytes ==
              2 * 4 * T * (3 * (2 * (int64_t)BLOCK_FLOATS + C + 1) + SCRATCH_FLOATS),
          "%" PRId64, m.activations_bytes);
    CHECK(m.logits_bytes == 0, "%" PRId64, m.logits_bytes);
    CHECK(m.communication_bytes == 3 * 2 * 4 * T * C, "%" PRId64, m.communication_bytes);
    CHECK(m.context_bytes == 3 * MIB && m.reserve_bytes == 5 * MIB, "context and reserve");
}

static void test_tied_copy_is_on_the_last_stage_only(void)
{
    const zs_job job = small_job();
    zp_memory_place place = {
        .n_blocks = 1, .zero_stage = 1, .in_flight = 1, .n_ranks = 1, .shard = {0, 7}};
    zs_memory m;
    for (int tied = 0; tied < 2; tied++) {
        const zm_model model = tiny(tied);
        const int64_t head = HEAD + (tied ? 0 : WTE);
        zp_memory_rule rule;
        zp_memory_rule_build(&rule, &model, T, ZS_FP32);

        place.kind = ZP_LAST; /* the matrix is there in any case: owned or a copy */
        zp_memory_of_rank(&m, &rule, &place, &job);
        CHECK(m.weights_bytes == 4 * (BLOCK + HEAD + WTE), "tied %d: %" PRId64, tied,
              m.weights_bytes);
        CHECK(m.gradients_bytes == m.weights_bytes, "tied %d", tied);
        CHECK(m.optimizer_bytes == 8 * 7, "tied %d: %" PRId64, tied, m.optimizer_bytes);

        place.kind = ZP_SINGLE;
        zp_memory_of_rank(&m, &rule, &place, &job);
        CHECK(m.weights_bytes == 4 * (WTE + WPE + BLOCK + head), "tied %d: %" PRId64, tied,
              m.weights_bytes);
        CHECK(m.gradients_bytes == m.weights_bytes, "alone, nothing is summed: tied %d", tied);

        place.kind = ZP_FIRST; /* the shared matrix is summed with the copy's gradients */
        zp_memory_of_rank(&m, &rule, &place, &job);
        CHECK(m.gradients_bytes == m.weights_bytes + (tied ? 4 * 7 : 0), "tied %d: %" PRId64, tied,
              m.gradients_bytes);
    }
}

static void test_zero_3_and_bf16(void)
{
    const zm_model model = tiny(true);
    const zs_job job = small_job();
    zp_memory_rule rule;
    zp_memory_rule_build(&rule, &model, T, ZS_BF16);
    const zp_memory_place place = {.kind = ZP_MIDDLE,
                                   .n_blocks = 2,
                                   .zero_stage = 3,
                                   .in_flight = 1,
                                   .n_ranks = 4,
                                   .shard = {0, 500}};
    zs_memory m;
    zp_memory_of_rank(&m, &rule, &place, &job);
    CHECK(m.weights_bytes == 2 * 500, "%" PRId64, m.weights_bytes);
    CHECK(m.gradients_bytes == 2 * (500 + BLOCK), "%" PRId64, m.gradients_bytes);
    CHECK(m.optimizer_bytes == 12 * 500, "%" PRId64, m.optimizer_bytes);
    CHECK(m.communication_bytes == 2 * 2 * BLOCK, "two gathered blocks: %" PRId64,
          m.communication_bytes);
}

/* One rank is the whole stage: the same bytes at every level. */
static void test_alone(void)
{
    const zm_model model = tiny(true);
    const zs_job job = small_job();
    zp_memory_rule rule;
    zp_memory_rule_build(&rule, &model, T, ZS_FP32);
    for (int kind = 0; kind < ZP_N_KINDS; kind++) {
        zs_memory m[4];
        for (int level = 1; level <= 3; level++) {
            const zp_memory_place place = {.kind = (zp_kind)kind,
                                           .n_blocks = 2,
                                           .zero_stage = level,
                                           .in_flight = 2,
                                           .n_ranks = 1,
                                           .samples = 3,
                                           .shard = {0, 2 * BLOCK}};
            zp_memory_of_rank(&m[level], &rule, &place, &job);
            CHECK(memcmp(&m[level], &m[1], sizeof m[1]) == 0, "kind %d, level %d", kind, level);
        }
    }
}

static void test_recompute_keeps_inputs_and_one_block(void)
{
    const zm_model model = tiny(true);
    const zs_job job = small_job();
    zp_memory_rule rule;
    zp_memory_rule_build(&rule, &model, T, ZS_FP32);
    const zp_memory_place place = {.kind = ZP_MIDDLE,
                                   .n_blocks = 3,
                                   .zero_stage = 1,
                                   .recompute = true,
                                   .in_flight = 2,
                                   .samples = 5};
    zs_memory m;
    zp_memory_of_rank(&m, &rule, &place, &job);
    CHECK(m.activations_bytes ==
              5 * 4 * T * (2 * (3 * C + C) + (int64_t)BLOCK_FLOATS + SCRATCH_FLOATS),
          "%" PRId64, m.activations_bytes);
}

/* 4 samples of 1024 tokens over 128256 words, fp32: no less than the logits themselves, and the
 * last of the stages 1, 2, 2, 3 holds three blocks, final norm and head. */
static void test_logits_of_a_large_vocabulary(void)
{
    zm_model model = tiny(false);
    model.n_vocab = 128256;
    model.n_positions = 1024;
    model.n_blocks = 8;
    const zs_job job = small_job();
    zp_memory_rule rule;
    zp_memory_rule_build(&rule, &model, 1024, ZS_FP32);
    const zp_memory_place place = {
        .kind = ZP_LAST, .n_blocks = 3, .zero_stage = 1, .in_flight = 1, .samples = 4};
    zs_memory m;
    zp_memory_of_rank(&m, &rule, &place, &job);
    CHECK(m.logits_bytes >= INT64_C(2101346304), "%" PRId64, m.logits_bytes);
    CHECK(m.logits_bytes < INT64_C(2101346304) * 11 / 10, "%" PRId64, m.logits_bytes);
    CHECK(m.weights_bytes == 4 * (3 * BLOCK + 2 * C + INT64_C(128256) * C), "%" PRId64,
          m.weights_bytes);

    model.n_vocab = 50257;
    zp_memory_rule_build(&rule, &model, 1024, ZS_FP32);
    CHECK(64 * rule.logits_bytes >= INT64_C(13174571008), "64 samples: %" PRId64,
          64 * rule.logits_bytes);
}

/* Whatever the place, the bytes of a rank are at most what the problem's rule charges: repl +
 * z shard + b act, context and reserve. */
static void check_problem_covers_bytes(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    zm_model model = tiny(check_rng_int(&rng, 0, 1));
    model.n_blocks = (int)check_rng_int(&rng, 2, 30);
    model.n_vocab = (int)check_rng_int(&rng, 2, 300000);
    zp_memory_rule rule;
    zp_problem p = {0};
    zp_memory_rule_build(&rule, &model, (int)check_rng_int(&rng, 1, MAX_T),
                         check_rng_int(&rng, 0, 1) ? ZS_BF16 : ZS_FP32);
    zp_memory_fill_problem(&p, &rule);

    zp_memory_place place = {.kind = (zp_kind)check_rng_int(&rng, 0, ZP_N_KINDS - 1),
                             .n_blocks = (int)check_rng_int(&rng, 1, model.n_blocks),
                             .zero_stage = (int)check_rng_int(&rng, 1, 3),
                             .recompute = check_rng_int(&rng, 0, 1),
                             .in_flight = (int)check_rng_int(&rng, 1, 9),
                             .n_ranks = (int)check_rng_int(&rng, 1, 3),
                             .samples = (int)check_rng_int(&rng, 0, 50)};
    int64_t params = place.n_blocks * rule.part_params[ZP_PART_BLOCK];
    if (place.kind != ZP_MIDDLE)
        params += rule.part_params[place.kind == ZP_FIRST  ? ZP_PART_FIRST
                                   : place.kind == ZP_LAST ? ZP_PART_LAST
                                                           : ZP_PART_SINGLE];
    place.shard.first = check_rng_int(&rng, 0, params);
    place.shard.count = check_rng_int(&rng, 0, params - place.shard.first);
    if (place.n_ranks == 1)
        place.shard = (zs_shard){0, params};
    const zs_job job = small_job();
    zs_memory m;
    zp_memory_of_rank(&m, &rule, &place, &job);

    const double z = (double)place.shard.count / (double)params;
    const bool has_head = place.kind == ZP_LAST || place.kind == ZP_SINGLE;
    const double act_gib =
        place.in_flight *
            (place.n_blocks * (place.recompute ? p.act_ckpt_gib : p.act_gib) + p.output_gib) +
        (place.recompute ? p.act_gib : 0) + (has_head ? p.logits_gib : 0) + p.workspace_gib;
    const double rule_gib =
        zp_problem_repl_gib(&p, place.zero_stage, place.kind, place.n_blocks) +
        z * zp_problem_shard_gib(&p, place.zero_stage, place.kind, place.n_blocks) +
        place.samples * act_gib;
    const double bytes = (double)(m.weights_bytes + m.gradients_bytes + m.optimizer_bytes +
                                  m.activations_bytes + m.logits_bytes + m.communication_bytes);
    CHECK(bytes <= rule_gib * 1073741824.0 + 1, "seed %" PRIu64 ": %.1f bytes, rule %.1f", seed,
          bytes, rule_gib * 1073741824.0);
    /* and no looser than it says: buffers that a kind does not need, ids of one end only, and the
     * gradients summed or of one layer of a rank that is alone */
    const double slack =
        place.samples *
            (3.0 * (double)rule.boundary_bytes + place.in_flight * 2.0 * (double)rule.ids_bytes) +
        (place.n_ranks == 1
             ? (double)(rule.state.gradients *
                        (place.shard.count + rule.layer_params[ZP_PART_BLOCK] +
                         rule.layer_params[ZP_PART_SINGLE] + rule.layer_params[ZP_PART_LAST]))
             : 0);
    CHECK(place.zero_stage == 3 || bytes >= rule_gib * 1073741824.0 - slack - 1,
          "seed %" PRIu64 ": %.1f bytes, rule %.1f", seed, bytes, rule_gib * 1073741824.0);
}

static void test_usable(void)
{
    const zs_job job = small_job();
    CHECK(zp_memory_usable_bytes(8 * MIB, &job) == 0, "nothing left");
    CHECK(zp_memory_usable_bytes(7 * MIB, &job) == 0, "less than nothing");
    const int64_t usable = zp_memory_usable_bytes(100 * MIB, &job);
    CHECK(usable <= 92 * MIB && usable > 91 * MIB, "%" PRId64, usable);
}

int main(void)
{
    test_first_stage_of_zero_1();
    test_tied_copy_is_on_the_last_stage_only();
    test_zero_3_and_bf16();
    test_alone();
    test_recompute_keeps_inputs_and_one_block();
    test_logits_of_a_large_vocabulary();
    test_usable();
    check_seeds(check_problem_covers_bytes, 1, 2000);
    return check_done();
}
