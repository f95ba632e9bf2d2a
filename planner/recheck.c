#include "planner/recheck.h"
#include "shared/units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const double TOLERANCE = 1e-9;

/* Does the stage lie inside one node, as a piece that the problem prices at the node's own links?
 */
static bool is_intra(const zp_built *built, const zs_plan_stage *stage)
{
    const int class = zp_built_class_of(built, stage->ranks[0].node, stage->ranks[0].gpu);
    for (int i = 1; i < stage->n_ranks; i++) {
        const zs_plan_rank *rank = &stage->ranks[i];
        if (rank->node != stage->ranks[0].node ||
            zp_built_class_of(built, rank->node, rank->gpu) != class)
            return false;
    }
    return zp_problem_is_chain_piece(stage->n_ranks, built->problem.classes[class].gpus_per_node);
}

static bool build_stage(zp_stage *out, zs_arena *arena, const zp_built *built,
                        const zs_plan_stage *stage, zs_error *err)
{
    zp_member *members = ZS_NEW(arena, zp_member, stage->n_ranks, err);
    if (!members)
        return false;
    for (int i = 0; i < stage->n_ranks; i++) {
        const zs_plan_rank *rank = &stage->ranks[i];
        members[i] = (zp_member){
            .class = zp_built_class_of(built, rank->node, rank->gpu),
            .samples = rank->samples,
            .shard_share = stage->n_params > 0 ? (double)rank->shard.count / (double)stage->n_params
                                               : 1.0 / stage->n_ranks,
        };
    }
    *out = (zp_stage){
        .n_blocks = stage->forward.end - stage->forward.first,
        .zero = stage->zero_stage,
        .recompute = stage->recompute,
        .intra = is_intra(built, stage),
        .n_members = stage->n_ranks,
        .members = members,
    };
    return true;
}

static bool fail_memory(const zs_plan *plan, const zs_memory *memory, int stage, int rank,
                        int64_t have_bytes, zs_error *err)
{
    static const char *const names[] = {
#define TERM(name) #name,
        ZS_MEMORY_TERMS(TERM)
#undef TERM
    };
    const int64_t terms[] = {
#define TERM(name) memory->name##_bytes,
        ZS_MEMORY_TERMS(TERM)
#undef TERM
    };
    int largest = 0;
    for (int i = 1; i < (int)(sizeof terms / sizeof terms[0]); i++) {
        if (terms[i] > terms[largest])
            largest = i;
    }
    const zs_plan_rank *r = zs_plan_rank_at(plan, rank);
    const zs_node *node = &plan->cluster.nodes[r->node];
    const int64_t need_bytes = zs_memory_total(memory);
    char need[32], have[32], missing[32], term[32];
    return ZS_FAIL(err, ZS_ERR_INFEASIBLE,
                   "no room: rank %d of stage %d (%s, GPU %d of %s) needs %s (%" PRId64
                   " bytes), has %s (%" PRId64 "), missing %s (%" PRId64 "); largest term: %s %s",
                   rank, stage, node->devices[r->gpu].type, r->gpu, node->name,
                   zs_units_print_bytes(need, sizeof need, need_bytes), need_bytes,
                   zs_units_print_bytes(have, sizeof have, have_bytes), have_bytes,
                   zs_units_print_bytes(missing, sizeof missing, need_bytes - have_bytes),
                   need_bytes - have_bytes, names[largest],
                   zs_units_print_bytes(term, sizeof term, terms[largest]));
}

static bool compute_memory(zp_recheck *out, const zs_plan *plan, zs_error *err)
{
    int rank = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        zp_memory_place place = {
            .kind = zp_problem_kind(s, plan->n_stages),
            .n_blocks = stage->forward.end - stage->forward.first,
            .zero_stage = stage->zero_stage,
            .recompute = stage->recompute,
            .in_flight = zs_plan_in_flight(plan, s),
            .n_ranks = stage->n_ranks,
        };
        for (int i = 0; i < stage->n_ranks; i++, rank++) {
            const zs_plan_rank *r = &stage->ranks[i];
            place.samples = r->samples;
            place.shard = r->shard;
            zs_memory *memory = &out->memory[rank];
            zp_memory_of_rank(memory, &out->built.memory, &place, &plan->job);
            const int64_t have = plan->cluster.nodes[r->node].devices[r->gpu].memory_bytes;
            if (zs_memory_total(memory) > have)
                return fail_memory(plan, memory, s, rank, have, err);
        }
    }
    return true;
}

static bool check_params(const zs_plan *plan, const zm_model *model, zs_error *err)
{
    if (model->n_blocks != plan->n_blocks)
        return ZS_FAIL(err, ZS_ERR_INPUT, "the plan is for %d blocks, its model %s has %d",
                       plan->n_blocks, model->name, model->n_blocks);
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        const int64_t n_params = zm_stage_n_params(model, stage->forward.first, stage->forward.end);
        if (stage->n_params != n_params)
            return ZS_FAIL(
                err, ZS_ERR_INPUT,
                "stages[%d].n_params is %" PRId64 ", blocks [%d, %d) of %s have %" PRId64, s,
                stage->n_params, stage->forward.first, stage->forward.end, model->name, n_params);
    }
    return true;
}

bool zp_recheck_plan(zp_recheck *out, zs_arena *arena, const zs_plan *plan, zs_error *err)
{
    zp_recheck r = {0};
    if (!zm_model_parse(&r.model, arena, plan->model, plan->model_name, err) ||
        !check_params(plan, &r.model, err))
        return false;
    /* The number of stages is the plan's own; what the job asked for was a wish to the planner. */
    zs_job job = plan->job;
    job.n_stages = 0;
    if (!zp_build(&r.built, arena, &plan->cluster, &r.model, &job, &plan->profile, err))
        return false;

    r.stages = ZS_NEW(arena, zp_stage, plan->n_stages, err);
    r.memory = ZS_NEW(arena, zs_memory, zs_plan_n_ranks(plan), err);
    if (!r.stages || !r.memory)
        return false;
    for (int s = 0; s < plan->n_stages; s++) {
        if (!build_stage(&r.stages[s], arena, &r.built, &plan->stages[s], err))
            return false;
    }
    const zp_batching batching = {.micro_batch = zs_plan_micro_batch(plan),
                                  .n_micro_batches = plan->n_micro_batches};
    if (!compute_memory(&r, plan, err) ||
        /* Bytes were compared exactly above; GiB need room for the rounding of sums. */
        !zp_evaluate(&r.cost, arena, &r.built.problem, &batching, r.stages, plan->n_stages,
                     plan->schedule == ZS_SCHEDULE_GPIPE, INFINITY, err))
        return false;
    r.bubble_share = zp_evaluate_bubble_share(&r.cost, plan->n_stages, plan->n_micro_batches);
    *out = r;
    return true;
}

void zp_recheck_fill(zs_plan *plan, const zp_recheck *recheck)
{
    int rank = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        zs_plan_stage *stage = &plan->stages[s];
        stage->micro_batch_ms = recheck->cost.stages[s].micro_batch_ms;
        stage->sync_ms = recheck->cost.stages[s].sync_ms;
        for (int i = 0; i < stage->n_ranks; i++) {
            zs_plan_rank *r = &stage->ranks[i];
            const zp_layer_times *times =
                &recheck->built.classes[recheck->stages[s].members[i].class].times;
            r->memory = recheck->memory[rank++];
            r->interpolated = times->interpolated[r->samples];
        }
    }
    plan->step_ms = recheck->cost.step_ms;
    plan->bubble_share = recheck->bubble_share;
}

static bool near(double stored, double computed)
{
    return fabs(stored - computed) <= TOLERANCE * fmax(fabs(stored), fabs(computed));
}

bool zp_recheck_differs(const char **what, zs_arena *arena, const zs_plan *plan,
                        const zp_recheck *recheck)
{
    if (!near(plan->step_ms, recheck->cost.step_ms)) {
        *what =
            zs_arena_printf(arena, NULL, "predicted step time: stored %.6g ms, computed %.6g ms",
                            plan->step_ms, recheck->cost.step_ms);
        return true;
    }
    int rank = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        const zp_stage_cost *cost = &recheck->cost.stages[s];
        if (!near(stage->micro_batch_ms, cost->micro_batch_ms)) {
            *what = zs_arena_printf(arena, NULL,
                                    "stage %d, micro-batch time: stored %.6g ms, computed %.6g ms",
                                    s, stage->micro_batch_ms, cost->micro_batch_ms);
            return true;
        }
        for (int i = 0; i < stage->n_ranks; i++, rank++) {
            const int64_t stored = zs_memory_total(&stage->ranks[i].memory);
            const int64_t computed = zs_memory_total(&recheck->memory[rank]);
            if (stored != computed) {
                *what = zs_arena_printf(arena, NULL,
                                        "memory of rank %d: stored %" PRId64 ", computed %" PRId64,
                                        rank, stored, computed);
                return true;
            }
        }
    }
    return false;
}
