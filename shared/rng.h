/* Counter-based random numbers: a value depends on (seed, stream, index) only, so any number of
 * ranks, in any order, draws the same ones. Philox4x32-10 (Salmon et al., Parallel Random Numbers:
 * As Easy as 1, 2, 3, SC 2011, sec. 3). */
#ifndef SHARED_RNG_H
#define SHARED_RNG_H

#include <stdint.h>

/* Stream numbers keep uses apart: weights, data order, dropout, tests. */
enum { ZS_RNG_WEIGHTS = 1, ZS_RNG_DATA = 2, ZS_RNG_DROPOUT = 3, ZS_RNG_TEST = 4 };

/* Philox4x32-10 of counter (index, stream) under key seed; out[4] are independent words. */
void zs_rng_block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t index);

/* 64 random bits. */
uint64_t zs_rng_u64(uint64_t seed, uint64_t stream, uint64_t index);

/* In [0, 1), 53 bits. */
double zs_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* Standard normal (Box-Muller). */
double zs_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);

/* The image of index under a random permutation of [0, n), n >= 1, 0 <= index < n, without a table:
 * a Feistel network over the next power of four, walked until it falls into [0, n) (Black and
 * Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002, sec. 4 and 5). */
int64_t zs_rng_permute(uint64_t seed, uint64_t stream, int64_t index, int64_t n);

#endif
