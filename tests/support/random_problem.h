/* Random assignment problems: several GPU types and nodes, tables that are neither affine nor
 * always ascending and leave sizes out, memory so tight that part of them has no plan. */
#ifndef TESTS_SUPPORT_RANDOM_PROBLEM_H
#define TESTS_SUPPORT_RANDOM_PROBLEM_H

#include "planner/problem.h"

#include <stdint.h>

enum { RANDOM_MAX_BATCHINGS = 4, RANDOM_MAX_SAMPLES = 16 };

typedef enum random_size {
    RANDOM_SMALL, /* up to 6 GPUs and 8 blocks: few enough to try everything */
    RANDOM_MEDIUM /* up to 12 GPUs and 16 blocks */
} random_size;

typedef struct random_problem {
    zp_problem problem; /* points into this struct */
    zp_batching batchings[RANDOM_MAX_BATCHINGS];
    double tables_ms[ZP_MAX_CLASSES][4][RANDOM_MAX_SAMPLES + 1];
} random_problem;

void random_problem_fill(random_problem *out, uint64_t seed, random_size size);

#endif
