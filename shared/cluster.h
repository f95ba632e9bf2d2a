/* A cluster: nodes with GPUs and the links between them. From a file (FORMATS.md) or from one
 * line: "2x(4xA100-80G)+1x(8xV100-32G)" is two nodes of four and one of eight; a node may mix:
 * "1x(2xRTX-3090+1xT4)"; "@25Gb/s" behind a node sets its NIC: "2x(4xT4)@25Gb/s". */
#ifndef SHARED_CLUSTER_H
#define SHARED_CLUSTER_H

#include "shared/gpus.h"
#include "shared/json.h"

#define ZS_CLUSTER_FORMAT "zplan-cluster"
#define ZS_CLUSTER_VERSION 1

enum { ZS_CLUSTER_MAX_DEVICES = 65536 };

typedef struct zs_device {
    const char *type;       /* GPU type: key into profiles and gpus, in the spelling of gpus when
                               it is there */
    int64_t memory_bytes;   /* of the device, before context and reserve */
    int compute_capability; /* 80 for 8.0; 0 if unknown: fp32 only */
    const char *uuid;       /* NULL if unknown */
    const char *pci_bus_id; /* NULL if unknown */
} zs_device;

typedef struct zs_node {
    const char *name; /* "node0"; unique */
    const char *site; /* "" unless given */
    int n_devices;
    zs_device *devices;
    double intra_bytes_per_s; /* between two GPUs of the node, per direction */
    double intra_latency_ms;
    double nic_bytes_per_s; /* of the node, shared by its GPUs, per direction */
    double nic_latency_ms;
} zs_node;

typedef struct zs_cluster {
    const char *name;
    int n_nodes;
    zs_node *nodes; /* "count": k in the file gives k nodes */
} zs_cluster;

/* source: a path ending in .json, "-", or a one-line cluster. In arena. */
ZS_MUST_CHECK bool zs_cluster_load(zs_cluster *out, zs_arena *arena, const char *source,
                                   zs_error *err);
ZS_MUST_CHECK bool zs_cluster_parse(zs_cluster *out, zs_arena *arena, const zs_json *object,
                                    zs_error *err);
ZS_MUST_CHECK bool zs_cluster_parse_line(zs_cluster *out, zs_arena *arena, const char *line,
                                         zs_error *err);

/* Writes the normal form: equal neighbours in the list are merged by "count" when their names are
 * the default ones. key as in zs_json_writer. */
void zs_cluster_write(zs_json_writer *w, const char *key, const zs_cluster *cluster);

int zs_cluster_n_devices(const zs_cluster *cluster);

#endif
