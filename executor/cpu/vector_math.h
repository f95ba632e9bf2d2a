/* Exponential and normal distribution for loops that the compiler turns into vector code: no
 * branches, no calls. In the double build they are libm's. */
#ifndef EXECUTOR_CPU_VECTOR_MATH_H
#define EXECUTOR_CPU_VECTOR_MATH_H

#include "executor/backend.h"

#include <math.h>

#define ZX_INLINE static inline __attribute__((always_inline))

#ifdef ZX_REAL_IS_DOUBLE

#define ZX_SQRT sqrt
#define ZX_REAL_MAX 1.7976931348623157e308

ZX_INLINE double zx_exp(double x)
{
    return exp(x);
}

/* P(X <= x) of the standard normal distribution, given exp(-x^2/2). */
ZX_INLINE double zx_normal_cdf(double x, double exp_half_square)
{
    (void)exp_half_square;
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

#else

#define ZX_SQRT sqrtf
#define ZX_REAL_MAX 3.40282347e38f

/* exp(x) within 2 ulp for -87.3 <= x <= 88; 0 below, exp(88) above; NaN stays NaN.
 * x = k ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts so that k times the first is exact (Cody
 * and Waite, Software Manual for the Elementary Functions, 1980, ch. 6); exp(r) by its Taylor
 * series to degree 7, whose remainder is below 6e-9 relative. Adding 1.5 * 2^23 rounds to the
 * nearest integer and leaves it in the low bits. */
ZX_INLINE float zx_exp(float x)
{
    union {
        float real;
        uint32_t bits;
    } shifted, power;
    const float round_to_int = 12582912.0f;
    const float clamped = x > 88.0f ? 88.0f : x;
    shifted.real = clamped * 1.44269504089f + round_to_int;
    const float k = shifted.real - round_to_int;
    const float r = (clamped - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    power.bits = (shifted.bits + 127u) << 23;
    return x < -87.3f ? 0.0f : p * power.real;
}

/* P(X <= x) of the standard normal distribution, given exp(-x^2/2): with a = |x| / sqrt(2) and
 * t = 1 / (1 + 0.35 a), erfc(a) = exp(-a^2) t Q(t), the form of Abramowitz and Stegun, Handbook of
 * Mathematical Functions, 1964, 7.1.26; Q of degree 9 is fitted here by Remez' exchange over
 * 0 <= a <= 9.5 to 6.6e-9 relative. Error at most 2e-7 absolute. */
ZX_INLINE float zx_normal_cdf(float x, float exp_half_square)
{
    const float a = (x < 0.0f ? -x : x) * 0.70710678f;
    const float t = 1.0f / (1.0f + 0.35f * a);
    float q = 0.0376074966f;
    q = q * t - 0.1544678805f;
    q = q * t + 0.1705672940f;
    q = q * t - 0.0125560763f;
    q = q * t + 0.0738213148f;
    q = q * t + 0.1534983162f;
    q = q * t + 0.1484587149f;
    q = q * t + 0.1885243894f;
    q = q * t + 0.1970582189f;
    q = q * t + 0.1974882184f;
    const float upper_tail = 0.5f * exp_half_square * t * q;
    return x < 0.0f ? upper_tail : 1.0f - upper_tail;
}

#endif

/* Largest of n >= 1 elements; NaN is skipped. In lanes, because a compiler may not reorder
 * comparisons that could meet NaN. */
ZX_INLINE zx_real zx_max(const zx_real *x, int64_t n)
{
    enum { N_LANES = 32 };
    zx_real lanes[N_LANES];
    int64_t i = 0;
    for (int lane = 0; lane < N_LANES; lane++)
        lanes[lane] = -ZX_REAL_MAX;
    for (; i + N_LANES <= n; i += N_LANES) {
        for (int lane = 0; lane < N_LANES; lane++)
            lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    }
    for (; i < n; i++)
        lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    for (int lane = 1; lane < N_LANES; lane++)
        lanes[0] = lanes[lane] > lanes[0] ? lanes[lane] : lanes[0];
    return lanes[0];
}

#endif
