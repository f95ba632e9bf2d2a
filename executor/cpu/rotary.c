#include "executor/cpu/kernels.h"

#include <assert.h>
#include <math.h>

/* The table for these positions: of the run's first call, as a run has one model and one sequence
 * length. In double, so that far positions lose nothing. */
static bool find_angles(zx_cpu *cpu, double theta, int T, int head_size, zs_error *err)
{
    zx_angles *a = &cpu->angles;
    const int half = head_size / 2;
    if (a->memory != NULL && a->theta == theta && a->head_size == head_size && a->T >= T)
        return true;
    const int64_t n = (int64_t)T * half;
    void *memory;
    if (a->memory != NULL)
        cpu->base.ops->free(&cpu->base, &a->memory);
    if (!cpu->base.ops->alloc(&cpu->base, &memory, 2 * n * (int64_t)sizeof(zx_real),
                              "rotary positions", err))
        return false;
    zx_real *cosines = memory;
    zx_real *sines = cosines + n;
    for (int i = 0; i < half; i++) {
        const double frequency = pow(theta, -2.0 * i / head_size);
        for (int t = 0; t < T; t++) {
            cosines[(int64_t)t * half + i] = (zx_real)cos(t * frequency);
            sines[(int64_t)t * half + i] = (zx_real)sin(t * frequency);
        }
    }
    *a = (zx_angles){memory, cosines, sines, theta, T, head_size};
    return true;
}

/* The heads of one token; sign -1 turns back. */
static ZX_CLONES void turn(zx_real *x, const zx_real *cosines, const zx_real *sines, zx_real sign,
                           int n_heads, int half)
{
    for (int head = 0; head < n_heads; head++) {
        zx_real *first = x + (int64_t)head * 2 * half;
        zx_real *second = first + half;
#pragma omp simd
        for (int i = 0; i < half; i++) {
            const zx_real c = cosines[i];
            const zx_real s = sign * sines[i];
            const zx_real a = first[i];
            const zx_real b = second[i];
            first[i] = a * c - b * s;
            second[i] = b * c + a * s;
        }
    }
}

bool zx_cpu_rotary(zx_backend *b, zx_real *x, double theta, bool inverse, int B, int T, int n_heads,
                   int head_size, zs_error *err)
{
    zx_cpu *cpu = (zx_cpu *)b;
    const int64_t n = (int64_t)B * T;
    const int64_t C = (int64_t)n_heads * head_size;
    const int n_threads = zx_cpu_threads(b, n * C);
    const int half = head_size / 2;
    assert(head_size % 2 == 0);
    if (n == 0)
        return true;
    if (!find_angles(cpu, theta, T, head_size, err))
        return false;
    const zx_angles *a = &cpu->angles;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range rows = zx_cpu_part(n, 1, n_threads, part);
        for (int64_t row = rows.first; row < rows.end; row++) {
            const int64_t at = row % T * half;
            turn(x + row * C, a->cos + at, a->sin + at, inverse ? -1 : 1, n_heads, half);
        }
    }
    return true;
}
