/* Turns a plan into one list of instructions per rank. The simulator times the list and the
 * executor runs it; nothing else decides an order. The list is checked before use. */
#ifndef SHARED_SCHEDULE_H
#define SHARED_SCHEDULE_H

#include "shared/plan.h"
#include "shared/schedule_ops.h"

typedef struct zs_instruction {
    zs_op op;
    int micro_batch;              /* -1 for once-a-step instructions */
    int peer;                     /* rank at the other end of a send or receive; -1 otherwise */
    int first_sample, end_sample; /* of the micro-batch: what this rank computes, sends, receives */
    int slot; /* activation slot of the micro-batch, in [0, n_slots); -1 without one or without
                 samples */
    int n_waits;
    const int *waits; /* indices of earlier instructions of this list that must be complete: data
                         dependencies and reuse of buffers; lanes keep their own order */
} zs_instruction;

typedef struct zs_program {
    int rank, stage;
    int n_slots; /* micro-batches in flight at most; an evaluation has at most those of the step */
    int n_instructions;
    zs_instruction *instructions; /* in an order that a single thread can run, sends and receives
                                     being asynchronous */
} zs_program;

typedef struct zs_schedule {
    bool tied;     /* reduce_tied and gather_tied are in it */
    bool training; /* false: forward only, for evaluation */
    int n_micro_batches;
    int *micro_batches; /* samples of each */
    int n_ranks;
    zs_program *programs; /* by rank */
} zs_schedule;

extern const char *const zs_op_names[ZS_N_OPS];
extern const zs_lane zs_op_lanes[ZS_N_OPS];
extern const char *const zs_lane_names[ZS_N_LANES];

/* Do the ranks of the stage meet in every `op` of a micro-batch? In a forward under ZeRO 3 and in a
 * backward under ZeRO 2 and 3, where they gather and reduce layer by layer; not in other
 * instructions of a micro-batch, and not when one rank is the whole stage. */
bool zs_stage_meets(const zs_plan_stage *stage, zs_op op);

/* Builds the training step of the plan. tied: the model ties embedding and head; the two
 * instructions for it appear only when they are on different stages. In arena. A rank with no
 * samples in a micro-batch has no send or receive for it, and a forward or backward of no samples
 * where its stage meets in it, else none; it takes part in all collectives. */
ZS_MUST_CHECK bool zs_schedule_build(zs_schedule *out, zs_arena *arena, const zs_plan *plan,
                                     bool tied, zs_error *err);

/* Builds an evaluation pass over n_samples (1 .. global batch): micro-batches of the planned size
 * and a smaller last one; forward, sends and receives only. */
ZS_MUST_CHECK bool zs_schedule_build_eval(zs_schedule *out, zs_arena *arena, const zs_plan *plan,
                                          int n_samples, zs_error *err);

/* Proves: each send has its one receive with equal samples, in equal order per pair and direction;
 * received and computed samples tile what the rank needs; forward before backward, each once per
 * micro-batch and rank that has samples or has to meet others in it; waits point backwards;
 * in-flight count within the bound, no slot used twice at a time; collectives of a group, and the
 * passes in which a stage meets, in equal order on all members; and that all
 * lists end when sends block until their receive is posted (rendezvous) with every instruction run
 * in list order, and with lanes running ahead as far as waits allow. ZS_ERR_INPUT names rank,
 * instruction and rule; a cycle of waits is printed. */
ZS_MUST_CHECK bool zs_schedule_check(const zs_schedule *schedule, const zs_plan *plan,
                                     zs_error *err);

/* One instruction as text: "a3<1[0,2)" activations of micro-batch 3 from rank 1, samples [0,2);
 * "a3>1[0,2)" the same to rank 1; "g" instead of "a" for gradients; "F3[0,2)" forward, "B3[0,2)"
 * backward; else the name of the instruction. Returns text. */
enum { ZS_INSTRUCTION_TEXT_SIZE = 64 };
const char *zs_instruction_text(char text[ZS_INSTRUCTION_TEXT_SIZE],
                                const zs_instruction *instruction);

/* Text for people and tests: one line per rank, "0: F0[0,2) a0>2[0,2) ..."; FORMATS.md. */
void zs_schedule_print(FILE *out, const zs_schedule *schedule);

#endif
