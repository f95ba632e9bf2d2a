#include "shared/cluster.h"
#include "tests/support/check.h"

#include <string.h>

static zs_arena *arena;
static const char *golden; /* folder of golden files */

static const char *golden_file(const char *name)
{
    return zs_arena_printf(arena, NULL, "%s/two-stages/%s", golden, name);
}

static bool parse(zs_cluster *out, const char *text, zs_error *err)
{
    const zs_json *root = NULL;
    return zs_json_parse(&root, arena, text, strlen(text), "c.json", err) &&
           zs_cluster_parse(out, arena, root, err);
}

/* A cluster whose one node has these members. */
static bool parse_node(zs_cluster *out, const char *members, zs_error *err)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"format\": \"zplan-cluster\", \"version\": 1, \"nodes\": [{%s}]}", members);
    return parse(out, text, err);
}

static void test_file(void)
{
    zs_cluster c;
    zs_error err;
    if (!CHECK(zs_cluster_load(&c, arena, golden_file("cluster.json"), &err), "%s", err.message))
        return;
    CHECK_STRING(c.name, "lab");
    CHECK(c.n_nodes == 2 && zs_cluster_n_devices(&c) == 4, "%d nodes", c.n_nodes);
    CHECK_STRING(c.nodes[0].name, "node0");
    CHECK_STRING(c.nodes[0].site, "");
    CHECK(c.nodes[0].n_devices == 2, "%d devices", c.nodes[0].n_devices);
    CHECK_STRING(c.nodes[0].devices[1].type, "A100-40");
    CHECK(c.nodes[0].devices[1].memory_bytes == INT64_C(42949672960), "40 GiB");
    CHECK(c.nodes[0].devices[1].compute_capability == 80, "capability");
    CHECK_NEAR(c.nodes[0].intra_bytes_per_s, 300e9, 0); /* from the table of GPUs */
    CHECK_NEAR(c.nodes[0].intra_latency_ms, 0.005, 0);
    CHECK_NEAR(c.nodes[0].nic_bytes_per_s, 12.5e9, 0);
    CHECK_NEAR(c.nodes[0].nic_latency_ms, 0.02, 0);
    CHECK_STRING(c.nodes[1].name, "old");
    CHECK_STRING(c.nodes[1].site, "cellar");
    CHECK_STRING(c.nodes[1].devices[1].uuid, "GPU-9a41");
    CHECK_STRING(c.nodes[1].devices[0].pci_bus_id, "00000000:3B:00.0");
    CHECK_NEAR(c.nodes[1].intra_bytes_per_s, 12e9, 0);
    CHECK_NEAR(c.nodes[1].intra_latency_ms, 0.01, 1e-15);
    CHECK_NEAR(c.nodes[1].nic_bytes_per_s, 1.25e9, 0);
    CHECK_NEAR(c.nodes[1].nic_latency_ms, 0.05, 1e-15);
}

/* 100 Gb/s, 12.5 GB/s and 12500000000 bytes/s are one thing: 1e9 bytes take 80 ms. */
static void test_bandwidth_units(void)
{
    static const char *const spellings[] = {"\"nic\": \"100Gb/s\"", "\"nic\": \"12.5GB/s\"",
                                            "\"nic_bytes_per_s\": 12500000000"};
    zs_error err;
    for (int i = 0; i < 3; i++) {
        char members[256];
        zs_cluster c;
        snprintf(members, sizeof members, "\"devices\": [{\"type\": \"T4\"}], %s", spellings[i]);
        if (!CHECK(parse_node(&c, members, &err), "%s: %s", spellings[i], err.message))
            continue;
        CHECK_NEAR(1e9 / c.nodes[0].nic_bytes_per_s * 1000, 80, 1e-12);
        CHECK_NEAR(1073741824.0 / c.nodes[0].nic_bytes_per_s, 0.085899, 1e-6);
    }
    zs_cluster c;
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\"}], \"nic\": 100", &err), &err,
                ZS_ERR_INPUT, "c.json: $.nodes[0].nic");
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\"}], \"nic\": \"100\"", &err), &err,
                ZS_ERR_INPUT, "$.nodes[0].nic");
    CHECK_FAILS(parse_node(&c,
                           "\"devices\": [{\"type\": \"T4\"}], \"nic\": \"1Gb/s\", "
                           "\"nic_bytes_per_s\": 1",
                           &err),
                &err, ZS_ERR_INPUT, "nic");
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\"}], \"nic\": \"0Gb/s\"", &err), &err,
                ZS_ERR_INPUT, "nic is out of range, expected a bandwidth from 1kB/s");
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\"}], \"nic\": null", &err), &err,
                ZS_ERR_INPUT, "$.nodes[0].nic");
}

static void test_memory_units(void)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {{"\"memory\": \"24 GB\"", INT64_C(24000000000)},
                 {"\"memory\": \"24 GiB\"", INT64_C(25769803776)},
                 {"\"memory_bytes\": 150323855360", INT64_C(150323855360)}};
    zs_error err;
    zs_cluster c;
    for (int i = 0; i < 3; i++) {
        char members[256];
        snprintf(members, sizeof members, "\"devices\": [{\"type\": \"T4\", %s}]", cases[i].text);
        if (CHECK(parse_node(&c, members, &err), "%s: %s", cases[i].text, err.message))
            CHECK(c.nodes[0].devices[0].memory_bytes == cases[i].bytes, "%s: %lld", cases[i].text,
                  (long long)c.nodes[0].devices[0].memory_bytes);
    }
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\", \"memory\": 24}]", &err), &err,
                ZS_ERR_INPUT, "$.nodes[0].devices[0].memory");
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\", \"memory\": \"24\"}]", &err), &err,
                ZS_ERR_INPUT, "$.nodes[0].devices[0].memory");
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\", \"memory\": \"0GiB\"}]", &err),
                &err, ZS_ERR_INPUT, "memory is 0");
    CHECK_FAILS(parse_node(&c, "\"devices\": [{\"type\": \"T4\", \"memory\": \"2PiB\"}]", &err),
                &err, ZS_ERR_INPUT, "memory is 2251799813685248 bytes");
    CHECK_FAILS(parse_node(&c,
                           "\"devices\": [{\"type\": \"T4\", \"memory_bytes\": 9007199254740993}]",
                           &err),
                &err, ZS_ERR_INPUT, "memory_bytes");
}

static void test_refusals(void)
{
    static const struct {
        const char *members, *message;
    } cases[] = {
        {"\"nic\": \"1Gb/s\"", "devices"},
        {"\"devices\": []", "$.nodes[0].devices"},
        {"\"devices\": [{\"type\": \"T4\"}], \"nick\": \"1Gb/s\"", "nick"},
        {"\"devices\": [{\"type\": \"T4\", \"count\": 0}]", "$.nodes[0].devices[0].count"},
        {"\"devices\": [{\"type\": \"T4\", \"count\": 2.5}]", "$.nodes[0].devices[0].count"},
        {"\"devices\": [{\"type\": \"T4\", \"count\": 70000}]", "$.nodes[0].devices[0].count"},
        {"\"devices\": [{\"type\": \"T4\", \"count\": 40000}, {\"type\": \"L4\", \"count\": "
         "40000}]",
         "80000 devices"},
        {"\"devices\": [{\"type\": \"T4\", \"count\": 40000}], \"count\": 2, \"nic\": \"1Gb/s\"",
         "more than 65536 devices"},
        {"\"devices\": [{\"type\": \"A100\"}]", "A100-80 or A100-40"},
        {"\"devices\": [{\"type\": \"Foo\"}]", "another type needs \"memory\""},
        {"\"devices\": [{\"type\": \"Foo\", \"memory\": \"8GiB\", \"count\": 2}]",
         "\"intra\" is missing"},
        {"\"devices\": [{\"type\": \"T4\", \"compute_capability\": 8}]", "80 for 8.0"},
        {"\"devices\": [{\"type\": \"T4\", \"uuid\": \"u\", \"count\": 2}]", "only one device"},
        {"\"devices\": [{\"type\": \"T4\", \"uuid\": \"u\"}], \"count\": 2, \"nic\": \"1Gb/s\"",
         "identity"},
        {"\"devices\": [{\"type\": \"T4\"}], \"count\": 2", "\"nic\" is missing"},
        {"\"devices\": [{\"type\": \"T4\"}], \"name\": \"\"", "$.nodes[0].name"},
        {"\"devices\": [{\"type\": \"T4\", \"uuid\": \"u\"}, {\"type\": \"T4\", \"uuid\": \"u\"}]",
         "two devices have the uuid \"u\""},
        {"\"devices\": [{\"type\": \"T4\", \"pci_bus_id\": \"b\"}, {\"type\": \"T4\", "
         "\"pci_bus_id\": \"b\"}]",
         "pci_bus_id \"b\""},
    };
    zs_cluster c;
    zs_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(parse_node(&c, cases[i].members, &err), &err, ZS_ERR_INPUT, cases[i].message);
    CHECK_FAILS(parse(&c,
                      "{\"format\": \"zplan-cluster\", \"version\": 1, \"nodes\": ["
                      "{\"name\": \"a\", \"devices\": [{\"type\": \"T4\"}], \"nic\": \"1Gb/s\"}, "
                      "{\"name\": \"a\", \"devices\": [{\"type\": \"T4\"}], \"nic\": \"1Gb/s\"}]}",
                      &err),
                &err, ZS_ERR_INPUT, "two nodes have the name \"a\"");
    CHECK_FAILS(parse(&c, "{\"format\": \"zplan-job\", \"version\": 1, \"nodes\": []}", &err), &err,
                ZS_ERR_INPUT, "zplan-cluster");
    CHECK_FAILS(parse(&c, "{\"format\": \"zplan-cluster\", \"version\": 2, \"nodes\": []}", &err),
                &err, ZS_ERR_INPUT, "version");
}

static void test_line(void)
{
    zs_cluster c;
    zs_error err;
    if (!CHECK(zs_cluster_load(&c, arena, "2x(4xA100-80G)+1x(8xV100-32G)", &err), "%s",
               err.message))
        return;
    CHECK(c.n_nodes == 3 && zs_cluster_n_devices(&c) == 16, "%d nodes", c.n_nodes);
    CHECK_STRING(c.nodes[1].name, "node1");
    CHECK_STRING(c.nodes[1].devices[3].type, "A100-80");
    CHECK_STRING(c.nodes[2].devices[7].type, "V100-32");
    CHECK_NEAR(c.nodes[2].intra_bytes_per_s, 150e9, 0);
    CHECK_NEAR(c.nodes[0].nic_bytes_per_s, 12.5e9, 0);

    CHECK(zs_cluster_load(&c, arena, " 1x( 2xRTX-3090 + T4 ) @ 25Gb/s + (4xL4) ", &err), "%s",
          err.message);
    CHECK(c.n_nodes == 2 && c.nodes[0].n_devices == 3 && c.nodes[1].n_devices == 4, "mixed node");
    CHECK_STRING(c.nodes[0].devices[2].type, "T4");
    CHECK_NEAR(c.nodes[0].intra_bytes_per_s, 16e9, 0); /* the slowest, T4 */
    CHECK_NEAR(c.nodes[0].nic_bytes_per_s, 3.125e9, 0);
    CHECK_NEAR(c.nodes[1].nic_bytes_per_s, 12.5e9, 0);

    CHECK(zs_cluster_load(&c, arena, "8192x(8xH100-80)", &err), "%s", err.message);
    CHECK(zs_cluster_n_devices(&c) == 65536, "largest cluster");
    CHECK_STRING(c.nodes[8191].name, "node8191");
}

static void test_line_refusals(void)
{
    static const char *const cases[][2] = {
        {"", "expected \"(\" at \"\""},
        {"4xT4", "expected \"(\" at \"T4\""},
        {"cluster.jsn", "write a path ending in .json"},
        {"0x(T4)", "a count of 1 to 65536 at \"0x(T4)\""},
        {"99999999999999999999x(T4)", "a count of 1 to 65536"},
        {"-1x(T4)", "expected \"(\" at \"-1x(T4)\""},
        {"2(T4)", "\"x\" behind the count"},
        {"2x(T4", "\"+\" or \")\""},
        {"2x()", "a GPU type"},
        {"2x(T4+)", "a GPU type"},
        {"2x(T4))", "\"+\" or the end at \")\""},
        {"2x(T4)+", "expected \"(\""},
        {"2x(4xA100)", "A100-80 or A100-40"},
        {"2x(4xT5)", "did you mean \"T4\""},
        {"2x(T4)@25", "25"},
        {"2x(T4)@", "cluster \"2x(T4)@\""},
        {"2x(T4)@0Gb/s", "nic is out of range"},
        {"65536x(2xT4)", "more than 65536 devices"},
        {"1x(65536xT4+T4)", "more than 65536 devices"},
    };
    zs_cluster c;
    zs_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(zs_cluster_load(&c, arena, cases[i][0], &err), &err, ZS_ERR_INPUT, cases[i][1]);
}

/* What would exhaust the memory or make times infinite. */
static void test_excess(void)
{
    enum { N = 20000 };
    zs_error err;
    zs_cluster c;
    char *line = zs_arena_alloc(arena, N * 6 + 1, 1, &err);
    for (int i = 0; i < N; i++)
        memcpy(line + 5 * i, "(T4)+", 5);
    line[5 * N - 1] = 0;
    CHECK(zs_cluster_parse_line(&c, arena, line, &err) && c.n_nodes == N, "%s", err.message);
    memset(line, 0, N * 6 + 1);
    for (int i = 0; i < N; i++)
        memcpy(line + 1 + 3 * i, "T4+", 3);
    line[0] = '(';
    line[3 * N] = ')';
    CHECK(zs_cluster_parse_line(&c, arena, line, &err) && c.nodes[0].n_devices == N, "%s",
          err.message);

    char members[1024], text[301];
    memset(text, 'a', 300);
    text[300] = 0;
    snprintf(members, sizeof members, "\"name\": \"%s\", \"devices\": [{\"type\": \"T4\"}]", text);
    CHECK_FAILS(parse_node(&c, members, &err), &err, ZS_ERR_INPUT,
                "c.json: $.nodes[0].name: has 300 bytes, expected at most 255");
    snprintf(members, sizeof members, "\"devices\": [{\"type\": \"%s\", \"memory\": \"1GiB\"}]",
             text);
    CHECK_FAILS(parse_node(&c, members, &err), &err, ZS_ERR_INPUT,
                "c.json: $.nodes[0].devices[0].type: has 300 bytes");
    static const struct {
        const char *members, *message;
    } cases[] = {
        {"\"nic_bytes_per_s\": 1e-300", "nic is out of range, expected a bandwidth from 1kB/s"},
        {"\"nic_bytes_per_s\": 1e300", "nic is out of range"},
        {"\"nic\": \"1GB/s\", \"intra\": \"1B/s\"", "intra is out of range"},
        {"\"nic\": \"1GB/s\", \"intra_latency_ms\": 1e300", "intra_latency is out of range"},
        {"\"nic\": \"1GB/s\", \"nic_latency\": \"1e12s\"", "nic_latency is out of range"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(members, sizeof members, "\"devices\": [{\"type\": \"T4\"}], %s",
                 cases[i].members);
        CHECK_FAILS(parse_node(&c, members, &err), &err, ZS_ERR_INPUT, cases[i].message);
    }
    CHECK_FAILS(zs_cluster_parse_line(&c, arena, "2x(4xT4)@1e-300B/s", &err), &err, ZS_ERR_INPUT,
                "\"1e-300B/s\": nic is out of range");
}

static const char *write(const zs_cluster *c)
{
    zs_json_writer *w = NULL;
    zs_error err;
    const char *text = NULL;
    size_t size = 0;
    char *copy = NULL;
    if (!CHECK(zs_json_writer_open(&w, &err), "%s", err.message))
        return "";
    zs_cluster_write(w, NULL, c);
    if (CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message))
        copy = zs_arena_strndup(arena, text, size, &err);
    zs_json_writer_close(&w);
    return copy ? copy : "";
}

/* The normal form reads back to itself; equal nodes with default names are one entry. */
static void test_write(void)
{
    const char *const sources[] = {golden_file("cluster.json"), "2x(4xA100-80G)+1x(8xV100-32G)",
                                   "1x(2xRTX-3090+1xT4)@25Gb/s+3x(2xL4)", "1000x(8xH200)"};
    zs_error err;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        zs_cluster c, again;
        if (!CHECK(zs_cluster_load(&c, arena, sources[i], &err), "%s", err.message))
            continue;
        const char *text = write(&c);
        if (CHECK(parse(&again, text, &err), "%s: %s", sources[i], err.message))
            CHECK_STRING(write(&again), text);
        CHECK(i < 3 || strlen(text) < 700, "%zu bytes for 1000 equal nodes", strlen(text));
        CHECK(again.n_nodes == c.n_nodes, "%s: %d nodes of %d", sources[i], again.n_nodes,
              c.n_nodes);
    }
}

int main(int argc, char **argv)
{
    zs_error err;
    if (argc < 2 || !zs_arena_open(&arena, &err))
        return 1;
    golden = argv[1];
    test_file();
    test_bandwidth_units();
    test_memory_units();
    test_refusals();
    test_line();
    test_line_refusals();
    test_excess();
    test_write();
    zs_arena_close(&arena);
    return check_done();
}
