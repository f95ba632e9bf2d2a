/* A profile from public GPU data instead of measurements: a roofline with an efficiency curve. Good
 * enough to plan a cluster before it is booked; a plan made from it says "estimated". */
#ifndef PLANNER_ESTIMATE_H
#define PLANNER_ESTIMATE_H

#include "models/model.h"
#include "shared/cluster.h"
#include "shared/profile.h"

/* Entries of every GPU type of the cluster for all layer kinds, for sizes 1, 2, 3, 4, 6, 8, 12, ...
 * and max_samples, as far as one block's activations and the logits fit the type's memory. A GPU
 * type that is not in gpus.h is ZS_ERR_INPUT, and so is bf16 on one that has none. In arena. */
ZS_MUST_CHECK bool zp_estimate(zs_profile *out, zs_arena *arena, const zs_cluster *cluster,
                               const zm_model *model, zs_precision precision, int seq_len,
                               int max_samples, zs_error *err);

/* ms of one layer on a GPU, forward or backward. */
double zp_estimate_layer_ms(const zs_gpu *gpu, const zm_model *model, zs_layer_kind kind,
                            bool backward, zs_precision precision, int seq_len, int samples);

#endif
