/* Links of a cluster and the time of what travels over them: latency + bytes / bandwidth. */
#ifndef PLANNER_LINK_TIME_H
#define PLANNER_LINK_TIME_H

#include "shared/cluster.h"

typedef struct zp_link {
    double bytes_per_s; /* per direction */
    double latency_ms;
} zp_link;

/* The link between two devices of these nodes: inside one node its own; between two the slower
 * NIC's bandwidth and the larger latency. */
zp_link zp_link_between(const zs_cluster *cluster, int node_a, int node_b);

/* The slowest bandwidth and largest latency between any two of n devices, given by node. One
 * device: infinite bandwidth, no latency. */
zp_link zp_link_of_group(const zs_cluster *cluster, const int *nodes, int n);

double zp_link_send_ms(zp_link link, double bytes);

/* All-gather or reduce-scatter of `bytes` (the whole vector) among n ranks on a ring:
 * (n - 1) latency + (n - 1)/n bytes / bandwidth, which is also the least any algorithm needs for
 * the second term (Chan et al., Collective communication: theory, practice, and experience,
 * CCPE 2007, sec. 4 and 6.2). An all-reduce is one of each. 0 for n = 1. */
double zp_link_collective_ms(zp_link link, double bytes, int n);

#endif
