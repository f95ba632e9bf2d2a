/* Our plan beside the baselines, under one cost model. */
#ifndef PLANNER_COMPARE_H
#define PLANNER_COMPARE_H

#include "planner/baselines.h"
#include "planner/search.h"
#include "shared/json.h"

#include <stdio.h>

#define ZP_COMPARISON_FORMAT "zplan-comparison"
#define ZP_COMPARISON_VERSION 1

typedef struct zp_comparison {
    zp_solution ours;
    double bubble_share;
    double memory_share;
    zp_baseline baselines[ZP_N_BASELINES];
} zp_comparison;

/* Baselines first, then the search, which starts from the best of them: ours is never slower than
 * any, also when the time limit ends the search. Fails as zp_search does. In arena. */
ZS_MUST_CHECK bool zp_compare(zp_comparison *out, zs_arena *arena, const zp_problem *problem,
                              const zp_search_options *options, zs_error *err);

/* baseline's step time / ours; 0 when it is not feasible. */
double zp_compare_speed_up(const zp_comparison *comparison, zp_baseline_kind kind);

/* Five digits or more: "7736.4", "167202". Writes at most size bytes, returns text. */
const char *zp_compare_print_ms(char *text, size_t size, double ms);

/* A table of at most 80 columns. */
void zp_compare_print(FILE *out, const zp_comparison *comparison);

/* One object. key as in zs_json_writer. */
void zp_compare_write(zs_json_writer *w, const char *key, const zp_comparison *comparison);

#endif
