/* A micro-batch through the layers of a stage, forward or backward, with what ZeRO moves around
 * each layer (executor/zero.h). All ranks of a stage call in the same order, those without samples
 * too:
 *   forward    for each layer: gather its parameters, compute
 *   backward   for each layer, last first: gather its parameters, compute, reduce its gradients
 * The embedding's backward needs no parameters and gathers none. */
#ifndef EXECUTOR_PASS_H
#define EXECUTOR_PASS_H

#include "executor/zero.h"

/* B samples of the slot; with B = 0 nothing is computed and slot is not used. On the last stage the
 * sum of the losses of all targets is added to *loss_sum, either here or in backward, where the
 * stage defers its head; training false: always here. scale: 1 / targets of the global batch. */
ZS_MUST_CHECK bool zx_pass_forward(zx_zero *zero, double *loss_sum, int slot, int B, bool training,
                                   double scale, zs_error *err);

/* Adds the parameters' gradients of the slot's samples to those of the stage (level 1) or, summed
 * over its ranks, to their owners' (2, 3). */
ZS_MUST_CHECK bool zx_pass_backward(zx_zero *zero, double *loss_sum, int slot, int micro_batch,
                                    int B, double scale, zs_error *err);

#endif
