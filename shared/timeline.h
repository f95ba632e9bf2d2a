/* When each instruction of each rank started and ended, in ms from the beginning of the step: what
 * the simulator predicts and what a run measured, in one form, so that the two can be laid one upon
 * the other. A timeline may hold several steps; instructions of a rank that wait are between
 * events, not in them. */
#ifndef SHARED_TIMELINE_H
#define SHARED_TIMELINE_H

#include "shared/schedule.h"

typedef struct zs_timeline_event {
    zs_op op;
    int micro_batch; /* -1 for once-a-step instructions */
    int peer;        /* rank at the other end of a send or receive; -1 otherwise */
    double start_ms;
    double end_ms; /* >= start_ms */
} zs_timeline_event;

typedef struct zs_timeline_rank {
    int stage;
    const char *name; /* "stage 1 node0:gpu2 V100-32" */
    int n_events;
    zs_timeline_event *events; /* in any order */
} zs_timeline_rank;

typedef struct zs_timeline {
    int n_ranks;
    zs_timeline_rank *ranks;
} zs_timeline;

/* Where a rank's time goes, in ms of the whole timeline; the three sum to its length. */
typedef struct zs_timeline_usage {
    double compute_ms;
    double exposed_ms; /* something is sent, received or in a collective, and nothing computes */
    double bubble_ms;  /* neither */
} zs_timeline_usage;

/* A timeline of all instructions of the schedule, one event for each in list order, all times 0;
 * names from the plan's cluster. In arena. */
ZS_MUST_CHECK bool zs_timeline_build(zs_timeline *out, zs_arena *arena, const zs_schedule *schedule,
                                     const zs_plan *plan, zs_error *err);

/* The end of the last event; 0 without any. */
double zs_timeline_end_ms(const zs_timeline *timeline);

/* usage: n_ranks of them. Fails only for memory. */
ZS_MUST_CHECK bool zs_timeline_use(zs_timeline_usage *usage, const zs_timeline *timeline,
                                   zs_error *err);

/* Text picture, at most 80 columns: one row per rank, each column the like share of the time and
 * showing what fills most of it: a digit for the forward pass of that micro-batch (its last digit),
 * a letter a to j for the backward pass, "*" for the optimizer step, "~" for exposed communication,
 * "." for waiting. Fails only for memory. */
ZS_MUST_CHECK bool zs_timeline_print(FILE *out, const zs_timeline *timeline, zs_error *err);

/* "rank,stage,lane,op,micro_batch,peer,start_ms,end_ms", a line per event, rank by rank. All or
 * nothing; "-" is stdout. */
ZS_MUST_CHECK bool zs_timeline_save_csv(const zs_timeline *timeline, const char *path,
                                        zs_error *err);

/* Chrome's trace event format (JSON object form, complete events "X" in microseconds), which
 * Perfetto and chrome://tracing open: a process per rank, a thread per lane. All or nothing. */
ZS_MUST_CHECK bool zs_timeline_save_trace(const zs_timeline *timeline, const char *path,
                                          zs_error *err);

#endif
