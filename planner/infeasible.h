/* Why is there no plan? Finds the first limit that no choice keeps, and says for the choice that
 * misses least what is needed, what there is and what is missing. */
#ifndef PLANNER_INFEASIBLE_H
#define PLANNER_INFEASIBLE_H

#include "planner/deadline.h"
#include "planner/problem.h"

/* Returns false with ZS_ERR_INFEASIBLE; for a problem of which the search found that it has no
 * plan. The last explanation solves relaxations and is left out when the deadline has passed. */
bool zp_infeasible_explain(const zp_problem *problem, bool all_groups, const zp_deadline *deadline,
                           zs_error *err);

#endif
