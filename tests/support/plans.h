/* Plans made in memory for tests of what follows from a plan's shape. */
#ifndef TESTS_SUPPORT_PLANS_H
#define TESTS_SUPPORT_PLANS_H

#include "shared/plan.h"
#include "tests/support/check.h"

/* samples: of each rank, stages between bars, "2+1|1+1+1"; micro_batches: "3+3+2". One block per
 * stage; no cluster, model, shards or predictions. In arena; ends the test program on bad text. */
zs_plan check_plan(zs_arena *arena, const char *samples, const char *micro_batches,
                   zs_schedule_kind schedule);

/* 1 .. max_stages stages of 1 .. max_ranks ranks, some without samples; 1 .. max_micro_batches
 * micro-batches of up to 6 samples, later ones often smaller; any schedule; any ZeRO level of each
 * stage. */
zs_plan check_rng_plan(check_rng *rng, zs_arena *arena, int max_stages, int max_ranks,
                       int max_micro_batches);

/* The plan as "samples micro_batches schedule levels", for messages. In arena. */
const char *check_plan_text(zs_arena *arena, const zs_plan *plan);

#endif
