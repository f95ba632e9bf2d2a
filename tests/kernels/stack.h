/* A whole model on one rank, through executor/layers.h: what tests differentiate and benchmarks
 * time. */
#ifndef TESTS_KERNELS_STACK_H
#define TESTS_KERNELS_STACK_H

#include "executor/layers.h"

enum { STACK_MAX_BLOCKS = 48 };

typedef struct stack {
    zx_backend *b; /* not owned; memory goes with it */
    zs_arena *arena;
    zm_model model;
    int B, T;
    zm_stage_tensor *tensors;
    int n_tensors;
    int64_t n_params;
    zx_real *params, *grads, *m, *v; /* flattened; m and v are NULL until the first step */
    zx_tensors layer_params[STACK_MAX_BLOCKS + 2];
    zx_tensors layer_grads[STACK_MAX_BLOCKS + 2];
    zx_real *outs[STACK_MAX_BLOCKS + 1]; /* output of the embedding and of each block */
    zx_real *acts[STACK_MAX_BLOCKS];
    zx_real *head_acts, *dout, *scratch;
    int32_t *tokens, *targets; /* (B,T), zeros at first */
    int64_t step;
} stack;

/* A GPT-2 with small odd sizes: L blocks, C channels, NH heads. */
zm_model stack_model(int L, int C, int NH, int V, int T, bool tied);

/* The same of any family; NKV: heads of keys and values. */
zm_model stack_family(zm_family family, int L, int C, int NH, int NKV, int V, int T, bool tied);

/* Ends the program on failure, as the others do. Parameters: random around their usual start, from
 * values that float holds exactly. */
void stack_open(stack *s, zx_backend *b, const zm_model *model, int B, int T, uint64_t seed);
void stack_close(stack *s);

/* Sum of the token losses; scale as in zx_head_forward. */
double stack_forward(stack *s, double scale);

/* Adds to grads; after a forward with scale != 0. */
void stack_backward(stack *s);

/* One update of all parameters; then zeroes the gradients. Returns the norm of the gradients. */
double stack_step(stack *s, double lr);

#endif
