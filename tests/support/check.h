/* Checks for tests. A program calls CHECK as often as it likes and returns check_done(). Random
 * tests take seeds from check_seeds(n) and print them; CHECK_SEED=n replays one. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include "shared/error.h"

#include <stdint.h>
#include <stdio.h>

enum { CHECK_SKIP = 77 }; /* exit status of a test that cannot run here */

#define CHECK(condition, ...) check_that((condition), #condition, __FILE__, __LINE__, __VA_ARGS__)

/* a and b differ by at most tolerance relative to the larger magnitude (absolute below 1). */
#define CHECK_NEAR(a, b, tolerance) check_near((a), (b), (tolerance), #a, __FILE__, __LINE__)
#define CHECK_STRING(a, b) check_string((a), (b), #a, __FILE__, __LINE__)

/* call returned false with that code and a message that holds text. */
#define CHECK_FAILS(call, err, expected_code, text)                                                \
    check_fails((call), (err), (expected_code), (text), #call, __FILE__, __LINE__)

bool check_that(bool ok, const char *condition, const char *file, int line, const char *format, ...)
    ZS_PRINTF(5, 6);
bool check_near(double a, double b, double tolerance, const char *what, const char *file, int line);
bool check_string(const char *a, const char *b, const char *what, const char *file, int line);
bool check_fails(bool result, const zs_error *err, zs_code code, const char *text, const char *what,
                 const char *file, int line);

/* Prints "N checks, N failed" and returns the exit status. */
int check_done(void);

/* Runs test(seed) for n seeds, or for CHECK_SEED alone; prints the seed of a failing one. */
void check_seeds(void (*test)(uint64_t seed), uint64_t first_seed, int n);

typedef struct check_rng {
    uint64_t seed;
    uint64_t index;
} check_rng;

check_rng check_rng_from(uint64_t seed);
int64_t check_rng_int(check_rng *rng, int64_t min, int64_t max); /* inclusive */
double check_rng_double(check_rng *rng, double min, double max);
void check_rng_weights(check_rng *rng, double *weights, int n); /* each >= 0, some 0, sum 1 */

#endif
