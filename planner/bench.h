/* Plans every case of a folder and sets them beside the baselines. A case is a folder with a
 * job.json that names its cluster and model. */
#ifndef PLANNER_BENCH_H
#define PLANNER_BENCH_H

#include "planner/compare.h"
#include "planner/inputs.h"
#include "planner/quality.h"

typedef struct zp_bench_case {
    const char *name;
    int n_gpus;
    zp_comparison comparison; /* when quality.failure is NULL */
    zp_quality quality;
} zp_bench_case;

/* Names of the cases in a folder, sorted. In arena. */
ZS_MUST_CHECK bool zp_bench_list(const char ***names, int *n, zs_arena *arena, const char *folder,
                                 zs_error *err);

/* Solves one case and computes its step time anew from the text of its plan, which must be made
 * from the case's inputs. A case without a plan has a quality with a failure. In arena. */
ZS_MUST_CHECK bool zp_bench_run(zp_bench_case *out, zs_arena *arena, const char *folder,
                                const char *name, const zp_search_options *options, zs_error *err);

/* The figures of a plan that was found for these inputs: the plan is written, read, checked and
 * evaluated again, and must be made from these inputs. In arena. */

ZS_MUST_CHECK bool zp_bench_measure(double *step_ms, zs_arena *arena, const zp_inputs *inputs,
                                    const zs_json *plan, zs_error *err);

/* Two tables of at most 80 columns: step time, bound, gap against all plans and against those that
 * were searched, effort; speed-up over each baseline, with geometric
 * means. */
void zp_bench_print(FILE *out, const zp_bench_case *cases, int n);

typedef struct zp_bench_options {
    const char *folder;
    const char *check, *update; /* file of zp_qualities; at most one of them; may be NULL */
    const char *leave_out;      /* names, separated by commas; may be NULL */
    bool gap_given;             /* else the gap of the file counts */
} zp_bench_options;

/* `zplan bench`: the tables, then the gate or the new file. Faults of the gate are
 * ZS_ERR_RUNTIME. */
ZS_MUST_CHECK bool zp_bench(FILE *out, zs_arena *arena, const zp_bench_options *options,
                            const zp_search_options *search, zs_error *err);

#endif
