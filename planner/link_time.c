#include "planner/link_time.h"

#include <math.h>

zp_link zp_link_between(const zs_cluster *cluster, int node_a, int node_b)
{
    const zs_node *a = &cluster->nodes[node_a];
    const zs_node *b = &cluster->nodes[node_b];
    if (node_a == node_b)
        return (zp_link){a->intra_bytes_per_s, a->intra_latency_ms};
    return (zp_link){fmin(a->nic_bytes_per_s, b->nic_bytes_per_s),
                     fmax(a->nic_latency_ms, b->nic_latency_ms)};
}

zp_link zp_link_of_group(const zs_cluster *cluster, const int *nodes, int n)
{
    zp_link slowest = {INFINITY, 0};
    for (int i = 1; i < n; i++) {
        for (int k = 0; k < i; k++) {
            const zp_link link = zp_link_between(cluster, nodes[k], nodes[i]);
            slowest.bytes_per_s = fmin(slowest.bytes_per_s, link.bytes_per_s);
            slowest.latency_ms = fmax(slowest.latency_ms, link.latency_ms);
        }
    }
    return slowest;
}

double zp_link_send_ms(zp_link link, double bytes)
{
    return link.latency_ms + bytes / link.bytes_per_s * 1000.0;
}

double zp_link_collective_ms(zp_link link, double bytes, int n)
{
    if (n <= 1)
        return 0;
    return (n - 1) * link.latency_ms + (n - 1.0) / n * bytes / link.bytes_per_s * 1000.0;
}
