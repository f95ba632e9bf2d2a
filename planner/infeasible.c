#include "planner/infeasible.h"
bool zp_infeasible_explain(const zp_problem *problem, zs_error *err)
{
    (void)problem;
    return ZS_FAIL(err, ZS_ERR_INFEASIBLE, "no feasible plan");
}
