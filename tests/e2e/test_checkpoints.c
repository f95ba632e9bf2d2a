/* Checkpoints: any plan takes up what any other saved, bit for bit; a run that goes on is the run
 * that never stopped; what is damaged is noticed. */
#include "tests/e2e/runs.h"

#include "executor/checkpoint_folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 8, V = 32, BATCH = 8, N_BLOCKS = 12, N_SEQUENCES = 40 };

static zs_arena *arena;
static zs_error err;
static const char *data;

static const check_model twelve_blocks = {.n_blocks = N_BLOCKS,
                                          .n_channels = 8,
                                          .n_heads = 2,
                                          .n_vocab = V,
                                          .n_positions = T,
                                          .tied = true};

static check_run_plan plan_of(const char *samples, const char *blocks, const char *shards)
{
    return (check_run_plan){.model = twelve_blocks,
                            .samples = samples,
                            .micro_batches = "4+4",
                            .seq_len = T,
                            .blocks = blocks,
                            .shards = shards};
}

static const char *print(const char *format, ...) ZS_PRINTF(1, 2);
static const char *print(const char *format, ...)
{
    static char texts[8][1024];
    static int next;
    char *text = texts[next++ % 8];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof texts[0], format, args);
    va_end(args);
    return text;
}

static void must(bool ok)
{
    if (!CHECK(ok, "%s", err.message))
        exit(check_done());
}

/* All of a checkpoint, in one piece. */
typedef struct gathered {
    zx_manifest manifest;
    zx_real *arrays[ZX_N_ARRAYS];
} gathered;

static gathered gather(const char *folder)
{
    gathered g;
    must(zx_manifest_load(&g.manifest, arena, folder, &err));
    const zs_shard all = {.count = g.manifest.n_params};
    for (int i = 0; i < g.manifest.n_files; i++)
        must(zx_checkpoint_verify(&g.manifest, folder, i, &err));
    for (int i = 0; i < ZX_N_ARRAYS; i++) {
        g.arrays[i] = ZS_NEW(arena, zx_real, all.count, &err);
        must(g.arrays[i] != NULL &&
             zx_checkpoint_read(g.arrays[i], &g.manifest, folder, (zx_array)i, all, &err));
    }
    return g;
}

static bool is_equal(const gathered *a, const gathered *b)
{
    bool equal = a->manifest.n_params == b->manifest.n_params &&
                 a->manifest.step == b->manifest.step &&
                 a->manifest.position == b->manifest.position &&
                 a->manifest.n_updates == b->manifest.n_updates;
    for (int i = 0; equal && i < ZX_N_ARRAYS; i++)
        equal = memcmp(a->arrays[i], b->arrays[i],
                       (size_t)a->manifest.n_params * sizeof *a->arrays[i]) == 0;
    return equal;
}

/* A checkpoint behind step 4 that no plan wrote: block i's first norm has the bias i + 0.5, moments
 * are random. */
static gathered write_start(const char *dir, const zm_model *model, const zx_data *tokens)
{
    const int64_t n = zm_model_n_params(model);
    gathered g = {.manifest = {.model = *model,
                               .n_params = n,
                               .step = 4,
                               .n_updates = 4,
                               .n_tokens = tokens->n_tokens,
                               .n_sequences = tokens->n_sequences,
                               .seq_len = T,
                               .position = 4 * BATCH,
                               .n_files = 1}};
    g.manifest.options = (zx_run_options){.lr = {.max = 3e-4, .n_steps = 7},
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .eps = 1e-8,
                                          .weight_decay = 0.1,
                                          .clip = 1,
                                          .seed = 1};
    check_rng rng = check_rng_from(8);
    for (int i = 0; i < ZX_N_ARRAYS; i++) {
        g.arrays[i] = ZS_NEW(arena, zx_real, n, &err);
        must(g.arrays[i] != NULL);
        for (int64_t k = 0; k < n; k++)
            g.arrays[i][k] =
                (zx_real)check_rng_double(&rng, i == ZX_ARRAY_SECOND_MOMENTS ? 0 : -0.05, 0.05);
    }
    zm_stage_tensor *tensors;
    int n_tensors;
    must(zm_stage_tensors(&tensors, &n_tensors, arena, model, 0, model->n_blocks, &err));
    for (int i = 0; i < n_tensors; i++)
        if (tensors[i].tensor.role == ZM_NORM1_B)
            for (int64_t k = 0; k < tensors[i].tensor.count; k++)
                g.arrays[ZX_ARRAY_WEIGHTS][tensors[i].global_offset + k] =
                    (zx_real)(tensors[i].layer - 1 + 0.5);

    char folder[ZX_CHECKPOINT_PATH_SIZE];
    zx_checkpoint_values values = {.elements = {.count = n}};
    uint32_t crc;
    for (int i = 0; i < ZX_N_ARRAYS; i++)
        values.arrays[i] = g.arrays[i];
    g.manifest.files = ZS_NEW(arena, zx_manifest_file, 1, &err);
    must(g.manifest.files && zx_checkpoint_begin(dir, 4, &err) &&
         zx_checkpoint_path(folder, dir, 4, true, &err) &&
         zx_checkpoint_write(&crc, folder, &values, &err) &&
         zx_checkpoint_describe(g.manifest.files, arena, values.elements, crc, &err) &&
         zx_manifest_save(&g.manifest, folder, &err) && zx_checkpoint_publish(dir, 4, &err));
    return g;
}

/* Twelve blocks whose norms say which block they belong to go from plan to plan. */
static void check_any_plan(void)
{
    check_run_plan plans[] = {plan_of("2+2|4", "5|7", "70+30|1"),
                              plan_of("2+1+1|4|4", "4|4|4", "50+25+25|1|1"),
                              plan_of("4", NULL, NULL), plan_of("1+3|4", "5|7", "70+30|1")};
    enum { N_PLANS = sizeof plans / sizeof plans[0] };
    plans[1].zero = "3|1|1";
    plans[3].zero = "2|1";
    const char *paths[N_PLANS];
    for (int i = 0; i < N_PLANS; i++)
        paths[i] = check_run_plan_save(print("hop%d.json", i), &plans[i]);
    zs_plan plan;
    zm_model model;
    zx_data tokens;
    must(zs_plan_load(&plan, arena, paths[0], &err) &&
         zm_model_parse(&model, arena, plan.model, plan.model_name, &err) &&
         zx_data_open(&tokens, data, ZX_DATA_AUTO, T, V, &err));
    const gathered start = write_start(check_folder("start"), &model, &tokens);
    zx_data_close(&tokens);

    run_metrics reference, m;
    const char *from = check_path("start");
    const bool ok =
        runs_metrics(&reference, paths[2], data, print("--steps 7 --resume %s", from), NULL);
    CHECK(ok && reference.n_steps == 3, "%d steps", reference.n_steps);
    for (int i = 0; ok && i < N_PLANS; i++) {
        const char *to = check_path(print("hop%d", i));
        check_output output = runs_start(
            paths[i], data,
            print("--steps 4 --resume %s --out %s --save-every 1 --quiet", from, to), NULL);
        CHECK(output.status == 0, "hop %d: %s", i, output.err);
        check_output_free(&output);
        const gathered hop = gather(print("%s/step-00000004", to));
        CHECK(is_equal(&hop, &start), "hop %d changed what it saved", i);
        CHECK(hop.manifest.n_files == (i == 1   ? 5
                                       : i == 2 ? 1
                                                : 3),
              "%d files", hop.manifest.n_files);

        if (runs_metrics(&m, paths[i], data, print("--steps 7 --resume %s", to), NULL))
            runs_check_near(&m, &reference, 1e-5, print("3 steps from hop %d", i));
        runs_metrics_free(&m);
        from = to;
    }
    runs_metrics_free(&reference);
}

/* lr of step k = 1, 2, ...: the formula of executor/optimizer.h. */
static double lr_of(int k)
{
    const double pi = acos(-1);
    return k <= 4 ? 3e-4 * k / 4 : 3e-4 * (1 + cos(pi * (k - 1 - 4) / 6)) / 2;
}

/* Whole lines at the end of the undisturbed run's. */
static void check_is_rest(const run_metrics *rest, const run_metrics *whole, int n_steps)
{
    CHECK(rest->n_steps == n_steps, "%d steps", rest->n_steps);
    const size_t n = strlen(rest->stable), n_whole = strlen(whole->stable);
    CHECK(n < n_whole && whole->stable[n_whole - n - 1] == '\n' &&
              strcmp(whole->stable + n_whole - n, rest->stable) == 0,
          "the rest is\n%sof\n%s", rest->stable, whole->stable);
}

/* Those behind the first n are as if they had never been reached. */
static void remove_steps(const char *dir, int64_t n)
{
    int64_t *steps;
    int n_steps;
    must(zx_checkpoint_list(&steps, &n_steps, arena, dir, &err));
    for (int i = 0; i < n_steps; i++)
        if (steps[i] > n)
            check_remove_path(print("%s/step-%08" PRId64, dir, steps[i]));
}

static void check_goes_on(void)
{
    const check_run_plan two = {.model = {.n_blocks = 2,
                                          .n_channels = 16,
                                          .n_heads = 2,
                                          .n_vocab = V,
                                          .n_positions = T,
                                          .tied = true},
                                .samples = "3+1",
                                .micro_batches = "4+4",
                                .seq_len = T,
                                .shards = "70+30"};
    check_run_plan other = two;
    other.samples = "3|2+1";
    other.micro_batches = "3+3+2";
    other.shards = "1|20+80";
    other.zero = "1|3";
    const char *plan = check_run_plan_save("two.json", &two);
    const char *other_plan = check_run_plan_save("others.json", &other);
    const char *options = "--steps 10 --warmup 4 --data-order shuffled";
    run_metrics whole, rest, again;
    if (!runs_metrics(&whole, plan, data, options, NULL))
        return;
    for (int i = 0; i < 10; i++)
        CHECK(fabs(whole.lr[i] - lr_of(i + 1)) <= 1e-7 * lr_of(i + 1), "lr of step %d is %.12g",
              i + 1, whole.lr[i]);

    /* 10 steps are two epochs of 40 sequences: each once. */
    for (int epoch = 0; epoch < 2; epoch++) {
        int n_seen[N_SEQUENCES] = {0};
        for (int i = 0; i < N_SEQUENCES; i++)
            n_seen[whole.sequences[epoch * 5 + i / BATCH][i % BATCH]]++;
        for (int i = 0; i < N_SEQUENCES; i++)
            CHECK(n_seen[i] == 1, "epoch %d: sequence %d %d times", epoch, i, n_seen[i]);
    }

    const char *one = check_path("one"), *second = check_path("second");
    check_output output = runs_start(
        plan, data, print("%s --out %s --save-every 1 --keep-last 9 --quiet", options, one), NULL);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);
    CHECK(access(print("%s/step-00000001", one), F_OK) != 0 &&
              access(print("%s/step-00000002", one), F_OK) == 0,
          "--keep-last 9 of 10");

    /* 4 + 6 */
    if (runs_metrics(&rest, plan, data, print("%s --resume %s/step-00000004", options, one), NULL))
        check_is_rest(&rest, &whole, 6);
    runs_metrics_free(&rest);

    /* The second half under another plan. */
    if (runs_metrics(&rest, other_plan, data, print("%s --resume %s/step-00000004", options, one),
                     NULL)) {
        CHECK(rest.n_steps == 6, "%d steps", rest.n_steps);
        for (int i = 0; i < rest.n_steps; i++) {
            CHECK(fabs(rest.loss[i] - whole.loss[i + 4]) <= 1e-5 * whole.loss[i + 4],
                  "loss %.9g, one plan: %.9g", rest.loss[i], whole.loss[i + 4]);
            CHECK(rest.lr[i] == whole.lr[i + 4] && memcmp(rest.sequences[i], whole.sequences[i + 4],
                                                          sizeof rest.sequences[i]) == 0,
                  "step %d: other lr or sequences", i + 5);
        }
    }
    runs_metrics_free(&rest);

    /* 1 + 1 + 8, each from what the one before saved; the last in place. */
    output =
        runs_start(plan, data, print("%s --out %s --save-every 1 --quiet", options, second), NULL);
    CHECK(output.status == 0, "%s", output.err);
    check_output_free(&output);
    for (int from = 1; from <= 2; from++) {
        remove_steps(second, from);
        output = runs_start(
            plan, data,
            print("%s --out %s --resume %s --save-every 1 --quiet", options, second, second), NULL);
        CHECK(output.status == 0 &&
                  strstr(output.out, print("resumed %s/step-%08d: step %d", second, from, from)),
              "%s%s", output.out, output.err);
        check_output_free(&output);
        if (runs_read_metrics(&again, second))
            CHECK_STRING(again.stable, whole.stable);
        runs_metrics_free(&again);
    }
    runs_metrics_free(&whole);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    must(zs_arena_open(&arena, &err));
    data = check_random_tokens("tokens.bin", 5, N_SEQUENCES * T + 1, V);
    check_any_plan();
    check_goes_on();
    zs_arena_close(&arena);
    return check_done();
}
