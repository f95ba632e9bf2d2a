#include "planner/bench.h"

#include "planner/place.h"
#include "planner/recheck.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TEXT_SIZE = 32 };

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_case(zs_arena *arena, const char *folder, const char *name)
{
    struct stat info;
    const char *path = zs_arena_printf(arena, NULL, "%s/%s/job.json", folder, name);
    return name[0] != '.' && path && stat(path, &info) == 0;
}

bool zp_bench_list(const char ***names, int *n, zs_arena *arena, const char *folder, zs_error *err)
{
    DIR *dir = opendir(folder);
    if (!dir)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: cannot be opened as a folder", folder);
    int n_all = 0, n_cases = 0;
    while (readdir(dir))
        n_all++;
    const char **list = ZS_NEW(arena, const char *, n_all, err);
    bool ok = list != NULL;
    rewinddir(dir);
    for (struct dirent *entry; ok && n_cases < n_all && (entry = readdir(dir));) {
        if (!is_case(arena, folder, entry->d_name))
            continue;
        list[n_cases] = zs_arena_strdup(arena, entry->d_name, err);
        ok = list[n_cases++] != NULL;
    }
    closedir(dir);
    if (ok && n_cases == 0)
        ok = ZS_FAIL(err, ZS_ERR_INPUT, "%s: no folder in it has a job.json", folder);
    if (ok) {
        qsort(list, (size_t)n_cases, sizeof *list, compare_names);
        *names = list;
        *n = n_cases;
    }
    return ok;
}

static bool plan_json(const zs_json **out, zs_arena *arena, const zs_plan *plan, zs_error *err)
{
    zs_json_writer *w = NULL;
    const char *text;
    size_t size;
    if (!zs_json_writer_open(&w, err))
        return false;
    const bool ok = zs_plan_write(w, plan, err) && zs_json_writer_text(w, &text, &size, err) &&
                    zs_json_parse(out, arena, text, size, "plan", err);
    zs_json_writer_close(&w);
    return ok;
}

/* Digest of what a plan is made from, in normal form. */
static bool digest(uint64_t *out, zs_arena *arena, const zs_cluster *cluster, const zs_job *job,
                   const zm_model *model, const zs_profile *profile, zs_error *err)
{
    zs_json_writer *w = NULL;
    const char *text;
    size_t size;
    const zs_json *root;
    if (!zs_json_writer_open(&w, err))
        return false;
    zs_json_begin_object(w, NULL);
    zs_cluster_write(w, "cluster", cluster);
    zs_job_write(w, "job", job);
    zm_model_write(w, "model", model);
    zs_profile_write(w, "profile", profile);
    zs_json_end_object(w);
    const bool ok = zs_json_writer_text(w, &text, &size, err) &&
                    zs_json_parse(&root, arena, text, size, "inputs", err);
    if (ok)
        *out = zs_json_digest(root);
    zs_json_writer_close(&w);
    return ok;
}

bool zp_bench_measure(double *step_ms, zs_arena *arena, const zp_inputs *inputs,
                      const zs_json *json, zs_error *err)
{
    zs_plan plan;
    zp_recheck recheck;
    uint64_t asked, planned;
    const char *what;
    if (!zs_plan_parse(&plan, arena, json, err) || !zs_plan_check(&plan, err) ||
        !zp_recheck_plan(&recheck, arena, &plan, err) ||
        !digest(&asked, arena, &inputs->cluster, &inputs->job, &inputs->model, &inputs->profile,
                err) ||
        !digest(&planned, arena, &plan.cluster, &plan.job, &recheck.model, &plan.profile, err))
        return false;
    if (asked != planned)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "the plan is for other inputs");
    if (zp_recheck_differs(&what, arena, &plan, &recheck))
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s", what);
    *step_ms = recheck.cost.step_ms;
    return true;
}

static bool solve(zp_bench_case *out, zs_arena *arena, const char *folder, const char *name,
                  const zp_search_options *options, zs_error *err)
{
    zp_inputs inputs;
    zp_built built;
    zs_plan plan;
    const zs_json *json;
    const char *path = zs_arena_printf(arena, err, "%s/%s/job.json", folder, name);
    if (!path || !zp_inputs_load_job(&inputs, arena, path, err) ||
        !zp_build(&built, arena, &inputs.cluster, &inputs.model, &inputs.job, &inputs.profile, err))
        return false;
    out->n_gpus = zs_cluster_n_devices(&inputs.cluster);
    if (!zp_compare(&out->comparison, arena, &built.problem, options, err) ||
        !zp_place(&plan, arena, &inputs, &built, &out->comparison.ours, err) ||
        !plan_json(&json, arena, &plan, err) ||
        !zp_bench_measure(&out->quality.step_ms, arena, &inputs, json, err))
        return false;
    const zp_solution *ours = &out->comparison.ours;
    out->quality.lower_bound_ms = fmin(ours->lower_bound_ms, out->quality.step_ms);
    out->quality.n_solves = ours->n_solves;
    out->quality.n_nodes = ours->n_nodes;
    out->quality.time_limit = ours->time_limit;
    return true;
}

bool zp_bench_run(zp_bench_case *out, zs_arena *arena, const char *folder, const char *name,
                  const zp_search_options *options, zs_error *err)
{
    zs_error why;
    zp_bench_case c = {.name = name, .quality = {.name = name}};
    if (!solve(&c, arena, folder, name, options, &why)) {
        if (why.code == ZS_ERR_INPUT) {
            *err = why;
            return zs_error_prefix(err, "case %s", name);
        }
        c.quality.failure = zs_arena_strdup(arena, why.message, err);
        if (!c.quality.failure)
            return false;
    }
    *out = c;
    return true;
}

static void print_effort(FILE *out, const zp_bench_case *cases, int n)
{
    char step[TEXT_SIZE], bound[TEXT_SIZE];
    fprintf(out, "%-20s %5s %9s %9s %8s %8s %6s %7s\n", "case", "GPUs", "step ms", "bound ms",
            "gap", "searched", "solves", "nodes");
    for (int i = 0; i < n; i++) {
        const zp_quality *q = &cases[i].quality;
        if (q->failure) {
            fprintf(out, "%-20s %s\n", cases[i].name, q->failure);
            continue;
        }
        const double searched_ms = fmin(cases[i].comparison.ours.groups_bound_ms, q->step_ms);
        fprintf(out, "%-20s %5d %9s %9s %6.2f %% %6.2f %% %6" PRId64 " %7" PRId64 "%s\n",
                cases[i].name, cases[i].n_gpus, zp_compare_print_ms(step, sizeof step, q->step_ms),
                zp_compare_print_ms(bound, sizeof bound, q->lower_bound_ms),
                100 * (q->step_ms - q->lower_bound_ms) / q->step_ms,
                100 * (q->step_ms - searched_ms) / q->step_ms, q->n_solves, q->n_nodes,
                q->time_limit ? "*" : "");
    }
}

void zp_bench_print(FILE *out, const zp_bench_case *cases, int n)
{
    static const char *const heads[ZP_N_BASELINES] = {
        [ZP_BASELINE_EVEN] = "even",     [ZP_BASELINE_LAYERS] = "layers",
        [ZP_BASELINE_ZERO3] = "ZeRO-3",  [ZP_BASELINE_ZERO3_FAIR] = "Z3fair",
        [ZP_BASELINE_PIPELINE] = "pipe", [ZP_BASELINE_GROUPS] = "groups",
        [ZP_BASELINE_MIXED] = "mixed",
    };
    double log_sum[ZP_N_BASELINES] = {0}, best_log_sum = 0;
    int n_feasible[ZP_N_BASELINES] = {0}, n_best = 0;
    bool stopped = false;
    print_effort(out, cases, n);
    fprintf(out, "\nspeed-up over       ");
    for (int k = 0; k < ZP_N_BASELINES; k++)
        fprintf(out, " %7s", heads[k]);
    fprintf(out, "\n");
    for (int i = 0; i < n; i++) {
        const zp_bench_case *c = &cases[i];
        stopped = stopped || c->quality.time_limit;
        if (c->quality.failure)
            continue;
        fprintf(out, "%-20s", c->name);
        for (int k = 0; k < ZP_N_BASELINES; k++) {
            const double speed_up = zp_compare_speed_up(&c->comparison, (zp_baseline_kind)k);
            if (speed_up > 0) {
                fprintf(out, " %7.2f", speed_up);
                log_sum[k] += log(speed_up);
                n_feasible[k]++;
            } else {
                fprintf(out, " %7s", "no room");
            }
        }
        fprintf(out, "\n");
        const zp_baseline *best = zp_baselines_best(c->comparison.baselines);
        if (best) {
            best_log_sum += log(best->solution.step_ms / c->comparison.ours.step_ms);
            n_best++;
        }
    }
    fprintf(out, "%-20s", "geometric mean");
    for (int k = 0; k < ZP_N_BASELINES; k++)
        fprintf(out, " %7.2f", n_feasible[k] > 0 ? exp(log_sum[k] / n_feasible[k]) : NAN);
    fprintf(out, "\nfits in %4d cases   ", n);
    for (int k = 0; k < ZP_N_BASELINES; k++)
        fprintf(out, " %7d", n_feasible[k]);
    fprintf(out, "\n");
    if (n_best > 0)
        fprintf(out, "\nover the best of them in each case: %.2f\n", exp(best_log_sum / n_best));
    if (stopped)
        fprintf(out, "*: stopped by the time limit\n");
}

static bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* Names that are left out must exist: a typing mistake would hide a case. */
static bool check_left_out(const zp_qualities *list, const char **names, int n, const char *folder,
                           zs_error *err)
{
    for (int i = 0; i < list->n_left_out; i++)
        if (!bsearch(&list->left_out[i], names, (size_t)n, sizeof *names, compare_names))
            return ZS_FAIL(err, ZS_ERR_INPUT, "%s has no case %s to leave out", folder,
                           list->left_out[i]);
    return true;
}

static bool add_left_out(zp_qualities *list, zs_arena *arena, const char *text, zs_error *err)
{
    const char **names =
        ZS_NEW(arena, const char *, list->n_left_out + (int64_t)strlen(text) + 1, err);
    if (!names)
        return false;
    for (int i = 0; i < list->n_left_out; i++)
        names[i] = list->left_out[i];
    list->left_out = names;
    for (const char *p = text;; p++) {
        const size_t length = strcspn(p, ",");
        const char *name = zs_arena_strndup(arena, p, length, err);
        if (!name)
            return false;
        if (!zp_qualities_leave_out(list, name))
            names[list->n_left_out++] = name;
        p += length;
        if (!*p)
            return true;
    }
}

static bool update(FILE *out, const zp_qualities *before, const zp_qualities *now, const char *path,
                   zs_error *err)
{
    for (int i = 0; i < now->n; i++) {
        const zp_quality *q = &now->items[i];
        if (q->failure || q->time_limit)
            return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s stays as it is: case %s: %s", path, q->name,
                           q->failure ? q->failure : "stopped by the time limit");
    }
    zp_qualities_print_changes(out, before, now);
    return zp_qualities_save(now, path, err);
}

static bool check(FILE *out, const zp_qualities *before, const zp_qualities *now, const char *path,
                  zs_error *err)
{
    const int n_faults = zp_qualities_check(out, before, now);
    if (n_faults > 0)
        return ZS_FAIL(
            err, ZS_ERR_RUNTIME,
            "%s: %d fault%s in plan quality (if they are meant: --update in the place of "
            "--check)",
            path, n_faults, n_faults == 1 ? "" : "s");
    fprintf(out, "%s: %d cases, no fault\n", path, now->n);
    return true;
}

bool zp_bench(FILE *out, zs_arena *arena, const zp_bench_options *options,
              const zp_search_options *search, zs_error *err)
{
    const char *golden = options->check ? options->check : options->update;
    zp_qualities before = {.gap = search->gap};
    zp_search_options used = *search;
    const char **names;
    int n_names, n = 0;
    if (options->check && options->update)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--check and --update exclude each other");
    if ((options->check || (options->update && file_exists(options->update))) &&
        !zp_qualities_load(&before, arena, golden, err))
        return false;
    zp_qualities now = before;
    if ((options->leave_out && !add_left_out(&now, arena, options->leave_out, err)) ||
        !zp_bench_list(&names, &n_names, arena, options->folder, err) ||
        !check_left_out(&now, names, n_names, options->folder, err))
        return false;
    if (!options->gap_given)
        used.gap = before.gap;
    now.gap = used.gap;
    zp_bench_case *cases = ZS_NEW(arena, zp_bench_case, n_names, err);
    now.items = ZS_NEW(arena, zp_quality, n_names, err);
    if (!cases || !now.items)
        return false;
    for (int i = 0; i < n_names; i++) {
        if (zp_qualities_leave_out(&now, names[i]))
            continue;
        if (!zp_bench_run(&cases[n], arena, options->folder, names[i], &used, err))
            return false;
        now.items[n] = cases[n].quality;
        n++;
    }
    now.n = n;
    zp_bench_print(out, cases, n);
    for (int i = 0; i < now.n_left_out; i++)
        fprintf(out, "left out: %s\n", now.left_out[i]);
    if (options->update)
        return update(out, &before, &now, golden, err);
    return !options->check || check(out, &before, &now, golden, err);
}
