#include "executor/train.h"

#include "executor/checkpoint.h"
#include "executor/launch.h"
#include "executor/metrics.h"
#include "executor/safetensors.h"
#include "shared/log.h"
#include "shared/units.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool load_plan(zx_train_inputs *in, zs_arena *arena, zs_error *err)
{
    const char *path = in->options->plan_path;
    const zs_json *root;
    if (!zs_json_load(&root, arena, path, err) || !zs_plan_parse(&in->plan, arena, root, err))
        return false;
    in->plan_digest = zs_json_digest(root);
    if (!zm_model_parse(&in->model, arena, in->plan.model, in->plan.model_name, err))
        return false;
    if (!zx_run_check(&in->plan, &in->model, err))
        return zs_error_prefix(err, "%s", path);
    struct stat info;
    const bool is_file = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    if (!is_file && zs_plan_n_ranks(&in->plan) > 1)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: a plan of %d ranks is read by each of them: give a regular file", path,
                       zs_plan_n_ranks(&in->plan));
    zs_schedule schedule;
    if (!zs_schedule_build(&schedule, arena, &in->plan, in->model.tied, err) ||
        !zs_schedule_check(&schedule, &in->plan, err))
        return zs_error_prefix(err, "%s", path);
    return true;
}

static bool check_options(const zx_train_options *o, zs_error *err)
{
    const zx_lr *lr = &o->run.lr;
    if (lr->min > lr->max)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--min-lr %g is above --lr %g", lr->min, lr->max);
    if (o->eval_every > 0 && !o->eval_path)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--eval-every %" PRId64 " needs --eval FILE",
                       o->eval_every);
    if (o->init && o->resume)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "--init %s: --resume %s brings its own weights; give one of them", o->init,
                       o->resume);
    if (o->save_every > 0 && !o->out)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "--save-every %" PRId64 " needs --out DIR, the folder "
                       "of the checkpoints",
                       o->save_every);
    if (o->keep_last > 0 && !o->out)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--keep-last %" PRId64 " needs --out DIR", o->keep_last);
    return true;
}

static bool check_folder(const char *option, const char *path, zs_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: folder %s: %s", option, path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: %s is not a folder", option, path);
    if (access(path, W_OK | X_OK) != 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: folder %s: %s", option, path, strerror(errno));
    return true;
}

/* The folder that path would be made in. */
static const char *parent_of(const char *path, zs_arena *arena, zs_error *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n == 0 ? "." : zs_arena_strndup(arena, path, n, err);
}

/* The same folder, whatever it is called. */
static bool is_same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Checkpoints of two runs in one folder would be taken for one run's. */
static bool check_checkpoints(const zx_train_options *o, zs_arena *arena, zs_error *err)
{
    int64_t *steps = NULL;
    int n = 0;
    if (o->resume && !zx_checkpoint_is_one(o->resume) &&
        !zx_checkpoint_list(&steps, &n, arena, o->resume, err))
        return zs_error_prefix(err, "--resume");
    if (o->resume && !zx_checkpoint_is_one(o->resume) && n == 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--resume %s: holds no checkpoint (step-00000001/, ...)",
                       o->resume);
    if (!o->out || access(o->out, F_OK) != 0)
        return true;
    if (!zx_checkpoint_list(&steps, &n, arena, o->out, err))
        return zs_error_prefix(err, "--out");
    if (n == 0 || (o->resume && is_same_folder(o->out, o->resume)))
        return true;
    char newest[ZX_CHECKPOINT_PATH_SIZE];
    if (!zx_checkpoint_path(newest, o->out, steps[0], false, err))
        return false;
    if (o->resume && is_same_folder(newest, o->resume))
        return true;
    return ZS_FAIL(err, ZS_ERR_INPUT,
                   "--out %s: holds %s of another run, or newer than this one: go on from it "
                   "(--resume %s) or give another folder",
                   o->out, newest + strlen(o->out) + 1, o->out);
}

/* A place that cannot be written is found now and not behind the last step. */
static bool check_places(const zx_train_options *o, zs_arena *arena, zs_error *err)
{
    struct stat info;
    if (o->out) {
        const char *folder = stat(o->out, &info) == 0 ? o->out : parent_of(o->out, arena, err);
        if (!folder || !check_folder("--out", folder, err))
            return false;
    }
    if (!check_checkpoints(o, arena, err))
        return false;
    if (o->save) {
        const size_t n = strlen(o->save);
        const char *folder = parent_of(o->save, arena, err);
        if (n < 12 || strcmp(o->save + n - 12, ".safetensors") != 0)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "--save %s: expected a name that ends in "
                           ".safetensors",
                           o->save);
        if (!folder || !check_folder("--save", folder, err))
            return false;
        if (stat(o->save, &info) != 0 && errno != ENOENT)
            return ZS_FAIL(err, ZS_ERR_INPUT, "--save %.200s: %s", o->save, strerror(errno));
        if (stat(o->save, &info) == 0 && !S_ISREG(info.st_mode))
            return ZS_FAIL(err, ZS_ERR_INPUT, "--save %s: is no regular file", o->save);
    }
    return true;
}

bool zx_train_load(zx_train_inputs *out, zs_arena *arena, const zx_train_options *o, zs_error *err)
{
    zx_train_inputs in = {.options = o};
    if (!check_options(o, err) || !load_plan(&in, arena, err) || !check_places(o, arena, err))
        return false;
    in.backend = zx_backend_find(o->backend, err);
    if (!in.backend)
        return zs_error_prefix(err, "--backend");
    if (!o->data_path)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--data FILE is missing: the tokens to train on");
    const int seq_len = in.plan.job.seq_len;
    if (!zx_data_open(&in.data, o->data_path, o->dtype, seq_len, in.model.n_vocab, err))
        return false;
    if ((o->eval_path &&
         !zx_data_open(&in.eval, o->eval_path, o->dtype, seq_len, in.model.n_vocab, err)) ||
        (o->init && !zx_weights_open(&in.init, arena, o->init, &in.model, err))) {
        zx_train_close(&in);
        return false;
    }
    *out = in;
    return true;
}

void zx_train_close(zx_train_inputs *inputs)
{
    zx_data_close(&inputs->data);
    zx_data_close(&inputs->eval);
    zx_weights_close(&inputs->init);
}

/* This rank's part of a run that is open. */
typedef struct training {
    const zx_train_inputs *in;
    const zx_train_options *options;
    zx_comm *comm;
    zx_run run;
    zx_metrics *metrics;  /* on rank 0 */
    int64_t *ids;         /* sequences of a batch */
    double *memory_bytes; /* by rank */
    int64_t largest_memory_bytes;
    int64_t n_resumed; /* steps of the checkpoint that the run goes on from */
    int64_t n_saved;   /* steps of the last checkpoint that was written */
    bool stopped;
} training;

static bool compare_ranks(const zx_train_inputs *in, zx_comm *comm, zs_error *err)
{
    const zx_train_options *o = in->options;
    const zx_run_options *r = &o->run;
    zx_setting s[13] = {{"", ""}};
    int n = 0;
#define SETTING(setting_name, ...)                                                                 \
    do {                                                                                           \
        s[n].name = setting_name;                                                                  \
        snprintf(s[n++].value, sizeof s[0].value, __VA_ARGS__);                                    \
    } while (0)
    SETTING("sequence length", "%d", in->plan.job.seq_len);
    SETTING("model", "%s (%" PRId64 " parameters, C %d, V %d)", in->model.name,
            zm_model_n_params(&in->model), in->model.n_channels, in->model.n_vocab);
    SETTING("micro-batches", "%d, the first of %d samples", in->plan.n_micro_batches,
            zs_plan_micro_batch(&in->plan));
    SETTING("plan", "with digest %016" PRIx64, in->plan_digest);
    SETTING("data", "of %" PRId64 " tokens, %d bytes each", in->data.n_tokens, in->data.id_bytes);
    SETTING("eval data", "of %" PRId64 " tokens", in->eval.n_tokens);
    SETTING("seed", "%" PRIu64, r->seed);
    SETTING("data order", "%s", r->order == ZX_DATA_SHUFFLED ? "shuffled" : "sequential");
    SETTING("steps", "%" PRId64 ", evaluation every %" PRId64, o->n_steps, o->eval_every);
    SETTING("learning rate", "%.17g to %.17g, warmup %" PRId64 ", %s", r->lr.max, r->lr.min,
            r->lr.n_warmup, zx_lr_decay_names[r->lr.decay]);
    SETTING("AdamW", "beta1 %.17g, beta2 %.17g, eps %.17g, weight decay %.17g, clip %.17g",
            r->beta1, r->beta2, r->eps, r->weight_decay, r->clip);
    SETTING("save", "%s", o->save ? "wanted" : "not wanted");
    SETTING("checkpoints", "every %" PRId64 " steps, %s, %s", o->save_every,
            o->out ? "--out" : "no --out",
            o->init     ? "--init"
            : o->resume ? "--resume"
                        : "from random weights");
#undef SETTING
    return zx_launch_compare(comm, s, n, err);
}

static void print_start(const zx_train_inputs *in, const zx_comm *comm)
{
    char count[32], grouped[48];
    const int n = snprintf(count, sizeof count, "%" PRId64, zm_model_n_params(&in->model));
    int length = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            grouped[length++] = ',';
        grouped[length++] = count[i];
    }
    grouped[length] = 0;
    printf("model %s: %s parameters\n", in->model.name, grouped);
    printf("backend %s: the only one in this build\n", in->backend->name);
    printf("plan %s: %d rank%s over %s, %d stage%s, %d micro-batch%s, %" PRId64
           " sequences of %d tokens per step\n",
           in->options->plan_path, comm->n_ranks, comm->n_ranks == 1 ? "" : "s", comm->ops->name,
           in->plan.n_stages, in->plan.n_stages == 1 ? "" : "s", in->plan.n_micro_batches,
           in->plan.n_micro_batches == 1 ? "" : "es", zx_run_global_batch(&in->plan),
           in->plan.job.seq_len);
    printf("data %s: %" PRId64 " tokens, %" PRId64 " sequences\n", in->data.path, in->data.n_tokens,
           in->data.n_sequences);
    fflush(stdout);
}

static void log_rank(const training *t, int n_threads)
{
    const zs_plan *plan = &t->in->plan;
    const zs_plan_rank *rank = zs_plan_rank_at(plan, t->comm->rank);
    const zs_node *node = &plan->cluster.nodes[rank->node];
    char memory[32];
    zs_log_info("rank %d: stage %d, %d samples, stands for %s GPU %d (%s); %d thread%s, %d cores "
                "allowed, %s",
                t->comm->rank, t->run.stage.stage, rank->samples, node->name, rank->gpu,
                node->devices[rank->gpu].type, n_threads, n_threads == 1 ? "" : "s",
                zx_launch_cores(),
                zs_units_print_bytes(memory, sizeof memory,
                                     t->run.backend->ops->allocated_bytes(t->run.backend)));
}

/* Collective: every rank's peak, and the largest. */
static bool collect_memory(training *t, zs_error *err)
{
    const double peak = (double)t->run.backend->ops->peak_bytes(t->run.backend);
    if (!zx_launch_collect(t->memory_bytes, t->comm, peak, err))
        return false;
    for (int rank = 0; rank < t->comm->n_ranks; rank++)
        if ((int64_t)t->memory_bytes[rank] > t->largest_memory_bytes)
            t->largest_memory_bytes = (int64_t)t->memory_bytes[rank];
    return true;
}

static bool evaluate(training *t, int64_t step, zs_error *err)
{
    const double start_s = zs_log_elapsed_s();
    double loss;
    if (!zx_run_evaluate(&t->run, &loss, &t->in->eval, err))
        return false;
    if (t->run.stop)
        return true;
    const double ms = 1000 * (zs_log_elapsed_s() - start_s);
    return !t->metrics || zx_metrics_eval(t->metrics, step, loss, t->in->eval.n_sequences, ms, err);
}

static bool step(training *t, zs_error *err)
{
    const double start_s = zs_log_elapsed_s();
    const zx_data *data = &t->in->data;
    zx_step_result result;
    if (!zx_run_step(&t->run, &result, data, err))
        return t->run.diverged && zx_launch_all_ok(t->comm, false, err);
    const double ms = 1000 * (zs_log_elapsed_s() - start_s);
    /* Scratch has grown to its size in the first step. */
    if (result.step == t->n_resumed + 1 && !collect_memory(t, err))
        return false;
    if (!t->metrics)
        return true;
    const int64_t n_ids = zx_run_global_batch(&t->in->plan);
    for (int64_t i = 0; i < n_ids; i++)
        t->ids[i] = zx_data_sequence(data, t->options->run.order, t->options->run.seed,
                                     t->run.position - n_ids + i);
    return zx_metrics_step(t->metrics, &result, t->ids, n_ids, ms, t->largest_memory_bytes, err);
}

/* Every rank writes the elements that it owns. */
static bool save(training *t, zs_error *err)
{
    const char *path = t->options->save;
    const zx_stage *stage = &t->run.stage;
    const zs_shard shard = t->run.zero.shard;
    zx_backend *backend = t->run.backend;
    zx_safetensors file;
    float *values = ZS_NEW(t->run.arena, float, shard.count, err);
    bool ok = values && zx_safetensors_build(&file, t->run.arena, stage->model, err) &&
              backend->ops->to_host(backend, values, t->run.zero.owned_params,
                                    shard.count * (int64_t)sizeof *values, err) &&
              backend->ops->sync(backend, err);
    if (ok && t->comm->rank == 0)
        ok = zx_safetensors_create(&file, path, err);
    if (!zx_launch_all_ok(t->comm, ok, err))
        return false;
    ok = zx_safetensors_write(&file, path, values, stage->tensors[0].global_offset + shard.first,
                              shard.count, err);
    ok = zx_launch_all_ok(t->comm, ok, err);
    if (t->comm->rank == 0) {
        if (ok)
            ok = zx_safetensors_publish(&file, path, err);
        else
            zx_safetensors_discard(path);
    }
    return zx_launch_all_ok(t->comm, ok, err);
}

static bool save_checkpoint(training *t, zs_error *err)
{
    t->n_saved = t->run.n_steps;
    return zx_checkpoint_save(&t->run, &t->in->data, t->options->out, t->options->keep_last, err);
}

/* Told to stop: what was done is saved, unless nothing was or it is saved already. */
static bool stop(training *t, zs_error *err)
{
    const zx_train_options *o = t->options;
    const int64_t k = t->run.n_steps;
    const bool save = o->out && k > t->n_resumed && k != t->n_saved;
    char folder[ZX_CHECKPOINT_PATH_SIZE];
    if (save && !save_checkpoint(t, err))
        return false;
    t->stopped = true;
    if (t->comm->rank != 0)
        return true;
    if (k == t->n_resumed)
        printf("stopped by a signal before the first step: nothing was saved\n");
    else if (!o->out)
        printf("stopped by a signal behind step %" PRId64
               ": nothing was saved, there is no --out DIR\n",
               k);
    else if (!zx_checkpoint_path(folder, o->out, k, false, err))
        return false;
    else
        printf("stopped by a signal behind step %" PRId64 ", saved as %s\n", k, folder);
    fflush(stdout);
    return true;
}

/* What follows a step: evaluation, checkpoint, stop. */
static bool finish_step(training *t, int64_t k, zs_error *err)
{
    const zx_train_options *o = t->options;
    const bool eval_due = o->eval_every > 0 && k % o->eval_every == 0 && k < o->n_steps;
    if (eval_due && !t->run.stop && !evaluate(t, k, err))
        return false;
    const bool save_due = o->save_every > 0 && (k % o->save_every == 0 || k == o->n_steps);
    /* Whoever is told during a save need not do another step. */
    return !save_due ||
           (save_checkpoint(t, err) && (t->run.stop || zx_run_agree_to_stop(&t->run, err)));
}

static bool run_steps(training *t, zs_error *err)
{
    const zx_train_options *o = t->options;
    if (!zx_run_agree_to_stop(&t->run, err) ||
        (!t->run.stop && o->eval_every > 0 && o->n_steps > 0 && t->n_resumed == 0 &&
         !evaluate(t, 0, err)))
        return false;
    for (int64_t k = t->n_resumed + 1; k <= o->n_steps && !t->run.stop; k++)
        if (!step(t, err) || !finish_step(t, k, err))
            return false;
    /* Nothing was left to train: the checkpoint goes from one folder to another. */
    if (o->save_every > 0 && t->n_resumed == o->n_steps && !t->run.stop && !save_checkpoint(t, err))
        return false;
    if (!t->run.stop && o->eval_path && !evaluate(t, o->n_steps, err))
        return false;
    if (t->run.stop)
        return stop(t, err);
    uint64_t digest;
    if (!zx_run_digest(&t->run, &digest, err) || !collect_memory(t, err) ||
        (o->save && !save(t, err)))
        return false;
    return !t->metrics || zx_metrics_done(t->metrics, o->n_steps, digest, t->memory_bytes,
                                          t->comm->n_ranks, 1000 * zs_log_elapsed_s(), err);
}

static bool open_training(training *t, zs_arena *arena, zs_error *err)
{
    t->ids = ZS_NEW(arena, int64_t, zx_run_global_batch(&t->in->plan), err);
    t->memory_bytes = ZS_NEW(arena, double, t->comm->n_ranks, err);
    return t->ids && t->memory_bytes;
}

/* Collective: takes up weights or a checkpoint where they are given, and starts or continues the
 * metrics. */
static bool begin(training *t, zs_error *err)
{
    const zx_train_options *o = t->options;
    if (o->init && !zx_checkpoint_init(&t->run, &t->in->init, err))
        return false;
    if (o->resume) {
        const char *folder;
        if (!zx_checkpoint_resume(&t->run, &folder, &t->in->data, o->resume, err))
            return false;
        t->n_resumed = t->run.n_steps;
        if (!zx_launch_all_ok(t->comm,
                              t->n_resumed <= o->n_steps ||
                                  ZS_FAIL(err, ZS_ERR_INPUT,
                                          "--steps %" PRId64 ": %s is behind step %" PRId64
                                          " already; --steps counts from the first run's start",
                                          o->n_steps, folder, t->n_resumed),
                              err))
            return false;
        const int64_t n_sequences = t->in->data.n_sequences, position = t->run.position;
        if (t->comm->rank == 0)
            printf("resumed %s: step %" PRId64 ", epoch %" PRId64 ", sequence %" PRId64
                   " of %" PRId64 "\n",
                   folder, t->n_resumed, position / n_sequences, position % n_sequences,
                   n_sequences);
        fflush(stdout);
    }
    const bool ok = t->comm->rank != 0 || zx_metrics_open(&t->metrics, o->out, t->n_resumed,
                                                          o->n_steps, o->log_every, err);
    return zx_launch_all_ok(t->comm, ok, err);
}

bool zx_train(bool *stopped, const zx_train_inputs *in, zx_comm *comm, zs_error *err)
{
    training t = {.in = in, .options = in->options, .comm = comm};
    zx_run_options options = in->options->run;
    zx_backend *backend = NULL;
    zs_arena *arena = NULL;
    bool ok = false;
    if (!compare_ranks(in, comm, err) ||
        !zx_launch_threads(&options.n_threads, comm, in->options->n_threads, err))
        return false;
    if (comm->rank == 0)
        print_start(in, comm);
    bool opened = zs_arena_open(&arena, err) && open_training(&t, arena, err) &&
                  in->backend->open(&backend, 0, options.n_threads, err);
    if (!zx_launch_all_ok(comm, opened, err))
        goto err_close_backend;
    if (!zx_run_open(&t.run, comm, backend, &in->plan, &in->model, &options, err))
        goto err_close_backend;
    log_rank(&t, options.n_threads);
    ok = begin(&t, err) && run_steps(&t, err);
    *stopped = t.stopped;
    zx_run_close(&t.run);
err_close_backend:
    if (backend)
        in->backend->close(&backend);
    zx_metrics_close(&t.metrics);
    zs_arena_close(&arena);
    return ok;
}
