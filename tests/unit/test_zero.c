#include "executor/zero.h"

#include "tests/support/check.h"
#include "tests/support/run_plans.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_RANKS = 8, MAX_PARAMS = 4096 };

static zs_error err;

typedef struct map {
    bool takes_part;
    zx_segment segment;
    int ranks[MAX_RANKS];
    int64_t counts[MAX_RANKS], displacements[MAX_RANKS];
} map;

static void make_map(map *m, const zs_plan *plan, const zm_model *model, int rank,
                     zx_segment_kind kind)
{
    m->takes_part =
        zx_zero_map(&m->segment, m->ranks, plan, model, rank, kind, m->counts, m->displacements);
}

static bool load_model(zm_model *model, zs_arena *arena, const zs_plan *plan)
{
    return CHECK(zm_model_parse(model, arena, plan->model, plan->model_name, &err), "%s",
                 err.message);
}

/* Two stages, V 8, C 4: the first has the embedding's 32 elements, then the positions and a block,
 * 4 * 4 + 12 * 16 + 13 * 4 = 260: 292 in all. */
static void test_two_stages(void)
{
    zs_arena *arena;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    const check_run_plan d = {.model = {.n_blocks = 2,
                                        .n_channels = 4,
                                        .n_heads = 1,
                                        .n_vocab = 8,
                                        .n_positions = 4,
                                        .tied = true},
                              .samples = "1+1+0|2",
                              .micro_batches = "2",
                              .shards = "10+63+219|1",
                              .seq_len = 4};
    const zs_plan plan = check_run_plan_build(arena, &d);
    zm_model model;
    map m;
    if (!load_model(&model, arena, &plan))
        return;
    CHECK(plan.stages[0].n_params == 292, "%" PRId64, plan.stages[0].n_params);
    make_map(&m, &plan, &model, 1, ZX_SEGMENT_TIED);
    CHECK(m.takes_part && m.segment.n_ranks == 4 && m.segment.first == 0, "%d ranks",
          m.segment.n_ranks);
    const int64_t tied[] = {10, 22, 0, 0}, own[] = {0, 41, 219};
    CHECK(memcmp(m.counts, tied, sizeof tied) == 0, "%" PRId64 " %" PRId64, m.counts[0],
          m.counts[1]);
    CHECK(m.segment.owned.first == 10 && m.segment.owned.count == 22, "[%" PRId64 ", +%" PRId64 ")",
          m.segment.owned.first, m.segment.owned.count);
    make_map(&m, &plan, &model, 1, ZX_SEGMENT_OWN);
    CHECK(m.segment.n_ranks == 3 && m.segment.first == 32, "%d ranks", m.segment.n_ranks);
    CHECK(memcmp(m.counts, own, sizeof own) == 0, "%" PRId64 " %" PRId64, m.counts[0], m.counts[1]);
    CHECK(m.segment.owned.first == 32 && m.segment.owned.count == 41, "%" PRId64,
          m.segment.owned.first);
    make_map(&m, &plan, &model, 3, ZX_SEGMENT_TIED);
    CHECK(m.takes_part && m.segment.first == plan.stages[1].n_params && m.segment.owned.count == 0,
          "copy at %" PRId64, m.segment.first);
    zs_arena_close(&arena);
}

/* Every element of every stage has one owner in one segment; all ranks of a segment have equal
 * tables; owned parts are in the plan's shard. */
static void check_owners(uint64_t seed)
{
    zs_arena *arena;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    check_rng rng = check_rng_from(seed);
    const check_model small = {.n_blocks = 4,
                               .n_channels = 4,
                               .n_heads = 1,
                               .n_vocab = 13,
                               .n_positions = 4,
                               .tied = check_rng_int(&rng, 0, 1)};
    const check_run_plan d = check_rng_run_plan(&rng, arena, &small, 4, 6, MAX_RANKS);
    const zs_plan plan = check_run_plan_build(arena, &d);
    zm_model model;
    if (!load_model(&model, arena, &plan))
        return;
    static int owners[4][MAX_PARAMS];
    memset(owners, 0, sizeof owners);
    map firsts[ZX_N_SEGMENTS][4]; /* of the lowest rank of a stage that takes part */
    memset(firsts, 0, sizeof firsts);
    for (int rank = 0; rank < zs_plan_n_ranks(&plan); rank++)
        for (int kind = 0; kind < ZX_N_SEGMENTS; kind++) {
            const int stage = zs_plan_stage_of(&plan, rank);
            map m;
            make_map(&m, &plan, &model, rank, (zx_segment_kind)kind);
            if (!m.takes_part)
                continue;
            map *first = &firsts[kind][kind == ZX_SEGMENT_TIED ? 0 : stage];
            if (!first->takes_part)
                *first = m;
            const size_t n = (size_t)m.segment.n_ranks;
            CHECK(first->segment.n_ranks == m.segment.n_ranks &&
                      memcmp(first->ranks, m.ranks, n * sizeof m.ranks[0]) == 0 &&
                      memcmp(first->counts, m.counts, n * sizeof m.counts[0]) == 0,
                  "seed %" PRIu64 ": rank %d has another table", seed, rank);
            const zs_shard owned = m.segment.owned;
            const zs_shard shard = zs_plan_rank_at(&plan, rank)->shard;
            CHECK(owned.count == 0 || (owned.first >= shard.first &&
                                       owned.first + owned.count <= shard.first + shard.count),
                  "seed %" PRIu64 ": rank %d owns outside its shard", seed, rank);
            for (int64_t i = 0; i < owned.count; i++)
                owners[stage][owned.first + i]++;
        }
    for (int stage = 0; stage < plan.n_stages; stage++)
        for (int64_t i = 0; i < plan.stages[stage].n_params; i++)
            CHECK(owners[stage][i] == 1,
                  "seed %" PRIu64 ": stage %d, element %" PRId64 " has %d owners", seed, stage, i,
                  owners[stage][i]);
    zs_arena_close(&arena);
}

/* Shards 10+63+219 of 292: the embedding [0, 48) and a block [48, 292), whose middle is one rank's.
 */
static void test_ranges(void)
{
    zs_arena *arena;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    const check_run_plan d = {.model = {.n_blocks = 2,
                                        .n_channels = 4,
                                        .n_heads = 1,
                                        .n_vocab = 8,
                                        .n_positions = 4,
                                        .tied = true},
                              .samples = "1+1+0|2",
                              .micro_batches = "2",
                              .shards = "10+63+219|1",
                              .zero = "3|1",
                              .seq_len = 4};
    const zs_plan plan = check_run_plan_build(arena, &d);
    map m;
    static const int64_t counts[2][3] = {{10, 38, 0}, {0, 25, 219}};
    static const int64_t displacements[2][3] = {{0, 10, 48}, {0, 0, 25}};
    static const int64_t firsts[3] = {0, 48, 292};
    for (int k = 0; k < 2; k++)
        for (int rank = 0; rank < 3; rank++) {
            zx_zero_map_range(&m.segment, &plan, rank, firsts[k], firsts[k + 1] - firsts[k],
                              m.counts, m.displacements);
            CHECK(m.segment.n_ranks == 3 && m.segment.index == rank, "%d", m.segment.index);
            CHECK(memcmp(m.counts, counts[k], sizeof counts[k]) == 0 &&
                      memcmp(m.displacements, displacements[k], sizeof displacements[k]) == 0,
                  "layer %d, rank %d: %" PRId64 " %" PRId64 " %" PRId64, k, rank, m.counts[0],
                  m.counts[1], m.counts[2]);
            CHECK(m.segment.owned.count == counts[k][rank] &&
                      m.segment.owned.first == firsts[k] + displacements[k][rank],
                  "layer %d, rank %d owns [%" PRId64 ", +%" PRId64 ")", k, rank,
                  m.segment.owned.first, m.segment.owned.count);
        }
    zs_arena_close(&arena);
}

int main(void)
{
    test_two_stages();
    test_ranges();
    check_seeds(check_owners, 1, 40);
    return check_done();
}
