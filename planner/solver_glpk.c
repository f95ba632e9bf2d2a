#include "planner/solver.h"

#include "shared/log.h"

#include <glpk.h>

#include <math.h>
#include <setjmp.h>
#include <string.h>

/* Simplex iterations between two looks at the clock. A count, so that the deadline does not change
 * the path of a run that ends before it. */
enum { SLICE_ITERATIONS = 500 };

/* GLPK may cycle on degenerate programs; beyond this many iterations other settings are tried. */
static int iteration_limit(const zp_program *p)
{
    return 20000 + 50 * p->n_rows;
}

typedef struct call {
    zp_answer *answer;
    const zp_program *program;
    int setting;
    int64_t max_nodes;
    const zp_deadline *deadline;
} call;

/* The last line that GLPK printed: what it says before it gives up. */
static _Thread_local char last_text[256];

static int keep_text(void *info, const char *text)
{
    (void)info;
    if (strlen(text) > 1) {
        snprintf(last_text, sizeof last_text, "%s", text);
        last_text[strcspn(last_text, "\n")] = 0;
        zs_log_debug("glpk: %s", last_text);
    }
    return 1; /* nothing reaches the terminal */
}

static void leave(void *info)
{
    longjmp(*(jmp_buf *)info, 1);
}

/* GLPK ends the process on an error unless its hook leaves by a jump; what it holds is then only
 * good for being thrown away. */
static bool guarded(void (*body)(call *), call *c, zs_error *err)
{
    jmp_buf here;
    glp_term_hook(keep_text, NULL);
    glp_error_hook(leave, &here);
    if (setjmp(here)) {
        glp_free_env();
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "GLPK %s failed: %s", glp_version(), last_text);
    }
    body(c);
    glp_error_hook(NULL, NULL);
    return true;
}

static glp_prob *build(const zp_program *p)
{
    glp_prob *prob = glp_create_prob();
    glp_set_obj_dir(prob, GLP_MIN);
    glp_add_rows(prob, p->n_rows);
    for (int i = 0; i < p->n_rows; i++) {
        double min = p->row_min[i], max = p->row_max[i];
        int type = !isfinite(min) ? GLP_UP : !isfinite(max) ? GLP_LO : min < max ? GLP_DB : GLP_FX;
        glp_set_row_bnds(prob, i + 1, type, min, max);
    }
    glp_add_cols(prob, p->n_columns);
    /* GLPK counts from 1: index and value 0 of a column are not read. */
    int rows[1 + ZP_PROGRAM_MAX_ROWS];
    double values[1 + ZP_PROGRAM_MAX_ROWS];
    for (int j = 0; j < p->n_columns; j++) {
        int n = 0;
        for (int e = p->column_start[j]; e < p->column_start[j + 1]; e++) {
            rows[++n] = p->entry_row[e] + 1;
            values[n] = p->entry_value[e];
        }
        glp_set_col_bnds(prob, j + 1, GLP_LO, 0, 0);
        glp_set_obj_coef(prob, j + 1, p->cost[j]);
        glp_set_mat_col(prob, j + 1, n, rows, values);
    }
    return prob;
}

typedef struct simplex_setting {
    int method;
    int pricing;
    bool presolve;
} simplex_setting;

/* Costs are not negative, so the standard basis is dual feasible and the dual method starts in its
 * second phase. */
static const simplex_setting simplex_settings[] = {
    {GLP_DUALP, GLP_PT_PSE, false},
    {GLP_PRIMAL, GLP_PT_PSE, false},
    {GLP_PRIMAL, GLP_PT_STD, false},
    {GLP_DUAL, GLP_PT_PSE, true},
};

enum { N_SETTINGS = sizeof simplex_settings / sizeof simplex_settings[0] };

/* Runs the simplex method in slices; GLPK goes on from the basis it left. */
static zp_status run_simplex(glp_prob *prob, const call *c)
{
    const simplex_setting *setting = &simplex_settings[c->setting];
    glp_smcp parm;
    glp_init_smcp(&parm);
    parm.msg_lev = GLP_MSG_ERR;
    parm.meth = setting->method;
    parm.pricing = setting->pricing;
    parm.presolve = setting->presolve ? GLP_ON : GLP_OFF;
    /* A presolved run cannot be resumed, so it gets all its iterations at once. */
    parm.it_lim = setting->presolve ? iteration_limit(c->program) : SLICE_ITERATIONS;
    glp_std_basis(prob);
    for (int done = 0; done < iteration_limit(c->program); done += parm.it_lim) {
        int code = glp_simplex(prob, &parm);
        if (code == GLP_ENOPFS)
            return ZP_NO_SOLUTION;
        if (code != 0 && code != GLP_EITLIM)
            return ZP_TROUBLE;
        if (code == 0) {
            int status = glp_get_status(prob);
            if (status == GLP_OPT)
                return ZP_OPTIMAL;
            return status == GLP_NOFEAS ? ZP_NO_SOLUTION : ZP_TROUBLE;
        }
        if (zp_deadline_passed(c->deadline))
            return ZP_STOPPED;
    }
    return ZP_TROUBLE;
}

static void solve_linear_body(call *c)
{
    glp_prob *prob = build(c->program);
    zp_answer *answer = c->answer;
    answer->status = run_simplex(prob, c);
    answer->has_values = answer->status == ZP_OPTIMAL;
    if (answer->has_values) {
        for (int j = 0; j < c->program->n_columns; j++)
            answer->values[j] = glp_get_col_prim(prob, j + 1);
        for (int i = 0; i < c->program->n_rows; i++)
            answer->duals[i] = glp_get_row_dual(prob, i + 1);
    }
    glp_delete_prob(prob);
}

static bool solve_linear(zp_answer *answer, const zp_program *program, int setting,
                         const zp_deadline *deadline, zs_error *err)
{
    call c = {answer, program, setting, 0, deadline};
    answer->n_nodes = 0;
    return guarded(solve_linear_body, &c, err);
}

/* Called at every step of the branch and bound. */
static void watch(glp_tree *tree, void *info)
{
    call *c = info;
    int n_total;
    glp_ios_tree_size(tree, NULL, NULL, &n_total);
    c->answer->n_nodes = n_total;
    if ((c->max_nodes > 0 && n_total > c->max_nodes) || zp_deadline_passed(c->deadline)) {
        c->answer->status = ZP_STOPPED;
        glp_ios_terminate(tree);
    }
}

/* Gomory cuts alone cut the nodes of these programs by an order of magnitude; ps_heur ignores time
 * limits and stays off. Without presolve intopt needs an optimal basis to start from. */
static void solve_integer_body(call *c)
{
    glp_prob *prob = build(c->program);
    zp_answer *answer = c->answer;
    for (int j = 0; j < c->program->n_columns; j++)
        glp_set_col_kind(prob, j + 1, GLP_IV);
    glp_iocp parm;
    glp_init_iocp(&parm);
    parm.msg_lev = GLP_MSG_ERR;
    parm.br_tech = GLP_BR_DTH;
    parm.bt_tech = GLP_BT_BLB;
    parm.presolve = c->setting % 2 == 0 ? GLP_ON : GLP_OFF;
    parm.gmi_cuts = c->setting < 2 ? GLP_ON : GLP_OFF;
    /* The callback ends it in time; this is for what GLPK does between two calls. */
    double left_ms = c->deadline->end_ms - zp_deadline_now_ms();
    if (left_ms < 1e9)
        parm.tm_lim = left_ms > 1 ? (int)left_ms : 1;
    parm.cb_func = watch;
    parm.cb_info = c;
    answer->status = ZP_OPTIMAL;
    if (!parm.presolve)
        answer->status = run_simplex(prob, c);
    if (answer->status == ZP_OPTIMAL) {
        int code = glp_intopt(prob, &parm);
        int status = glp_mip_status(prob);
        if (code == GLP_ENOPFS || (code == 0 && status == GLP_NOFEAS))
            answer->status = ZP_NO_SOLUTION;
        else if (answer->status != ZP_STOPPED && (code != 0 || status != GLP_OPT))
            answer->status = code == GLP_ETMLIM ? ZP_STOPPED : ZP_TROUBLE;
        answer->has_values = (code == 0 || code == GLP_ESTOP || code == GLP_ETMLIM) &&
                             (status == GLP_OPT || status == GLP_FEAS);
    }
    if (answer->has_values)
        for (int j = 0; j < c->program->n_columns; j++)
            answer->values[j] = glp_mip_col_val(prob, j + 1);
    glp_delete_prob(prob);
}

static bool solve_integer(zp_answer *answer, const zp_program *program, int setting,
                          int64_t max_nodes, const zp_deadline *deadline, zs_error *err)
{
    call c = {answer, program, setting, max_nodes, deadline};
    answer->has_values = false;
    answer->n_nodes = 0;
    return guarded(solve_integer_body, &c, err);
}

#define TEXT_OF(macro) TEXT(macro)
#define TEXT(token) #token

const zp_solver zp_solver_glpk = {
    .name = "GLPK " TEXT_OF(GLP_MAJOR_VERSION) "." TEXT_OF(GLP_MINOR_VERSION),
    .n_settings = N_SETTINGS,
    .solve_linear = solve_linear,
    .solve_integer = solve_integer,
};
