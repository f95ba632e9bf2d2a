/* What the kernel tests share: an open backend, tensors of random values, gradients against finite
 * differences. Built once per precision. */
#ifndef TESTS_KERNELS_SUPPORT_H
#define TESTS_KERNELS_SUPPORT_H

#include "executor/backend.h"
#include "tests/support/check.h"

/* Opens the CPU backend or ends the program. */
zx_backend *support_open(int n_threads);

/* n elements, zeroed; freed with the backend. */
zx_real *support_zeros(zx_backend *b, int64_t n);

/* Uniform in [-size, size], exact in float, so that both precisions compute on equal inputs. */
zx_real *support_random(zx_backend *b, uint64_t seed, int64_t n, double size);

/* Adds offset to each element: weights of a norm around 1. */
void support_shift(zx_real *x, int64_t n, double offset);

/* Token or target numbers in [0, n_vocab). */
void support_tokens(int32_t *out, uint64_t seed, int64_t n, int n_vocab);

/* Sizes of an attention over q, k, v that are packed by token, so of one tensor (B,T,(n_heads + 2
 * n_kv_heads) head_size); or over three separate ones behind each other in the same memory. */
zx_attention support_attention(int B, int T, int n_heads, int n_kv_heads, int head_size,
                               bool packed);

/* Where k and v start in that memory. */
int64_t support_k_offset(const zx_attention *shape);
int64_t support_v_offset(const zx_attention *shape);

/* sum of a[i] b[i]: a scalar loss whose gradient with respect to a is b. */
double support_dot(const zx_real *a, const zx_real *b, int64_t n);

/* ||a - b||^2 / ||b||^2. */
double support_nmse(const double *a, const double *b, int64_t n);

typedef double (*support_loss)(void *context);

/* Compares gradient (n) of loss with respect to x (n, read by loss through context) with central
 * differences at up to max_entries entries spread over x: relative error in the 2-norm below 1e-6.
 */
void support_check_gradient(const char *what, support_loss loss, void *context, zx_real *x,
                            const zx_real *gradient, int64_t n, int64_t max_entries);

#endif
