/* What the two readers of a cluster, from JSON and from one line, have in common. */
#ifndef SHARED_CLUSTER_NODES_H
#define SHARED_CLUSTER_NODES_H

#include "shared/cluster.h"

/* What a one-line cluster has where it does not say otherwise, and a lone node where its NIC is
 * not used: 100 Gb/s Ethernet. Latencies are the usual order of NVLink or PCIe between GPUs and of
 * RDMA between nodes. */
#define ZS_CLUSTER_DEFAULT_NIC_BYTES_PER_S 12.5e9
#define ZS_CLUSTER_DEFAULT_INTRA_LATENCY_MS 0.005
#define ZS_CLUSTER_DEFAULT_NIC_LATENCY_MS 0.02

/* The slowest link among the node's GPU types; 0 if one is not in the table of GPUs. */
double zs_node_default_intra(const zs_node *node);

/* What is wrong with the node's links, NULL if nothing is: bandwidths and latencies are such that
 * the times made of them are finite numbers. */
const char *zs_node_link_fault(const zs_node *node);

/* Appends count copies of a node to nodes, which has room. Names: the given one (with the index
 * within the group when count > 1), else "node" + index in the cluster. */
ZS_MUST_CHECK bool zs_cluster_append_nodes(zs_cluster *cluster, zs_arena *arena,
                                           const zs_node *node, int count, zs_error *err);

#endif
