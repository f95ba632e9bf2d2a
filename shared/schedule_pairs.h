/* Which receive belongs to which send. Used by the check of a schedule and by the simulator. */
#ifndef SHARED_SCHEDULE_PAIRS_H
#define SHARED_SCHEDULE_PAIRS_H

#include "shared/schedule.h"

/* Numbers all instructions of all ranks in one row: first_ids[rank] (n_ranks + 1 of them) is the
 * number of the rank's first; *partner_of is the number of the receive of a send and the reverse,
 * -1 for other instructions. The k-th receive of a rank from another belongs to the k-th send of
 * that one to it; ZS_ERR_INPUT with rank and instruction when there is none or it is of another
 * micro-batch. Peers are in range. In arena. */
ZS_MUST_CHECK bool zs_schedule_pairs(int64_t **first_ids, int64_t **partner_of, zs_arena *arena,
                                     const zs_schedule *schedule, zs_error *err);

#endif
