/* Changed conditions of a cluster: "what if this GPU were 10 % slower?" */
#ifndef PLANNER_WHAT_IF_H
#define PLANNER_WHAT_IF_H

#include "shared/cluster.h"

typedef struct zp_what_if {
    double *time_factor;  /* by device, node after node: its computations take this times as long */
    double *nic_factor;   /* by node: times this much bandwidth of its NIC, both directions */
    double *intra_factor; /* by node: the same of the links inside */
} zp_what_if;

/* Conditions in text, separated by commas (NULL or "": as the cluster is); several on one thing
 * multiply:
 *
 *     WHO slower P%          computations of WHO take (1 + P/100) times as long
 *     WHO faster P%          they take 1 / (1 + P/100) of the time
 *     nic [NODE] SHARE       bandwidth of the node's NIC, or of every NIC, becomes that share
 *     link [NODE] SHARE      the same of the links between GPUs inside the node
 *
 * WHO is a GPU ("node0:gpu1"), a node ("node0") or a GPU type ("V100-32"); SHARE is "half",
 * "double" or "P%"; P is 0.01 to 10000. At most 64 conditions. ZS_ERR_INPUT quotes the condition
 * and says what is wrong. In arena. */
ZS_MUST_CHECK bool zp_what_if_parse(zp_what_if *out, zs_arena *arena, const zs_cluster *cluster,
                                    const char *text, zs_error *err);

#endif
