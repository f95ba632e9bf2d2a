/* The table of instructions: the executor's dispatch, the simulator's times, printing and checking
 * all expand it, so an instruction that only one of them knows does not compile. */
#ifndef SHARED_SCHEDULE_OPS_H
#define SHARED_SCHEDULE_OPS_H

/* clang-format off */
/*     name           symbol         lane        for one micro-batch of one stage, or once a step */
#define ZS_OPS(OP)                                                                                 \
    OP(recv_act,      RECV_ACT,      RECV)       /* samples [first, end) from one peer */          \
    OP(forward,       FORWARD,       COMPUTE)    /* its activations are now in flight; under ZeRO  \
                                                    3 the stage's ranks meet in it and gather each \
                                                    layer before they compute it */                \
    OP(send_act,      SEND_ACT,      SEND)       /* samples [first, end) to one peer */            \
    OP(recv_grad,     RECV_GRAD,     RECV)                                                         \
    OP(backward,      BACKWARD,      COMPUTE)    /* its activations are free again; under ZeRO 2   \
                                                    and 3 the stage's ranks meet in it and         \
                                                    reduce-scatter each layer, last first; under 3 \
                                                    they gather it before, but for the embedding,  \
                                                    which computes without its parameters */       \
    OP(send_grad,     SEND_GRAD,     SEND)                                                         \
    OP(reduce_grads,  REDUCE_GRADS,  COLLECTIVE) /* reduce-scatter of the stage into its shards;   \
                                                    moves nothing under ZeRO 2 and 3 */            \
    OP(reduce_tied,   REDUCE_TIED,   COLLECTIVE) /* the same for the embedding that the first and  \
                                                    the last stage share; its owners are on the    \
                                                    first */                                       \
    OP(grad_norm,     GRAD_NORM,     COLLECTIVE) /* all-reduce over all ranks */                   \
    OP(step,          STEP,          COMPUTE)    /* clip, optimizer step on this rank's shard */   \
    OP(gather_params, GATHER_PARAMS, COLLECTIVE) /* all-gather of the stage's shards; moves        \
                                                    nothing under ZeRO 3 */                        \
    OP(gather_tied,   GATHER_TIED,   COLLECTIVE) /* new values of the shared embedding */
/* clang-format on */

typedef enum zs_op {
#define OP(name, symbol, lane) ZS_OP_##symbol,
    ZS_OPS(OP)
#undef OP
        ZS_N_OPS
} zs_op;

typedef enum zs_lane {
    ZS_LANE_COMPUTE,
    ZS_LANE_SEND,
    ZS_LANE_RECV,
    ZS_LANE_COLLECTIVE,
    ZS_N_LANES
} zs_lane;

#endif
