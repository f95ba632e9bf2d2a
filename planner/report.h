/* A plan explained to people, in plain text of at most 80 columns: stages, who computes and holds
 * what, memory against each limit, where the time goes, what travels, how good the plan is and
 * why. */
#ifndef PLANNER_REPORT_H
#define PLANNER_REPORT_H

#include "planner/recheck.h"
#include "planner/simulate.h"

/* Times and memory are those of recheck, computed from the plan's own inputs. */
ZS_MUST_CHECK bool zp_report_print(FILE *out, const zs_plan *plan, const zp_recheck *recheck,
                                   zs_arena *arena, zs_error *err);

/* What `zplan simulate` shows: step times, a picture of the step, and where each stage's and GPU's
 * time goes. step_ms: closed form; as_planned: what the simulation differs from, or NULL. Fails
 * only for memory. */
ZS_MUST_CHECK bool zp_report_print_simulation(FILE *out, const zs_plan *plan, double step_ms,
                                              const zp_simulation *simulation,
                                              const zp_simulation *as_planned, zs_error *err);

/* One line: stages, GPUs, micro-batches, step time, gap; for the end of solve and check. */
void zp_report_print_summary(FILE *out, const zs_plan *plan);

#endif
