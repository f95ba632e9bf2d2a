/* The program zexec: trains a plan. Results go to stdout, the log to stderr; exit status 0 done, 1
 * failed while running, 2 bad input or usage, 4 told to stop by a signal and stopped in order. */
#include "executor/convert.h"
#include "executor/convert_weights.h"
#include "executor/launch.h"
#include "executor/stop.h"
#include "executor/train.h"
#include "shared/files.h"
#include "shared/log.h"
#include "shared/options.h"

#include "config.h"

#include <inttypes.h>
#include <string.h>

/* clang-format off */
static const zs_option run_options[] = {
    {"data", 'd', ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Tokens to train on: llm.c's layout, or ids alone with --dtype."},
    {"dtype", 0, ZS_OPTION_CHOICE, NULL, NULL, 0, 0, "u16|u32",
     "Width of the ids of files without a header."},
    {"data-order", 0, ZS_OPTION_CHOICE, NULL, "shuffled", 0, 0, "shuffled|sequential",
     "Order of the sequences inside an epoch. A file of fewer sequences than a batch repeats."},
    {"eval", 0, ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Tokens to evaluate on, all of their whole sequences."},
    {"eval-every", 0, ZS_OPTION_INT, "N", NULL, 1, 1e15, NULL,
     "Evaluate before the first and behind every N-th step; always behind the last one."},
    {"steps", 'n', ZS_OPTION_INT, "N", "100", 0, 1e15, NULL, "Steps to train."},
    {"lr", 0, ZS_OPTION_DOUBLE, "RATE", "3e-4", 0, 1e6, NULL, "Largest learning rate."},
    {"min-lr", 0, ZS_OPTION_DOUBLE, "RATE", "0", 0, 1e6, NULL,
     "Learning rate that the decay ends at."},
    {"warmup", 0, ZS_OPTION_INT, "N", "0", 0, 1e15, NULL,
     "Steps over which the learning rate rises linearly."},
    {"lr-decay", 0, ZS_OPTION_CHOICE, NULL, "cosine", 0, 0, "cosine|linear|constant",
     "What follows the warm-up, until the last step."},
    {"weight-decay", 0, ZS_OPTION_DOUBLE, "RATE", "0.1", 0, 1e6, NULL,
     "Of AdamW, for matrices and embeddings only."},
    {"beta1", 0, ZS_OPTION_DOUBLE, "B", "0.9", 0, 0.999999999, NULL, "Of AdamW."},
    {"beta2", 0, ZS_OPTION_DOUBLE, "B", "0.95", 0, 0.999999999, NULL, "Of AdamW."},
    {"eps", 0, ZS_OPTION_DOUBLE, "E", "1e-8", 1e-30, 1, NULL, "Of AdamW."},
    {"clip", 0, ZS_OPTION_DOUBLE, "NORM", "1", 0, 1e30, NULL,
     "Largest norm of the whole gradient; 0 is no clipping."},
    {"seed", 0, ZS_OPTION_INT, "N", "1", 0, 9e15, NULL,
     "Of initial weights and data order; the same for any number of ranks."},
    {"out", 'o', ZS_OPTION_STRING, "DIR", NULL, 0, 0, NULL,
     "Folder for metrics.jsonl: one JSON object per step and evaluation."},
    {"save", 0, ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Write the weights behind the last step, .safetensors with Hugging Face's names."},
    {"save-every", 0, ZS_OPTION_INT, "N", NULL, 1, 1e15, NULL,
     "Write a checkpoint into the folder of --out behind every N-th step and the last one."},
    {"keep-last", 0, ZS_OPTION_INT, "N", NULL, 1, 1e15, NULL,
     "Remove older checkpoints, so that N stay; all stay unless given."},
    {"init", 0, ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Start with these weights instead of random ones: .safetensors with Hugging Face's names."},
    {"resume", 0, ZS_OPTION_STRING, "DIR", NULL, 0, 0, NULL,
     "Go on from the newest complete checkpoint in DIR, or from DIR itself when it is one. It may be "
     "of another plan for the same model. --steps counts from the start of the first run."},
    {"log-every", 0, ZS_OPTION_INT, "N", "1", 1, 1e15, NULL, "Print every N-th step."},
    {"threads", 't', ZS_OPTION_INT, "N", NULL, 1, 4096, NULL,
     "Threads of each rank; its share of the cores unless given."},
    {"backend", 0, ZS_OPTION_STRING, "NAME", "cpu", 0, 0, NULL, "What computes: cpu."},
    {"quiet", 'q', ZS_OPTION_FLAG, NULL, NULL, 0, 0, NULL, "Only errors on stderr."},
};

static const zs_option convert_options[] = {
    {"output", 'o', ZS_OPTION_STRING, "OUT", NULL, 0, 0, NULL,
     "What to write: a token file, OUT.safetensors, or the folder for a checkpoint."},
    {"split", 0, ZS_OPTION_DOUBLE, "SHARE", NULL, 0, 0.999999, NULL,
     "Hold back the last share of the text: writes OUT.train.bin and OUT.val.bin instead."},
    {"model", 'm', ZS_OPTION_STRING, "MODEL", NULL, 0, 0, NULL,
     "Of the weights: a preset or a config.json; the one beside the file unless given."},
};

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const zs_command commands[] = {
    {"run", "PLAN", 1, 1, "train a plan",
     "Starts all ranks of the plan on this machine through mpirun, or takes its place in the MPI "
     "job that it was started in. Loss and gradient are those of one process on the whole batch, "
     "whatever the plan.\n\n"
     "SIGTERM or SIGUSR1 to this program or to any rank: all ranks finish the step, save a checkpoint "
     "in the folder of --out, and exit with status 4; --resume goes on from there. (mpirun itself "
     "kills its ranks at SIGTERM: send it SIGUSR1, which it passes on.)\n\n"
     "  zexec run plan.json --data text.train.bin --eval text.val.bin --steps 200 --out run1\n"
     "  mpirun -n 4 zexec run plan.json --data text.train.bin --steps 200\n",
     run_options, COUNT(run_options)},
    {"convert", "KIND IN", 2, 2, "make token files, checkpoints and safetensors",
     "KIND text: the bytes of the file are the ids, vocabulary 256, in llm.c's layout.\n\n"
     "KIND checkpoint: the weights of a checkpoint, or of the newest in a folder, as one "
     "safetensors file with Hugging Face's names.\n\n"
     "KIND safetensors: such a file as a checkpoint behind step 0, which run --resume takes up under "
     "any plan for the model.\n\n"
     "  zexec convert text book.txt -o book.bin --split 0.1\n"
     "  zexec convert checkpoint run1 -o model.safetensors\n"
     "  zexec convert safetensors gpt2/model.safetensors -o run2\n",
     convert_options, COUNT(convert_options)},
};
/* clang-format on */

static const char about[] = "Trains a language model exactly as a plan of zplan says.";

static int find_name(const char *name, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return 0;
}

static zx_train_options train_options(const zs_options *o)
{
    const char *dtype = zs_options_string(o, "dtype");
    zx_train_options t = {.plan_path = zs_options_argument(o, 0),
                          .data_path = zs_options_string(o, "data"),
                          .eval_path = zs_options_string(o, "eval"),
                          .out = zs_options_string(o, "out"),
                          .save = zs_options_string(o, "save"),
                          .init = zs_options_string(o, "init"),
                          .resume = zs_options_string(o, "resume"),
                          .backend = zs_options_string(o, "backend"),
                          .dtype = !dtype                      ? ZX_DATA_AUTO
                                   : strcmp(dtype, "u32") == 0 ? ZX_DATA_U32
                                                               : ZX_DATA_U16,
                          .n_steps = zs_options_int(o, "steps"),
                          .eval_every = zs_options_int(o, "eval-every"),
                          .log_every = zs_options_int(o, "log-every"),
                          .save_every = zs_options_int(o, "save-every"),
                          .keep_last = zs_options_int(o, "keep-last"),
                          .n_threads = (int)zs_options_int(o, "threads")};
    t.run = (zx_run_options){
        .lr = {.max = zs_options_double(o, "lr"),
               .min = zs_options_double(o, "min-lr"),
               .n_warmup = zs_options_int(o, "warmup"),
               .n_steps = t.n_steps,
               .decay = (zx_lr_decay)find_name(zs_options_string(o, "lr-decay"), zx_lr_decay_names,
                                               ZX_N_LR_DECAYS)},
        .weight_decay = zs_options_double(o, "weight-decay"),
        .beta1 = zs_options_double(o, "beta1"),
        .beta2 = zs_options_double(o, "beta2"),
        .eps = zs_options_double(o, "eps"),
        .clip = zs_options_double(o, "clip"),
        .seed = (uint64_t)zs_options_int(o, "seed"),
        .order = strcmp(zs_options_string(o, "data-order"), "sequential") == 0 ? ZX_DATA_SEQUENTIAL
                                                                               : ZX_DATA_SHUFFLED,
    };
    return t;
}

static int command_run(const zs_options *o, char **argv, zs_arena *arena, zs_error *err)
{
    zx_stop_hold();
    zx_launch_with_passive_threads(argv);
    zx_stop_open();
    const zx_train_options options = train_options(o);
    const zs_log_level level = zs_options_flag(o, "quiet") ? ZS_LOG_ERROR : ZS_LOG_INFO;
    const int job_size = zx_launch_job_size();
    zx_train_inputs in = {0};
    zx_comm *comm = NULL;
    zs_log_open("zexec", -1, level);
    if (!(job_size == ZX_LAUNCH_ALONE || job_size == 1 ? zx_comm_self_open(&comm, err)
                                                       : zx_comm_mpi_open(&comm, err)))
        return (int)err->code;
    if (comm->n_ranks > 1)
        zs_log_open("zexec", comm->rank, level);
    bool ok = zx_train_load(&in, arena, &options, err);
    const int n_ranks = ok ? zs_plan_n_ranks(&in.plan) : 0;
    if (ok && job_size == ZX_LAUNCH_ALONE && n_ranks > 1)
        ok = zx_launch_ranks(n_ranks, argv, err);
    else if (ok && n_ranks != comm->n_ranks)
        ok = ZS_FAIL(err, ZS_ERR_INPUT,
                     "%s: the plan has %d ranks, this MPI job has %d: start it with mpirun -n %d, "
                     "or without mpirun",
                     options.plan_path, n_ranks, comm->n_ranks, n_ranks);
    bool stopped = false;
    ok = zx_launch_all_ok(comm, ok, err) && zx_train(&stopped, &in, comm, err);
    zx_train_close(&in);
    if (!ok && err->message[0]) {
        /* The other ranks do not know and may wait for this one. */
        zs_error_print(stderr, "zexec", err);
        fflush(NULL);
        comm->ops->abort(comm, (int)err->code);
        err->message[0] = 0;
    }
    comm->ops->close(&comm);
    return ok ? stopped ? ZX_STOP_STATUS : 0 : (int)err->code;
}

static bool convert_text(const zs_options *o, const char *in, const char *out, zs_error *err)
{
    zx_convert_result result;
    if (!zx_convert_text(&result, in, out, zs_options_double(o, "split"), err))
        return false;
    printf("%s: %" PRId64 " tokens, vocabulary %d\n", result.path,
           result.n_tokens - result.n_held_back, ZX_CONVERT_BYTE_VOCAB);
    if (result.n_held_back > 0)
        printf("%s: %" PRId64 " tokens\n", result.held_back_path, result.n_held_back);
    return true;
}

static int command_convert(const zs_options *o, zs_error *err)
{
    const char *kind = zs_options_argument(o, 0), *in = zs_options_argument(o, 1);
    const char *out = zs_options_string(o, "output");
    zx_convert_weights_result result;
    bool ok;
    if (!out)
        return ZS_FAIL(err, ZS_ERR_INPUT, "-o OUT is missing: what to write"), ZS_ERR_INPUT;
    if (strcmp(kind, "text") == 0) {
        ok = convert_text(o, in, out, err);
    } else if (strcmp(kind, "checkpoint") == 0 || strcmp(kind, "safetensors") == 0) {
        ok = kind[0] == 'c'
                 ? zx_convert_checkpoint(&result, in, out, err)
                 : zx_convert_safetensors(&result, in, zs_options_string(o, "model"), out, err);
        if (ok)
            printf("%s: %" PRId64 " parameters of %s\n", result.path, result.n_params, result.from);
    } else {
        ok = ZS_FAIL(err, ZS_ERR_INPUT,
                     "convert %s: unknown kind, expected text, checkpoint or safetensors", kind);
    }
    return ok ? 0 : (int)err->code;
}

static int run_command(const zs_command *command, int argc, char **argv, zs_arena *arena,
                       zs_error *err)
{
    zs_options *o = NULL;
    bool help = false;
    if (!zs_options_parse(&o, &help, arena, command, argc - 2, argv + 2, err))
        return (int)err->code;
    if (help) {
        zs_options_print_help(stdout, "zexec", about, commands, COUNT(commands), command);
        return 0;
    }
    return strcmp(command->name, "run") == 0 ? command_run(o, argv, arena, err)
                                             : command_convert(o, err);
}

static int run_program(int argc, char **argv, zs_error *err)
{
    zs_arena *arena = NULL;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        zs_options_print_help(argc < 2 ? stderr : stdout, "zexec", about, commands, COUNT(commands),
                              NULL);
        return argc < 2 ? ZS_ERR_INPUT : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("zexec %s\n", ZS_VERSION);
        return 0;
    }
    int status = ZS_ERR_INPUT;
    const zs_command *command = zs_options_find_command(commands, COUNT(commands), argv[1], err);
    if (command && zs_arena_open(&arena, err))
        status = run_command(command, argc, argv, arena, err);
    zs_arena_close(&arena);
    return status;
}

int main(int argc, char **argv)
{
    zs_error err = {0};
    zs_files_keep_standard();
    int status = run_program(argc, argv, &err);
    if (status == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        ZS_FAIL(&err, ZS_ERR_RUNTIME, "stdout: cannot be written");
        status = ZS_ERR_RUNTIME;
    }
    if (status != 0 && err.message[0])
        zs_error_print(stderr, "zexec", &err);
    return status;
}
