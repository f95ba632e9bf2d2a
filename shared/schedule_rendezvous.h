/* Plays a schedule without times: a send ends when its receive is posted, a collective or a pass
 * that gathers or reduces when all its members are there. What starts never depends on how fast a
 * rank is, so one play proves that the lists end whatever the times (Kahn, The Semantics of a
 * Simple Language for Parallel Programming, IFIP 1974). */
#ifndef SHARED_SCHEDULE_RENDEZVOUS_H
#define SHARED_SCHEDULE_RENDEZVOUS_H

#include "shared/schedule.h"

/* Where instructions are and belong. All instructions of all ranks are numbered in one row. */
typedef struct zs_links {
    const zs_schedule *schedule;
    const zs_plan *plan;
    int n_stages;
    const int *first_ranks;    /* n_stages + 1: ranks of stage s are [at[s], at[s + 1]) */
    const int64_t *first_ids;  /* n_ranks + 1: number of a rank's first instruction */
    const int64_t *partner_of; /* by number: the receive of a send and the reverse; -1 for others */
} zs_links;

typedef enum zs_play {
    ZS_PLAY_LISTS, /* one thread per rank: in list order; sends and receives are only posted, all
                      else ends before the thread goes on */
    ZS_PLAY_LANES  /* a thread per lane: in the lane's order, each instruction ends before the next
                    */
} zs_play;

/* ZS_ERR_INPUT with the cycle of waits when the lists do not end. Instructions, waits and partners
 * are valid, every collective occurs at most once per rank, and the ranks of a stage meet in equal
 * order. */
ZS_MUST_CHECK bool zs_rendezvous_check(const zs_links *links, zs_arena *arena, zs_play play,
                                       zs_error *err);

#endif
