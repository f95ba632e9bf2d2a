/* A cluster file, or one line where the text is no JSON, is refused with a message or has a normal
 * form that reads back to itself. */
#include "shared/cluster.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static void write(zs_json_writer *w, const void *document)
{
    zs_cluster_write(w, NULL, document);
}

static void check_cluster(zs_arena *arena, const zs_cluster *cluster)
{
    const int n_devices = zs_cluster_n_devices(cluster);
    FUZZ_CHECK(n_devices >= 1 && n_devices <= ZS_CLUSTER_MAX_DEVICES, "%d devices", n_devices);
    for (int i = 0; i < cluster->n_nodes; i++) {
        const zs_node *node = &cluster->nodes[i];
        FUZZ_CHECK(node->name && node->site && node->n_devices >= 1, "node %d", i);
        FUZZ_CHECK(node->intra_bytes_per_s > 0 && isfinite(node->intra_bytes_per_s) &&
                       node->nic_bytes_per_s > 0 && isfinite(node->nic_bytes_per_s),
                   "links of node %d", i);
        for (int k = 0; k < node->n_devices; k++)
            FUZZ_CHECK(node->devices[k].type && node->devices[k].memory_bytes > 0,
                       "device %d of node %d", k, i);
    }
    zs_cluster again = {0};
    zs_error err = {0};
    const char *text = fuzz_print(arena, write, cluster);
    FUZZ_CHECK(zs_cluster_parse(&again, arena, fuzz_parse(arena, text), &err), "%s\n%s",
               err.message, text);
    const char *second = fuzz_print(arena, write, &again);
    FUZZ_CHECK(strcmp(text, second) == 0, "%s\nbecame\n%s", text, second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const zs_json *root = NULL;
    zs_cluster cluster = {0};
    zs_error err = {0};
    zs_arena *arena = fuzz_open(&root, data, size);
    bool ok = false;
    if (root) {
        ok = zs_cluster_parse(&cluster, arena, root, &err);
    } else {
        const char *line = zs_arena_strndup(arena, (const char *)data, size, &err);
        ok = line && zs_cluster_parse_line(&cluster, arena, line, &err);
    }
    if (ok)
        check_cluster(arena, &cluster);
    else
        fuzz_check_error(&err);
    zs_arena_close(&arena);
    return 0;
}
