/* From the solver's answer, which counts GPUs by class, to a plan, which names them: groups onto
 * nodes, samples and shards onto ranks, predictions and certificate. */
#ifndef PLANNER_PLACE_H
#define PLANNER_PLACE_H

#include "planner/build.h"
#include "planner/inputs.h"
#include "shared/plan.h"

/* Groups that are priced inside a node come first, the largest first, each onto the lowest node
 * that has room (first-fit decreasing: the sizes divide one another, so nothing is lost, and each
 * begins at a multiple of its size); the others take the lowest devices that are left. Every plan
 * passes zs_plan_check and is evaluated anew. In arena; refers to the inputs. */
ZS_MUST_CHECK bool zp_place(zs_plan *out, zs_arena *arena, const zp_inputs *inputs,
                            const zp_built *built, const zp_solution *solution, zs_error *err);

#endif
