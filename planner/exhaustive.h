/* The reference for small problems: tries every division of the individual GPUs among stages, every
 * division of blocks, every ZeRO level, recompute choice and division of samples, with the formulas
 * of problem.h written out once more. Knows nothing of patterns or programs. The number of
 * assignments grows faster than exponentially: meant for half a dozen GPUs. */
#ifndef PLANNER_EXHAUSTIVE_H
#define PLANNER_EXHAUSTIVE_H

#include "planner/problem.h"

enum { ZP_EXHAUSTIVE_MAX_GPUS = 10 };

/* best_ms[i] is the least step time over all assignments for batchings[i], infinity where none is
 * feasible. ZS_ERR_INPUT when there are more GPUs than the limit. */
ZS_MUST_CHECK bool zp_exhaustive(double *best_ms, const zp_problem *problem, zs_error *err);

#endif
