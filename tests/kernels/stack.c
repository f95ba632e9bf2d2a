#include "tests/kernels/stack.h"

#include "shared/rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static void must(bool ok, const zs_error *err)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static zx_real *new_reals(stack *s, int64_t n, const char *what)
{
    void *memory = NULL;
    zs_error err;
    must(s->b->ops->alloc(s->b, &memory, n * (int64_t)sizeof(zx_real), what, &err), &err);
    return (zx_real *)memory;
}

zm_model stack_model(int L, int C, int NH, int V, int T, bool tied)
{
    return stack_family(ZM_GPT2, L, C, NH, NH, V, T, tied);
}

zm_model stack_family(zm_family family, int L, int C, int NH, int NKV, int V, int T, bool tied)
{
    static const zm_activation activations[ZM_N_FAMILIES] = {
        [ZM_GPT2] = ZM_GELU_TANH, [ZM_OPT] = ZM_RELU, [ZM_LLAMA] = ZM_SILU};
    return (zm_model){.name = "stack",
                      .family = family,
                      .n_blocks = L,
                      .n_channels = C,
                      .n_heads = NH,
                      .n_kv_heads = NKV,
                      .n_ffn = family == ZM_LLAMA ? 2 * C + 5 : 4 * C,
                      .n_vocab = V,
                      .n_positions = T,
                      .activation = activations[family],
                      .norm_eps = 1e-5,
                      .rope_theta = family == ZM_LLAMA ? 1e4 : 0,
                      .tied = tied};
}

/* Noise on every tensor, also on those that usually start at zero: else their gradients would hide
 * errors of others. */
static void fill_params(stack *s, uint64_t seed)
{
    for (int i = 0; i < s->n_tensors; i++) {
        const zm_tensor *t = &s->tensors[i].tensor;
        zx_real *p = s->params + s->tensors[i].offset;
        const double size = t->n_dims == 2 ? 0.2 : 0.1;
        const double offset = t->init == ZM_INIT_ONES ? 1 : 0;
        if (t->shared)
            continue;
        for (int64_t j = 0; j < t->count; j++)
            p[j] =
                (zx_real)(float)(offset +
                                 size * (2 * zs_rng_uniform(seed, ZS_RNG_TEST,
                                                            (uint64_t)(s->tensors[i].offset + j)) -
                                         1));
    }
}

void stack_open(stack *s, zx_backend *b, const zm_model *model, int B, int T, uint64_t seed)
{
    const int L = model->n_blocks;
    const int64_t n = (int64_t)B * T;
    zs_error err;
    assert(L <= STACK_MAX_BLOCKS && T <= model->n_positions);
    *s = (stack){.b = b, .model = *model, .B = B, .T = T};
    must(zs_arena_open(&s->arena, &err), &err);
    must(zm_stage_tensors(&s->tensors, &s->n_tensors, s->arena, model, 0, L, &err), &err);
    s->n_params = zm_stage_n_params(model, 0, L);
    s->params = new_reals(s, s->n_params, "parameters");
    s->grads = new_reals(s, s->n_params, "gradients");
    for (int layer = 0; layer < L + 2; layer++) {
        zx_layer_point(&s->layer_params[layer], s->params, s->tensors, s->n_tensors, layer);
        zx_layer_point(&s->layer_grads[layer], s->grads, s->tensors, s->n_tensors, layer);
    }
    for (int i = 0; i <= L; i++)
        s->outs[i] = new_reals(s, n * model->n_channels, "outputs");
    for (int i = 0; i < L; i++)
        s->acts[i] = new_reals(s, zx_block_acts_size(model, B, T), "activations");
    s->head_acts = new_reals(s, zx_head_acts_size(model, B, T), "logits");
    s->dout = new_reals(s, n * model->n_channels, "output gradients");
    s->scratch = new_reals(s, zx_block_scratch_size(model, B, T), "scratch");
    s->tokens = ZS_NEW(s->arena, int32_t, n, &err);
    s->targets = ZS_NEW(s->arena, int32_t, n, &err);
    must(s->tokens != NULL && s->targets != NULL, &err);
    fill_params(s, seed);
}

void stack_close(stack *s)
{
    zs_arena_close(&s->arena);
}

double stack_forward(stack *s, double scale)
{
    const int L = s->model.n_blocks;
    double loss_sum = 0;
    zs_error err;
    must(zx_embedding_forward(s->b, &s->model, s->outs[0], &s->layer_params[0], s->tokens, s->B,
                              s->T, &err),
         &err);
    for (int i = 0; i < L; i++)
        must(zx_block_forward(s->b, &s->model, s->outs[i + 1], s->acts[i], s->outs[i],
                              &s->layer_params[i + 1], s->scratch, s->B, s->T, &err),
             &err);
    must(zx_head_forward(s->b, &s->model, &loss_sum, s->head_acts, s->outs[L],
                         &s->layer_params[L + 1], s->targets, s->B, s->T, scale, &err),
         &err);
    must(s->b->ops->sync(s->b, &err), &err);
    return loss_sum;
}

void stack_backward(stack *s)
{
    const int L = s->model.n_blocks;
    zs_error err;
    must(zx_head_backward(s->b, &s->model, s->dout, &s->layer_grads[L + 1], s->head_acts,
                          s->outs[L], &s->layer_params[L + 1], s->scratch, s->B, s->T, &err),
         &err);
    for (int i = L - 1; i >= 0; i--)
        must(zx_block_backward(s->b, &s->model, s->dout, &s->layer_grads[i + 1], s->dout,
                               s->acts[i], s->outs[i], &s->layer_params[i + 1], s->scratch, s->B,
                               s->T, &err),
             &err);
    must(zx_embedding_backward(s->b, &s->model, &s->layer_grads[0], s->tokens, s->dout, s->B, s->T,
                               &err),
         &err);
}

double stack_step(stack *s, double lr)
{
    double sum = 0;
    zs_error err;
    if (s->m == NULL) {
        s->m = new_reals(s, s->n_params, "first moment");
        s->v = new_reals(s, s->n_params, "second moment");
    }
    must(s->b->ops->sum_of_squares(s->b, &sum, s->grads, s->n_params, &err), &err);
    must(s->b->ops->sync(s->b, &err), &err);
    const double norm = sqrt(sum);
    const zx_adamw options = {.lr = lr,
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .weight_decay = 0.1,
                              .grad_scale = norm > 1 ? 1 / (norm + 1e-6) : 1,
                              .step = ++s->step};
    must(s->b->ops->adamw(s->b, s->params, s->m, s->v, s->grads, s->n_params, &options, &err),
         &err);
    must(s->b->ops->zero(s->b, s->grads, s->n_params * (int64_t)sizeof(zx_real), &err), &err);
    return norm;
}
