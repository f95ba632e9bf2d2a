/* How every micro-batch of a schedule is cut among the ranks of every stage. Used by the schedule
 * and by its check. */
#ifndef SHARED_SCHEDULE_CUTS_H
#define SHARED_SCHEDULE_CUTS_H

#include "shared/plan.h"

typedef struct zs_cuts {
    const zs_plan *plan;
    int *size_of;    /* micro-batch -> which of the distinct sizes it has */
    int **of_stages; /* per stage: n_ranks + 1 boundaries for each distinct size */
} zs_cuts;

/* micro_batches: samples of each, 1 .. the planned size. In arena; plan must outlive out. */
ZS_MUST_CHECK bool zs_cuts_build(zs_cuts *out, zs_arena *arena, const zs_plan *plan,
                                 const int *micro_batches, int n_micro_batches, zs_error *err);

/* The n_ranks + 1 boundaries: the stage's i-th rank has the samples [at[i], at[i + 1]). */
const int *zs_cuts_at(const zs_cuts *cuts, int stage, int micro_batch);

/* The first rank of the stage, from `rank` on, whose samples overlap [first, end); n_ranks of the
 * stage when there is none. at: boundaries of the stage, rank counted inside the stage. */
int zs_cuts_overlap(const int *at, int n_ranks, int rank, int first, int end);

#endif
