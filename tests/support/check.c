#include "tests/support/check.h"

#include "shared/rng.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int n_checks, n_failed;

bool check_that(bool ok, const char *condition, const char *file, int line, const char *format, ...)
{
    n_checks++;
    if (ok)
        return true;
    n_failed++;
    fprintf(stderr, "%s:%d: %s: ", file, line, condition);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

bool check_near(double a, double b, double tolerance, const char *what, const char *file, int line)
{
    double scale = fmax(1, fmax(fabs(a), fabs(b)));
    return check_that(fabs(a - b) <= tolerance * scale, what, file, line,
                      "%.12g, expected %.12g within %g", a, b, tolerance);
}

bool check_string(const char *a, const char *b, const char *what, const char *file, int line)
{
    return check_that(a && b && strcmp(a, b) == 0, what, file, line, "\"%s\", expected \"%s\"",
                      a ? a : "(null)", b ? b : "(null)");
}

bool check_fails(bool result, const zs_error *err, zs_code code, const char *text, const char *what,
                 const char *file, int line)
{
    if (!check_that(!result, what, file, line, "succeeded, expected an error with \"%s\"", text))
        return false;
    return check_that(err->code == code && strstr(err->message, text), what, file, line,
                      "code %d, message \"%s\"; expected code %d and \"%s\"", (int)err->code,
                      err->message, (int)code, text);
}

int check_done(void)
{
    fprintf(stderr, "%d checks, %d failed\n", n_checks, n_failed);
    return n_failed ? 1 : 0;
}

void check_seeds(void (*test)(uint64_t seed), uint64_t first_seed, int n)
{
    const char *only = getenv("CHECK_SEED");
    if (only) {
        test(strtoull(only, NULL, 10));
        return;
    }
    fprintf(stderr, "seeds %llu..%llu\n", (unsigned long long)first_seed,
            (unsigned long long)(first_seed + (uint64_t)n - 1));
    for (int i = 0; i < n; i++) {
        int before = n_failed;
        test(first_seed + (uint64_t)i);
        if (n_failed > before)
            fprintf(stderr, "seed %llu failed; replay with CHECK_SEED=%llu\n",
                    (unsigned long long)(first_seed + (uint64_t)i),
                    (unsigned long long)(first_seed + (uint64_t)i));
    }
}

check_rng check_rng_from(uint64_t seed)
{
    return (check_rng){.seed = seed};
}

int64_t check_rng_int(check_rng *rng, int64_t min, int64_t max)
{
    uint64_t span = (uint64_t)max - (uint64_t)min + 1;
    uint64_t bits = zs_rng_u64(rng->seed, ZS_RNG_TEST, rng->index++);
    return (int64_t)((uint64_t)min + (span ? bits % span : bits));
}

double check_rng_double(check_rng *rng, double min, double max)
{
    return min + (max - min) * zs_rng_uniform(rng->seed, ZS_RNG_TEST, rng->index++);
}

void check_rng_weights(check_rng *rng, double *weights, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        weights[i] = check_rng_int(rng, 0, 3) ? check_rng_double(rng, 0, 1) : 0;
        sum += weights[i];
    }
    if (sum <= 0) {
        weights[0] = 1;
        sum = 1;
    }
    for (int i = 0; i < n; i++)
        weights[i] /= sum;
}
