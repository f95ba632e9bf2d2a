/* The gate on plan quality: what each case reached, kept in a file that is under review, and what
 * it reaches now. Figures that mean the same on every machine: the step time of the plan, computed
 * anew from the plan alone, the bound, and the solver's effort in programs and nodes. */
#ifndef PLANNER_QUALITY_H
#define PLANNER_QUALITY_H

#include "shared/arena.h"

#include <stdint.h>
#include <stdio.h>

#define ZP_QUALITY_FORMAT "zplan-plan-quality"
#define ZP_QUALITY_VERSION 1

/* A plan may be this much slower, and gap and effort this much larger, before the gate fails. */
#define ZP_QUALITY_SLOWER 0.001
#define ZP_QUALITY_EFFORT 0.1

typedef struct zp_quality {
    const char *name;
    double step_ms; /* not finite or <= 0: there is none */
    double lower_bound_ms;
    int64_t n_solves, n_nodes;
    bool time_limit;     /* figures depend on the machine */
    const char *failure; /* why there is no plan, or NULL */
} zp_quality;

typedef struct zp_qualities {
    double gap; /* that the search was asked for */
    int n;
    zp_quality *items;
    int n_left_out; /* cases that take too long for the gate, by name */
    const char **left_out;
} zp_qualities;

/* Refuses a file without cases, without a figure, or with figures that cannot be. In arena. */
ZS_MUST_CHECK bool zp_qualities_load(zp_qualities *out, zs_arena *arena, const char *path,
                                     zs_error *err);
ZS_MUST_CHECK bool zp_qualities_save(const zp_qualities *qualities, const char *path,
                                     zs_error *err);

bool zp_qualities_leave_out(const zp_qualities *qualities, const char *name);

/* Prints one line per fault and returns how many there are: a case that only one of the two has, a
 * figure that is missing or not a number, a plan slower by more than ZP_QUALITY_SLOWER or faster
 * than the bound that was proven, gap or effort larger by more than ZP_QUALITY_EFFORT. */
int zp_qualities_check(FILE *out, const zp_qualities *golden, const zp_qualities *now);

/* Prints what differs, case by case. */
void zp_qualities_print_changes(FILE *out, const zp_qualities *before, const zp_qualities *after);

#endif
