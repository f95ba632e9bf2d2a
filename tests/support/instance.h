/* Problems with proven optima, tests/golden/ilp, and with best known step times, in large/ there.
 */
#ifndef TESTS_SUPPORT_INSTANCE_H
#define TESTS_SUPPORT_INSTANCE_H

#include "planner/problem.h"

typedef struct instance {
    const char *name;
    zp_problem problem;  /* batchings: every divisor of the global batch */
    double *batching_ms; /* optimum of each batching, infinity: infeasible; NULL in large/, and so
                            is the plan */
    double best_ms;
    zp_batching plan_batching;
    int n_plan_stages;
    zp_stage *plan_stages; /* a plan that takes best_ms */
} instance;

/* In arena. */
ZS_MUST_CHECK bool instance_load(instance *out, zs_arena *arena, const char *path, zs_error *err);

#endif
