#include "shared/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { MAX_BLOCKS = 65536, MAX_BATCH = 1048576, MAX_RANKS = ZS_CLUSTER_MAX_DEVICES };

static const int64_t max_int = (INT64_C(1) << 53) - 1; /* what a JSON number holds exactly */
static const double max_ms = 1e15;

static const char *const plan_keys[] = {"format",         "version",       "inputs",
                                        "schedule",       "micro_batches", "stages",
                                        "unused_devices", "predicted",     "certificate"};
static const char *const input_keys[] = {"cluster", "model_name", "model", "job", "profile"};
static const char *const stage_keys[] = {"forward",  "backward", "zero_stage",     "recompute",
                                         "n_params", "ranks",    "micro_batch_ms", "sync_ms"};
static const char *const rank_keys[] = {
    "node",       "gpu",     "device",       "device_memory", "device_memory_bytes", "uuid",
    "pci_bus_id", "samples", "interpolated", "shard",         "memory_bytes"};
static const char *const unused_keys[] = {
    "node", "gpu",        "device", "device_memory", "device_memory_bytes",
    "uuid", "pci_bus_id", "reason"};
static const char *const shard_keys[] = {"first", "count"};
static const char *const memory_keys[] = {
#define TERM(name) #name "_bytes",
    ZS_MEMORY_TERMS(TERM)
#undef TERM
        "total_bytes"};
static const char *const predicted_keys[] = {"step_ms", "simulated_step_ms", "bubble_share"};
static const char *const certificate_keys[] = {
    "status", "objective_ms", "lower_bound_ms", "gap", "searched", "solver", "n_solves", "n_nodes"};
static const char *const recompute_names[] = {"none", "full"};

/* What parsing carries along: the plan so far, and its nodes sorted by name. */
typedef struct reader {
    zs_plan plan;
    zs_arena *arena;
    const zs_node **nodes;
} reader;

static int compare_nodes(const void *a, const void *b)
{
    return strcmp((*(const zs_node *const *)a)->name, (*(const zs_node *const *)b)->name);
}

static bool sort_nodes(reader *r, zs_error *err)
{
    const int n = r->plan.cluster.n_nodes;
    r->nodes = ZS_NEW(r->arena, const zs_node *, n, err);
    if (!r->nodes)
        return false;
    for (int i = 0; i < n; i++)
        r->nodes[i] = &r->plan.cluster.nodes[i];
    qsort(r->nodes, (size_t)n, sizeof *r->nodes, compare_nodes);
    return true;
}

static bool find_node(int *out, const reader *r, const zs_json *object, zs_error *err)
{
    const char *name = NULL;
    if (!zs_json_get_string(&name, object, "node", err))
        return false;
    const zs_node key = {.name = name}, *key_at = &key;
    const zs_node **found = bsearch(&key_at, r->nodes, (size_t)r->plan.cluster.n_nodes,
                                    sizeof *r->nodes, compare_nodes);
    if (!found)
        return zs_json_fail(zs_json_find(object, "node"), err,
                            "\"%s\" is no node of $.inputs.cluster", name);
    *out = (int)(*found - r->plan.cluster.nodes);
    return true;
}

/* Resolves one identity ("uuid" or "pci_bus_id") if it is given: *gpu becomes the device that has
 * it, and must not contradict what another identity said. */
static bool find_identity(int *gpu, const zs_node *node, const zs_json *object, const char *key,
                          zs_error *err)
{
    const char *text = NULL;
    if (!zs_json_opt_string(&text, object, key, err))
        return false;
    if (!text)
        return true;
    for (int i = 0; i < node->n_devices; i++) {
        const char *has =
            strcmp(key, "uuid") == 0 ? node->devices[i].uuid : node->devices[i].pci_bus_id;
        if (!has || strcmp(has, text) != 0)
            continue;
        if (*gpu >= 0 && *gpu != i)
            return zs_json_fail(
                zs_json_find(object, key), err,
                "\"%s\" is device %d of node \"%s\", but the uuid is that of device "
                "%d",
                text, i, node->name, *gpu);
        *gpu = i;
        return true;
    }
    return zs_json_fail(zs_json_find(object, key), err,
                        "\"%s\" is no device of node \"%s\" in $.inputs.cluster", text, node->name);
}

/* node and gpu of an object that names a device: by uuid or PCI bus id when given, else by index;
 * whatever else it says of the device must agree with the cluster. */
static bool parse_device(int *node_out, int *gpu_out, const reader *r, const zs_json *object,
                         zs_error *err)
{
    int node_index = 0, gpu = -1;
    if (!find_node(&node_index, r, object, err))
        return false;
    const zs_node *node = &r->plan.cluster.nodes[node_index];
    if (!find_identity(&gpu, node, object, "uuid", err) ||
        !find_identity(&gpu, node, object, "pci_bus_id", err))
        return false;
    if (gpu < 0 || zs_json_find(object, "gpu")) {
        int64_t index = 0;
        if (!zs_json_get_int(&index, object, "gpu", 0, node->n_devices - 1, err))
            return false;
        if (gpu >= 0 && index != gpu)
            return zs_json_fail(zs_json_find(object, "gpu"), err,
                                "%d, but the device named here is device %d of node \"%s\"",
                                (int)index, gpu, node->name);
        gpu = (int)index;
    }
    const zs_device *device = &node->devices[gpu];
    const char *type = NULL;
    int64_t memory_bytes = device->memory_bytes;
    if (!zs_json_opt_string(&type, object, "device", err) ||
        !zs_json_opt_bytes(&memory_bytes, object, "device_memory", err))
        return false;
    const zs_gpu *known = type ? zs_gpus_find(type) : NULL;
    if (type && strcmp(known ? known->type : type, device->type) != 0)
        return zs_json_fail(zs_json_find(object, "device"), err,
                            "\"%s\", but device %d of node \"%s\" is a %s", type, gpu, node->name,
                            device->type);
    if (memory_bytes != device->memory_bytes)
        return zs_json_fail(object, err,
                            "device memory of %" PRId64 " bytes, but device %d of node \"%s\" has "
                            "%" PRId64,
                            memory_bytes, gpu, node->name, device->memory_bytes);
    *node_out = node_index;
    *gpu_out = gpu;
    return true;
}

static bool parse_memory(zs_memory *out, const zs_json *rank, zs_error *err)
{
    const zs_json *object = zs_json_find(rank, "memory_bytes");
    if (!object)
        return true;
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, memory_keys, COUNT(memory_keys), err))
        return false;
#define TERM(name)                                                                                 \
    if (!zs_json_opt_int(&out->name##_bytes, object, #name "_bytes", 0, max_int / 16, err))        \
        return false;
    ZS_MEMORY_TERMS(TERM)
#undef TERM
    int64_t total = zs_memory_total(out);
    const int64_t sum = total;
    if (!zs_json_opt_int(&total, object, "total_bytes", 0, max_int, err))
        return false;
    if (total != sum)
        return zs_json_fail(zs_json_find(object, "total_bytes"), err,
                            "%" PRId64 ", expected %" PRId64 ", the sum of the others", total, sum);
    return true;
}

static bool parse_rank(zs_plan_rank *out, const reader *r, const zs_json *object, zs_error *err)
{
    const zs_json *shard = NULL;
    int64_t samples = 0;
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, rank_keys, COUNT(rank_keys), err) ||
        !parse_device(&out->node, &out->gpu, r, object, err) ||
        !zs_json_get_int(&samples, object, "samples", 0, MAX_BATCH, err) ||
        !zs_json_opt_bool(&out->interpolated, object, "interpolated", err) ||
        !zs_json_get(&shard, object, "shard", err) || !zs_json_is_object(shard, err) ||
        !zs_json_only_keys(shard, shard_keys, COUNT(shard_keys), err) ||
        !zs_json_get_int(&out->shard.first, shard, "first", 0, max_int, err) ||
        !zs_json_get_int(&out->shard.count, shard, "count", 0, max_int, err) ||
        !parse_memory(&out->memory, object, err))
        return false;
    out->samples = (int)samples;
    return true;
}

static bool parse_range(zs_range *out, const zs_json *value, zs_error *err)
{
    int n = 0;
    int64_t first = 0, end = 0;
    if (!zs_json_is_array(&n, value, 2, 2, err) ||
        !zs_json_int(&first, zs_json_item(value, 0), 0, MAX_BLOCKS, err) ||
        !zs_json_int(&end, zs_json_item(value, 1), 0, MAX_BLOCKS, err))
        return false;
    *out = (zs_range){(int)first, (int)end};
    return true;
}

static bool parse_stage(zs_plan_stage *out, const reader *r, const zs_json *object, zs_error *err)
{
    const zs_json *forward = NULL, *ranks = NULL;
    int64_t zero_stage = 0;
    int recompute = 0;
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, stage_keys, COUNT(stage_keys), err) ||
        !zs_json_get(&forward, object, "forward", err) ||
        !parse_range(&out->forward, forward, err) ||
        !zs_json_get_int(&zero_stage, object, "zero_stage", 1, 3, err) ||
        !zs_json_opt_choice(&recompute, object, "recompute", recompute_names,
                            COUNT(recompute_names), err) ||
        !zs_json_get_int(&out->n_params, object, "n_params", 1, max_int, err) ||
        !zs_json_opt_double(&out->micro_batch_ms, object, "micro_batch_ms", 0, max_ms, err) ||
        !zs_json_opt_double(&out->sync_ms, object, "sync_ms", 0, max_ms, err) ||
        !zs_json_get(&ranks, object, "ranks", err) ||
        !zs_json_is_array(&out->n_ranks, ranks, 1, MAX_RANKS, err))
        return false;
    out->backward = out->forward;
    const zs_json *backward = zs_json_find(object, "backward");
    if (backward && !parse_range(&out->backward, backward, err))
        return false;
    out->zero_stage = (int)zero_stage;
    out->recompute = recompute != 0;
    out->ranks = ZS_NEW(r->arena, zs_plan_rank, out->n_ranks, err);
    if (!out->ranks)
        return false;
    for (int i = 0; i < out->n_ranks; i++)
        if (!parse_rank(&out->ranks[i], r, zs_json_item(ranks, i), err))
            return false;
    return true;
}

static bool parse_inputs(reader *r, const zs_json *root, zs_error *err)
{
    const zs_json *inputs = NULL, *cluster = NULL, *job = NULL, *profile = NULL, *model = NULL;
    const char *model_name = NULL;
    int64_t n_blocks = 0;
    if (!zs_json_get(&inputs, root, "inputs", err) || !zs_json_is_object(inputs, err) ||
        !zs_json_only_keys(inputs, input_keys, COUNT(input_keys), err) ||
        !zs_json_get(&cluster, inputs, "cluster", err) ||
        !zs_cluster_parse(&r->plan.cluster, r->arena, cluster, err) || !sort_nodes(r, err) ||
        !zs_json_get_string(&model_name, inputs, "model_name", err) ||
        !zs_json_get(&model, inputs, "model", err) || !zs_json_is_object(model, err) ||
        !zs_json_get_int(&n_blocks, model, "n_blocks", 1, MAX_BLOCKS, err) ||
        !zs_json_get(&job, inputs, "job", err))
        return false;
    zs_job_set_defaults(&r->plan.job);
    if (!zs_job_parse(&r->plan.job, NULL, NULL, NULL, job, err) ||
        !zs_json_get(&profile, inputs, "profile", err) ||
        !zs_profile_parse(&r->plan.profile, r->arena, profile, err))
        return false;
    r->plan.model = model;
    r->plan.n_blocks = (int)n_blocks;
    r->plan.model_name = zs_arena_strdup(r->arena, model_name, err);
    return r->plan.model_name != NULL;
}

static bool parse_micro_batches(reader *r, const zs_json *root, zs_error *err)
{
    const zs_json *list = NULL;
    zs_plan *plan = &r->plan;
    if (!zs_json_get(&list, root, "micro_batches", err) ||
        !zs_json_is_array(&plan->n_micro_batches, list, 1, MAX_BATCH, err))
        return false;
    plan->micro_batches = ZS_NEW(r->arena, int, plan->n_micro_batches, err);
    if (!plan->micro_batches)
        return false;
    for (int j = 0; j < plan->n_micro_batches; j++) {
        int64_t samples = 0;
        if (!zs_json_int(&samples, zs_json_item(list, j), 1, MAX_BATCH, err))
            return false;
        plan->micro_batches[j] = (int)samples;
    }
    return true;
}

static bool parse_stages(reader *r, const zs_json *root, zs_error *err)
{
    const zs_json *list = NULL;
    zs_plan *plan = &r->plan;
    if (!zs_json_get(&list, root, "stages", err) ||
        !zs_json_is_array(&plan->n_stages, list, 1, MAX_BLOCKS, err))
        return false;
    plan->stages = ZS_NEW(r->arena, zs_plan_stage, plan->n_stages, err);
    if (!plan->stages)
        return false;
    for (int s = 0; s < plan->n_stages; s++)
        if (!parse_stage(&plan->stages[s], r, zs_json_item(list, s), err))
            return false;
    return true;
}

static bool parse_unused(reader *r, const zs_json *root, zs_error *err)
{
    const zs_json *list = zs_json_find(root, "unused_devices");
    zs_plan *plan = &r->plan;
    if (!list)
        return true;
    if (!zs_json_is_array(&plan->n_unused, list, 0, MAX_RANKS, err))
        return false;
    plan->unused = ZS_NEW(r->arena, zs_plan_unused, plan->n_unused, err);
    if (!plan->unused)
        return false;
    for (int i = 0; i < plan->n_unused; i++) {
        const zs_json *object = zs_json_item(list, i);
        const char *reason = "";
        if (!zs_json_is_object(object, err) ||
            !zs_json_only_keys(object, unused_keys, COUNT(unused_keys), err) ||
            !parse_device(&plan->unused[i].node, &plan->unused[i].gpu, r, object, err) ||
            !zs_json_opt_string(&reason, object, "reason", err))
            return false;
        plan->unused[i].reason = zs_arena_strdup(r->arena, reason, err);
        if (!plan->unused[i].reason)
            return false;
    }
    return true;
}

static bool parse_predicted(reader *r, const zs_json *root, zs_error *err)
{
    const zs_json *object = zs_json_find(root, "predicted");
    return !object ||
           (zs_json_is_object(object, err) &&
            zs_json_only_keys(object, predicted_keys, COUNT(predicted_keys), err) &&
            zs_json_opt_double(&r->plan.step_ms, object, "step_ms", 0, max_ms, err) &&
            zs_json_opt_double(&r->plan.simulated_step_ms, object, "simulated_step_ms", 0, max_ms,
                               err) &&
            zs_json_opt_double(&r->plan.bubble_share, object, "bubble_share", 0, 1, err));
}

static bool parse_certificate(reader *r, const zs_json *root, zs_error *err)
{
    const zs_json *object = zs_json_find(root, "certificate");
    zs_certificate c = {.gap = 1, .searched = "", .solver = ""};
    int status = ZS_PLAN_N_STATUSES - 1;
    if (object) {
        if (!zs_json_is_object(object, err) ||
            !zs_json_only_keys(object, certificate_keys, COUNT(certificate_keys), err) ||
            !zs_json_get_choice(&status, object, "status", zs_plan_status_names, ZS_PLAN_N_STATUSES,
                                err) ||
            !zs_json_opt_double(&c.objective_ms, object, "objective_ms", 0, max_ms, err) ||
            !zs_json_opt_double(&c.lower_bound_ms, object, "lower_bound_ms", 0, max_ms, err) ||
            !zs_json_opt_double(&c.gap, object, "gap", 0, 1, err) ||
            !zs_json_opt_string(&c.searched, object, "searched", err) ||
            !zs_json_opt_string(&c.solver, object, "solver", err) ||
            !zs_json_opt_int(&c.n_solves, object, "n_solves", 0, max_int, err) ||
            !zs_json_opt_int(&c.n_nodes, object, "n_nodes", 0, max_int, err))
            return false;
    }
    c.status = zs_plan_status_names[status];
    c.searched = zs_arena_strdup(r->arena, c.searched, err);
    c.solver = zs_arena_strdup(r->arena, c.solver, err);
    if (!c.searched || !c.solver)
        return false;
    r->plan.certificate = c;
    return true;
}

bool zs_plan_parse(zs_plan *out, zs_arena *arena, const zs_json *root, zs_error *err)
{
    reader r = {.arena = arena};
    int schedule = 0;
    if (!zs_json_check_format(root, ZS_PLAN_FORMAT, ZS_PLAN_VERSION, err) ||
        !zs_json_only_keys(root, plan_keys, COUNT(plan_keys), err) ||
        !parse_inputs(&r, root, err) ||
        !zs_json_get_choice(&schedule, root, "schedule", zs_schedule_names, ZS_N_SCHEDULES, err) ||
        !parse_micro_batches(&r, root, err) || !parse_stages(&r, root, err) ||
        !parse_unused(&r, root, err) || !parse_predicted(&r, root, err) ||
        !parse_certificate(&r, root, err))
        return false;
    r.plan.schedule = (zs_schedule_kind)schedule;
    if (!zs_plan_check(&r.plan, err))
        return zs_error_prefix(err, "%s", zs_json_document(root));
    *out = r.plan;
    return true;
}

bool zs_plan_load(zs_plan *out, zs_arena *arena, const char *path, zs_error *err)
{
    const zs_json *root = NULL;
    return zs_json_load(&root, arena, path, err) && zs_plan_parse(out, arena, root, err);
}

static void write_device(zs_json_writer *w, const zs_plan *plan, int node, int gpu)
{
    const zs_device *device = &plan->cluster.nodes[node].devices[gpu];
    zs_json_put_string(w, "node", plan->cluster.nodes[node].name);
    zs_json_put_int(w, "gpu", gpu);
    zs_json_put_string(w, "device", device->type);
    zs_json_put_int(w, "device_memory_bytes", device->memory_bytes);
    if (device->uuid)
        zs_json_put_string(w, "uuid", device->uuid);
    if (device->pci_bus_id)
        zs_json_put_string(w, "pci_bus_id", device->pci_bus_id);
}

static void write_rank(zs_json_writer *w, const zs_plan *plan, const zs_plan_rank *rank)
{
    zs_json_begin_object(w, NULL);
    write_device(w, plan, rank->node, rank->gpu);
    zs_json_put_int(w, "samples", rank->samples);
    if (rank->interpolated)
        zs_json_put_bool(w, "interpolated", true);
    zs_json_begin_object(w, "shard");
    zs_json_put_int(w, "first", rank->shard.first);
    zs_json_put_int(w, "count", rank->shard.count);
    zs_json_end_object(w);
    zs_json_begin_object(w, "memory_bytes");
#define TERM(name) zs_json_put_int(w, #name "_bytes", rank->memory.name##_bytes);
    ZS_MEMORY_TERMS(TERM)
#undef TERM
    zs_json_put_int(w, "total_bytes", zs_memory_total(&rank->memory));
    zs_json_end_object(w);
    zs_json_end_object(w);
}

static void write_range(zs_json_writer *w, const char *key, zs_range range)
{
    zs_json_begin_array(w, key);
    zs_json_put_int(w, NULL, range.first);
    zs_json_put_int(w, NULL, range.end);
    zs_json_end_array(w);
}

static void write_stage(zs_json_writer *w, const zs_plan *plan, const zs_plan_stage *stage)
{
    zs_json_begin_object(w, NULL);
    write_range(w, "forward", stage->forward);
    write_range(w, "backward", stage->backward);
    zs_json_put_int(w, "zero_stage", stage->zero_stage);
    zs_json_put_string(w, "recompute", recompute_names[stage->recompute]);
    zs_json_put_int(w, "n_params", stage->n_params);
    zs_json_put_double(w, "micro_batch_ms", stage->micro_batch_ms);
    zs_json_put_double(w, "sync_ms", stage->sync_ms);
    zs_json_begin_array(w, "ranks");
    for (int i = 0; i < stage->n_ranks; i++)
        write_rank(w, plan, &stage->ranks[i]);
    zs_json_end_array(w);
    zs_json_end_object(w);
}

static void write_inputs(zs_json_writer *w, const zs_plan *plan)
{
    zs_json_begin_object(w, "inputs");
    zs_cluster_write(w, "cluster", &plan->cluster);
    zs_json_put_string(w, "model_name", plan->model_name);
    zs_json_put_value(w, "model", plan->model);
    zs_job_write(w, "job", &plan->job);
    zs_profile_write(w, "profile", &plan->profile);
    zs_json_end_object(w);
}

static void write_certificate(zs_json_writer *w, const zs_certificate *c)
{
    zs_json_begin_object(w, "certificate");
    zs_json_put_string(w, "status", c->status);
    zs_json_put_double(w, "objective_ms", c->objective_ms);
    zs_json_put_double(w, "lower_bound_ms", c->lower_bound_ms);
    zs_json_put_double(w, "gap", c->gap);
    zs_json_put_string(w, "searched", c->searched ? c->searched : "");
    zs_json_put_string(w, "solver", c->solver ? c->solver : "");
    zs_json_put_int(w, "n_solves", c->n_solves);
    zs_json_put_int(w, "n_nodes", c->n_nodes);
    zs_json_end_object(w);
}

bool zs_plan_write(zs_json_writer *w, const zs_plan *plan, zs_error *err)
{
    if (!plan->model || !plan->model_name)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "a plan without model cannot be written");
    zs_json_begin_object(w, NULL);
    zs_json_put_string(w, "format", ZS_PLAN_FORMAT);
    zs_json_put_int(w, "version", ZS_PLAN_VERSION);
    write_inputs(w, plan);
    zs_json_put_string(w, "schedule", zs_schedule_names[plan->schedule]);
    zs_json_begin_array(w, "micro_batches");
    for (int j = 0; j < plan->n_micro_batches; j++)
        zs_json_put_int(w, NULL, plan->micro_batches[j]);
    zs_json_end_array(w);
    zs_json_begin_array(w, "stages");
    for (int s = 0; s < plan->n_stages; s++)
        write_stage(w, plan, &plan->stages[s]);
    zs_json_end_array(w);
    zs_json_begin_array(w, "unused_devices");
    for (int i = 0; i < plan->n_unused; i++) {
        zs_json_begin_object(w, NULL);
        write_device(w, plan, plan->unused[i].node, plan->unused[i].gpu);
        zs_json_put_string(w, "reason", plan->unused[i].reason ? plan->unused[i].reason : "");
        zs_json_end_object(w);
    }
    zs_json_end_array(w);
    zs_json_begin_object(w, "predicted");
    zs_json_put_double(w, "step_ms", plan->step_ms);
    if (plan->simulated_step_ms > 0)
        zs_json_put_double(w, "simulated_step_ms", plan->simulated_step_ms);
    zs_json_put_double(w, "bubble_share", plan->bubble_share);
    zs_json_end_object(w);
    write_certificate(w, &plan->certificate);
    zs_json_end_object(w);
    return true;
}

bool zs_plan_save(const zs_plan *plan, const char *path, zs_error *err)
{
    zs_json_writer *w = NULL;
    if (!zs_json_writer_open(&w, err))
        return false;
    const bool ok = zs_plan_write(w, plan, err) && zs_json_writer_save(w, path, err);
    zs_json_writer_close(&w);
    return ok;
}
