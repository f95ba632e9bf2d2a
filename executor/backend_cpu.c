#include "executor/cpu/kernels.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if HAVE_OPENMP
#include <omp.h>
#endif

struct zx_cpu_allocation {
    zx_cpu_allocation *next;
    void *memory;
    int64_t size_bytes;
};

enum { CACHE_LINE_BYTES = 64, HUGE_PAGE_BYTES = 2 << 20 };

/* Starting and joining threads takes 2 to 20 us, a loop a few elements per ns. */
enum { WORK_PER_THREAD = 16384 };

static int default_n_threads(void)
{
#if HAVE_OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static bool cpu_open(zx_backend **out, int device, int n_threads, zs_error *err)
{
    (void)device;
    if (n_threads < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "threads: %d, expected 0 (all) or more", n_threads);
    zx_cpu *cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "cpu backend: out of memory");
    cpu->base.ops = &zx_backend_cpu;
    cpu->n_threads = n_threads > 0 ? n_threads : default_n_threads();
    cpu->work_per_thread = WORK_PER_THREAD;
    zx_cpu_gemm_open();
    *out = &cpu->base;
    return true;
}

static void drop(zx_cpu *cpu, zx_cpu_allocation **link)
{
    zx_cpu_allocation *a = *link;
    *link = a->next;
    cpu->allocated_bytes -= a->size_bytes;
    free(a->memory);
    free(a);
}

static void cpu_close(zx_backend **backend)
{
    zx_cpu *cpu = (zx_cpu *)*backend;
    if (cpu == NULL)
        return;
    while (cpu->allocations != NULL)
        drop(cpu, &cpu->allocations);
    free(cpu);
    *backend = NULL;
}

static bool cpu_zero(zx_backend *b, void *device, int64_t size_bytes, zs_error *err)
{
    const int n_threads = zx_cpu_threads(b, size_bytes / (int64_t)sizeof(zx_real));
    (void)err;
#pragma omp parallel for schedule(static, 1) num_threads(n_threads) if (n_threads > 1)
    for (int part = 0; part < n_threads; part++) {
        const zx_range range = zx_cpu_part(size_bytes, CACHE_LINE_BYTES, n_threads, part);
        memset((char *)device + range.first, 0, (size_t)(range.end - range.first));
    }
    return true;
}

static bool cpu_alloc(zx_backend *b, void **out, int64_t size_bytes, const char *what,
                      zs_error *err)
{
    zx_cpu *cpu = (zx_cpu *)b;
    zx_cpu_allocation *a = calloc(1, sizeof(*a));
    void *memory = NULL;
    if (a == NULL)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", what);
    /* Large regions are walked from end to end each step; with small pages the walk is bound by
     * address translation. */
    const bool large = size_bytes >= 2 * (int64_t)HUGE_PAGE_BYTES;
    const size_t size = size_bytes > 0 ? (size_t)size_bytes : 1;
    if (size_bytes < 0 ||
        posix_memalign(&memory, large ? HUGE_PAGE_BYTES : CACHE_LINE_BYTES, size) != 0) {
        free(a);
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory, %" PRId64 " bytes beside %" PRId64,
                       what, size_bytes, cpu->allocated_bytes);
    }
    if (large)
        (void)madvise(memory, size, MADV_HUGEPAGE); /* advice only: nothing lost when refused */
    *a = (zx_cpu_allocation){cpu->allocations, memory, size_bytes};
    cpu->allocations = a;
    cpu->allocated_bytes += size_bytes;
    if (cpu->allocated_bytes > cpu->peak_bytes)
        cpu->peak_bytes = cpu->allocated_bytes;
    *out = memory;
    return cpu_zero(b, memory, size_bytes, err);
}

static void cpu_free(zx_backend *b, void **memory)
{
    zx_cpu *cpu = (zx_cpu *)b;
    for (zx_cpu_allocation **link = &cpu->allocations; *link != NULL; link = &(*link)->next) {
        if ((*link)->memory == *memory) {
            drop(cpu, link);
            break;
        }
    }
    *memory = NULL;
}

bool zx_cpu_scratch(zx_cpu *cpu, void **out, int64_t size_bytes, zs_error *err)
{
    if (size_bytes > cpu->scratch_bytes) {
        cpu_free(&cpu->base, &cpu->scratch);
        cpu->scratch_bytes = 0;
        if (!cpu_alloc(&cpu->base, &cpu->scratch, size_bytes, "attention scratch", err))
            return false;
        cpu->scratch_bytes = size_bytes;
    }
    *out = cpu->scratch;
    return true;
}

static bool cpu_copy(zx_backend *b, void *to, const void *from, int64_t size_bytes, zs_error *err)
{
    (void)b;
    (void)err;
    if (size_bytes > 0)
        memcpy(to, from, (size_t)size_bytes);
    return true;
}

static bool cpu_sync(zx_backend *b, zs_error *err)
{
    (void)b;
    (void)err;
    return true;
}

static int64_t cpu_allocated_bytes(zx_backend *b)
{
    return ((const zx_cpu *)b)->allocated_bytes;
}

static int64_t cpu_peak_bytes(zx_backend *b)
{
    return ((const zx_cpu *)b)->peak_bytes;
}

const zx_backend_ops zx_backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .allocated_bytes = cpu_allocated_bytes,
    .peak_bytes = cpu_peak_bytes,
    .to_device = cpu_copy,
    .to_host = cpu_copy,
    .zero = cpu_zero,
    .copy = cpu_copy,
    .sync = cpu_sync,
    .linear_forward = zx_cpu_linear_forward,
    .linear_backward = zx_cpu_linear_backward,
    .embedding_forward = zx_cpu_embedding_forward,
    .embedding_backward = zx_cpu_embedding_backward,
    .layernorm_forward = zx_cpu_layernorm_forward,
    .layernorm_backward = zx_cpu_layernorm_backward,
    .rmsnorm_forward = zx_cpu_rmsnorm_forward,
    .rmsnorm_backward = zx_cpu_rmsnorm_backward,
    .attention_forward = zx_cpu_attention_forward,
    .attention_backward = zx_cpu_attention_backward,
    .rotary = zx_cpu_rotary,
    .activation_forward = zx_cpu_activation_forward,
    .activation_backward = zx_cpu_activation_backward,
    .swiglu_forward = zx_cpu_swiglu_forward,
    .swiglu_backward = zx_cpu_swiglu_backward,
    .add = zx_cpu_add,
    .cross_entropy = zx_cpu_cross_entropy,
    .sum_of_squares = zx_cpu_sum_of_squares,
    .adamw = zx_cpu_adamw,
};
