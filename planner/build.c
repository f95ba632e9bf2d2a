#include "planner/build.h"

#include <math.h>
#include <string.h>

static const double BYTES_PER_GIB = 1073741824.0;

int zp_build_max_micro_batch(const zs_job *job)
{
    if (job->max_micro_batch > 0 && job->max_micro_batch < job->global_batch)
        return job->max_micro_batch;
    return (int)job->global_batch;
}

void zp_build_micro_batches(int *out, int64_t global_batch, int n_micro_batches)
{
    const int64_t base = global_batch / n_micro_batches;
    const int64_t n_larger = global_batch % n_micro_batches;
    for (int i = 0; i < n_micro_batches; i++)
        out[i] = (int)(base + (i < n_larger ? 1 : 0));
}

static bool same_device(const zs_device *a, const zs_device *b)
{
    return strcmp(a->type, b->type) == 0 && a->memory_bytes == b->memory_bytes;
}

static int n_like(const zs_node *node, const zs_device *device)
{
    int n = 0;
    for (int gpu = 0; gpu < node->n_devices; gpu++)
        n += same_device(&node->devices[gpu], device);
    return n;
}

/* Do a GPU of node a and a GPU of node b belong to one class? */
static bool same_class(const zs_node *a, const zs_device *in_a, const zs_node *b,
                       const zs_device *in_b)
{
    return same_device(in_a, in_b) && a->n_devices == b->n_devices &&
           n_like(a, in_a) == n_like(b, in_b) && a->intra_bytes_per_s == b->intra_bytes_per_s &&
           a->intra_latency_ms == b->intra_latency_ms && a->nic_bytes_per_s == b->nic_bytes_per_s &&
           a->nic_latency_ms == b->nic_latency_ms;
}

static int find_class(const zp_built *built, const zs_cluster *cluster, int node, int gpu)
{
    for (int k = 0; k < built->problem.n_classes; k++) {
        const zp_device_ref *first = &built->classes[k].devices[0];
        const zs_node *other = &cluster->nodes[first->node];
        if (same_class(other, &other->devices[first->gpu], &cluster->nodes[node],
                       &cluster->nodes[node].devices[gpu]))
            return k;
    }
    return -1;
}

static bool fill_class(zp_built *built, zs_arena *arena, int k, const zs_cluster *cluster,
                       const zs_job *job, const zs_profile *profile, zs_error *err)
{
    zp_class_devices *devices = &built->classes[k];
    const zs_node *node = &cluster->nodes[devices->devices[0].node];
    const zs_device *device = &node->devices[devices->devices[0].gpu];
    if (!zp_layer_times_build(&devices->times, arena, profile, device->type, job->precision,
                              job->seq_len, zp_build_max_micro_batch(job), err))
        return false;

    const int per_node = n_like(node, device);
    devices->memory_bytes = device->memory_bytes;
    built->problem.classes[k] = (zp_class){
        .gpu = device->type,
        .n_nodes = devices->n / per_node,
        .gpus_per_node = per_node,
        .memory_gib = (double)zp_memory_usable_bytes(device->memory_bytes, job) / BYTES_PER_GIB,
        .intra_gib_per_s = node->intra_bytes_per_s / BYTES_PER_GIB,
        /* A NIC is shared by all GPUs of the node, also those of other types. */
        .nic_gib_per_s = node->nic_bytes_per_s / BYTES_PER_GIB * per_node / node->n_devices,
        .intra_latency_ms = node->intra_latency_ms,
        .nic_latency_ms = node->nic_latency_ms,
        .send_latency_ms = node->nic_latency_ms,
        .b_max = devices->times.b_max,
        .forward_ms = devices->times.block_forward_ms,
        .backward_ms = devices->times.block_backward_ms,
        .embed_ms = devices->times.embedding_ms,
        .head_ms = devices->times.head_ms,
    };
    return true;
}

static bool build_classes(zp_built *built, zs_arena *arena, const zs_cluster *cluster,
                          zs_error *err)
{
    const int n_devices = zs_cluster_n_devices(cluster);
    built->class_of = ZS_NEW(arena, int, n_devices, err);
    built->first_device = ZS_NEW(arena, int, cluster->n_nodes, err);
    if (!built->class_of || !built->first_device)
        return false;
    int index = 0;
    for (int node = 0; node < cluster->n_nodes; node++) {
        built->first_device[node] = index;
        for (int gpu = 0; gpu < cluster->nodes[node].n_devices; gpu++, index++) {
            int k = find_class(built, cluster, node, gpu);
            if (k < 0) {
                k = built->problem.n_classes;
                if (k == ZP_MAX_CLASSES)
                    return ZS_FAIL(err, ZS_ERR_INPUT,
                                   "cluster: more than %d kinds of GPU and node; \"%s\" of %s is "
                                   "one too many",
                                   ZP_MAX_CLASSES, cluster->nodes[node].devices[gpu].type,
                                   cluster->nodes[node].name);
                built->classes[k].devices = ZS_NEW(arena, zp_device_ref, n_devices, err);
                if (!built->classes[k].devices)
                    return false;
                built->problem.n_classes++;
            }
            zp_class_devices *devices = &built->classes[k];
            devices->devices[devices->n++] = (zp_device_ref){node, gpu};
            built->class_of[index] = k;
        }
    }
    return true;
}

/* All (u, m) in which u is the smallest that needs no more than m micro-batches, and some GPUs
 * together can take u samples. */
static bool build_batchings(zp_problem *problem, zs_arena *arena, const zs_job *job, zs_error *err)
{
    int64_t most = 0; /* samples that all GPUs together are offered */
    for (int k = 0; k < problem->n_classes; k++) {
        const zp_class *class = &problem->classes[k];
        most += (int64_t) class->n_nodes * class->gpus_per_node * class->b_max;
    }
    const int64_t batch = job->global_batch;
    const int64_t u_max =
        zp_build_max_micro_batch(job) < most ? zp_build_max_micro_batch(job) : most;
    /* Distinct values of ceil(B / u) are fewer than 2 sqrt(B) + 1. */
    zp_batching *batchings =
        ZS_NEW(arena, zp_batching, (int64_t)(2 * sqrt((double)batch)) + 2, err);
    if (!batchings)
        return false;
    int n = 0;
    int64_t u = 1;
    while (u <= u_max) {
        const int64_t m = (batch + u - 1) / u;
        batchings[n++] = (zp_batching){.micro_batch = (int)u, .n_micro_batches = (int)m};
        if (m == 1)
            break;
        u = (batch + m - 2) / (m - 1); /* the smallest u with fewer micro-batches */
    }
    problem->n_batchings = n;
    problem->batchings = batchings;
    return true;
}

static bool check_precision(const zs_cluster *cluster, const zs_job *job, zs_error *err)
{
    if (job->precision != ZS_BF16)
        return true;
    for (int node = 0; node < cluster->n_nodes; node++) {
        for (int gpu = 0; gpu < cluster->nodes[node].n_devices; gpu++) {
            const zs_device *device = &cluster->nodes[node].devices[gpu];
            if (device->compute_capability < 80)
                return ZS_FAIL(err, ZS_ERR_INPUT,
                               "precision bf16 needs compute capability 8.0, but %s (GPU %d of %s) "
                               "has %d.%d; use --precision fp32 or leave the GPU out",
                               device->type, gpu, cluster->nodes[node].name,
                               device->compute_capability / 10, device->compute_capability % 10);
        }
    }
    return true;
}

static bool set_stages(zp_problem *problem, const zs_cluster *cluster, const zm_model *model,
                       const zs_job *job, zs_error *err)
{
    const int n_devices = zs_cluster_n_devices(cluster);
    problem->min_stages = 1;
    problem->max_stages = model->n_blocks < n_devices ? model->n_blocks : n_devices;
    if (job->n_stages == 0)
        return true;
    if (job->n_stages > model->n_blocks)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%d stages asked for, but model %s has %d blocks and a stage needs at least "
                       "one",
                       job->n_stages, model->name, model->n_blocks);
    if (job->n_stages > n_devices)
        return ZS_FAIL(
            err, ZS_ERR_INPUT,
            "%d stages asked for, but the cluster has %d GPUs and a stage needs at least "
            "one",
            job->n_stages, n_devices);
    problem->min_stages = problem->max_stages = job->n_stages;
    return true;
}

bool zp_build(zp_built *out, zs_arena *arena, const zs_cluster *cluster, const zm_model *model,
              const zs_job *job, const zs_profile *profile, zs_error *err)
{
    *out = (zp_built){0};
    zp_problem *problem = &out->problem;
    if (!zm_model_check_seq_len(model, job->seq_len, err) || !check_precision(cluster, job, err) ||
        !set_stages(problem, cluster, model, job, err) || !build_classes(out, arena, cluster, err))
        return false;
    for (int k = 0; k < problem->n_classes; k++) {
        if (!fill_class(out, arena, k, cluster, job, profile, err))
            return false;
    }
    zp_memory_rule_build(&out->memory, model, job->seq_len, job->precision);
    zp_memory_fill_problem(problem, &out->memory);
    for (int level = 1; level <= 3; level++)
        problem->zero[level].allowed = job->zero_stages[level];
    problem->n_blocks = model->n_blocks;
    problem->overlap_zero = job->overlap_zero;
    problem->overlap_send = job->overlap_send;
    problem->recompute_none = job->recompute != ZS_RECOMPUTE_FULL;
    problem->recompute_full = job->recompute != ZS_RECOMPUTE_NONE;
    problem->max_gpus_per_stage = job->max_gpus_per_stage;
    return build_batchings(problem, arena, job, err);
}

int zp_built_class_of(const zp_built *built, int node, int gpu)
{
    return built->class_of[built->first_device[node] + gpu];
}
