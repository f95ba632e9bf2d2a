#include "planner/compare.h"

#include "planner/evaluate.h"
#include "shared/units.h"

#include <string.h>

enum { TEXT_SIZE = 32, WIDTH = 80, INDENT = 28 };

static const double FIVE_DIGITS = 1e5;

bool zp_compare(zp_comparison *out, zs_arena *arena, const zp_problem *problem,
                const zp_search_options *options, zs_error *err)
{
    zp_comparison c;
    zp_cost cost;
    if (!zp_baselines_build(c.baselines, NULL, arena, problem, NULL, err))
        return false;
    const zp_baseline *best = zp_baselines_best(c.baselines);
    zp_search_options seeded = *options;
    seeded.incumbent = best ? &best->solution : NULL;
    if (!zp_search(&c.ours, arena, problem, &seeded, err) ||
        !zp_evaluate(&cost, arena, problem, &c.ours.batching, c.ours.stages, c.ours.n_stages, false,
                     ZP_SEARCH_TOLERANCE_GIB, err))
        return false;
    c.bubble_share =
        zp_evaluate_bubble_share(&cost, c.ours.n_stages, c.ours.batching.n_micro_batches);
    c.memory_share = zp_evaluate_memory_share(&cost, problem, c.ours.stages, c.ours.n_stages);
    *out = c;
    return true;
}

double zp_compare_speed_up(const zp_comparison *comparison, zp_baseline_kind kind)
{
    const zp_baseline *b = &comparison->baselines[kind];
    return b->feasible && comparison->ours.step_ms > 0
               ? b->solution.step_ms / comparison->ours.step_ms
               : 0;
}

const char *zp_compare_print_ms(char *text, size_t size, double ms)
{
    snprintf(text, size, ms < FIVE_DIGITS ? "%.5g" : "%.0f", ms);
    return text;
}

static void print_row(FILE *out, const char *name, const char *like, const zp_solution *s,
                      double bubble_share, double memory_share, double speed_up)
{
    char step[TEXT_SIZE], ratio[TEXT_SIZE] = "";
    if (speed_up > 0)
        snprintf(ratio, sizeof ratio, " %6.2fx", speed_up);
    fprintf(out, "%-15s %-11s %10s %6d %7d %5.1f %% %5.1f %%%s\n", name, like,
            zp_compare_print_ms(step, sizeof step, s->step_ms), s->n_stages,
            s->batching.micro_batch, 100 * bubble_share, 100 * memory_share, ratio);
}

static void print_reason(FILE *out, const zp_baseline *b)
{
    int column = fprintf(out, "%-15s %-11s", b->name, b->like);
    for (const char *p = b->why_not; *p;) {
        const int length = (int)strcspn(p, " ");
        if (column + 1 + length > WIDTH)
            column = fprintf(out, "\n%*s", INDENT - 1, "") - 1;
        column += fprintf(out, " %.*s", length, p);
        p += length;
        p += strspn(p, " ");
    }
    fputc('\n', out);
}

void zp_compare_print(FILE *out, const zp_comparison *c)
{
    const zp_baseline *best = zp_baselines_best(c->baselines);
    char step[TEXT_SIZE];
    fprintf(out, "%-15s %-11s %10s %6s %7s %7s %7s %8s\n", "plan", "as in", "step ms", "stages",
            "u-batch", "bubble", "memory", "speed-up");
    print_row(out, "zplan", "", &c->ours, c->bubble_share, c->memory_share, 0);
    for (int i = 0; i < ZP_N_BASELINES; i++) {
        const zp_baseline *b = &c->baselines[i];
        if (b->feasible)
            print_row(out, b->name, b->like, &b->solution, b->bubble_share, b->memory_share,
                      zp_compare_speed_up(c, (zp_baseline_kind)i));
        else
            print_reason(out, b);
    }
    fputs("\nspeed-up: step time of that plan / of zplan; memory: fullest GPU, of what it has\n"
          "after context and reserve; u-batch: samples of a micro-batch\n",
          out);
    fprintf(out, "no plan is faster than %s",
            zs_units_print_ms(step, sizeof step, c->ours.lower_bound_ms));
    fprintf(out, " (zplan is within %.2f %%%s)\n",
            100 * (c->ours.step_ms - c->ours.lower_bound_ms) / c->ours.step_ms,
            c->ours.time_limit ? ", time limit" : "");
    if (best)
        fprintf(out, "the best of the others is \"%s\": zplan is %.2f times as fast\n", best->name,
                best->solution.step_ms / c->ours.step_ms);
    else
        fprintf(out, "none of the others fits\n");
}

static void write_plan(zs_json_writer *w, const zp_solution *s, double bubble_share,
                       double memory_share)
{
    zs_json_put_double(w, "step_ms", s->step_ms);
    zs_json_put_int(w, "n_stages", s->n_stages);
    zs_json_put_int(w, "micro_batch", s->batching.micro_batch);
    zs_json_put_int(w, "n_micro_batches", s->batching.n_micro_batches);
    zs_json_put_double(w, "bubble_share", bubble_share);
    zs_json_put_double(w, "memory_share", memory_share);
}

void zp_compare_write(zs_json_writer *w, const char *key, const zp_comparison *c)
{
    zs_json_begin_object(w, key);
    zs_json_put_string(w, "format", ZP_COMPARISON_FORMAT);
    zs_json_put_int(w, "version", ZP_COMPARISON_VERSION);
    zs_json_begin_object(w, "zplan");
    write_plan(w, &c->ours, c->bubble_share, c->memory_share);
    zs_json_put_double(w, "lower_bound_ms", c->ours.lower_bound_ms);
    zs_json_put_bool(w, "time_limit", c->ours.time_limit);
    zs_json_put_int(w, "n_solves", c->ours.n_solves);
    zs_json_put_int(w, "n_nodes", c->ours.n_nodes);
    zs_json_end_object(w);
    zs_json_begin_array(w, "baselines");
    for (int i = 0; i < ZP_N_BASELINES; i++) {
        const zp_baseline *b = &c->baselines[i];
        zs_json_begin_object(w, NULL);
        zs_json_put_string(w, "name", b->name);
        zs_json_put_string(w, "like", b->like);
        zs_json_put_bool(w, "feasible", b->feasible);
        if (b->feasible) {
            write_plan(w, &b->solution, b->bubble_share, b->memory_share);
            zs_json_put_double(w, "speed_up", zp_compare_speed_up(c, (zp_baseline_kind)i));
        } else {
            zs_json_put_string(w, "why_not", b->why_not);
        }
        zs_json_end_object(w);
    }
    zs_json_end_array(w);
    zs_json_end_object(w);
}
