#include "tests/e2e/runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 64 };

const char *runs_zexec, *runs_inside;

void runs_open(int argc, char **argv)
{
    runs_zexec = argc > 1 ? argv[1] : "zexec";
    runs_inside = argc > 2 ? argv[2] : "inside";
}

char *runs_inside_all(const char *mode, const char *plan, const char *data, int n_ranks)
{
    /* What zexec sets for the ranks it starts. */
    static const char *const settings[] = {"OMPI_ALLOW_RUN_AS_ROOT=1",
                                           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                           "OMPI_MCA_rmaps_base_oversubscribe=1",
                                           "OMPI_MCA_hwloc_base_binding_policy=none",
                                           "OMPI_MCA_btl_vader_single_copy_mechanism=none",
                                           "PRTE_ALLOW_RUN_AS_ROOT=1",
                                           "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                           "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
                                           "PRTE_MCA_hwloc_default_binding_policy=none",
                                           NULL};
    char count[16];
    snprintf(count, sizeof count, "%d", n_ranks);
    const char *argv[] = {"mpirun", "-n", count, runs_inside, mode, plan, data, NULL};
    check_output output = check_program(n_ranks > 1 ? argv : argv + 3, settings);
    if (!CHECK(output.status == 0, "inside %s: status %d: %s", mode, output.status, output.err)) {
        check_output_free(&output);
        return NULL;
    }
    free(output.err);
    return output.out;
}

/* Splits options, which must outlive the words. */
static void fill_words(const char *words[MAX_WORDS], char *options, const char *plan,
                       const char *data)
{
    int n = 0;
    words[n++] = runs_zexec;
    words[n++] = "run";
    words[n++] = plan;
    words[n++] = "--data";
    words[n++] = data;
    for (char *word = strtok(options, " "); word && n < MAX_WORDS - 1; word = strtok(NULL, " "))
        words[n++] = word;
    words[n] = NULL;
}

check_output runs_start(const char *plan, const char *data, const char *options,
                        const char *const *settings)
{
    const char *words[MAX_WORDS];
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", options);
    fill_words(words, copy, plan, data);
    return check_program(words, settings);
}

check_process runs_begin(const char *plan, const char *data, const char *options)
{
    const char *words[MAX_WORDS];
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", options);
    fill_words(words, copy, plan, data);
    return check_program_start(words, NULL);
}

static bool is_time(const char *key)
{
    const size_t n = strlen(key);
    return (n > 3 && strcmp(key + n - 3, "_ms") == 0) ||
           (n > 6 && strcmp(key + n - 6, "_per_s") == 0);
}

/* Adds the line without its time fields to the stable text. */
static bool keep_stable(run_metrics *m, const zs_json *object, zs_error *err)
{
    zs_json_writer *w;
    const char *text;
    size_t size;
    if (!zs_json_writer_open(&w, err))
        return false;
    zs_json_writer_set_compact(w);
    zs_json_begin_object(w, NULL);
    for (int i = 0; i < zs_json_n_items(object); i++)
        if (!is_time(zs_json_key_at(object, i)))
            zs_json_put_value(w, zs_json_key_at(object, i), zs_json_item(object, i));
    zs_json_end_object(w);
    const bool ok = zs_json_writer_text(w, &text, &size, err);
    if (ok) {
        const size_t before = m->stable ? strlen(m->stable) : 0;
        m->stable = realloc(m->stable, before + size + 1);
        memcpy(m->stable + before, text, size);
        m->stable[before + size] = 0;
    }
    zs_json_writer_close(&w);
    return ok;
}

static bool read_line(run_metrics *m, zs_arena *arena, const char *line, size_t size, zs_error *err)
{
    const zs_json *root;
    const char *digest;
    if (!zs_json_parse(&root, arena, line, size, "metrics.jsonl", err) ||
        !keep_stable(m, root, err))
        return false;
    if (zs_json_find(root, "done")) {
        m->done = true;
        if (!zs_json_get_string(&digest, root, "params_digest", err))
            return false;
        snprintf(m->params_digest, sizeof m->params_digest, "%s", digest);
        return true;
    }
    if (zs_json_find(root, "eval_loss")) {
        const int i = m->n_evals++;
        return i < RUNS_MAX_EVALS &&
               zs_json_get_double(&m->eval_loss[i], root, "eval_loss", 0, 1e9, err) &&
               zs_json_get_int(&m->eval_sequences[i], root, "eval_sequences", 0, 1 << 30, err);
    }
    const int i = m->n_steps++;
    const zs_json *ids = zs_json_find(root, "sequences");
    for (int k = 0; i < RUNS_MAX_STEPS && ids && k < zs_json_n_items(ids) && k < RUNS_MAX_LISTED;
         k++)
        if (!zs_json_int(&m->sequences[i][k], zs_json_item(ids, k), 0, INT64_MAX, err))
            return false;
    return i < RUNS_MAX_STEPS && zs_json_get_double(&m->loss[i], root, "loss", 0, 1e9, err) &&
           zs_json_get_double(&m->grad_norm[i], root, "grad_norm", 0, 1e9, err) &&
           zs_json_get_double(&m->lr[i], root, "lr", 0, 1e9, err) &&
           zs_json_get_int(&m->tokens[i], root, "tokens", 0, 1 << 30, err);
}

static bool read_metrics(run_metrics *m, const char *text)
{
    zs_error err;
    zs_arena *arena;
    bool ok = CHECK(zs_arena_open(&arena, &err), "%s", err.message);
    while (ok && *text) {
        const size_t size = strcspn(text, "\n");
        ok = CHECK(text[size] == '\n', "metrics.jsonl: last line is not whole") &&
             CHECK(read_line(m, arena, text, size, &err), "%s", err.message);
        text += size + 1;
    }
    zs_arena_close(&arena);
    return ok && CHECK(m->done, "metrics.jsonl has no last line");
}

bool runs_read_metrics(run_metrics *out, const char *folder)
{
    char path[4096];
    *out = (run_metrics){0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    char *text = check_read_file(path, NULL);
    const bool ok = CHECK(text != NULL, "%s is missing", path) && read_metrics(out, text);
    free(text);
    return ok;
}

bool runs_metrics(run_metrics *out, const char *plan, const char *data, const char *options,
                  const char *const *settings)
{
    static int n_runs;
    char name[64], all_options[4096];
    *out = (run_metrics){0};
    snprintf(name, sizeof name, "run%d", n_runs++);
    const char *folder = check_path(name);
    snprintf(all_options, sizeof all_options, "%s --out %s", options, folder);
    check_output output = runs_start(plan, data, all_options, settings);
    const bool ok = CHECK(output.status == 0, "status %d: %s", output.status, output.err) &&
                    runs_read_metrics(out, folder);
    check_output_free(&output);
    return ok;
}

void runs_metrics_free(run_metrics *metrics)
{
    free(metrics->stable);
    *metrics = (run_metrics){0};
}

void runs_check_refused(check_output *output, int status, const char *text)
{
    CHECK(output->status == status, "status %d, expected %d: %s", output->status, status,
          output->err);
    CHECK(strstr(output->err, text) != NULL, "no \"%s\" in \"%s\"", text, output->err);
    const char *end = strchr(output->err, '\n');
    CHECK(end && end[1] == 0, "stderr is not one line: %s", output->err);
    CHECK(strstr(output->out, "loss") == NULL, "a step was run: %s", output->out);
    CHECK(output->wall_s < 30, "%g s", output->wall_s);
    check_output_free(output);
}

/* CHECK_NEAR is absolute below 1; norms can be small, so this is relative. */
static void check_relative(double a, double b, double tolerance, const char *what, int step)
{
    CHECK(fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b)), "%s %d: %.12g, reference %.12g", what,
          step, a, b);
}

void runs_check_near(const run_metrics *run, const run_metrics *reference, double tolerance,
                     const char *what)
{
    CHECK(run->n_steps == reference->n_steps && run->n_evals == reference->n_evals,
          "%s: %d steps, %d evaluations", what, run->n_steps, run->n_evals);
    for (int i = 0; i < run->n_steps && i < reference->n_steps; i++) {
        check_relative(run->loss[i], reference->loss[i], tolerance, what, i + 1);
        check_relative(run->grad_norm[i], reference->grad_norm[i], tolerance, what, i + 1);
    }
    for (int i = 0; i < run->n_evals && i < reference->n_evals; i++)
        check_relative(run->eval_loss[i], reference->eval_loss[i], tolerance, what, i + 1);
}
