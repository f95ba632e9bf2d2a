/* A solver of linear and integer programs behind a table of functions: a program goes in, values,
 * duals and a bound come out. Nothing that a solver says is trusted: master.c recomputes it, and
 * asks again with the next settings when it does not hold. */
#ifndef PLANNER_SOLVER_H
#define PLANNER_SOLVER_H

#include "planner/deadline.h"
#include "shared/arena.h"

enum { ZP_PROGRAM_MAX_ROWS = 4096 };

/* Minimises cost x subject to row_min <= A x <= row_max, x >= 0 (and whole in an integer program).
 * A by columns: column j has entries [column_start[j], column_start[j + 1]). Rows without a bound
 * on a side have -infinity or infinity there; no row is empty. */
typedef struct zp_program {
    int n_rows;
    int n_columns;
    double *row_min;
    double *row_max;
    double *cost;
    int *column_start;
    int *entry_row;
    double *entry_value;
} zp_program;

typedef enum zp_status {
    ZP_OPTIMAL,
    ZP_NO_SOLUTION, /* claimed infeasible */
    ZP_STOPPED,     /* by deadline or node limit */
    ZP_TROUBLE      /* numerical: these settings give no answer */
} zp_status;

typedef struct zp_answer {
    zp_status status;
    bool has_values;
    double *values; /* by column; the caller's memory */
    double *duals;  /* by row, linear programs only; the caller's memory */
    int64_t n_nodes;
} zp_answer;

typedef struct zp_solver {
    const char *name;
    int n_settings; /* ways to solve a program, the usual first */
    /* false with ZS_ERR_RUNTIME only when the library itself failed. */
    bool (*solve_linear)(zp_answer *answer, const zp_program *program, int setting,
                         const zp_deadline *deadline, zs_error *err);
    /* max_nodes 0: no limit. */
    bool (*solve_integer)(zp_answer *answer, const zp_program *program, int setting,
                          int64_t max_nodes, const zp_deadline *deadline, zs_error *err);
} zp_solver;

extern const zp_solver zp_solver_glpk;

#endif
