/* Time and memory of a complete plan, computed anew from what the plan itself holds (cluster, job,
 * profile, model): used on the planner's own plans before they are written and on any plan that
 * someone edited or wrote by hand. */
#ifndef PLANNER_RECHECK_H
#define PLANNER_RECHECK_H

#include "models/model.h"
#include "planner/build.h"
#include "planner/evaluate.h"
#include "shared/plan.h"

typedef struct zp_recheck {
    zm_model model;
    zp_built built;
    zp_stage *stages; /* the plan's stages in the problem's terms */
    zp_cost cost;
    zs_memory *memory; /* by rank, stage after stage */
    double bubble_share;
} zp_recheck;

/* Fails with ZS_ERR_INPUT when the plan breaks a rule that zs_plan_check cannot see (parameter
 * counts, sequence length, precision, sizes that the profile does not offer, choices that the job
 * excludes) and with ZS_ERR_INFEASIBLE when a rank needs more memory than its GPU has: the message
 * gives rank, need, have, missing and the largest terms. The plan must have passed zs_plan_check.
 * In arena. */
ZS_MUST_CHECK bool zp_recheck_plan(zp_recheck *out, zs_arena *arena, const zs_plan *plan,
                                   zs_error *err);

/* Writes the computed times and memory into the plan's predictions; the certificate stays. */
void zp_recheck_fill(zs_plan *plan, const zp_recheck *recheck);

/* Does a stored prediction (step, stage or memory) differ from the computed one by more than 1e-9
 * of it? *what names the first, in arena. */
bool zp_recheck_differs(const char **what, zs_arena *arena, const zs_plan *plan,
                        const zp_recheck *recheck);

#endif
