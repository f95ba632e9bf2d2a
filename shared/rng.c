#include "shared/rng.h"

#include <math.h>

static void philox_round(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t y0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
    uint32_t y2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
    c[0] = y0;
    c[1] = (uint32_t)p1;
    c[2] = y2;
    c[3] = (uint32_t)p0;
}

void zs_rng_block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                     (uint32_t)(stream >> 32)};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        philox_round(c, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

uint64_t zs_rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    zs_rng_block(r, seed, stream, index);
    return (uint64_t)r[0] | (uint64_t)r[1] << 32;
}

static double unit(uint32_t low, uint32_t high)
{
    uint64_t bits = ((uint64_t)low | (uint64_t)high << 32) >> 11;
    return (double)bits * 0x1p-53;
}

double zs_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    zs_rng_block(r, seed, stream, index);
    return unit(r[0], r[1]);
}

double zs_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    zs_rng_block(r, seed, stream, index);
    const double two_pi = 6.283185307179586;
    /* 1 - u lies in (0, 1], so that the logarithm is finite. */
    return sqrt(-2 * log(1 - unit(r[0], r[1]))) * cos(two_pi * unit(r[2], r[3]));
}

int64_t zs_rng_permute(uint64_t seed, uint64_t stream, int64_t index, int64_t n)
{
    int half_bits = 1;
    while (half_bits < 31 && (INT64_C(1) << (2 * half_bits)) < n)
        half_bits++;
    const uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t value = (uint64_t)index;
    do {
        uint64_t left = value >> half_bits, right = value & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t mixed = left ^ (zs_rng_u64(seed, stream, right << 8 | round) & mask);
            left = right;
            right = mixed;
        }
        value = left << half_bits | right;
    } while (value >= (uint64_t)n);
    return (int64_t)value;
}
