/* Looking into schedules, and changing them, for tests. */
#ifndef TESTS_SUPPORT_SCHEDULES_H
#define TESTS_SUPPORT_SCHEDULES_H

#include "shared/schedule.h"
#include "tests/support/plans.h"

/* Built from check_plan; ends the test program when that fails. n_eval: 0 for a training step. */
zs_schedule check_schedule(zs_arena *arena, const zs_plan *plan, bool tied, int n_eval);

/* What zs_schedule_print prints. In arena. */
const char *check_schedule_text(zs_arena *arena, const zs_schedule *schedule);

/* Index of the instruction whose text starts with `text`, "a0>2"; ends the program when the rank
 * has none. */
int check_find(const zs_schedule *schedule, int rank, const char *text);

/* A new list of the rank: its instructions in this order, an index may be missing. Waits are
 * renumbered; those for missing instructions vanish. In arena. */
void check_reorder(zs_arena *arena, zs_schedule *schedule, int rank, const int *order, int n);

/* The instruction at index `from` goes before the one at index `to`. */
void check_move(zs_arena *arena, zs_schedule *schedule, int rank, int from, int to);
void check_remove(zs_arena *arena, zs_schedule *schedule, int rank, int index);

/* Removes or adds a wait of one instruction. In arena. */
void check_remove_wait(zs_arena *arena, zs_schedule *schedule, int rank, int index, int wait);
void check_add_wait(zs_arena *arena, zs_schedule *schedule, int rank, int index, int wait);

#endif
