/* Simple ways to put GPUs into stages, as a person would: equal counts in some order of the GPU
 * types, or whole nodes. What the baselines try; the search knows nothing of them. */
#ifndef PLANNER_LAYOUTS_H
#define PLANNER_LAYOUTS_H

#include "planner/group.h"

typedef enum zp_layout_rule {
    ZP_LAYOUT_EQUAL,     /* every stage the same number of GPUs; few orders of the types */
    ZP_LAYOUT_ANY_ORDER, /* the same; all orders of up to four types */
    ZP_LAYOUT_NODES,     /* nodes or equal pieces of a node, one type in a stage */
    ZP_LAYOUT_ONE_STAGE, /* all GPUs in one stage */
    ZP_LAYOUT_ONE_GPU    /* every stage one GPU */
} zp_layout_rule;

/* false ends the visit with an error in *err. */
typedef bool (*zp_layout_visit)(void *context, const zp_group *stages, int n_stages, zs_error *err);

/* Visits the layouts of a rule that the problem's limits on stages allow. Each is tried with all
 * types and with the fastest ones only, since leaving slow GPUs out is a choice that everyone has.
 * Stages live as long as the call. */
ZS_MUST_CHECK bool zp_layouts_visit(const zp_problem *problem, zp_layout_rule rule,
                                    zp_layout_visit visit, void *context, zs_error *err);

/* The class's most samples per ms through one block. */
double zp_layout_speed(const zp_problem *problem, int class);

#endif
