#include "tests/support/run_plans.h"

#include "models/layers.h"
#include "tests/support/files.h"

#include <stdlib.h>
#include <string.h>

static const char gpu_type[] = "T4";

static void must(bool ok, const zs_error *err)
{
    if (!ok) {
        fprintf(stderr, "run_plans: %s\n", err->message);
        exit(1);
    }
}

/* Numbers between "|" and "+", in order. */
static int read_numbers(double *out, int max, const char *text)
{
    int n = 0;
    while (n < max && *text) {
        char *end;
        out[n++] = strtod(text, &end);
        text = *end ? end + 1 : end;
    }
    return n;
}

static const zs_json *model_json(zs_arena *arena, const check_model *m)
{
    static const char *const activations[ZM_N_FAMILIES] = {
        [ZM_GPT2] = "gelu_new", [ZM_OPT] = "relu", [ZM_LLAMA] = "silu"};
    zs_error err;
    const zs_json *root;
    const char *text = zs_arena_printf(
        arena, &err,
        "{\"format\":\"zplan-model\",\"version\":1,\"family\":\"%s\",\"n_blocks\":%d,"
        "\"n_channels\":%d,\"n_heads\":%d,\"n_kv_heads\":%d,\"n_ffn\":%d,\"n_vocab\":%d,"
        "\"n_positions\":%d,\"activation\":\"%s\",\"norm_eps\":1e-05,\"tied\":%s,"
        "\"dropout\":0}",
        zm_family_names[m->family], m->n_blocks, m->n_channels, m->n_heads,
        m->n_kv_heads > 0 ? m->n_kv_heads : m->n_heads, 4 * m->n_channels, m->n_vocab,
        m->n_positions, activations[m->family], m->tied ? "true" : "false");
    must(text != NULL, &err);
    must(zs_json_parse(&root, arena, text, strlen(text), "small model", &err), &err);
    return root;
}

static void set_cluster(zs_plan *plan, zs_arena *arena)
{
    zs_error err;
    const char *line = zs_arena_printf(arena, &err, "1x(%dx%s)", zs_plan_n_ranks(plan), gpu_type);
    must(line != NULL, &err);
    must(zs_cluster_parse_line(&plan->cluster, arena, line, &err), &err);
}

static void set_profile(zs_plan *plan, zs_arena *arena)
{
    zs_error err;
    zs_profile *p = &plan->profile;
    *p = (zs_profile){.model = "small", .estimated = true, .source = "made up", .n_entries = 3};
    p->entries = ZS_NEW(arena, zs_profile_entry, p->n_entries, &err);
    must(p->entries != NULL, &err);
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
        zs_profile_entry *e = &p->entries[kind];
        *e = (zs_profile_entry){.device_type = gpu_type,
                                .kind = (zs_layer_kind)kind,
                                .precision = ZS_FP32,
                                .seq_len = plan->job.seq_len,
                                .n_points = 1};
        e->points = ZS_NEW(arena, zs_profile_point, 1, &err);
        must(e->points != NULL, &err);
        e->points[0] = (zs_profile_point){.samples = 1, .forward_ms = 1, .backward_ms = 2};
    }
}

static void set_blocks(zs_plan *plan, const check_run_plan *d)
{
    double counts[64];
    const int S = plan->n_stages;
    for (int s = 0; s < S; s++)
        counts[s] = (s + 1) * d->model.n_blocks / S - s * d->model.n_blocks / S;
    if (d->blocks)
        read_numbers(counts, S, d->blocks);
    int first = 0;
    for (int s = 0; s < S; s++) {
        plan->stages[s].forward = (zs_range){first, first + (int)counts[s]};
        plan->stages[s].backward = plan->stages[s].forward;
        first += (int)counts[s];
    }
    plan->n_blocks = d->model.n_blocks;
}

static void set_shards(zs_plan *plan, zs_arena *arena, const check_run_plan *d)
{
    zs_error err;
    zm_model model;
    must(zm_model_parse(&model, arena, plan->model, "small", &err), &err);
    double weights[64];
    const int n_ranks = zs_plan_n_ranks(plan);
    for (int rank = 0; rank < n_ranks; rank++)
        weights[rank] = 1;
    if (d->shards)
        read_numbers(weights, n_ranks, d->shards);
    for (int s = 0; s < plan->n_stages; s++) {
        zs_plan_stage *stage = &plan->stages[s];
        zs_shard shards[64];
        double *w = weights + zs_plan_first_rank(plan, s), sum = 0;
        for (int i = 0; i < stage->n_ranks; i++)
            sum += w[i];
        for (int i = 0; i < stage->n_ranks; i++)
            w[i] /= sum;
        stage->n_params = zm_stage_n_params(&model, stage->forward.first, stage->forward.end);
        must(zs_shards_divide(shards, w, stage->n_ranks, stage->n_params, &err), &err);
        for (int i = 0; i < stage->n_ranks; i++)
            stage->ranks[i].shard = shards[i];
    }
}

zs_plan check_run_plan_build(zs_arena *arena, const check_run_plan *d)
{
    zs_error err;
    zs_plan plan = check_plan(arena, d->samples, d->micro_batches, d->schedule);
    const int64_t global_batch = plan.job.global_batch;
    zs_job_set_defaults(&plan.job);
    plan.job.global_batch = global_batch;
    plan.job.seq_len = d->seq_len;
    plan.model = model_json(arena, &d->model);
    plan.model_name = "small";
    plan.certificate =
        (zs_certificate){.status = "feasible", .gap = 1, .searched = "by hand", .solver = ""};
    set_cluster(&plan, arena);
    set_profile(&plan, arena);
    set_blocks(&plan, d);
    set_shards(&plan, arena, d);
    double recompute[64] = {0}, levels[64] = {0};
    if (d->recompute)
        read_numbers(recompute, plan.n_stages, d->recompute);
    if (d->zero)
        read_numbers(levels, plan.n_stages, d->zero);
    for (int s = 0, rank = 0; s < plan.n_stages; s++) {
        plan.stages[s].recompute = recompute[s] != 0;
        plan.stages[s].zero_stage = d->zero ? (int)levels[s] : 1;
        for (int i = 0; i < plan.stages[s].n_ranks; i++, rank++)
            plan.stages[s].ranks[i].gpu = rank;
    }
    must(zs_plan_check(&plan, &err), &err);
    return plan;
}

const char *check_run_plan_save(const char *name, const check_run_plan *description)
{
    zs_error err;
    zs_arena *arena;
    must(zs_arena_open(&arena, &err), &err);
    const zs_plan plan = check_run_plan_build(arena, description);
    const char *path = check_path(name);
    must(zs_plan_save(&plan, path, &err), &err);
    zs_arena_close(&arena);
    return path;
}

/* Appends a number and what stands before it. */
static const char *append(zs_arena *arena, const char *text, const char *before, int number)
{
    zs_error err;
    const char *result = zs_arena_printf(arena, &err, "%s%s%d", text, before, number);
    must(result != NULL, &err);
    return result;
}

static const char *join(zs_arena *arena, const char *left, const char *right)
{
    zs_error err;
    const char *result = zs_arena_printf(arena, &err, "%s+%s", left, right);
    must(result != NULL, &err);
    return result;
}

check_run_plan check_rng_run_plan(check_rng *rng, zs_arena *arena, const check_model *model,
                                  int seq_len, int global_batch, int max_ranks)
{
    check_run_plan d = {.model = *model,
                        .seq_len = seq_len,
                        .schedule = (zs_schedule_kind)check_rng_int(rng, 0, ZS_N_SCHEDULES - 1),
                        .samples = "",
                        .micro_batches = "",
                        .blocks = "",
                        .shards = "",
                        .recompute = "",
                        .zero = ""};
    const int planned = (int)check_rng_int(rng, 1, global_batch);
    /* The largest stands first or last. */
    for (int left = global_batch, first = 1; left > 0; first = 0) {
        int n = first ? planned : (int)check_rng_int(rng, (planned + 1) / 2, planned);
        n = n < left ? n : left;
        const char *number = append(arena, "", "", n), *others = d.micro_batches;
        d.micro_batches =
            first ? number
                  : join(arena, planned % 2 ? others : number, planned % 2 ? number : others);
        left -= n;
    }
    const int most_stages = model->n_blocks < 4 ? model->n_blocks : 4;
    const int n_stages =
        (int)check_rng_int(rng, 1, most_stages < max_ranks ? most_stages : max_ranks);
    int ranks_left = max_ranks, blocks_left = model->n_blocks;
    for (int s = 0; s < n_stages; s++) {
        const int behind = n_stages - s - 1;
        const int most_ranks = ranks_left - behind < 4 ? ranks_left - behind : 4;
        const int n_ranks = (int)check_rng_int(rng, 1, most_ranks);
        const int n_blocks =
            behind ? (int)check_rng_int(rng, 1, blocks_left - behind) : blocks_left;
        int samples[4] = {0}, weights[4];
        for (int k = 0; k < planned; k++)
            samples[check_rng_int(rng, 0, n_ranks - 1)]++;
        for (int i = 0; i < n_ranks; i++)
            weights[i] = check_rng_int(rng, 0, 2) ? (int)check_rng_int(rng, 1, 100) : 0;
        weights[check_rng_int(rng, 0, n_ranks - 1)] += 1;
        for (int i = 0; i < n_ranks; i++) {
            const char *before = i ? "+" : s ? "|" : "";
            d.samples = append(arena, d.samples, before, samples[i]);
            d.shards = append(arena, d.shards, before, weights[i]);
        }
        d.blocks = append(arena, d.blocks, s ? "|" : "", n_blocks);
        d.recompute = append(arena, d.recompute, s ? "|" : "", (int)check_rng_int(rng, 0, 1));
        d.zero = append(arena, d.zero, s ? "|" : "", (int)check_rng_int(rng, 1, 3));
        ranks_left -= n_ranks;
        blocks_left -= n_blocks;
    }
    return d;
}

const char *check_run_plan_text(zs_arena *arena, const check_run_plan *d)
{
    zs_error err;
    const char *text = zs_arena_printf(
        arena, &err,
        "%s, samples %s, micro-batches %s, blocks %s, shards %s, recompute %s, ZeRO "
        "%s, %s, %s",
        zm_family_names[d->model.family], d->samples, d->micro_batches,
        d->blocks ? d->blocks : "even", d->shards ? d->shards : "even",
        d->recompute ? d->recompute : "none", d->zero ? d->zero : "1",
        zs_schedule_names[d->schedule], d->model.tied ? "tied" : "untied");
    must(text != NULL, &err);
    return text;
}

const char *check_random_tokens(const char *name, uint64_t seed, int64_t n, int n_vocab)
{
    check_rng rng = check_rng_from(seed);
    int *ids = malloc((size_t)n * sizeof *ids);
    if (!ids)
        exit(1);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int)check_rng_int(&rng, 0, n_vocab - 1);
    const char *path = check_write_tokens(name, ids, n);
    free(ids);
    return path;
}
