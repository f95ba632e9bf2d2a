#include "shared/rng.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

/* Known answers of the Philox reference (Random123, kat_vectors, philox4x32 10). */
static void test_known_answers(void)
{
    uint32_t r[4];
    zs_rng_block(r, 0, 0, 0);
    CHECK(r[0] == 0x6627e8d5u && r[1] == 0xe169c58du && r[2] == 0xbc57ac4cu && r[3] == 0x9b00dbd8u,
          "%08x %08x %08x %08x", r[0], r[1], r[2], r[3]);
    zs_rng_block(r, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    CHECK(r[0] == 0x408f276du && r[1] == 0x41c83b0eu && r[2] == 0xa20bc7c6u && r[3] == 0x6d5451fdu,
          "%08x %08x %08x %08x", r[0], r[1], r[2], r[3]);
}

static void test_normal_moments(void)
{
    const int n = 20000;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double x = zs_rng_normal(3, ZS_RNG_TEST, (uint64_t)i);
        sum += x;
        squares += x * x;
    }
    CHECK(fabs(sum / n) < 0.03, "mean %g", sum / n);
    CHECK(fabs(squares / n - 1) < 0.05, "variance %g", squares / n);
}

static void test_permute_is_a_bijection(void)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 64, 100, 1000};
    for (int k = 0; k < 7; k++) {
        const int64_t n = sizes[k];
        char *seen = calloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            int64_t j = zs_rng_permute(11, ZS_RNG_DATA, i, n);
            if (CHECK(j >= 0 && j < n && !seen[j], "n %lld: %lld -> %lld", (long long)n,
                      (long long)i, (long long)j))
                seen[j] = 1;
        }
        free(seen);
    }
}

int main(void)
{
    test_known_answers();
    test_normal_moments();
    test_permute_is_a_bijection();
    return check_done();
}
