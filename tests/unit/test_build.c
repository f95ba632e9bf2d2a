#include "planner/build.h"
#include "planner/estimate.h"
#include "tests/support/check.h"

#include <math.h>
#include <string.h>

static zs_arena *arena;

typedef struct inputs {
    zs_cluster cluster;
    zm_model model;
    zs_job job;
    zs_profile profile;
} inputs;

static bool make(inputs *out, const char *line, const char *model, int64_t batch, zs_error *err)
{
    zs_job_set_defaults(&out->job);
    out->job.global_batch = batch;
    out->job.seq_len = 64;
    return zs_cluster_load(&out->cluster, arena, line, err) &&
           zm_model_load(&out->model, arena, model, err) &&
           zp_estimate(&out->profile, arena, &out->cluster, &out->model, ZS_FP32, 64,
                       zp_build_max_micro_batch(&out->job), err);
}

static bool build(zp_built *out, const inputs *in, zs_error *err)
{
    return zp_build(out, arena, &in->cluster, &in->model, &in->job, &in->profile, err);
}

static void test_classes(void)
{
    inputs in;
    zp_built built;
    zs_error err;
    if (!CHECK(make(&in, "2x(4xA100-80)+1x(2xRTX-3090+1xT4)+1x(4xA100-80)+1x(2xA100-80)", "tiny", 8,
                    &err) &&
                   build(&built, &in, &err),
               "%s", err.message))
        return;
    const zp_problem *p = &built.problem;
    zs_error check;
    CHECK(zp_problem_check(p, &check), "%s", check.message);
    if (!CHECK(p->n_classes == 4, "%d", p->n_classes))
        return;
    static const struct {
        const char *gpu;
        int n_nodes, per_node, node, device;
    } expected[] = {{"A100-80", 3, 4, 0, 0},
                    {"RTX-3090", 1, 2, 2, 0},
                    {"T4", 1, 1, 2, 2},
                    {"A100-80", 1, 2, 4, 0}};
    for (int k = 0; k < 4; k++) {
        CHECK_STRING(p->classes[k].gpu, expected[k].gpu);
        CHECK(p->classes[k].n_nodes == expected[k].n_nodes &&
                  p->classes[k].gpus_per_node == expected[k].per_node &&
                  built.classes[k].n == expected[k].n_nodes * expected[k].per_node,
              "class %d", k);
        CHECK(built.classes[k].devices[0].node == expected[k].node &&
                  built.classes[k].devices[0].gpu == expected[k].device,
              "class %d", k);
    }
    CHECK(built.classes[0].devices[8].node == 3 && built.classes[0].devices[8].gpu == 0,
          "third node of the first class");
    CHECK(zp_built_class_of(&built, 2, 1) == 1 && zp_built_class_of(&built, 2, 2) == 2 &&
              zp_built_class_of(&built, 3, 3) == 0 && zp_built_class_of(&built, 4, 1) == 3,
          "classes of devices");
    /* the NIC of the mixed node is shared by three GPUs */
    CHECK_NEAR(p->classes[1].nic_gib_per_s / 2, p->classes[2].nic_gib_per_s, 1e-12);
    CHECK(p->classes[0].memory_gib > 77.99 && p->classes[0].memory_gib <= 78, "%g",
          p->classes[0].memory_gib);
}

/* 10 samples, at most 3 at a time: 10 = 3+3+2+2 = 5 of 2 = 10 of 1. */
static void test_batchings(void)
{
    inputs in;
    zp_built built;
    zs_error err;
    if (!CHECK(make(&in, "1x(4xT4)", "tiny", 10, &err), "%s", err.message))
        return;
    in.job.max_micro_batch = 3;
    if (!CHECK(build(&built, &in, &err), "%s", err.message))
        return;
    static const zp_batching expected[] = {{1, 10}, {2, 5}, {3, 4}};
    CHECK(built.problem.n_batchings == 3, "%d", built.problem.n_batchings);
    for (int i = 0; i < 3 && i < built.problem.n_batchings; i++)
        CHECK(built.problem.batchings[i].micro_batch == expected[i].micro_batch &&
                  built.problem.batchings[i].n_micro_batches == expected[i].n_micro_batches,
              "%d", i);
    int sizes[4];
    zp_build_micro_batches(sizes, 10, 4);
    CHECK(sizes[0] == 3 && sizes[1] == 3 && sizes[2] == 2 && sizes[3] == 2, "3, 3, 2, 2");
}

static void check_batchings(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    const int64_t batch = check_rng_int(&rng, 1, 3000);
    inputs in;
    zp_built built;
    zs_error err;
    if (!CHECK(make(&in, "1x(4xT4)", "tiny", batch, &err), "%s", err.message))
        return;
    in.job.max_micro_batch = (int)check_rng_int(&rng, 0, 40);
    if (!CHECK(build(&built, &in, &err), "seed %d: %s", (int)seed, err.message))
        return;
    const zp_problem *p = &built.problem;
    const int limit = zp_build_max_micro_batch(&in.job);
    int n = 0; /* by trying every size */
    for (int u = 1; u <= limit; u++) {
        const int64_t m = (batch + u - 1) / u;
        if (u > 1 && (batch + u - 2) / (u - 1) == m)
            continue;
        if (u > 4 * p->classes[0].b_max)
            break;
        CHECK(n < p->n_batchings && p->batchings[n].micro_batch == u &&
                  p->batchings[n].n_micro_batches == m,
              "seed %d: batching %d", (int)seed, n);
        n++;
    }
    CHECK(n == p->n_batchings, "seed %d: %d of %d", (int)seed, n, p->n_batchings);
}

static void test_refusals(void)
{
    inputs in;
    zp_built built;
    zs_error err;
    if (!CHECK(make(&in, "1x(1xH100-80)+1x(1xV100-16)", "tiny", 4, &err), "%s", err.message))
        return;
    const inputs good = in;
    in.job.precision = ZS_BF16;
    CHECK_FAILS(build(&built, &in, &err), &err, ZS_ERR_INPUT, "V100-16");
    in = good;
    in.job.n_stages = 3;
    CHECK_FAILS(build(&built, &in, &err), &err, ZS_ERR_INPUT, "3 stages");
    in = good;
    in.job.n_stages = in.model.n_blocks + 1;
    CHECK_FAILS(build(&built, &in, &err), &err, ZS_ERR_INPUT, "blocks");
    in = good;
    in.job.seq_len = in.model.n_positions + 1;
    CHECK_FAILS(build(&built, &in, &err), &err, ZS_ERR_INPUT, "");
    in = good;
    in.profile.n_entries = 3; /* those of the H100 */
    CHECK_FAILS(build(&built, &in, &err), &err, ZS_ERR_INPUT, "GPU type V100-16");
}

int main(void)
{
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_classes();
    test_batchings();
    test_refusals();
    check_seeds(check_batchings, 1, 100);
    zs_arena_close(&arena);
    return check_done();
}
