/* Times the schedule of a plan without running anything: durations from timing.h, order from
 * play.h. Unlike the closed form (problem.h) it knows every transfer, who shares a link with whom,
 * unequal micro-batches, the largest shard, and where a rank really waits. */
#ifndef PLANNER_SIMULATE_H
#define PLANNER_SIMULATE_H

#include "planner/what_if.h"
#include "models/model.h"
#include "shared/timeline.h"

/* Ranks times micro-batches that `zplan solve` simulates before it writes a plan: beyond, its
 * simulated_step_ms is left out. */
enum { ZP_SIMULATE_MAX_CELLS = 1 << 16 };

typedef struct zp_simulation {
    double step_ms; /* when the last rank is done */
    zs_timeline timeline;
    zs_timeline_usage *usage; /* by rank */
} zp_simulation;

/* schedule: of the plan, checked. what_if NULL: the cluster as it is. share_links false: each
 * transfer has its links to itself, a lower bound of the time. In arena. */
ZS_MUST_CHECK bool zp_simulate_schedule(zp_simulation *out, zs_arena *arena, const zs_plan *plan,
                                        const zm_model *model, const zs_schedule *schedule,
                                        const zp_what_if *what_if, bool share_links, zs_error *err);

/* The training step of the plan: builds its schedule, checks and simulates it. */
ZS_MUST_CHECK bool zp_simulate(zp_simulation *out, zs_arena *arena, const zs_plan *plan,
                               const zm_model *model, const zp_what_if *what_if, zs_error *err);

/* Sets plan->simulated_step_ms, 0 beyond ZP_SIMULATE_MAX_CELLS. */
ZS_MUST_CHECK bool zp_simulate_fill(zs_plan *plan, const zm_model *model, zs_error *err);

#endif
