/* The program zplan: options in, plan out. Results go to stdout, the log to stderr; exit status 0
 * done, 1 failed while running, 2 bad input or usage, 3 no feasible plan. */
#include "config.h"
#include "planner/bench.h"
#include "planner/compare.h"
#include "planner/estimate.h"
#include "planner/inputs.h"
#include "planner/layer_time.h"
#include "planner/place.h"
#include "planner/recheck.h"
#include "planner/report.h"
#include "planner/search.h"
#include "planner/simulate.h"
#include "shared/files.h"
#include "shared/log.h"
#include "shared/units.h"

#include <math.h>
#include <signal.h>
#include <string.h>

enum { DEFAULT_ESTIMATE_SAMPLES = 64 };

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* clang-format off */
#define VERBOSITY                                                                                  \
    {"quiet", 'q', ZS_OPTION_FLAG, NULL, NULL, 0, 0, NULL, "Only errors on stderr."},              \
    {"verbose", 'v', ZS_OPTION_FLAG, NULL, NULL, 0, 0, NULL,                                       \
     "Progress of the search and the solver's own text on stderr."}

/* What a plan is made from, and how long it may take. */
#define INPUTS                                                                                     \
    {"cluster", 'c', ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,                                   \
     "Cluster file, \"-\" for stdin, or one line such as \"2x(4xA100-80)+1x(8xV100-32)\"."},       \
    {"model", 'm', ZS_OPTION_STRING, "NAME", NULL, 0, 0, NULL,                                     \
     "Preset such as gpt2-124m, or a config.json."},                                               \
    {"profile", 'p', ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,                                   \
     "Layer times, from `zexec measure` or `zplan estimate`. Without it they are estimated."},     \
    {"job", 'j', ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,                                       \
     "Job file with any of these settings; options override it."},                                 \
    {"batch", 'b', ZS_OPTION_INT, "N", NULL, 1, 1048576, NULL, "Samples of one step."},            \
    {"seq", 's', ZS_OPTION_INT, "N", NULL, 1, 1048576, NULL, "Tokens of one sample."},             \
    {"precision", 0, ZS_OPTION_CHOICE, NULL, NULL, 0, 0, "fp32|bf16",                              \
     "Of the computation (fp32 unless given); bf16 keeps fp32 master weights and needs compute "   \
     "capability 8.0."},                                                                           \
    {"zero", 0, ZS_OPTION_STRING, "LEVELS", NULL, 0, 0, NULL,                                      \
     "ZeRO levels the planner may choose from (1,2,3 unless given)."},                             \
    {"recompute", 0, ZS_OPTION_CHOICE, NULL, NULL, 0, 0, "auto|none|full",                         \
     "Recompute activations in the backward pass; auto (unless given) chooses per stage."},        \
    {"stages", 0, ZS_OPTION_INT, "N", NULL, 1, 65536, NULL, "Exactly this many stages."},          \
    {"max-micro-batch", 0, ZS_OPTION_INT, "N", NULL, 1, 1048576, NULL,                             \
     "Largest number of samples in a micro-batch."},                                               \
    {"max-gpus-per-stage", 0, ZS_OPTION_INT, "N", NULL, 1, 65536, NULL,                            \
     "Largest number of GPUs in a stage; 1 is pipeline only."},                                    \
    {"context", 0, ZS_OPTION_BYTES, "SIZE", NULL, 0, 0, NULL,                                      \
     "Memory of each GPU taken by driver and libraries (1GiB unless given)."},                     \
    {"reserve", 0, ZS_OPTION_BYTES, "SIZE", NULL, 0, 0, NULL,                                      \
     "Memory of each GPU kept free (1GiB unless given)."},                                         \
    {"overlap-zero", 0, ZS_OPTION_DOUBLE, "SHARE", NULL, 0, 1, NULL,                               \
     "Share of compute that hides ZeRO traffic (0.7 unless given)."},                              \
    {"overlap-send", 0, ZS_OPTION_DOUBLE, "SHARE", NULL, 0, 1, NULL,                               \
     "Share of a send between stages that is hidden (0.7 unless given)."},                         \
    {"time-limit", 't', ZS_OPTION_MS, "TIME", "10s", 0, 0, NULL,                                   \
     "End with the best plan so far and a bound after this time; 0s: no limit."},                  \
    {"gap", 0, ZS_OPTION_DOUBLE, "SHARE", "0", 0, 1, NULL,                                         \
     "End when the plan is proven to be within this share of the best."}

static const zs_option solve_options[] = {
    INPUTS,
    {"output", 'o', ZS_OPTION_STRING, "FILE", "plan.json", 0, 0, NULL,
     "Where the plan goes; \"-\" is stdout."},
    VERBOSITY,
};

static const zs_option compare_options[] = {
    INPUTS,
    {"json", 0, ZS_OPTION_FLAG, NULL, NULL, 0, 0, NULL, "Prints JSON instead of a table."},
    VERBOSITY,
};

static const zs_option bench_options[] = {
    {"check", 0, ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Fails when a plan is slower, a gap or the solver's effort larger than this file says, or a "
     "case is missing on either side."},
    {"update", 0, ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Writes the file anew and prints what changed."},
    {"leave-out", 0, ZS_OPTION_STRING, "NAMES", NULL, 0, 0, NULL,
     "Cases that --update keeps out of the file's checks, separated by commas."},
    {"time-limit", 't', ZS_OPTION_MS, "TIME", "0s", 0, 0, NULL,
     "Of each case; 0s: no limit. A case that it stops fails --check and --update."},
    {"gap", 0, ZS_OPTION_DOUBLE, "SHARE", "0", 0, 1, NULL,
     "End when a plan is proven to be within this share of the best; --check takes the file's."},
    VERBOSITY,
};

static const zs_option plan_options[] = {VERBOSITY};

static const zs_option simulate_options[] = {
    {"trace", 0, ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Writes the timeline as a Chrome trace, which Perfetto opens; \"-\" is stdout."},
    {"csv", 0, ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Writes the timeline as a table, one line per instruction; \"-\" is stdout."},
    {"what-if", 0, ZS_OPTION_STRING, "TEXT", NULL, 0, 0, NULL,
     "Changed conditions, separated by commas: \"node0:gpu1 slower 10%\" (or a node, or a GPU "
     "type; or faster), \"nic node2 half\" (or link, for the links inside; or double, or 40%; "
     "without a node: of all)."},
    VERBOSITY,
};

static const zs_option estimate_options[] = {
    {"cluster", 'c', ZS_OPTION_STRING, "FILE", NULL, 0, 0, NULL,
     "Cluster file, \"-\" for stdin, or one line such as \"2x(4xA100-80)+1x(8xV100-32)\"."},
    {"model", 'm', ZS_OPTION_STRING, "NAME", NULL, 0, 0, NULL,
     "Preset such as gpt2-124m, or a config.json."},
    {"seq", 's', ZS_OPTION_INT, "N", NULL, 1, 1048576, NULL,
     "Tokens of one sample; the model's longest unless given."},
    {"precision", 0, ZS_OPTION_CHOICE, NULL, "fp32", 0, 0, "fp32|bf16", "Of the computation."},
    {"max-micro-batch", 0, ZS_OPTION_INT, "N", NULL, 1, 1048576, NULL,
     "Largest number of samples (64 unless given)."},
    {"output", 'o', ZS_OPTION_STRING, "FILE", "profile.json", 0, 0, NULL,
     "Where the profile goes; \"-\" is stdout."},
    VERBOSITY,
};

static const zs_command commands[] = {
    {"solve", "", 0, 0, "find the fastest plan for a cluster and a model",
     "Chooses stages, GPUs, samples, shards, ZeRO levels, recomputation and micro-batches, and "
     "proves how far from the best the plan is.\n\n"
     "  zplan solve --cluster \"2x(4xA100-80)+1x(8xV100-32)\" --model gpt2-124m \\\n"
     "      --batch 64 --seq 1024 -o plan.json\n",
     solve_options, COUNT(solve_options)},
    {"compare", "", 0, 0, "time our plan against simple rules and other planners' forms",
     "Each rule is tuned over what it leaves open and timed by the same cost model; what does not "
     "fit says by how much.\n\n"
     "  zplan compare --cluster \"2x(4xA100-80)+1x(8xV100-32)\" --model gpt2-124m \\\n"
     "      --batch 64 --seq 1024\n",
     compare_options, COUNT(compare_options)},
    {"bench", "FOLDER", 1, 1, "plan many cases, compare, guard the quality of plans",
     "Each folder in FOLDER with a job.json is a case. Prints step time, bound, effort and speed-up "
     "over the rules of `zplan compare`.\n\n"
     "  zplan bench benchmarks/cases --time-limit 10s\n"
     "  zplan bench my-clusters --update golden.json\n"
     "  zplan bench my-clusters --check golden.json\n",
     bench_options, COUNT(bench_options)},
    {"check", "PLAN", 1, 1, "check every rule of a plan, also of one written by hand",
     "Computes its time and memory as if it had been planned. Exit status 2: a rule is broken; 3: "
     "it does not fit the memory.\n\n  zplan check plan.json\n",
     plan_options, COUNT(plan_options)},
    {"explain", "PLAN", 1, 1, "show a plan: stages, memory, time, bound, reasons",
     "Text of at most 80 columns.\n\n  zplan explain plan.json\n", plan_options,
     COUNT(plan_options)},
    {"simulate", "PLAN", 1, 1, "play a plan's schedule: where each GPU's time goes",
     "Times every instruction of every GPU: a picture of the step, and who computes, communicates "
     "and waits.\n\n"
     "  zplan simulate plan.json --trace trace.json\n"
     "  zplan simulate plan.json --what-if \"V100-32 slower 10%, nic node2 half\"\n",
     simulate_options, COUNT(simulate_options)},
    {"estimate", "", 0, 0, "write a profile from public GPU data",
     "A roofline with an efficiency curve; measured profiles (zexec measure) are better.\n\n"
     "  zplan estimate --cluster cluster.json --model gpt2-124m -o profile.json\n",
     estimate_options, COUNT(estimate_options)},
};
/* clang-format on */

static const char about[] = "Plans the training of a language model on unlike GPUs: who computes "
                            "and holds what.";

static volatile int stop_asked;

static void ask_to_stop(int number)
{
    (void)number;
    stop_asked = 1;
}

/* The search knows usable memory only; says what was taken off before. */
static bool name_reserves(const zs_job *job, zs_error *err)
{
    if (err->code == ZS_ERR_INFEASIBLE && job->context_bytes + job->reserve_bytes > 0) {
        char context[32], reserve[32];
        const size_t length = strlen(err->message);
        snprintf(err->message + length, sizeof err->message - length,
                 " (beside %s of context and %s of reserve on each GPU)",
                 zs_units_print_bytes(context, sizeof context, job->context_bytes),
                 zs_units_print_bytes(reserve, sizeof reserve, job->reserve_bytes));
    }
    return false;
}

/* Ctrl-C ends the search with the best plan so far. */
static zp_search_options search_options(const zs_options *o)
{
    signal(SIGINT, ask_to_stop);
    signal(SIGTERM, ask_to_stop);
    return (zp_search_options){.time_limit_ms = zs_options_ms(o, "time-limit"),
                               .gap = zs_options_double(o, "gap"),
                               .stop = &stop_asked};
}

static bool solve(zs_arena *arena, const zs_options *o, zs_error *err)
{
    zp_inputs inputs;
    zp_built built;
    zp_solution solution;
    zs_plan plan;
    if (!zp_inputs_load(&inputs, arena, o, err))
        return false;
    zp_layer_time_warn(&inputs.profile);
    if (!zp_build(&built, arena, &inputs.cluster, &inputs.model, &inputs.job, &inputs.profile, err))
        return false;

    const zp_search_options search = search_options(o);
    if (!zp_baselines_search(&solution, arena, &built.problem, &search, err))
        return name_reserves(&inputs.job, err);
    const char *output = zs_options_string(o, "output");
    if (!zp_place(&plan, arena, &inputs, &built, &solution, err) ||
        !zp_simulate_fill(&plan, &inputs.model, err) || !zs_plan_save(&plan, output, err))
        return false;
    if (strcmp(output, "-") != 0 && !zs_options_flag(o, "quiet")) {
        printf("%s: ", output);
        zp_report_print_summary(stdout, &plan);
    }
    return true;
}

static bool compare(zs_arena *arena, const zs_options *o, zs_error *err)
{
    zp_inputs inputs;
    zp_built built;
    zp_comparison comparison;
    if (!zp_inputs_load(&inputs, arena, o, err))
        return false;
    zp_layer_time_warn(&inputs.profile);
    if (!zp_build(&built, arena, &inputs.cluster, &inputs.model, &inputs.job, &inputs.profile, err))
        return false;
    const zp_search_options search = search_options(o);
    if (!zp_compare(&comparison, arena, &built.problem, &search, err))
        return name_reserves(&inputs.job, err);
    if (!zs_options_flag(o, "json")) {
        zp_compare_print(stdout, &comparison);
        return true;
    }
    zs_json_writer *w = NULL;
    if (!zs_json_writer_open(&w, err))
        return false;
    zp_compare_write(w, NULL, &comparison);
    const bool ok = zs_json_writer_save(w, "-", err);
    zs_json_writer_close(&w);
    return ok;
}

static bool bench(zs_arena *arena, const zs_options *o, zs_error *err)
{
    const zp_search_options search = search_options(o);
    const zp_bench_options options = {.folder = zs_options_argument(o, 0),
                                      .check = zs_options_string(o, "check"),
                                      .update = zs_options_string(o, "update"),
                                      .leave_out = zs_options_string(o, "leave-out"),
                                      .gap_given = zs_options_is_set(o, "gap")};
    return zp_bench(stdout, arena, &options, &search, err);
}

static bool load_plan(zs_plan *plan, zp_recheck *recheck, zs_arena *arena, const char *path,
                      zs_error *err)
{
    if (!zs_plan_load(plan, arena, path, err))
        return false;
    if (!zp_recheck_plan(recheck, arena, plan, err))
        return zs_error_prefix(err, "%s", path);
    const char *what = NULL;
    if (!zp_recheck_differs(&what, arena, plan, recheck))
        return true;
    /* Written by hand, where 0 stands for no prediction, or edited: what was certified is another
     * plan. */
    if (plan->step_ms > 0)
        zs_log_warn("%s: stored predictions are not those of this plan (%s)", path, what);
    plan->step_ms = recheck->cost.step_ms;
    plan->certificate = (zs_certificate){.status = "feasible",
                                         .objective_ms = plan->step_ms,
                                         .gap = 1,
                                         .searched = "",
                                         .solver = ""};
    return true;
}

static bool check(zs_arena *arena, const zs_options *o, zs_error *err)
{
    zs_plan plan;
    zp_recheck recheck;
    const char *path = zs_options_argument(o, 0);
    if (!load_plan(&plan, &recheck, arena, path, err))
        return false;
    printf("%s: ok: ", path);
    zp_report_print_summary(stdout, &plan);
    return true;
}

static bool explain(zs_arena *arena, const zs_options *o, zs_error *err)
{
    zs_plan plan;
    zp_recheck recheck;
    if (!load_plan(&plan, &recheck, arena, zs_options_argument(o, 0), err))
        return false;
    const double stored_ms = plan.simulated_step_ms;
    if (!zp_simulate_fill(&plan, &recheck.model, err))
        return false;
    if (stored_ms > 0 && plan.simulated_step_ms > 0 &&
        fabs(stored_ms - plan.simulated_step_ms) > 1e-9 * stored_ms)
        zs_log_warn("%s: simulated step time: stored %.6g ms, computed %.6g ms",
                    zs_options_argument(o, 0), stored_ms, plan.simulated_step_ms);
    return zp_report_print(stdout, &plan, &recheck, arena, err);
}

static bool simulate(zs_arena *arena, const zs_options *o, zs_error *err)
{
    zs_plan plan;
    zp_recheck recheck;
    zp_what_if what_if;
    zp_simulation as_planned, changed;
    const char *conditions = zs_options_string(o, "what-if");
    const char *trace = zs_options_string(o, "trace"), *csv = zs_options_string(o, "csv");
    if (!load_plan(&plan, &recheck, arena, zs_options_argument(o, 0), err) ||
        !zp_what_if_parse(&what_if, arena, &plan.cluster, conditions, err) ||
        !zp_simulate(&as_planned, arena, &plan, &recheck.model, NULL, err))
        return false;
    const zp_simulation *shown = &as_planned;
    if (conditions) {
        if (!zp_simulate(&changed, arena, &plan, &recheck.model, &what_if, err))
            return false;
        shown = &changed;
    }
    if ((trace && !zs_timeline_save_trace(&shown->timeline, trace, err)) ||
        (csv && !zs_timeline_save_csv(&shown->timeline, csv, err)))
        return false;
    const bool to_stdout = (trace && strcmp(trace, "-") == 0) || (csv && strcmp(csv, "-") == 0);
    return to_stdout || zs_options_flag(o, "quiet") ||
           zp_report_print_simulation(stdout, &plan, recheck.cost.step_ms, shown,
                                      conditions ? &as_planned : NULL, err);
}

static bool estimate(zs_arena *arena, const zs_options *o, zs_error *err)
{
    const char *cluster_source = zs_options_string(o, "cluster");
    const char *model_source = zs_options_string(o, "model");
    if (!cluster_source || !model_source)
        return ZS_FAIL(err, ZS_ERR_INPUT, "--%s is missing", cluster_source ? "model" : "cluster");
    zs_cluster cluster;
    zm_model model;
    zs_profile profile;
    if (!zs_cluster_load(&cluster, arena, cluster_source, err) ||
        !zm_model_load(&model, arena, model_source, err))
        return false;
    const int seq_len =
        zs_options_is_set(o, "seq") ? (int)zs_options_int(o, "seq") : model.n_positions;
    const int max_samples = zs_options_is_set(o, "max-micro-batch")
                                ? (int)zs_options_int(o, "max-micro-batch")
                                : DEFAULT_ESTIMATE_SAMPLES;
    const zs_precision precision =
        strcmp(zs_options_string(o, "precision"), "bf16") == 0 ? ZS_BF16 : ZS_FP32;
    if (!zm_model_check_seq_len(&model, seq_len, err) ||
        !zp_estimate(&profile, arena, &cluster, &model, precision, seq_len, max_samples, err))
        return false;

    zs_json_writer *w = NULL;
    if (!zs_json_writer_open(&w, err))
        return false;
    zs_profile_write(w, NULL, &profile);
    const bool ok = zs_json_writer_save(w, zs_options_string(o, "output"), err);
    zs_json_writer_close(&w);
    return ok;
}

static bool (*const run_command[])(zs_arena *, const zs_options *, zs_error *) = {
    solve, compare, bench, check, explain, simulate, estimate};

static bool run(int argc, char **argv, zs_arena *arena, zs_error *err)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    if (strcmp(name, "--version") == 0) {
        printf("zplan %s\n", ZS_VERSION);
        return true;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        zs_options_print_help(argc > 1 ? stdout : stderr, "zplan", about, commands, COUNT(commands),
                              NULL);
        return argc > 1 || ZS_FAIL(err, ZS_ERR_INPUT, "a command is missing");
    }
    const zs_command *command = zs_options_find_command(commands, COUNT(commands), name, err);
    if (!command)
        return false;
    zs_options *o = NULL;
    bool help = false;
    if (!zs_options_parse(&o, &help, arena, command, argc - 2, argv + 2, err))
        return false;
    if (help) {
        zs_options_print_help(stdout, "zplan", about, commands, COUNT(commands), command);
        return true;
    }
    zs_log_open("zplan", -1,
                zs_options_flag(o, "quiet")     ? ZS_LOG_ERROR
                : zs_options_flag(o, "verbose") ? ZS_LOG_DEBUG
                                                : ZS_LOG_WARN);
    return run_command[command - commands](arena, o, err);
}

int main(int argc, char **argv)
{
    zs_error err = {.code = ZS_OK};
    zs_arena *arena = NULL;
    zs_files_keep_standard();
    zs_log_open("zplan", -1, ZS_LOG_WARN);
    bool ok = zs_arena_open(&arena, &err) && run(argc, argv, arena, &err);
    zs_arena_close(&arena);
    if (ok && (fflush(stdout) != 0 || ferror(stdout)))
        ok = ZS_FAIL(&err, ZS_ERR_RUNTIME, "stdout: cannot be written");
    if (!ok)
        zs_error_print(stderr, "zplan", &err);
    return ok ? 0 : (int)err.code;
}
