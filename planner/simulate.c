#include "planner/simulate.h"

#include "planner/play.h"

bool zp_simulate_schedule(zp_simulation *out, zs_arena *arena, const zs_plan *plan,
                          const zm_model *model, const zs_schedule *schedule,
                          const zp_what_if *what_if, bool share_links, zs_error *err)
{
    zp_simulation s = {.usage = ZS_NEW(arena, zs_timeline_usage, schedule->n_ranks, err)};
    zp_what_if as_is;
    zp_timing timing;
    if (!s.usage)
        return false;
    if (!what_if) {
        if (!zp_what_if_parse(&as_is, arena, &plan->cluster, NULL, err))
            return false;
        what_if = &as_is;
    }
    if (!zp_timing_build(&timing, arena, plan, model, what_if, err) ||
        !zs_timeline_build(&s.timeline, arena, schedule, plan, err) ||
        !zp_play(&s.timeline, &timing, schedule, share_links, err) ||
        !zs_timeline_use(s.usage, &s.timeline, err))
        return false;
    s.step_ms = zs_timeline_end_ms(&s.timeline);
    *out = s;
    return true;
}

bool zp_simulate(zp_simulation *out, zs_arena *arena, const zs_plan *plan, const zm_model *model,
                 const zp_what_if *what_if, zs_error *err)
{
    zs_schedule schedule;
    return zs_schedule_build(&schedule, arena, plan, model->tied, err) &&
           zs_schedule_check(&schedule, plan, err) &&
           zp_simulate_schedule(out, arena, plan, model, &schedule, what_if, true, err);
}

bool zp_simulate_fill(zs_plan *plan, const zm_model *model, zs_error *err)
{
    plan->simulated_step_ms = 0;
    if ((int64_t)zs_plan_n_ranks(plan) * plan->n_micro_batches > ZP_SIMULATE_MAX_CELLS)
        return true;
    zs_arena *arena = NULL;
    zp_simulation simulation;
    const bool ok =
        zs_arena_open(&arena, err) && zp_simulate(&simulation, arena, plan, model, NULL, err);
    if (ok)
        plan->simulated_step_ms = simulation.step_ms;
    zs_arena_close(&arena);
    return ok;
}
