#include "planner/link_time.h"
#include "tests/support/check.h"

#include <math.h>

/* 10^9 bytes over 100 Gb/s take 0.08 s, 2^30 bytes 0.0859 s. */
static void test_send(void)
{
    const zp_link link = {.bytes_per_s = 100e9 / 8, .latency_ms = 0};
    CHECK_NEAR(zp_link_send_ms(link, 1e9), 80.0, 1e-12);
    CHECK_NEAR(zp_link_send_ms(link, 1073741824.0), 85.899345920, 1e-12);
    const zp_link far = {.bytes_per_s = 1e9, .latency_ms = 0.5};
    CHECK_NEAR(zp_link_send_ms(far, 2e6), 2.5, 1e-12);
    CHECK_NEAR(zp_link_send_ms(far, 0), 0.5, 1e-12);
}

static void test_collective(void)
{
    const zp_link link = {.bytes_per_s = 1e9, .latency_ms = 0.25};
    CHECK_NEAR(zp_link_collective_ms(link, 8e6, 4), 3 * 0.25 + 0.75 * 8, 1e-12);
    CHECK_NEAR(zp_link_collective_ms(link, 8e6, 1), 0, 0);
}

static void test_between(void)
{
    zs_device devices[2] = {{.type = "T4"}, {.type = "T4"}};
    zs_node nodes[2] = {
        {"a", "", 2, devices, .intra_bytes_per_s = 16e9, 0.001, .nic_bytes_per_s = 3e9, 0.02},
        {"b", "", 2, devices, .intra_bytes_per_s = 50e9, 0.002, .nic_bytes_per_s = 1e9, 0.05},
    };
    const zs_cluster cluster = {"c", 2, nodes};
    zp_link link = zp_link_between(&cluster, 1, 1);
    CHECK(link.bytes_per_s == 50e9 && link.latency_ms == 0.002, "inside b");
    link = zp_link_between(&cluster, 0, 1);
    CHECK(link.bytes_per_s == 1e9 && link.latency_ms == 0.05, "between");
    link = zp_link_between(&cluster, 1, 0);
    CHECK(link.bytes_per_s == 1e9 && link.latency_ms == 0.05, "and back");

    const int one[] = {0}, pair[] = {0, 0}, three[] = {0, 1, 0};
    link = zp_link_of_group(&cluster, one, 1);
    CHECK(isinf(link.bytes_per_s) && link.latency_ms == 0, "one device");
    link = zp_link_of_group(&cluster, pair, 2);
    CHECK(link.bytes_per_s == 16e9 && link.latency_ms == 0.001, "a node");
    link = zp_link_of_group(&cluster, three, 3);
    CHECK(link.bytes_per_s == 1e9 && link.latency_ms == 0.05, "two nodes");
}

int main(void)
{
    test_send();
    test_collective();
    test_between();
    return check_done();
}
