/* Gradients of every layer kind and of a whole model against central differences, in double
 * precision. */
#include "tests/kernels/stack.h"
#include "tests/kernels/support.h"

#include <math.h>
#include <string.h>

enum { ENTRIES = 60 };

/* One layer alone: its output times fixed random numbers. */
typedef struct layer_case {
    stack s;
    zx_real *in, *out, *dout;
} layer_case;

static double block_loss(void *context)
{
    layer_case *c = (layer_case *)context;
    stack *s = &c->s;
    zs_error err;
    CHECK(zx_block_forward(s->b, &s->model, c->out, s->acts[0], c->in, &s->layer_params[1],
                           s->scratch, s->B, s->T, &err),
          "%s", err.message);
    return support_dot(c->out, c->dout, (int64_t)s->B * s->T * s->model.n_channels);
}

static double head_loss(void *context)
{
    layer_case *c = (layer_case *)context;
    stack *s = &c->s;
    double loss_sum = 0;
    zs_error err;
    CHECK(zx_head_forward(s->b, &s->model, &loss_sum, s->head_acts, c->in, &s->layer_params[2],
                          s->targets, s->B, s->T, 0, &err),
          "%s", err.message);
    return loss_sum / (s->B * s->T);
}

static double embedding_loss(void *context)
{
    layer_case *c = (layer_case *)context;
    stack *s = &c->s;
    zs_error err;
    CHECK(zx_embedding_forward(s->b, &s->model, c->out, &s->layer_params[0], s->tokens, s->B, s->T,
                               &err),
          "%s", err.message);
    return support_dot(c->out, c->dout, (int64_t)s->B * s->T * s->model.n_channels);
}

/* A bias of the keys adds the same to all scores of a query, which its softmax does not see. */
static void check_zero(const zm_stage_tensor *t, const zx_real *grads)
{
    for (int64_t i = 0; i < t->tensor.count; i++)
        CHECK(fabs((double)grads[i]) <= 1e-13, "%s[%d]: %g", t->tensor.name, (int)i,
              (double)grads[i]);
}

static void check_params(const stack *s, int layer, support_loss loss, void *context)
{
    for (int i = 0; i < s->n_tensors; i++) {
        const zm_stage_tensor *t = &s->tensors[i];
        if (t->layer != layer)
            continue;
        if (t->tensor.role == ZM_K_B)
            check_zero(t, s->grads + t->offset);
        else
            support_check_gradient(t->tensor.name, loss, context, s->params + t->offset,
                                   s->grads + t->offset, t->tensor.count, ENTRIES);
    }
}

static void check_layers(int B, int T, zm_model model)
{
    zx_backend *b = support_open(1);
    layer_case c;
    stack *s = &c.s;
    zs_error err;
    stack_open(s, b, &model, B, T, 7);
    const int64_t n = (int64_t)B * T * model.n_channels;
    support_tokens(s->tokens, 61, (int64_t)B * T, model.n_vocab);
    support_tokens(s->targets, 62, (int64_t)B * T, model.n_vocab);
    c.in = support_random(b, 63, n, 1);
    c.out = support_zeros(b, n);
    c.dout = support_random(b, 64, n, 1);
    zx_real *din = support_random(b, 65, n, 1);

    block_loss(&c);
    CHECK(zx_block_backward(b, &s->model, din, &s->layer_grads[1], c.dout, s->acts[0], c.in,
                            &s->layer_params[1], s->scratch, B, T, &err),
          "%s", err.message);
    support_check_gradient("block input", block_loss, &c, c.in, din, n, ENTRIES);
    check_params(s, 1, block_loss, &c);

    /* In place, and adding to what is there: gradients double. */
    zx_real *in_place = support_random(b, 64, n, 1);
    zx_real *once = support_zeros(b, s->n_params);
    memcpy(once, s->grads, (size_t)s->n_params * sizeof(zx_real));
    block_loss(&c);
    CHECK(zx_block_backward(b, &s->model, in_place, &s->layer_grads[1], in_place, s->acts[0], c.in,
                            &s->layer_params[1], s->scratch, B, T, &err),
          "%s", err.message);
    CHECK(memcmp(in_place, din, (size_t)n * sizeof(zx_real)) == 0, "din may be dout");
    for (int64_t i = 0; i < s->n_params; i++)
        CHECK_NEAR((double)s->grads[i], 2 * (double)once[i], 1e-12);

    double loss_sum = 0;
    CHECK(zx_head_forward(b, &s->model, &loss_sum, s->head_acts, c.in, &s->layer_params[2],
                          s->targets, B, T, 1.0 / (B * T), &err) &&
              b->ops->zero(b, s->grads, s->n_params * (int64_t)sizeof(zx_real), &err) &&
              zx_head_backward(b, &s->model, din, &s->layer_grads[2], s->head_acts, c.in,
                               &s->layer_params[2], s->scratch, B, T, &err),
          "%s", err.message);
    support_check_gradient("head input", head_loss, &c, c.in, din, n, ENTRIES);
    check_params(s, 2, head_loss, &c);

    CHECK(
        b->ops->zero(b, s->grads, s->n_params * (int64_t)sizeof(zx_real), &err) &&
            zx_embedding_backward(b, &s->model, &s->layer_grads[0], s->tokens, c.dout, B, T, &err),
        "%s", err.message);
    check_params(s, 0, embedding_loss, &c);
    stack_close(s);
    b->ops->close(&b);
}

static double stack_loss(void *context)
{
    stack *s = (stack *)context;
    return stack_forward(s, 0) / (s->B * s->T);
}

/* The tied matrix gets the sum of what embedding and head say. */
static void check_stack(int n_threads, int B, int T, zm_model model)
{
    zx_backend *b = support_open(n_threads);
    stack s;
    stack_open(&s, b, &model, B, T, 8);
    support_tokens(s.tokens, 71, (int64_t)B * T, model.n_vocab);
    support_tokens(s.targets, 72, (int64_t)B * T, model.n_vocab);
    stack_forward(&s, 1.0 / (B * T));
    stack_backward(&s);
    for (int layer = 0; layer < model.n_blocks + 2; layer++)
        check_params(&s, layer, stack_loss, &s);
    stack_close(&s);
    b->ops->close(&b);
}

int main(void)
{
    zm_model exact_gelu = stack_model(1, 24, 3, 29, 7, false);
    exact_gelu.activation = ZM_GELU;
    check_layers(3, 7, stack_model(1, 24, 3, 29, 7, true));
    check_layers(3, 7, exact_gelu);
    check_layers(1, 65, stack_model(1, 24, 3, 29, 65, false));
    check_layers(3, 7, stack_family(ZM_OPT, 1, 27, 3, 3, 29, 9, true));
    for (int n_kv_heads = 1; n_kv_heads <= 4; n_kv_heads *= 2)
        check_layers(3, 7, stack_family(ZM_LLAMA, 1, 24, 4, n_kv_heads, 29, 9, false));
    check_layers(1, 65, stack_family(ZM_LLAMA, 1, 24, 4, 2, 29, 65, true));
    check_stack(1, 3, 7, stack_model(2, 24, 3, 29, 7, true));
    check_stack(2, 3, 7, stack_model(2, 24, 3, 29, 7, false));
    check_stack(1, 1, 65, stack_model(2, 24, 3, 29, 65, true));
    /* Smooth: among so many ReLUs some have their kink inside a difference. */
    zm_model smooth_opt = stack_family(ZM_OPT, 2, 27, 3, 3, 29, 9, true);
    smooth_opt.activation = ZM_GELU_TANH;
    check_stack(1, 3, 7, smooth_opt);
    check_stack(1, 3, 7, stack_family(ZM_LLAMA, 2, 24, 4, 1, 29, 7, true));
    check_stack(2, 3, 7, stack_family(ZM_LLAMA, 2, 24, 4, 2, 29, 7, false));
    return check_done();
}
