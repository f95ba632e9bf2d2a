/* A checkpoint of which one byte is missing, one bit is flipped, one file is gone or empty is
 * refused by the file's name, or the one before it is taken and that is said. */
#include "tests/e2e/runs.h"

#include "executor/checkpoint_folder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 8, V = 32 };

typedef enum damage { CUT, FLIP, DELETE, EMPTY, N_DAMAGES } damage;

static const char *const damage_names[] = {"cut", "flipped", "deleted", "emptied"};

static const char *plan, *data, *dir;

static void apply(damage kind, const char *path, char *bytes, size_t size, size_t bit)
{
    FILE *file = NULL;
    if (kind == DELETE) {
        CHECK(unlink(path) == 0, "%s", path);
        return;
    }
    if (kind == FLIP)
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
    const size_t n = kind == CUT ? size - 1 : kind == EMPTY ? 0 : size;
    file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, n, file) == n && fclose(file) == 0, "%s", path);
    if (kind == FLIP)
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ (1 << bit % 8));
}

static void restore(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "%s", path);
}

static void check_alone(const char *path, damage kind)
{
    char options[4200];
    snprintf(options, sizeof options, "--steps 3 --quiet --resume %s/step-00000002", dir);
    check_output output = runs_start(plan, data, options, NULL);
    CHECK(strstr(output.err, path) != NULL, "%s: %s: %s", damage_names[kind], path, output.err);
    runs_check_refused(&output, 2, "step-00000002: no complete checkpoint: ");
}

static void check_fallback(const char *path, damage kind)
{
    char options[4200], expected[4200];
    snprintf(options, sizeof options, "--steps 3 --resume %s", dir);
    check_output output = runs_start(plan, data, options, NULL);
    CHECK(output.status == 0 && strstr(output.err, path) &&
              strstr(output.err, "; damaged, falling back to the checkpoint before it"),
          "%s: %s: %s", damage_names[kind], path, output.err);
    snprintf(expected, sizeof expected, "resumed %s/step-00000001: step 1, ", dir);
    CHECK(strstr(output.out, expected) && strstr(output.out, "step 2/3 | loss") &&
              strstr(output.out, "step 3/3 | loss"),
          "%s: %s: %s", damage_names[kind], path, output.out);
    check_output_free(&output);
}

static void check_file(const char *name, check_rng *rng)
{
    char path[4200];
    size_t size;
    snprintf(path, sizeof path, "%s/step-00000002/%s", dir, name);
    char *bytes = check_read_file(path, &size);
    if (!CHECK(bytes && size > 0, "%s", path))
        return;
    for (damage kind = 0; kind < N_DAMAGES; kind++) {
        const size_t bit = (size_t)check_rng_int(rng, 0, (int64_t)size * 8 - 1);
        apply(kind, path, bytes, size, bit);
        /* Without its manifest a folder given by name is no checkpoint at all. */
        if (kind != DELETE || strcmp(name, ZX_MANIFEST_NAME) != 0)
            check_alone(path, kind);
        check_fallback(path, kind);
        restore(path, bytes, size);
    }
    free(bytes);
}

/* What a checkpoint says about its run is compared with the run that takes it up. */
static void check_other_runs(const check_run_plan *description)
{
    char options[4200];
    check_run_plan other = *description;
    other.model.n_channels = 16;
    other.samples = "4";
    other.shards = NULL;
    const char *wider = check_run_plan_save("wider.json", &other);
    snprintf(options, sizeof options, "--steps 3 --quiet --resume %s", dir);
    check_output output = runs_start(wider, data, options, NULL);
    runs_check_refused(&output, 2,
                       "manifest.json: $.model.n_channels is 8, but the plan's model "
                       "has 16");
    output = runs_start(plan, check_random_tokens("more.bin", 2, 60 * T, V), options, NULL);
    runs_check_refused(&output, 2, "manifest.json: $.data.n_tokens is 321, ");
    snprintf(options, sizeof options, "--steps 3 --quiet --seed 2 --resume %s", dir);
    output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, "manifest.json: $.seed is 1, this run has --seed 2");
    snprintf(options, sizeof options, "--steps 3 --quiet --data-order sequential --resume %s", dir);
    output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, "manifest.json: $.data.order is shuffled, ");
    snprintf(options, sizeof options, "--steps 1 --quiet --resume %s", dir);
    output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, "--steps 1: ");

    /* What may change is said. */
    snprintf(options, sizeof options, "--steps 3 --lr 0.001 --resume %s", dir);
    output = runs_start(plan, data, options, NULL);
    CHECK(output.status == 0 &&
              strstr(output.err, "step-00000002 was made with --lr 0.0003, now 0.001; --steps 2, "
                                 "now 3"),
          "%s", output.err);
    check_output_free(&output);

    /* Two runs never share a folder of checkpoints. */
    snprintf(options, sizeof options, "--steps 3 --quiet --out %s", dir);
    output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, ": holds step-00000002 of another run, or newer than this one");
    snprintf(options, sizeof options, "--steps 3 --quiet --out %s --resume %s/step-00000001", dir,
             dir);
    output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, ": holds step-00000002 of another run, or newer than this one");

    snprintf(options, sizeof options, "--resume %s", check_folder("empty"));
    output = runs_start(plan, data, options, NULL);
    runs_check_refused(&output, 2, "holds no checkpoint (step-00000001/, ...)");
    output = runs_start(plan, data, "--resume nowhere", NULL);
    runs_check_refused(&output, 2, "--resume: nowhere: No such file");
    output = runs_start(plan, data, "--save-every 1", NULL);
    runs_check_refused(&output, 2, "--save-every 1 needs --out DIR");
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    const check_run_plan two = {.model = {.n_blocks = 2,
                                          .n_channels = 8,
                                          .n_heads = 2,
                                          .n_vocab = V,
                                          .n_positions = T,
                                          .tied = true},
                                .samples = "3+1",
                                .micro_batches = "4",
                                .seq_len = T,
                                .shards = "70+30"};
    check_run_plan one = two;
    one.samples = "4";
    one.shards = NULL;
    data = check_random_tokens("tokens.bin", 1, 40 * T + 1, V);
    plan = check_run_plan_save("one.json", &one);
    dir = check_path("run");
    char options[4200];
    snprintf(options, sizeof options, "--steps 2 --save-every 1 --quiet --out %s", dir);
    check_output output = runs_start(check_run_plan_save("two.json", &two), data, options, NULL);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);

    zs_error err;
    zs_arena *arena;
    zx_manifest m;
    char folder[4200];
    snprintf(folder, sizeof folder, "%s/step-00000002", dir);
    if (!CHECK(zs_arena_open(&arena, &err) && zx_manifest_load(&m, arena, folder, &err), "%s",
               err.message))
        return check_done();
    check_rng rng = check_rng_from(10);
    CHECK(m.n_files == 2, "%d files", m.n_files);
    for (int i = 0; i < m.n_files; i++)
        check_file(m.files[i].name, &rng);
    check_file(ZX_MANIFEST_NAME, &rng);
    check_other_runs(&two);
    zs_arena_close(&arena);
    return check_done();
}
