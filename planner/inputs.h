/* What a plan is made from: cluster, model, job, profile, from options and a job file. */
#ifndef PLANNER_INPUTS_H
#define PLANNER_INPUTS_H

#include "models/model.h"
#include "shared/cluster.h"
#include "shared/job.h"
#include "shared/options.h"
#include "shared/profile.h"

typedef struct zp_inputs {
    zs_cluster cluster;
    zm_model model;
    zs_job job;
    zs_profile profile; /* estimated when none was given */
} zp_inputs;

/* Reads the files that the options of `zplan solve` name. A job file comes first, options override
 * it; the paths in it are relative to its folder. Without a profile one is estimated and a warning
 * is logged. In arena. */
ZS_MUST_CHECK bool zp_inputs_load(zp_inputs *out, zs_arena *arena, const zs_options *options,
                                  zs_error *err);

/* The same from a job file alone. */
ZS_MUST_CHECK bool zp_inputs_load_job(zp_inputs *out, zs_arena *arena, const char *path,
                                      zs_error *err);

#endif
