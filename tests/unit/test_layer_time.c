#include "planner/layer_time.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One GPU type with the same points for block and head; the embedding takes 1 ms at every size. */
typedef struct table {
    zs_profile_point points[4];
    zs_profile_point embedding[2];
    zs_profile_entry entries[3];
    zs_profile profile;
} table;

static void fill(table *t, int n_points, const zs_profile_point *points)
{
    memcpy(t->points, points, (size_t)n_points * sizeof points[0]);
    t->embedding[0] = (zs_profile_point){.samples = 1, .forward_ms = 0.5, .backward_ms = 0.5};
    t->embedding[1] = (zs_profile_point){.samples = 100, .forward_ms = 0.5, .backward_ms = 0.5};
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
        const bool embedding = kind == ZS_LAYER_EMBEDDING;
        t->entries[kind] = (zs_profile_entry){.device_type = "F",
                                              .kind = (zs_layer_kind)kind,
                                              .precision = ZS_FP32,
                                              .seq_len = 64,
                                              .n_points = embedding ? 2 : n_points,
                                              .points = embedding ? t->embedding : t->points};
    }
    t->profile = (zs_profile){.model = "m", .source = "", .n_entries = 3, .entries = t->entries};
}

/* 10, 18 and 66 ms at 1, 2 and 8 samples, out of memory at 16: 4 samples take 34 ms. */
static void test_interpolates_inside_only(zs_arena *arena)
{
    const zs_profile_point points[] = {
        {1, false, 4, 6}, {2, false, 8, 10}, {8, false, 30, 36}, {16, true, 0, 0}};
    table t;
    zp_layer_times times;
    zs_error err;
    fill(&t, 4, points);
    if (!CHECK(zp_layer_times_build(&times, arena, &t.profile, "F", ZS_FP32, 64, 32, &err), "%s",
               err.message))
        return;
    CHECK(times.b_max == 8, "%d", times.b_max);
    CHECK_NEAR(times.block_forward_ms[4] + times.block_backward_ms[4], 34, 1e-12);
    CHECK_NEAR(times.head_ms[4], 34, 1e-12);
    CHECK_NEAR(times.embedding_ms[4], 1, 1e-12);
    CHECK_NEAR(times.block_forward_ms[2], 8, 0);
    CHECK_NEAR(times.block_backward_ms[8], 36, 0);
    CHECK(times.block_forward_ms[0] == 0 && times.block_backward_ms[0] == 0, "nothing takes 0");
    CHECK(times.interpolated[4] && !times.interpolated[0], "marks");

    CHECK(zp_layer_times_build(&times, arena, &t.profile, "F", ZS_FP32, 64, 5, &err) &&
              times.b_max == 5,
          "limited to 5");
}

static void test_one_point_offers_one_size(zs_arena *arena)
{
    const zs_profile_point points[] = {{2, false, 4, 6}};
    table t;
    zp_layer_times times;
    zs_error err;
    fill(&t, 1, points);
    if (CHECK(zp_layer_times_build(&times, arena, &t.profile, "F", ZS_FP32, 64, 32, &err), "%s",
              err.message)) {
        CHECK(times.b_max == 2, "%d", times.b_max);
        CHECK(isinf(times.block_forward_ms[1]), "1 sample is not offered");
    }
    CHECK_FAILS(zp_layer_times_build(&times, arena, &t.profile, "F", ZS_FP32, 64, 1, &err), &err,
                ZS_ERR_INPUT, "no size of 1..1 samples");
}

/* 10, 9, 20 is accepted; what lies between stays between its neighbours. */
static void test_noise(zs_arena *arena)
{
    const zs_profile_point points[] = {{1, false, 5, 5}, {2, false, 4.5, 4.5}, {4, false, 10, 10}};
    table t;
    zp_layer_times times;
    zs_error err;
    fill(&t, 3, points);
    if (CHECK(zp_layer_times_build(&times, arena, &t.profile, "F", ZS_FP32, 64, 32, &err), "%s",
              err.message))
        CHECK_NEAR(times.block_forward_ms[3] + times.block_backward_ms[3], 14.5, 1e-12);
}

static void test_missing(zs_arena *arena)
{
    const zs_profile_point points[] = {{1, false, 5, 5}};
    table t;
    zp_layer_times times;
    zs_error err;
    fill(&t, 1, points);
    CHECK_FAILS(zp_layer_times_build(&times, arena, &t.profile, "S-12", ZS_FP32, 64, 8, &err), &err,
                ZS_ERR_INPUT, "GPU type S-12");
    CHECK_FAILS(zp_layer_times_build(&times, arena, &t.profile, "F", ZS_BF16, 64, 8, &err), &err,
                ZS_ERR_INPUT, "in bf16 at sequence length 64 (there are some in fp32 at 64)");
    CHECK_FAILS(zp_layer_times_build(&times, arena, &t.profile, "F", ZS_FP32, 128, 8, &err), &err,
                ZS_ERR_INPUT, "sequence length 128");
}

int main(void)
{
    zs_arena *arena = NULL;
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_interpolates_inside_only(arena);
    test_one_point_offers_one_size(arena);
    test_noise(arena);
    test_missing(arena);
    zs_arena_close(&arena);
    return check_done();
}
