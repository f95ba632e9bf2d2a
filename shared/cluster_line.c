#include "shared/cluster_nodes.h"
#include "shared/units.h"

#include <ctype.h>
#include <string.h>

/* A cursor over a one-line cluster:  group ("+" group)*,
 * group: [count "x"] "(" part ("+" part)* ")" ["@" bandwidth],  part: [count "x"] type. */
typedef struct line {
    const char *text;
    const char *at;
    zs_arena *arena;
} line;

static bool line_fail(const line *l, zs_error *err, const char *expected)
{
    return ZS_FAIL(
        err, ZS_ERR_INPUT,
        "cluster \"%.200s\": expected %s at \"%.20s\"; write a path ending in .json or a "
        "line such as \"2x(4xA100-80)+1x(8xV100-32)@25Gb/s\"",
        l->text, expected, l->at);
}

static void skip_blanks(line *l)
{
    while (*l->at == ' ' || *l->at == '\t')
        l->at++;
}

static bool accept_char(line *l, char c)
{
    skip_blanks(l);
    if (*l->at != c)
        return false;
    l->at++;
    return true;
}

/* [count "x"]: 1 where there is none. */
static bool line_count(int *out, line *l, zs_error *err)
{
    skip_blanks(l);
    *out = 1;
    if (!isdigit((unsigned char)*l->at))
        return true;
    const char *start = l->at;
    int64_t count = 0;
    while (isdigit((unsigned char)*l->at) && count <= ZS_CLUSTER_MAX_DEVICES)
        count = 10 * count + (*l->at++ - '0');
    if (count < 1 || count > ZS_CLUSTER_MAX_DEVICES) {
        l->at = start;
        return line_fail(l, err, "a count of 1 to 65536");
    }
    if (!accept_char(l, 'x'))
        return line_fail(l, err, "\"x\" behind the count");
    *out = (int)count;
    return true;
}

/* Text up to one of the stop characters or the end, without blanks around it. */
static char *line_word(line *l, const char *stops, zs_error *err)
{
    skip_blanks(l);
    size_t n = strcspn(l->at, stops);
    const char *start = l->at;
    l->at += n;
    while (n > 0 && (start[n - 1] == ' ' || start[n - 1] == '\t'))
        n--;
    return zs_arena_strndup(l->arena, start, n, err);
}

/* capacity: devices that node->devices has room for. */
static bool line_part(zs_node *node, int *capacity, line *l, int n_max, zs_error *err)
{
    int count = 0;
    if (!line_count(&count, l, err))
        return false;
    char *type = line_word(l, "+()@", err);
    if (!type)
        return false;
    if (!*type)
        return line_fail(l, err, "a GPU type");
    const zs_gpu *gpu = zs_gpus_find(type);
    if (!gpu) {
        zs_gpus_fail_unknown(type, err);
        return zs_error_prefix(err, "cluster \"%.200s\"", l->text);
    }
    if (count > n_max)
        return ZS_FAIL(err, ZS_ERR_INPUT, "cluster \"%.200s\": more than %d devices", l->text,
                       ZS_CLUSTER_MAX_DEVICES);
    if (node->n_devices + count > *capacity) { /* twice as many, as the arena keeps the old */
        *capacity = 2 * (node->n_devices + count);
        zs_device *devices = ZS_NEW(l->arena, zs_device, *capacity, err);
        if (!devices)
            return false;
        if (node->n_devices)
            memcpy(devices, node->devices, (size_t)node->n_devices * sizeof *devices);
        node->devices = devices;
    }
    for (int i = 0; i < count; i++)
        node->devices[node->n_devices++] =
            (zs_device){.type = gpu->type,
                        .memory_bytes = gpu->memory_bytes,
                        .compute_capability = gpu->compute_capability};
    return true;
}

static bool line_group(zs_node *node, int *count, line *l, int n_max, zs_error *err)
{
    *node = (zs_node){.site = "",
                      .intra_latency_ms = ZS_CLUSTER_DEFAULT_INTRA_LATENCY_MS,
                      .nic_bytes_per_s = ZS_CLUSTER_DEFAULT_NIC_BYTES_PER_S,
                      .nic_latency_ms = ZS_CLUSTER_DEFAULT_NIC_LATENCY_MS};
    int capacity = 0;
    if (!line_count(count, l, err))
        return false;
    if (!accept_char(l, '('))
        return line_fail(l, err, "\"(\"");
    do {
        if (!line_part(node, &capacity, l, n_max - node->n_devices, err))
            return false;
    } while (accept_char(l, '+'));
    if (!accept_char(l, ')'))
        return line_fail(l, err, "\"+\" or \")\"");
    node->intra_bytes_per_s = zs_node_default_intra(node);
    if (accept_char(l, '@')) {
        char *text = line_word(l, "+()@", err);
        if (!text)
            return false;
        if (!zs_units_parse_bandwidth(&node->nic_bytes_per_s, text, err))
            return zs_error_prefix(err, "cluster \"%.200s\"", l->text);
        const char *fault = zs_node_link_fault(node);
        if (fault)
            return ZS_FAIL(err, ZS_ERR_INPUT, "cluster \"%.200s\": \"%.40s\": %s", l->text, text,
                           fault);
    }
    return true;
}

bool zs_cluster_parse_line(zs_cluster *out, zs_arena *arena, const char *text, zs_error *err)
{
    line l = {.text = text, .at = text, .arena = arena};
    zs_cluster cluster = {.name = zs_arena_strdup(arena, text, err)};
    if (!cluster.name)
        return false;
    int64_t n_devices = 0;
    int capacity = 0;
    do {
        zs_node node;
        int count = 0;
        if (!line_group(&node, &count, &l, ZS_CLUSTER_MAX_DEVICES, err))
            return false;
        n_devices += (int64_t)count * node.n_devices;
        if (n_devices > ZS_CLUSTER_MAX_DEVICES)
            return ZS_FAIL(err, ZS_ERR_INPUT, "cluster \"%.200s\": more than %d devices", text,
                           ZS_CLUSTER_MAX_DEVICES);
        if (cluster.n_nodes + count > capacity) { /* twice as many, as the arena keeps the old */
            capacity = 2 * (cluster.n_nodes + count);
            zs_node *nodes = ZS_NEW(arena, zs_node, capacity, err);
            if (!nodes)
                return false;
            if (cluster.n_nodes)
                memcpy(nodes, cluster.nodes, (size_t)cluster.n_nodes * sizeof *nodes);
            cluster.nodes = nodes;
        }
        if (!zs_cluster_append_nodes(&cluster, arena, &node, count, err))
            return false;
    } while (accept_char(&l, '+'));
    skip_blanks(&l);
    if (*l.at)
        return line_fail(&l, err, "\"+\" or the end");
    *out = cluster;
    return true;
}
