#include "shared/gpus.h"
#include "tests/support/check.h"

#include <string.h>

static void test_spellings(void)
{
    static const char *const pairs[][2] = {
        {"A100-80", "A100-80"},
        {"A100-80G", "A100-80"},
        {"A100-80GB", "A100-80"},
        {"a100-80", "A100-80"},
        {"A100-40G", "A100-40"},
        {"NVIDIA A100-SXM4-40GB", "A100-40"},
        {"T4", "T4"},
        {"T4-16G", "T4"},
        {"L4-24G", "L4"},
        {"L40S", "L40S"},
        {"H200", "H200"},
        {"H100", "H100-80"},
        {"RTX3090", "RTX-3090"},
        {"RTX3090-24", "RTX-3090"},
        {"NVIDIA GeForce RTX 2080 Ti", "RTX-2080Ti"},
        {"Tesla V100-SXM2-16GB", "V100-16"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const zs_gpu *gpu = zs_gpus_find(pairs[i][0]);
        if (CHECK(gpu, "\"%s\" not found", pairs[i][0]))
            CHECK_STRING(gpu->type, pairs[i][1]);
    }
}

static void test_unknown(void)
{
    static const char *const texts[] = {"",         "A100",     "V100",   "A100-64", "T4-24G",
                                        "A100-80T", "A100-080", "B300-1", "L4-24GiB"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        CHECK(!zs_gpus_find(texts[i]), "\"%s\" found", texts[i]);

    zs_error err;
    CHECK_FAILS(zs_gpus_fail_unknown("A100", &err), &err, ZS_ERR_INPUT, "A100-80 or A100-40");
    CHECK_FAILS(zs_gpus_fail_unknown("RTX-3080", &err), &err, ZS_ERR_INPUT,
                "\"RTX-3080\", did you mean \"RTX-");
    CHECK_FAILS(zs_gpus_fail_unknown("Voodoo2", &err), &err, ZS_ERR_INPUT, "known: H200, ");
    char text[300];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    CHECK(!zs_gpus_find(text), "long text found");
    CHECK_FAILS(zs_gpus_fail_unknown(text, &err), &err, ZS_ERR_INPUT, "Titan-RTX");
}

/* What every row must satisfy whatever the data sheet says. */
static void test_rows(void)
{
    int n;
    const zs_gpu *gpus = zs_gpus_all(&n);
    for (int i = 0; i < n; i++) {
        const zs_gpu *g = &gpus[i];
        CHECK(zs_gpus_find(g->type) == g, "%s: type finds another row", g->type);
        CHECK(zs_gpus_find(g->product) == g, "%s: product finds another row", g->type);
        CHECK((g->compute_capability >= 80) == (g->flops_per_s[ZS_BF16] > 0), "%s: bf16", g->type);
        const double nominal = (double)g->nominal_gb * 1073741824.0;
        CHECK((double)g->memory_bytes <= nominal && (double)g->memory_bytes >= 0.93 * nominal,
              "%s: memory %lld", g->type, (long long)g->memory_bytes);
        CHECK(g->flops_per_s[ZS_FP32] >= 5e12 && g->flops_per_s[ZS_FP32] <= 1e14, "%s: fp32",
              g->type);
        CHECK(g->memory_bytes_per_s > 2e11 && g->memory_bytes_per_s < 1e13, "%s: bandwidth",
              g->type);
        CHECK(g->intra_bytes_per_s >= 16e9 && g->intra_bytes_per_s <= 450e9, "%s: intra", g->type);
        CHECK(g->source && strstr(g->source, "20"), "%s: source without year", g->type);
    }
}

int main(void)
{
    test_spellings();
    test_unknown();
    test_rows();
    return check_done();
}
