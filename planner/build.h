/* Inputs -> assignment problem: classes of equal GPUs, tables of layer times, memory constants and
 * the candidate batchings; and which devices stand behind each class. */
#ifndef PLANNER_BUILD_H
#define PLANNER_BUILD_H

#include "planner/layer_time.h"
#include "planner/memory.h"
#include "planner/problem.h"

typedef struct zp_device_ref {
    int node, gpu; /* into the cluster */
} zp_device_ref;

/* A class is GPU type, memory and kind of node (links, GPUs of each type). */
typedef struct zp_class_devices {
    int n;                  /* n_nodes * gpus_per_node */
    zp_device_ref *devices; /* node by node, ascending */
    int64_t memory_bytes;   /* of the device, before context and reserve */
    zp_layer_times times;
} zp_class_devices;

typedef struct zp_built {
    zp_problem problem;
    zp_memory_rule memory;
    zp_class_devices classes[ZP_MAX_CLASSES];
    int *class_of;     /* by device, node after node */
    int *first_device; /* by node: index into class_of of its first device */
} zp_built;

/* cluster, model, job and profile must stay valid as long as *out. Checks what needs more than one
 * of them: bf16 on GPUs without it, sequence length beyond the model's positions, more stages than
 * blocks or GPUs, GPU types that the profile lacks. In arena. */
ZS_MUST_CHECK bool zp_build(zp_built *out, zs_arena *arena, const zs_cluster *cluster,
                            const zm_model *model, const zs_job *job, const zs_profile *profile,
                            zs_error *err);

int zp_built_class_of(const zp_built *built, int node, int gpu);

/* The largest micro-batch that the job allows. */
int zp_build_max_micro_batch(const zs_job *job);

/* Balanced sizes of m micro-batches, the largest first: 10 in 4 is 3, 3, 2, 2. */
void zp_build_micro_batches(int *out, int64_t global_batch, int n_micro_batches);

#endif
