/* Plays a schedule: each lane of a rank runs its instructions in list order, each as soon as it is
 * the lane's next and its waits are complete. A send and its receive start together, when both are
 * ready, and end together after latency + bytes / bandwidth; a collective starts when its last
 * member is ready. Transfers on one link at a time share it: each gets its part of the bandwidth of
 * every link that it uses and moves at the least of these; recomputed whenever one begins or ends.
 * Equal inputs give equal times, to the bit: what happens at the same moment happens in the order
 * in which it became known. */
#ifndef PLANNER_PLAY_H
#define PLANNER_PLAY_H

#include "planner/timing.h"
#include "shared/timeline.h"

/* Fills start_ms and end_ms of timeline, which zs_timeline_build made of the same schedule.
 * share_links false: every transfer has its links to itself, which never takes longer. ZS_ERR_INPUT
 * when the lists do not end, which zs_schedule_check excludes. */
ZS_MUST_CHECK bool zp_play(zs_timeline *timeline, const zp_timing *timing,
                           const zs_schedule *schedule, bool share_links, zs_error *err);

#endif
