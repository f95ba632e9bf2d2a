/* Random clusters and jobs through build, search and place: whatever the inputs, a plan that comes
 * out keeps every rule, survives writing and reading, has the time and memory that its certificate
 * claims, and can be turned into a schedule; the order of nodes does not change its time, and more
 * memory never makes it slower. */
#include "models/layers.h"
#include "planner/estimate.h"
#include "planner/place.h"
#include "planner/recheck.h"
#include "planner/search.h"
#include "planner/simulate.h"
#include "shared/schedule.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const int64_t MIB = 1048576;

static const char *random_cluster(zs_arena *arena, check_rng *rng, zs_error *err)
{
    static const char *const types[] = {"A100-40", "V100-16", "T4", "RTX-2080Ti", "L4"};
    static const char *const nics[] = {"1Gb/s", "10Gb/s", "100Gb/s"};
    const char *line = "";
    const int n_groups = (int)check_rng_int(rng, 1, 3);
    for (int i = 0; i < n_groups && line; i++) {
        const int a = (int)check_rng_int(rng, 0, 4);
        const int b = (a + (int)check_rng_int(rng, 1, 4)) % 5;
        const bool mixed = check_rng_int(rng, 0, 3) == 0;
        line = zs_arena_printf(arena, err, "%s%s%dx(%dx%s%s%s)@%s", line, i ? "+" : "",
                               (int)check_rng_int(rng, 1, 2), (int)check_rng_int(rng, 1, 3),
                               types[a], mixed ? "+1x" : "", mixed ? types[b] : "",
                               nics[check_rng_int(rng, 0, 2)]);
    }
    return line;
}

/* Small models on GPUs of some MiB, so that memory matters. */
static bool random_inputs(zp_inputs *out, zs_arena *arena, check_rng *rng, zs_error *err)
{
    zs_job *job = &out->job;
    const char *line = random_cluster(arena, rng, err);
    if (!line || !zs_cluster_load(&out->cluster, arena, line, err) ||
        !zm_model_load(&out->model, arena, check_rng_int(rng, 0, 1) ? "tiny" : "gpt2-bytes", err))
        return false;
    for (int node = 0; node < out->cluster.n_nodes; node++) {
        for (int gpu = 0; gpu < out->cluster.nodes[node].n_devices; gpu++)
            out->cluster.nodes[node].devices[gpu].memory_bytes =
                check_rng_int(rng, 1, check_rng_int(rng, 2, 60)) * MIB;
    }
    zs_job_set_defaults(job);
    job->global_batch = check_rng_int(rng, 1, 20);
    job->seq_len = (int)check_rng_int(rng, 1, 128);
    job->max_micro_batch = (int)check_rng_int(rng, 0, 8);
    job->context_bytes = check_rng_int(rng, 0, 2) * MIB / 2;
    job->reserve_bytes = check_rng_int(rng, 0, 2) * MIB / 2;
    job->max_gpus_per_stage = (int)check_rng_int(rng, 0, 3);
    for (int level = 1; level <= 3; level++)
        job->zero_stages[level] = check_rng_int(rng, 0, 2) > 0;
    if (!job->zero_stages[1] && !job->zero_stages[2] && !job->zero_stages[3])
        job->zero_stages[1] = true;
    job->recompute = (zs_recompute)check_rng_int(rng, 0, 2);
    job->overlap_zero = check_rng_double(rng, 0, 1);
    job->overlap_send = check_rng_double(rng, 0, 1);
    return zp_estimate(&out->profile, arena, &out->cluster, &out->model, job->precision,
                       job->seq_len, zp_build_max_micro_batch(job), err);
}

/* Equal devices of one node get equal memory, so that classes have more than one member. */
static void level_memory(zs_cluster *cluster)
{
    for (int node = 0; node < cluster->n_nodes; node++) {
        zs_device *devices = cluster->nodes[node].devices;
        for (int gpu = 1; gpu < cluster->nodes[node].n_devices; gpu++) {
            if (strcmp(devices[gpu].type, devices[gpu - 1].type) == 0)
                devices[gpu].memory_bytes = devices[gpu - 1].memory_bytes;
        }
    }
}

static bool read_back(zs_plan *out, zs_arena *arena, const zs_plan *plan, zs_error *err)
{
    zs_json_writer *w = NULL;
    const char *text = NULL;
    size_t size = 0;
    const zs_json *root = NULL;
    if (!zs_json_writer_open(&w, err))
        return false;
    const bool ok = zs_plan_write(w, plan, err) && zs_json_writer_text(w, &text, &size, err) &&
                    zs_json_parse(&root, arena, text, size, "plan.json", err) &&
                    zs_plan_parse(out, arena, root, err);
    zs_json_writer_close(&w);
    return ok;
}

static int n_compared;

/* The simulation never needs less than the busiest rank computes; nor, where the closed form has
 * nothing to guess (one stage inside one node, equal micro-batches), less than the closed form. */
static void check_simulation(zs_arena *arena, const zs_plan *plan, const zp_recheck *recheck,
                             uint64_t seed)
{
    zs_error err;
    zp_simulation simulation;
    if (!CHECK(zp_simulate(&simulation, arena, plan, &recheck->model, NULL, &err),
               "seed %" PRIu64 ": %s", seed, err.message))
        return;
    double most_ms = 0;
    for (int rank = 0; rank < simulation.timeline.n_ranks; rank++)
        most_ms = fmax(most_ms, simulation.usage[rank].compute_ms);
    CHECK(most_ms > 0 && simulation.step_ms >= most_ms * (1 - 1e-9),
          "seed %" PRIu64 ": %g of %g ms", seed, most_ms, simulation.step_ms);
    const int last = plan->micro_batches[plan->n_micro_batches - 1];
    if (plan->n_stages > 1 || !recheck->stages[0].intra || last < plan->micro_batches[0])
        return;
    n_compared++;
    CHECK(simulation.step_ms >= recheck->cost.step_ms * (1 - 1e-9),
          "seed %" PRIu64 ": simulated %.12g ms, closed form %.12g", seed, simulation.step_ms,
          recheck->cost.step_ms);
}

static void check_plan(zs_arena *arena, const zs_plan *plan, uint64_t seed)
{
    zs_error err;
    zs_plan read;
    zp_recheck recheck;
    CHECK(zs_plan_check(plan, &err), "seed %" PRIu64 ": %s", seed, err.message);
    if (!CHECK(read_back(&read, arena, plan, &err), "seed %" PRIu64 ": %s", seed, err.message) ||
        !CHECK(zp_recheck_plan(&recheck, arena, &read, &err), "seed %" PRIu64 ": %s", seed,
               err.message))
        return;
    const double objective_ms = read.certificate.objective_ms;
    CHECK(fabs(recheck.cost.step_ms - objective_ms) <= 1e-9 * objective_ms,
          "seed %" PRIu64 ": %.12g ms, certificate %.12g", seed, recheck.cost.step_ms,
          objective_ms);
    CHECK(read.certificate.lower_bound_ms <= objective_ms && read.certificate.gap >= 0,
          "seed %" PRIu64 ": bound %g", seed, read.certificate.lower_bound_ms);
    for (int rank = 0; rank < zs_plan_n_ranks(&read); rank++) {
        const zs_plan_rank *r = zs_plan_rank_at(&read, rank);
        const int64_t have = read.cluster.nodes[r->node].devices[r->gpu].memory_bytes;
        CHECK(zs_memory_total(&r->memory) <= have, "seed %" PRIu64 ": rank %d", seed, rank);
    }
    int64_t n_params = 0;
    for (int s = 0; s < read.n_stages; s++)
        n_params += read.stages[s].n_params;
    CHECK(n_params == zm_model_n_params(&recheck.model), "seed %" PRIu64 ": parameters", seed);

    zs_schedule schedule;
    if (CHECK(zs_schedule_build(&schedule, arena, &read, recheck.model.tied, &err),
              "seed %" PRIu64 ": %s", seed, err.message))
        CHECK(zs_schedule_check(&schedule, &read, &err), "seed %" PRIu64 ": %s", seed, err.message);
    check_simulation(arena, &read, &recheck, seed);
}

static bool solve(zs_plan *plan, zs_arena *arena, const zp_inputs *inputs, zs_error *err)
{
    zp_built built;
    zp_solution solution;
    const zp_search_options options = {.time_limit_ms = 3000};
    return zp_build(&built, arena, &inputs->cluster, &inputs->model, &inputs->job, &inputs->profile,
                    err) &&
           zp_search(&solution, arena, &built.problem, &options, err) &&
           zp_place(plan, arena, inputs, &built, &solution, err);
}

static bool is_optimal(const zs_plan *plan)
{
    return strcmp(plan->certificate.status, "optimal") == 0;
}

static void check_order_of_nodes(zs_arena *arena, const zp_inputs *inputs, const zs_plan *plan,
                                 uint64_t seed)
{
    zs_error err;
    zs_plan reversed;
    zp_inputs other = *inputs;
    const int n_nodes = inputs->cluster.n_nodes;
    other.cluster.nodes = ZS_NEW(arena, zs_node, n_nodes, &err);
    for (int node = 0; other.cluster.nodes && node < n_nodes; node++)
        other.cluster.nodes[node] = inputs->cluster.nodes[n_nodes - 1 - node];
    if (CHECK(solve(&reversed, arena, &other, &err), "seed %" PRIu64 " reversed: %s", seed,
              err.message))
        CHECK(!is_optimal(plan) || !is_optimal(&reversed) ||
                  fabs(reversed.step_ms - plan->step_ms) <= 2e-6 * plan->step_ms,
              "seed %" PRIu64 ": %.12g ms, reversed %.12g", seed, plan->step_ms, reversed.step_ms);
}

/* The profile stays, so that only the limit changes. */
static void check_more_memory(zs_arena *arena, const zp_inputs *inputs, const zs_plan *plan,
                              uint64_t seed)
{
    zs_error err;
    zs_plan larger;
    for (int node = 0; node < inputs->cluster.n_nodes; node++) {
        for (int gpu = 0; gpu < inputs->cluster.nodes[node].n_devices; gpu++)
            inputs->cluster.nodes[node].devices[gpu].memory_bytes *= 2;
    }
    if (CHECK(solve(&larger, arena, inputs, &err), "seed %" PRIu64 " larger: %s", seed,
              err.message))
        CHECK(!is_optimal(&larger) || larger.step_ms <= plan->step_ms * (1 + 2e-6),
              "seed %" PRIu64 ": %.12g ms, with more memory %.12g", seed, plan->step_ms,
              larger.step_ms);
}

static int n_feasible, n_infeasible;

static void check_random(uint64_t seed)
{
    zs_arena *arena = NULL;
    zs_error err;
    zp_inputs inputs;
    zs_plan plan;
    check_rng rng = check_rng_from(seed);
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    if (!CHECK(random_inputs(&inputs, arena, &rng, &err), "seed %" PRIu64 ": %s", seed,
               err.message))
        goto close_arena;
    level_memory(&inputs.cluster);
    if (solve(&plan, arena, &inputs, &err)) {
        n_feasible++;
        check_plan(arena, &plan, seed);
        check_order_of_nodes(arena, &inputs, &plan, seed);
        check_more_memory(arena, &inputs, &plan, seed);
    } else {
        n_infeasible++;
        CHECK(err.code == ZS_ERR_INFEASIBLE, "seed %" PRIu64 ": %s", seed, err.message);
    }
close_arena:
    zs_arena_close(&arena);
}

int main(void)
{
    check_seeds(check_random, 1, 150);
    fprintf(stderr, "%d feasible, %d not, %d compared with the closed form\n", n_feasible,
            n_infeasible, n_compared);
    return check_done();
}
