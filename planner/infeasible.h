/* Why is there no plan? Finds the first limit that no choice keeps, and says what is needed, what
 * there is and what is missing. */
#ifndef PLANNER_INFEASIBLE_H
#define PLANNER_INFEASIBLE_H

#include "planner/problem.h"

/* Returns false with ZS_ERR_INFEASIBLE; for a problem that zp_search found to have no plan. */
bool zp_infeasible_explain(const zp_problem *problem, zs_error *err);

#endif
