/* Ranks are killed at random moments of a run that saves each step; whatever is left, every
 * checkpoint that has its final name is whole, and the run goes on to the parameters of the
 * undisturbed one. A few moments here, 200 with saves of 50 MB when CHECK_LONG is set. */
#include "tests/e2e/runs.h"

#include "executor/checkpoint_folder.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 8, N_STEPS = 3, N_MOMENTS = 5, N_MOMENTS_LONG = 200 };

static const char *plan, *data;
static char digest[32];
static double training_ms; /* of the undisturbed run, from its first step to its last line */
static int n_in_saves, n_in_time;

static const char *options_of(const char *folder, bool resumed)
{
    static char text[9000];
    snprintf(text, sizeof text, "--steps %d --save-every 1 --threads 1 --out %s%s%s", N_STEPS,
             folder, resumed ? " --resume " : "", resumed ? folder : "");
    return text;
}

/* Files below the final name are those of the manifest; returns the number of checkpoints. */
static int check_whole(const char *folder)
{
    zs_error err;
    zs_arena *arena;
    int64_t *steps;
    int n = 0;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return 0;
    if (access(folder, F_OK) == 0)
        CHECK(zx_checkpoint_list(&steps, &n, arena, folder, &err), "%s", err.message);
    for (int i = 0; i < n; i++) {
        char path[ZX_CHECKPOINT_PATH_SIZE];
        zx_manifest m;
        bool ok = zx_checkpoint_path(path, folder, steps[i], false, &err) &&
                  zx_manifest_load(&m, arena, path, &err);
        for (int file = 0; ok && file < m.n_files; file++)
            ok = zx_checkpoint_verify(&m, path, file, &err);
        CHECK(ok && m.step == steps[i] && m.n_updates == steps[i], "%s", err.message);
    }
    zs_arena_close(&arena);
    return n;
}

/* Names that end in .tmp: a save was under way. */
static bool has_unfinished(const char *folder)
{
    bool found = false;
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        const size_t n = strlen(e->d_name);
        found = found || (n > 4 && strcmp(e->d_name + n - 4, ".tmp") == 0);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Any moment; or, with every second seed, one inside a save. */
static void wait_for_moment(const check_process *process, const char *folder, uint64_t seed,
                            check_rng *rng)
{
    char path[ZX_CHECKPOINT_PATH_SIZE];
    zs_error err;
    double wait_ms = check_rng_double(rng, 0, 1.2 * training_ms);
    if (seed % 2 == 0) {
        const double begin_s = check_now_s();
        CHECK(zx_checkpoint_path(path, folder, check_rng_int(rng, 1, N_STEPS), true, &err), "%s",
              err.message);
        while (access(path, F_OK) != 0 && check_now_s() < begin_s + 20)
            check_sleep_ms(0.1);
        wait_ms = check_rng_double(rng, 0, training_ms / N_STEPS);
    } else {
        CHECK(check_wait_for_text(process->out, "step 1/", 60), "seed %" PRIu64 ": no step", seed);
    }
    check_sleep_ms(wait_ms);
}

static void check_moment(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    char name[32];
    snprintf(name, sizeof name, "run%" PRIu64, seed);
    const char *folder = check_path(name);
    const int rank = (int)check_rng_int(&rng, -1, 1);
    check_process process = runs_begin(plan, data, options_of(folder, false));
    CHECK(check_wait_for_text(process.out, "data ", 60), "seed %" PRIu64 ": no start", seed);
    /* Looked up before: a save is over in less time than that takes. */
    const int ranks[2] = {check_hold(check_rank_pid(&process, 0)),
                          check_hold(check_rank_pid(&process, 1))};
    CHECK(ranks[0] >= 0 && ranks[1] >= 0, "seed %" PRIu64 ": no ranks", seed);
    wait_for_moment(&process, folder, seed, &rng);
    for (int i = 0; i < 2; i++) {
        if (rank < 0 || rank == i)
            (void)check_signal(ranks[i], SIGKILL);
        close(ranks[i]);
    }
    check_output output = check_program_wait(&process, 30);
    n_in_time += output.status != 0;
    n_in_saves += has_unfinished(folder);
    check_output_free(&output);

    const int n_whole = check_whole(folder);
    output = runs_start(plan, data, options_of(folder, n_whole > 0), NULL);
    CHECK(output.status == 0, "seed %" PRIu64 ": %s", seed, output.err);
    const char *at = strstr(output.out, "params_digest ");
    CHECK(at && strncmp(at + 14, digest, 16) == 0, "seed %" PRIu64 ": %s, expected %s", seed,
          output.out, digest);
    check_output_free(&output);
    CHECK(check_whole(folder) == N_STEPS, "seed %" PRIu64 ": checkpoints are missing", seed);
    check_remove_path(folder);
}

int main(int argc, char **argv)
{
    runs_open(argc, argv);
    const bool is_long = getenv("CHECK_LONG") != NULL;
    const check_run_plan two = {.model = {.n_blocks = 2,
                                          .n_channels = 128,
                                          .n_heads = 2,
                                          .n_vocab = is_long ? 30000 : 4000,
                                          .n_positions = T,
                                          .tied = true},
                                .samples = "1+1",
                                .micro_batches = "2",
                                .seq_len = T,
                                .shards = "70+30"};
    plan = check_run_plan_save("two.json", &two);
    data = check_random_tokens("tokens.bin", 1, 40 * T + 1, two.model.n_vocab);
    const char *folder = check_path("undisturbed");
    check_process process = runs_begin(plan, data, options_of(folder, false));
    CHECK(check_wait_for_text(process.out, "step 1/", 60), "no step");
    const double begin_s = check_now_s();
    CHECK(check_wait_for_text(process.out, "done: ", 60), "no end");
    training_ms = 1000 * (check_now_s() - begin_s);
    check_output output = check_program_wait(&process, 120);
    const char *at = strstr(output.out, "params_digest ");
    if (CHECK(output.status == 0 && at, "%s", output.err)) {
        snprintf(digest, sizeof digest, "%.16s", at + 14);
        CHECK(check_whole(folder) == N_STEPS, "checkpoints are missing");
        check_seeds(check_moment, 1, is_long ? N_MOMENTS_LONG : N_MOMENTS);
        fprintf(stderr,
                "%d runs were killed within %.0f ms of training, %d left a save unfinished\n",
                n_in_time, training_ms, n_in_saves);
        CHECK(!is_long || n_in_saves > N_MOMENTS_LONG / 10, "kills seldom met a save");
    }
    check_output_free(&output);
    return check_done();
}
