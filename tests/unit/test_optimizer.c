#include "executor/optimizer.h"

#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static zs_error err;

static void test_lr(void)
{
    zx_lr lr = {.max = 1e-3, .min = 1e-4, .n_warmup = 4, .n_steps = 10, .decay = ZX_LR_COSINE};
    CHECK_NEAR(zx_lr_at(&lr, 0) * 1e3, 0.25, 1e-15);
    CHECK_NEAR(zx_lr_at(&lr, 3) * 1e3, 1, 1e-15);
    CHECK_NEAR(zx_lr_at(&lr, 4) * 1e3, 1, 1e-15);
    CHECK_NEAR(zx_lr_at(&lr, 7) * 1e3, 0.55, 1e-15); /* half of the way */
    /* 0.1 + 0.9 (1 + cos(pi / 3)) / 2 */
    CHECK_NEAR(zx_lr_at(&lr, 6) * 1e3, 0.775, 1e-15);
    CHECK_NEAR(zx_lr_at(&lr, 10) * 1e3, 0.1, 1e-15);
    CHECK_NEAR(zx_lr_at(&lr, 1000) * 1e3, 0.1, 1e-15);
    lr.decay = ZX_LR_LINEAR;
    CHECK_NEAR(zx_lr_at(&lr, 6) * 1e3, 0.7, 1e-15);
    lr.decay = ZX_LR_CONSTANT;
    CHECK(zx_lr_at(&lr, 9) == 1e-3, "%g", zx_lr_at(&lr, 9));
    CHECK_NEAR(zx_lr_at(&lr, 1) * 1e3, 0.5, 1e-15);
    /* Warm-up as long as the run, and none at all. */
    lr = (zx_lr){.max = 1, .min = 0, .n_warmup = 5, .n_steps = 5, .decay = ZX_LR_LINEAR};
    CHECK(zx_lr_at(&lr, 4) == 1 && zx_lr_at(&lr, 5) == 0, "%g", zx_lr_at(&lr, 5));
    lr = (zx_lr){.max = 1, .min = 0, .n_warmup = 0, .n_steps = 2, .decay = ZX_LR_LINEAR};
    CHECK(zx_lr_at(&lr, 0) == 1 && zx_lr_at(&lr, 1) == 0.5, "%g", zx_lr_at(&lr, 1));
}

static void test_clip(void)
{
    /* Stages of norm 3 and 4 together: 5; limit 1 scales both by 0.2. */
    CHECK_NEAR(zx_clip_scale(sqrt(9.0 + 16.0), 1), 0.2, 1e-6);
    CHECK(zx_clip_scale(5, 5) == 1 && zx_clip_scale(0, 1) == 1, "clipped at or below the limit");
    CHECK(zx_clip_scale(5, 0) == 1, "0 is no clipping");
}

/* An optimizer over a made-up stage of two tensors, of which the rank owns [2, 7): the end of one
 * with decay, the beginning of one without. */
static void test_update(void)
{
    enum { FIRST = 2, N = 5, SPLIT = 4, N_PARAMS = 10 };
    zx_real params[N_PARAMS], grads[N];
    const zm_stage_tensor tensors[] = {
        {.tensor = {.count = SPLIT, .decay = true}, .offset = 0},
        {.tensor = {.count = N_PARAMS - SPLIT, .decay = false}, .offset = SPLIT}};
    zx_backend *backend = NULL;
    if (!CHECK(zx_backend_cpu.open(&backend, 0, 1, &err), "%s", err.message))
        return;
    zx_stage stage = {
        .backend = backend, .params = params, .tensors = tensors, .n_tensors = 2, .n_params = 10};
    zx_zero zero = {.stage = &stage, .shard = {FIRST, N}, .owned_params = params + FIRST};
    zero.segments[ZX_SEGMENT_OWN] = (zx_segment){.owned = {FIRST, N}, .owned_grads = grads};
    zx_optimizer o;
    CHECK(zx_optimizer_open(&o, &zero, 0.9, 0.95, 1e-8, 0.1, &err), "%s", err.message);
    double p[N_PARAMS], m[N] = {0}, v[N] = {0};
    for (int i = 0; i < N_PARAMS; i++)
        p[i] = params[i] = (zx_real)(0.5 - 0.1 * i);
    for (int step = 1; step <= 3; step++) {
        const double lr = 0.01 * step, scale = step == 2 ? 0.5 : 1;
        for (int i = 0; i < N; i++) {
            grads[i] = (zx_real)(0.3 * (i - 2) * step);
            /* Loshchilov and Hutter, ICLR 2019, algorithm 2 */
            const double g = scale * (double)grads[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            const double mhat = m[i] / (1 - pow(0.9, step)), vhat = v[i] / (1 - pow(0.95, step));
            const double decay = FIRST + i < SPLIT ? 0.1 : 0;
            p[FIRST + i] -= lr * (mhat / (sqrt(vhat) + 1e-8) + decay * p[FIRST + i]);
        }
        CHECK(zx_optimizer_step(&o, lr, scale, &err), "%s", err.message);
        for (int i = 0; i < N_PARAMS; i++)
            CHECK(fabs((double)params[i] - p[i]) < 2e-7, "step %d, element %d: %.9g, expected %.9g",
                  step, i, (double)params[i], p[i]);
    }
    CHECK(o.n_updates == 3, "%" PRId64, o.n_updates);
    backend->ops->close(&backend);
}

int main(void)
{
    test_lr();
    test_clip();
    test_update();
    return check_done();
}
