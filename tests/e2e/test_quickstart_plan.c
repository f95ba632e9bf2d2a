/* The plan that ./quickstart trains: solved here, trained for 20 steps on real text, compared step
 * by step with the run of one rank on the same model, job and data; and run twice, to the bit.
 * Arguments: ZEXEC INSIDE ZPLAN SOURCE_ROOT. */
#include "tests/e2e/runs.h"

#include <stdlib.h>
#include <string.h>

enum { N_STEPS = 20, MIN_TEXT_BYTES = 100000 };

static const char *zplan, *source_root;

static bool run_program(const char *const *argv)
{
    check_output output = check_program(argv, NULL);
    const bool ok = CHECK(output.status == 0, "%s %s: status %d: %s", argv[0], argv[1],
                          output.status, output.err);
    check_output_free(&output);
    return ok;
}

/* Appends what `path` below the source root holds. */
static void append_file(char **text, size_t *size, const char *path)
{
    char whole[4096];
    size_t n;
    snprintf(whole, sizeof whole, "%s/%s", source_root, path);
    char *part = check_read_file(whole, &n);
    if (!CHECK(part != NULL, "%s cannot be read", whole))
        return;
    char *longer = realloc(*text, *size + n);
    if (!longer)
        exit(1);
    memcpy(longer + *size, part, n);
    *text = longer;
    *size += n;
    free(part);
}

/* The documentation of this repository, from its beginning again until it is long enough; a tenth
 * is held back. */
static bool make_tokens(void)
{
    static const char *const files[] = {"README.md", "shared/FORMATS.md", "CHANGELOG.md",
                                        "benchmarks/README.md", "LICENSE"};
    char *text = NULL;
    size_t size = 0, n_files = 0;
    while (size < MIN_TEXT_BYTES && n_files < 100)
        append_file(&text, &size, files[n_files++ % (sizeof files / sizeof files[0])]);
    const char *path = check_write_file("text.txt", text, size);
    free(text);
    const char *argv[] = {runs_zexec, "convert", "text", path, "-o", check_path("text.bin"),
                          "--split",  "0.1",     NULL};
    return run_program(argv);
}

/* The case's job, on its own cluster or on another one. */
static const char *solve(const char *name, const char *cluster)
{
    char job[4096];
    snprintf(job, sizeof job, "%s/benchmarks/cases/quickstart/job.json", source_root);
    const char *plan = check_path(name);
    const char *argv[] = {zplan, "solve", "--job", job, "-q", "-o", plan, NULL, NULL, NULL};
    if (cluster) {
        argv[7] = "--cluster";
        argv[8] = cluster;
    }
    return run_program(argv) ? plan : NULL;
}

static int count(const char *path, const char *text)
{
    char *all = check_read_file(path, NULL);
    int n = 0;
    for (const char *at = all; at && (at = strstr(at, text)); at++)
        n++;
    free(all);
    return n;
}

static void check_same_bytes(const char *a, const char *b)
{
    size_t size_a = 0, size_b = 0;
    char *x = check_read_file(a, &size_a), *y = check_read_file(b, &size_b);
    CHECK(x && y && size_a > 1000000 && size_a == size_b && memcmp(x, y, size_a) == 0,
          "%s (%zu bytes) and %s (%zu bytes) differ", a, size_a, b, size_b);
    free(x);
    free(y);
}

/* The options of ./quickstart, but for a third of its learning rate: near 3e-3 the gradient's norm
 * jumps, and a difference in rounding grows tenfold every other step, whatever caused it. */
static bool train(run_metrics *out, const char *plan, const char *weights)
{
    char options[4096];
    snprintf(options, sizeof options,
             "--steps 20 --lr 1e-3 --min-lr 1e-4 --warmup 20 --weight-decay 0.1 --clip 1 --seed 1 "
             "--threads 1 --quiet --eval %s --eval-every 10 --save %s",
             check_path("text.val.bin"), weights);
    return runs_metrics(out, plan, check_path("text.train.bin"), options, NULL) &&
           CHECK(out->n_steps == N_STEPS && out->n_evals == 3, "%d steps, %d evaluations",
                 out->n_steps, out->n_evals);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    if (argc != 5)
        return 2;
    zplan = argv[3];
    source_root = argv[4];
    const char *plan = solve("plan.json", NULL), *one = solve("one.json", "1x(1xH200)");
    run_metrics reference, run, again;
    if (!make_tokens() || !plan || !one ||
        !CHECK(count(plan, "\"samples\":") > 3 && count(plan, "\"forward\":") >= 2,
               "the plan has no two stages of several ranks") ||
        !CHECK(count(one, "\"forward\":") == 1 && count(one, "\"micro_batches\": [32]") == 1,
               "the reference is not one rank with one micro-batch") ||
        !train(&reference, one, check_path("one.safetensors")) ||
        !train(&run, plan, check_path("run.safetensors")))
        return check_done();
    runs_check_near(&run, &reference, 1e-5, "quickstart plan");
    CHECK(run.loss[0] > 5.4 && run.loss[N_STEPS - 1] < 4.5, "loss %g to %g", run.loss[0],
          run.loss[N_STEPS - 1]);
    CHECK(run.eval_loss[2] < run.eval_loss[1] && run.eval_loss[1] < run.eval_loss[0],
          "evaluation %g to %g", run.eval_loss[0], run.eval_loss[2]);

    if (train(&again, plan, check_path("again.safetensors"))) {
        CHECK_STRING(again.stable, run.stable);
        CHECK_STRING(again.params_digest, run.params_digest);
        check_same_bytes(check_path("run.safetensors"), check_path("again.safetensors"));
        runs_metrics_free(&again);
    }
    runs_metrics_free(&run);
    runs_metrics_free(&reference);
    return check_done();
}
