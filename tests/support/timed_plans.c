#include "tests/support/timed_plans.h"

#include "models/layers.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_SAMPLES = 64, SEQ_LEN = 8 };

static void *must(void *pointer)
{
    if (!pointer) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return pointer;
}

check_timing check_timing_free(const double *forward_ms, const double *backward_ms)
{
    return (check_timing){.ranks_per_node = 1,
                          .intra_bytes_per_s = INFINITY,
                          .nic_bytes_per_s = INFINITY,
                          .forward_ms = forward_ms,
                          .backward_ms = backward_ms};
}

static const char *type_of(zs_arena *arena, const check_timing *timing, int stage)
{
    return timing->gpu ? timing->gpu : must(zs_arena_printf(arena, NULL, "gpu %d", stage));
}

static void build_cluster(zs_plan *plan, zs_arena *arena, const check_timing *timing)
{
    const int n_ranks = zs_plan_n_ranks(plan);
    const int per_node = timing->ranks_per_node > 0 ? timing->ranks_per_node : n_ranks;
    zs_cluster *cluster = &plan->cluster;
    cluster->name = "timed";
    cluster->n_nodes = (n_ranks + per_node - 1) / per_node;
    cluster->nodes = must(ZS_NEW(arena, zs_node, cluster->n_nodes, NULL));
    for (int node = 0; node < cluster->n_nodes; node++)
        cluster->nodes[node] = (zs_node){.name = must(zs_arena_printf(arena, NULL, "node%d", node)),
                                         .site = "",
                                         .devices = must(ZS_NEW(arena, zs_device, per_node, NULL)),
                                         .intra_bytes_per_s = timing->intra_bytes_per_s,
                                         .intra_latency_ms = timing->intra_latency_ms,
                                         .nic_bytes_per_s = timing->nic_bytes_per_s,
                                         .nic_latency_ms = timing->nic_latency_ms};
    int rank = 0;
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_ranks; i++, rank++) {
            zs_node *node = &cluster->nodes[rank / per_node];
            plan->stages[s].ranks[i].node = rank / per_node;
            plan->stages[s].ranks[i].gpu = node->n_devices;
            node->devices[node->n_devices++] =
                (zs_device){.type = type_of(arena, timing, s), .memory_bytes = INT64_C(1) << 40};
        }
}

static void add_entry(zs_profile *profile, zs_arena *arena, const char *type, zs_layer_kind kind,
                      double forward_ms, double backward_ms, double per_sample)
{
    zs_profile_entry *entry = &profile->entries[profile->n_entries++];
    *entry = (zs_profile_entry){.device_type = type,
                                .kind = kind,
                                .precision = ZS_FP32,
                                .seq_len = SEQ_LEN,
                                .n_points = MAX_SAMPLES,
                                .points = must(ZS_NEW(arena, zs_profile_point, MAX_SAMPLES, NULL))};
    for (int b = 1; b <= MAX_SAMPLES; b++) {
        const double scale = 1 + per_sample * (b - 1);
        entry->points[b - 1] = (zs_profile_point){
            .samples = b, .forward_ms = scale * forward_ms, .backward_ms = scale * backward_ms};
    }
}

static void build_profile(zs_plan *plan, zs_arena *arena, const check_timing *timing)
{
    const int n_types = timing->gpu ? 1 : plan->n_stages;
    zs_profile *profile = &plan->profile;
    profile->n_entries = 0;
    profile->entries =
        must(ZS_NEW(arena, zs_profile_entry, (int64_t)n_types * ZS_N_LAYER_KINDS, NULL));
    for (int s = 0; s < n_types; s++) {
        const char *type = type_of(arena, timing, s);
        add_entry(profile, arena, type, ZS_LAYER_EMBEDDING, 0, 0, 0);
        add_entry(profile, arena, type, ZS_LAYER_BLOCK, timing->forward_ms[s],
                  timing->backward_ms[s], timing->per_sample);
        add_entry(profile, arena, type, ZS_LAYER_HEAD, 0, 0, 0);
    }
}

zm_model check_time_plan(zs_plan *plan, zs_arena *arena, const check_timing *timing)
{
    const zm_model model = {.name = "timed",
                            .family = ZM_GPT2,
                            .n_blocks = plan->n_blocks,
                            .n_channels = 4,
                            .n_heads = 2,
                            .n_kv_heads = 2,
                            .n_ffn = 16,
                            .n_vocab = 32,
                            .n_positions = SEQ_LEN,
                            .tied = timing->tied};
    zs_error err;
    build_cluster(plan, arena, timing);
    build_profile(plan, arena, timing);
    plan->job.seq_len = SEQ_LEN;
    plan->job.precision = ZS_FP32;
    plan->job.overlap_zero = 0.5;
    for (int s = 0; s < plan->n_stages; s++) {
        zs_plan_stage *stage = &plan->stages[s];
        stage->n_params = zm_stage_n_params(&model, stage->forward.first, stage->forward.end);
        double *weights = must(ZS_NEW(arena, double, stage->n_ranks, NULL));
        zs_shard *shards = must(ZS_NEW(arena, zs_shard, stage->n_ranks, NULL));
        for (int i = 0; i < stage->n_ranks; i++)
            weights[i] = 1.0 / stage->n_ranks;
        if (!zs_shards_divide(shards, weights, stage->n_ranks, stage->n_params, &err)) {
            zs_error_print(stderr, "check_time_plan", &err);
            exit(1);
        }
        for (int i = 0; i < stage->n_ranks; i++)
            stage->ranks[i].shard = shards[i];
    }
    return model;
}
