#include "shared/cluster.h"

#include "shared/cluster_nodes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* 1 PiB, far above any device; keeps sums of memory terms inside 63 bits. */
static const int64_t max_memory_bytes = INT64_C(1) << 50;

/* Names are copied once for each of up to 65536 nodes. */
enum { MAX_TEXT_BYTES = 255 };

static const char *const cluster_keys[] = {"format", "version", "name", "nodes"};
static const char *const node_keys[] = {"name",          "count",
                                        "site",          "devices",
                                        "intra",         "intra_bytes_per_s",
                                        "intra_latency", "intra_latency_ms",
                                        "nic",           "nic_bytes_per_s",
                                        "nic_latency",   "nic_latency_ms"};
static const char *const device_keys[] = {
    "type", "count", "memory", "memory_bytes", "compute_capability", "uuid", "pci_bus_id"};

static bool parse_text(const char **out, zs_arena *arena, const zs_json *object, const char *key,
                       zs_error *err)
{
    const char *text = NULL;
    if (!zs_json_opt_string(&text, object, key, err))
        return false;
    if (!text)
        return true;
    if (!*text)
        return zs_json_fail(zs_json_find(object, key), err, "empty text");
    if (strlen(text) > MAX_TEXT_BYTES)
        return zs_json_fail(zs_json_find(object, key), err, "has %zu bytes, expected at most %d",
                            strlen(text), MAX_TEXT_BYTES);
    *out = zs_arena_strdup(arena, text, err);
    return *out != NULL;
}

static bool parse_count(int *out, const zs_json *object, zs_error *err)
{
    int64_t count = 1;
    if (!zs_json_opt_int(&count, object, "count", 1, ZS_CLUSTER_MAX_DEVICES, err))
        return false;
    *out = (int)count;
    return true;
}

/* One entry of "devices": a device and how many of it. */
static bool parse_device(zs_device *out, int *count, zs_arena *arena, const zs_json *object,
                         zs_error *err)
{
    const char *type = NULL;
    zs_device device = {0};
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, device_keys, COUNT(device_keys), err) ||
        !zs_json_get_string(&type, object, "type", err) || !parse_count(count, object, err))
        return false;
    if (!*type)
        return zs_json_fail(zs_json_find(object, "type"), err, "empty text");
    if (strlen(type) > MAX_TEXT_BYTES)
        return zs_json_fail(zs_json_find(object, "type"), err, "has %zu bytes, expected at most %d",
                            strlen(type), MAX_TEXT_BYTES);
    const zs_gpu *gpu = zs_gpus_find(type);
    if (gpu) {
        device.type = gpu->type;
        device.memory_bytes = gpu->memory_bytes;
        device.compute_capability = gpu->compute_capability;
    } else {
        device.type = zs_arena_strdup(arena, type, err);
        if (!device.type)
            return false;
        if (!zs_json_find(object, "memory") && !zs_json_find(object, "memory_bytes")) {
            zs_gpus_fail_unknown(type, err);
            char reason[ZS_ERROR_MESSAGE_SIZE];
            snprintf(reason, sizeof reason, "%s", err ? err->message : "unknown GPU type");
            return zs_json_fail(object, err, "%s; another type needs \"memory\"", reason);
        }
    }
    int64_t capability = device.compute_capability;
    if (!zs_json_opt_bytes(&device.memory_bytes, object, "memory", err) ||
        !zs_json_opt_int(&capability, object, "compute_capability", 0, 999, err) ||
        !parse_text(&device.uuid, arena, object, "uuid", err) ||
        !parse_text(&device.pci_bus_id, arena, object, "pci_bus_id", err))
        return false;
    if (capability > 0 && capability < 20)
        return zs_json_fail(zs_json_find(object, "compute_capability"), err,
                            "%d, expected ten times the version: 80 for 8.0", (int)capability);
    device.compute_capability = (int)capability;
    if (device.memory_bytes < 1 || device.memory_bytes > max_memory_bytes)
        return zs_json_fail(object, err, "memory is %" PRId64 " bytes, expected 1 to %" PRId64,
                            device.memory_bytes, max_memory_bytes);
    if (*count > 1 && (device.uuid || device.pci_bus_id))
        return zs_json_fail(object, err, "count is %d with a %s, which only one device can have",
                            *count, device.uuid ? "uuid" : "pci_bus_id");
    *out = device;
    return true;
}

static bool parse_devices(zs_node *node, zs_arena *arena, const zs_json *object, zs_error *err)
{
    const zs_json *list = NULL;
    int n_entries = 0;
    if (!zs_json_get(&list, object, "devices", err) ||
        !zs_json_is_array(&n_entries, list, 1, ZS_CLUSTER_MAX_DEVICES, err))
        return false;
    int64_t total = 0;
    for (int i = 0; i < n_entries; i++) {
        int count = 0;
        zs_device device;
        if (!parse_device(&device, &count, arena, zs_json_item(list, i), err))
            return false;
        total += count;
    }
    if (total > ZS_CLUSTER_MAX_DEVICES)
        return zs_json_fail(list, err, "%lld devices, expected at most %d", (long long)total,
                            ZS_CLUSTER_MAX_DEVICES);
    node->devices = ZS_NEW(arena, zs_device, total, err);
    if (!node->devices)
        return false;
    for (int i = 0; i < n_entries; i++) {
        int count = 0;
        zs_device device;
        if (!parse_device(&device, &count, arena, zs_json_item(list, i), err))
            return false;
        while (count-- > 0)
            node->devices[node->n_devices++] = device;
    }
    return true;
}

double zs_node_default_intra(const zs_node *node)
{
    double least = 0;
    for (int i = 0; i < node->n_devices; i++) {
        if (i > 0 && strcmp(node->devices[i].type, node->devices[i - 1].type) == 0)
            continue; /* the table is slow to search, and neighbours are mostly equal */
        const zs_gpu *gpu = zs_gpus_find(node->devices[i].type);
        if (!gpu)
            return 0;
        if (i == 0 || gpu->intra_bytes_per_s < least)
            least = gpu->intra_bytes_per_s;
    }
    return least;
}

const char *zs_node_link_fault(const zs_node *node)
{
    if (!(node->intra_bytes_per_s >= 1e3 && node->intra_bytes_per_s <= 1e18))
        return "intra is out of range, expected a bandwidth from 1kB/s to 1e18B/s";
    if (!(node->nic_bytes_per_s >= 1e3 && node->nic_bytes_per_s <= 1e18))
        return "nic is out of range, expected a bandwidth from 1kB/s to 1e18B/s";
    if (!(node->intra_latency_ms >= 0 && node->intra_latency_ms <= 1e9))
        return "intra_latency is out of range, expected 0ms to 1e9ms";
    if (!(node->nic_latency_ms >= 0 && node->nic_latency_ms <= 1e9))
        return "nic_latency is out of range, expected 0ms to 1e9ms";
    return NULL;
}

static bool parse_links(zs_node *node, const zs_json *object, bool lone, zs_error *err)
{
    node->intra_bytes_per_s = zs_node_default_intra(node);
    node->intra_latency_ms = ZS_CLUSTER_DEFAULT_INTRA_LATENCY_MS;
    node->nic_bytes_per_s = lone ? ZS_CLUSTER_DEFAULT_NIC_BYTES_PER_S : 0;
    node->nic_latency_ms = ZS_CLUSTER_DEFAULT_NIC_LATENCY_MS;
    /* nothing crosses the link of a lone GPU */
    if (node->n_devices == 1 && node->intra_bytes_per_s <= 0)
        node->intra_bytes_per_s = ZS_CLUSTER_DEFAULT_NIC_BYTES_PER_S;
    const bool nic_given = zs_json_find(object, "nic") || zs_json_find(object, "nic_bytes_per_s");
    const bool intra_given =
        zs_json_find(object, "intra") || zs_json_find(object, "intra_bytes_per_s");
    if (!intra_given && node->intra_bytes_per_s <= 0)
        return zs_json_fail(object, err,
                            "\"intra\" is missing, and the table of GPUs does not have every type "
                            "of this node; give the bandwidth between two of its GPUs such as "
                            "\"25GB/s\"");
    if (!nic_given && !lone)
        return zs_json_fail(object, err,
                            "\"nic\" is missing, expected the node's bandwidth such as "
                            "\"100Gb/s\"");
    if (!zs_json_opt_bandwidth(&node->intra_bytes_per_s, object, "intra", err) ||
        !zs_json_opt_ms(&node->intra_latency_ms, object, "intra_latency", err) ||
        !zs_json_opt_bandwidth(&node->nic_bytes_per_s, object, "nic", err) ||
        !zs_json_opt_ms(&node->nic_latency_ms, object, "nic_latency", err))
        return false;
    const char *fault = zs_node_link_fault(node);
    if (fault)
        return zs_json_fail(object, err, "%s", fault);
    return true;
}

static bool parse_node(zs_node *out, int *count, zs_arena *arena, const zs_json *object, bool lone,
                       zs_error *err)
{
    zs_node node = {.site = ""};
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, node_keys, COUNT(node_keys), err) ||
        !parse_count(count, object, err) || !parse_text(&node.name, arena, object, "name", err) ||
        !parse_text(&node.site, arena, object, "site", err) ||
        !parse_devices(&node, arena, object, err) ||
        !parse_links(&node, object, lone && *count == 1, err))
        return false;
    for (int i = 0; i<node.n_devices && * count> 1; i++)
        if (node.devices[i].uuid || node.devices[i].pci_bus_id)
            return zs_json_fail(object, err,
                                "count is %d, but device %d has an identity of its own", *count, i);
    *out = node;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const zs_node *const *)a)->name, (*(const zs_node *const *)b)->name);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of nodes, uuids in the cluster and PCI bus ids in a node are unique. Sorted, as there may
 * be thousands. */
static bool check_unique(const zs_cluster *cluster, zs_arena *arena, const char **twice,
                         const char **what, zs_error *err)
{
    *twice = NULL;
    const zs_node **nodes = ZS_NEW(arena, const zs_node *, cluster->n_nodes, err);
    const char **texts = ZS_NEW(arena, const char *, zs_cluster_n_devices(cluster), err);
    if (!nodes || !texts)
        return false;
    for (int i = 0; i < cluster->n_nodes; i++)
        nodes[i] = &cluster->nodes[i];
    qsort(nodes, (size_t)cluster->n_nodes, sizeof *nodes, compare_names);
    for (int i = 1; i < cluster->n_nodes; i++)
        if (strcmp(nodes[i - 1]->name, nodes[i]->name) == 0) {
            *twice = nodes[i]->name;
            *what = "two nodes have the name";
            return true;
        }
    int n_uuids = 0;
    for (int i = 0; i < cluster->n_nodes; i++)
        for (int j = 0; j < cluster->nodes[i].n_devices; j++)
            if (cluster->nodes[i].devices[j].uuid)
                texts[n_uuids++] = cluster->nodes[i].devices[j].uuid;
    qsort(texts, (size_t)n_uuids, sizeof *texts, compare_texts);
    for (int i = 1; i < n_uuids; i++)
        if (strcmp(texts[i - 1], texts[i]) == 0) {
            *twice = texts[i];
            *what = "two devices have the uuid";
            return true;
        }
    for (int i = 0; i < cluster->n_nodes; i++) {
        int n_ids = 0;
        for (int j = 0; j < cluster->nodes[i].n_devices; j++)
            if (cluster->nodes[i].devices[j].pci_bus_id)
                texts[n_ids++] = cluster->nodes[i].devices[j].pci_bus_id;
        qsort(texts, (size_t)n_ids, sizeof *texts, compare_texts);
        for (int j = 1; j < n_ids; j++)
            if (strcmp(texts[j - 1], texts[j]) == 0) {
                *twice = texts[j];
                *what = "two devices of a node have the pci_bus_id";
                return true;
            }
    }
    return true;
}

bool zs_cluster_append_nodes(zs_cluster *cluster, zs_arena *arena, const zs_node *node, int count,
                             zs_error *err)
{
    for (int i = 0; i < count; i++) {
        zs_node *copy = &cluster->nodes[cluster->n_nodes];
        *copy = *node;
        if (!node->name)
            copy->name = zs_arena_printf(arena, err, "node%d", cluster->n_nodes);
        else if (count > 1)
            copy->name = zs_arena_printf(arena, err, "%s%d", node->name, i);
        if (!copy->name)
            return false;
        cluster->n_nodes++;
    }
    return true;
}

bool zs_cluster_parse(zs_cluster *out, zs_arena *arena, const zs_json *object, zs_error *err)
{
    const zs_json *list = NULL;
    int n_entries = 0;
    zs_cluster cluster = {.name = "cluster"};
    if (!zs_json_check_format(object, ZS_CLUSTER_FORMAT, ZS_CLUSTER_VERSION, err) ||
        !zs_json_only_keys(object, cluster_keys, COUNT(cluster_keys), err) ||
        !parse_text(&cluster.name, arena, object, "name", err) ||
        !zs_json_get(&list, object, "nodes", err) ||
        !zs_json_is_array(&n_entries, list, 1, ZS_CLUSTER_MAX_DEVICES, err))
        return false;

    zs_node *groups = ZS_NEW(arena, zs_node, n_entries, err);
    int *counts = ZS_NEW(arena, int, n_entries, err);
    if (!groups || !counts)
        return false;
    int64_t n_nodes = 0, n_devices = 0;
    for (int i = 0; i < n_entries; i++) {
        if (!parse_node(&groups[i], &counts[i], arena, zs_json_item(list, i), n_entries == 1, err))
            return false;
        n_nodes += counts[i];
        n_devices += (int64_t)counts[i] * groups[i].n_devices;
        if (n_devices > ZS_CLUSTER_MAX_DEVICES)
            return zs_json_fail(list, err, "more than %d devices", ZS_CLUSTER_MAX_DEVICES);
    }
    cluster.nodes = ZS_NEW(arena, zs_node, n_nodes, err);
    if (!cluster.nodes)
        return false;
    for (int i = 0; i < n_entries; i++)
        if (!zs_cluster_append_nodes(&cluster, arena, &groups[i], counts[i], err))
            return false;

    const char *twice = NULL, *what = NULL;
    if (!check_unique(&cluster, arena, &twice, &what, err))
        return false;
    if (twice)
        return zs_json_fail(list, err, "%s \"%s\"", what, twice);
    *out = cluster;
    return true;
}

bool zs_cluster_load(zs_cluster *out, zs_arena *arena, const char *source, zs_error *err)
{
    const size_t n = strlen(source);
    if (strcmp(source, "-") != 0 && !(n > 5 && strcmp(source + n - 5, ".json") == 0))
        return zs_cluster_parse_line(out, arena, source, err);
    const zs_json *root = NULL;
    return zs_json_load(&root, arena, source, err) && zs_cluster_parse(out, arena, root, err);
}

static bool same_device(const zs_device *a, const zs_device *b)
{
    return !a->uuid && !b->uuid && !a->pci_bus_id && !b->pci_bus_id &&
           strcmp(a->type, b->type) == 0 && a->memory_bytes == b->memory_bytes &&
           a->compute_capability == b->compute_capability;
}

static bool same_node(const zs_node *a, const zs_node *b)
{
    if (a->n_devices != b->n_devices || strcmp(a->site, b->site) != 0 ||
        a->intra_bytes_per_s != b->intra_bytes_per_s ||
        a->intra_latency_ms != b->intra_latency_ms || a->nic_bytes_per_s != b->nic_bytes_per_s ||
        a->nic_latency_ms != b->nic_latency_ms)
        return false;
    for (int i = 0; i < a->n_devices; i++)
        if (!same_device(&a->devices[i], &b->devices[i]))
            return false;
    return true;
}

static bool has_default_name(const zs_cluster *cluster, int node)
{
    char name[32];
    snprintf(name, sizeof name, "node%d", node);
    return strcmp(cluster->nodes[node].name, name) == 0;
}

static void write_devices(zs_json_writer *w, const zs_node *node)
{
    zs_json_begin_array(w, "devices");
    for (int i = 0, next; i < node->n_devices; i = next) {
        const zs_device *device = &node->devices[i];
        for (next = i + 1; next < node->n_devices && same_device(device, &node->devices[next]);)
            next++;
        zs_json_begin_object(w, NULL);
        zs_json_put_string(w, "type", device->type);
        if (next - i > 1)
            zs_json_put_int(w, "count", next - i);
        zs_json_put_int(w, "memory_bytes", device->memory_bytes);
        zs_json_put_int(w, "compute_capability", device->compute_capability);
        if (device->uuid)
            zs_json_put_string(w, "uuid", device->uuid);
        if (device->pci_bus_id)
            zs_json_put_string(w, "pci_bus_id", device->pci_bus_id);
        zs_json_end_object(w);
    }
    zs_json_end_array(w);
}

void zs_cluster_write(zs_json_writer *w, const char *key, const zs_cluster *cluster)
{
    zs_json_begin_object(w, key);
    zs_json_put_string(w, "format", ZS_CLUSTER_FORMAT);
    zs_json_put_int(w, "version", ZS_CLUSTER_VERSION);
    zs_json_put_string(w, "name", cluster->name);
    zs_json_begin_array(w, "nodes");
    for (int i = 0, next; i < cluster->n_nodes; i = next) {
        const zs_node *node = &cluster->nodes[i];
        const bool by_default = has_default_name(cluster, i);
        next = i + 1;
        while (by_default && next < cluster->n_nodes && has_default_name(cluster, next) &&
               same_node(node, &cluster->nodes[next]))
            next++;
        zs_json_begin_object(w, NULL);
        if (!by_default)
            zs_json_put_string(w, "name", node->name);
        if (next - i > 1)
            zs_json_put_int(w, "count", next - i);
        if (*node->site)
            zs_json_put_string(w, "site", node->site);
        write_devices(w, node);
        zs_json_put_double(w, "intra_bytes_per_s", node->intra_bytes_per_s);
        zs_json_put_double(w, "intra_latency_ms", node->intra_latency_ms);
        zs_json_put_double(w, "nic_bytes_per_s", node->nic_bytes_per_s);
        zs_json_put_double(w, "nic_latency_ms", node->nic_latency_ms);
        zs_json_end_object(w);
    }
    zs_json_end_array(w);
    zs_json_end_object(w);
}

int zs_cluster_n_devices(const zs_cluster *cluster)
{
    int n = 0;
    for (int i = 0; i < cluster->n_nodes; i++)
        n += cluster->nodes[i].n_devices;
    return n;
}
