/* What the parts of zs_schedule_check share: the rank that is checked and what its list has done.
 */
#ifndef SHARED_SCHEDULE_CHECKER_H
#define SHARED_SCHEDULE_CHECKER_H

#include "shared/schedule.h"
#include "shared/schedule_cuts.h"

enum { ZS_NONE = -1 };

/* What the list walked so far has done for one micro-batch. Samples move in ascending order, so one
 * number says which have moved: those before it. */
typedef struct zs_progress {
    int slot;            /* ZS_NONE before its first instruction */
    int previous;        /* micro-batch that had the slot before, or ZS_NONE */
    int forward;         /* instruction or ZS_NONE */
    int backward;        /* instruction or ZS_NONE */
    int moved[ZS_N_OPS]; /* of sends and receives: end of the samples moved so far */
    int heads[ZS_N_OPS]; /* of sends and receives: first instruction, ZS_NONE; then next[] */
} zs_progress;

typedef struct zs_checker {
    const zs_schedule *schedule;
    const zs_plan *plan;
    zs_arena *arena;
    zs_error *err;
    zs_cuts cuts;
    int *first_ranks; /* by stage, n_stages + 1 */

    /* the rank that is checked */
    const zs_program *program;
    zs_progress *progress; /* by micro-batch */
    int *slot_users;       /* by slot: micro-batch or ZS_NONE */
    int *last_users;       /* by slot: the same, kept when the slot is free again */
    int *next;             /* by instruction: next of the same kind and micro-batch, ZS_NONE */
    int *parents;          /* by instruction: search along waits */
    int *queue;
    int *visited; /* by instruction: number of the search that saw it last */
    int n_searches;
} zs_checker;

/* "rank 2, instruction 5 (F1[0,2)): ..." */
#define ZS_FAIL_AT(c, index, ...)                                                                  \
    ((void)ZS_FAIL((c)->err, ZS_ERR_INPUT, __VA_ARGS__), zs_checker_fail((c), (index)))

/* Puts rank and instruction before the message; returns false. */
bool zs_checker_fail(const zs_checker *c, int index);

/* Text of an instruction; valid until the thread's next call. */
const char *zs_checker_text(const zs_program *program, int index);

bool zs_op_is_transfer(zs_op op);
bool zs_op_is_of_step(zs_op op); /* once a step, not once a micro-batch */

/* Checks of c->program, one rank's list; in this order. */

/* Each instruction alone, then in the order of the list: samples tile, forward before backward, no
 * slot twice at a time, nothing missing. Fills c->progress and c->next. */
ZS_MUST_CHECK bool zs_checker_list(zs_checker *c);
/* Reductions, norm, step, gathers: each once, and in one order on all ranks, since ranks meet in
 * more than one group. */
ZS_MUST_CHECK bool zs_checker_step(const zs_checker *c);
/* The forwards and backwards in which the ranks of a stage meet: in the order of the stage's first
 * rank. */
ZS_MUST_CHECK bool zs_checker_meetings(const zs_checker *c);
/* Waits point backwards and guard data and buffers. */
ZS_MUST_CHECK bool zs_checker_waits(zs_checker *c);

#endif
