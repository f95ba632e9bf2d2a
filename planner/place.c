#include "planner/place.h"
#include "planner/recheck.h"
#include "planner/solver.h"

#include <stdlib.h>
#include <string.h>

/* A gap below this is the rounding of doubles, not a better plan. */
static const double OPTIMAL_GAP = 1e-6;

typedef struct group {
    int stage;
    int class;
    int n_gpus;
    bool intra;
    zp_device_ref *devices; /* [n_gpus], ascending */
} group;

static int count_members(const zp_stage *stage, int class)
{
    int n = 0;
    for (int i = 0; i < stage->n_members; i++)
        n += stage->members[i].class == class;
    return n;
}

/* The GPUs that each stage has of each class. */
static bool list_groups(group **out, int *n_out, zs_arena *arena, const zp_problem *problem,
                        const zp_solution *solution, zs_error *err)
{
    group *groups = ZS_NEW(arena, group, solution->n_stages * problem->n_classes, err);
    if (!groups)
        return false;
    int n = 0;
    for (int s = 0; s < solution->n_stages; s++) {
        const zp_stage *stage = &solution->stages[s];
        for (int k = 0; k < problem->n_classes; k++) {
            const int n_gpus = count_members(stage, k);
            if (n_gpus == 0)
                continue;
            groups[n] = (group){.stage = s, .class = k, .n_gpus = n_gpus, .intra = stage->intra};
            groups[n].devices = ZS_NEW(arena, zp_device_ref, n_gpus, err);
            if (!groups[n].devices)
                return false;
            n++;
        }
    }
    *out = groups;
    *n_out = n;
    return true;
}

static int compare_groups(const void *a, const void *b)
{
    const group *x = a, *y = b;
    if (x->intra != y->intra)
        return x->intra ? -1 : 1;
    if (x->intra && x->n_gpus != y->n_gpus)
        return x->n_gpus > y->n_gpus ? -1 : 1;
    if (x->stage != y->stage)
        return x->stage < y->stage ? -1 : 1;
    return x->class - y->class;
}

/* First free device of the lowest node (of gpus_per_node each) with room for n_gpus; -1 if none.
 * Groups inside a node fill it from its beginning, so the free ones are its end. */
static int find_room(const bool *taken, int n_devices, int gpus_per_node, int n_gpus)
{
    for (int first = 0; first < n_devices; first += gpus_per_node) {
        int n_taken = 0;
        while (n_taken < gpus_per_node && taken[first + n_taken])
            n_taken++;
        if (gpus_per_node - n_taken >= n_gpus)
            return first + n_taken;
    }
    return -1;
}

static bool assign_devices(group *groups, int n_groups, zs_arena *arena, const zp_built *built,
                           zs_error *err)
{
    bool *taken[ZP_MAX_CLASSES];
    for (int k = 0; k < built->problem.n_classes; k++) {
        taken[k] = ZS_NEW(arena, bool, built->classes[k].n, err);
        if (!taken[k])
            return false;
    }
    qsort(groups, (size_t)n_groups, sizeof groups[0], compare_groups);
    for (int i = 0; i < n_groups; i++) {
        group *g = &groups[i];
        const zp_class_devices *class = &built->classes[g->class];
        int next = 0;
        if (g->intra) {
            next = find_room(taken[g->class], class->n,
                             built->problem.classes[g->class].gpus_per_node, g->n_gpus);
            if (next < 0)
                return ZS_FAIL(err, ZS_ERR_RUNTIME,
                               "stage %d: no node has room for its %d GPUs of %s", g->stage,
                               g->n_gpus, built->problem.classes[g->class].gpu);
        }
        for (int k = 0; k < g->n_gpus; k++, next++) {
            while (next < class->n && taken[g->class][next])
                next++;
            if (next == class->n)
                return ZS_FAIL(err, ZS_ERR_RUNTIME, "stage %d: not enough GPUs of %s", g->stage,
                               built->problem.classes[g->class].gpu);
            taken[g->class][next] = true;
            g->devices[k] = class->devices[next];
        }
    }
    return true;
}

static const group *find_group(const group *groups, int n_groups, int stage, int class)
{
    for (int i = 0; i < n_groups; i++) {
        if (groups[i].stage == stage && groups[i].class == class)
            return &groups[i];
    }
    return NULL;
}

static bool place_stage(zs_plan_stage *out, zs_arena *arena, const zp_inputs *inputs,
                        const zp_stage *stage, int index, int first_block, const group *groups,
                        int n_groups, zs_error *err)
{
    const int end_block = first_block + stage->n_blocks;
    *out = (zs_plan_stage){
        .forward = {first_block, end_block},
        .backward = {first_block, end_block},
        .zero_stage = stage->zero,
        .recompute = stage->recompute,
        .n_params = zm_stage_n_params(&inputs->model, first_block, end_block),
        .n_ranks = stage->n_members,
        .ranks = ZS_NEW(arena, zs_plan_rank, stage->n_members, err),
    };
    double *weights = ZS_NEW(arena, double, stage->n_members, err);
    zs_shard *shards = ZS_NEW(arena, zs_shard, stage->n_members, err);
    if (!out->ranks || !weights || !shards)
        return false;

    int used[ZP_MAX_CLASSES] = {0};
    double sum = 0;
    for (int i = 0; i < stage->n_members; i++)
        sum += stage->members[i].shard_share;
    for (int i = 0; i < stage->n_members; i++) {
        const zp_member *member = &stage->members[i];
        const group *g = find_group(groups, n_groups, index, member->class);
        const zp_device_ref device = g->devices[used[member->class]++];
        out->ranks[i] =
            (zs_plan_rank){.node = device.node, .gpu = device.gpu, .samples = member->samples};
        weights[i] = member->shard_share / sum;
    }
    if (!zs_shards_divide(shards, weights, stage->n_members, out->n_params, err))
        return false;
    for (int i = 0; i < stage->n_members; i++)
        out->ranks[i].shard = shards[i];
    return true;
}

static bool is_used(const zs_plan *plan, int node, int gpu)
{
    for (int s = 0; s < plan->n_stages; s++) {
        for (int i = 0; i < plan->stages[s].n_ranks; i++) {
            if (plan->stages[s].ranks[i].node == node && plan->stages[s].ranks[i].gpu == gpu)
                return true;
        }
    }
    return false;
}

/* Devices that no stage uses, with the only reason that is known for certain: what the plan makes
 * of GPUs of their type. */
static bool list_unused(zs_plan *plan, zs_arena *arena, bool optimal, zs_error *err)
{
    const zs_cluster *cluster = &plan->cluster;
    const int n_devices = zs_cluster_n_devices(cluster);
    plan->unused = ZS_NEW(arena, zs_plan_unused, n_devices - zs_plan_n_ranks(plan), err);
    if (!plan->unused)
        return false;
    for (int node = 0; node < cluster->n_nodes; node++) {
        for (int gpu = 0; gpu < cluster->nodes[node].n_devices; gpu++) {
            if (!is_used(plan, node, gpu))
                plan->unused[plan->n_unused++] = (zs_plan_unused){.node = node, .gpu = gpu};
        }
    }
    const char *reason = NULL;
    const char *reason_type = "";
    for (int i = 0; i < plan->n_unused; i++) {
        zs_plan_unused *unused = &plan->unused[i];
        const char *type = cluster->nodes[unused->node].devices[unused->gpu].type;
        if (strcmp(type, reason_type) != 0) {
            int n_total = 0, n_used = 0;
            for (int node = 0; node < cluster->n_nodes; node++) {
                for (int gpu = 0; gpu < cluster->nodes[node].n_devices; gpu++) {
                    if (strcmp(cluster->nodes[node].devices[gpu].type, type) != 0)
                        continue;
                    n_total++;
                    n_used += is_used(plan, node, gpu);
                }
            }
            reason =
                zs_arena_printf(arena, err, "the %s uses %d of %d %s",
                                optimal ? "optimum" : "best plan found", n_used, n_total, type);
            if (!reason)
                return false;
            reason_type = type;
        }
        unused->reason = reason;
    }
    return true;
}

static bool write_model(const zs_json **out, zs_arena *arena, const zm_model *model, zs_error *err)
{
    zs_json_writer *w = NULL;
    const char *text = NULL;
    size_t size = 0;
    if (!zs_json_writer_open(&w, err))
        return false;
    zm_model_write(w, NULL, model);
    const bool ok = zs_json_writer_text(w, &text, &size, err) &&
                    zs_json_parse(out, arena, text, size, model->name, err);
    zs_json_writer_close(&w);
    return ok;
}

static const char *describe_search(zs_arena *arena, const zp_problem *problem,
                                   const zp_solution *solution, double bound_ms, zs_error *err)
{
    const char *recompute = problem->recompute_none && problem->recompute_full ? "none or full"
                            : problem->recompute_none                          ? "none"
                                                                               : "full";
    char levels[16] = "";
    for (int level = 1; level <= 3; level++) {
        if (problem->zero[level].allowed)
            snprintf(levels + strlen(levels), sizeof levels - strlen(levels), "%s%d",
                     *levels ? "/" : "", level);
    }
    const zp_batching *last = &problem->batchings[problem->n_batchings - 1];
    const char *text = zs_arena_printf(
        arena, err,
        "%d to %d stages of %s, any division of blocks and samples, ZeRO %s, recompute %s, %d "
        "micro-batch sizes up to %d",
        problem->min_stages, problem->max_stages, solution->groups, levels, recompute,
        problem->n_batchings, last->micro_batch);
    /* The bound holds for all plans; of the searched ones more may be known. */
    if (text && solution->groups_bound_ms > bound_ms)
        text = zs_arena_printf(arena, err, "%s; no plan of such stages is faster than %.6g ms",
                               text, solution->groups_bound_ms);
    return text;
}

static bool certify(zs_plan *plan, zs_arena *arena, const zp_built *built,
                    const zp_solution *solution, zs_error *err)
{
    /* Placing may find a faster link than the solver priced, never a slower one. */
    const double objective_ms = plan->step_ms;
    const double bound_ms =
        solution->lower_bound_ms < objective_ms ? solution->lower_bound_ms : objective_ms;
    const double gap = objective_ms > 0 ? (objective_ms - bound_ms) / objective_ms : 0;
    plan->certificate = (zs_certificate){
        .status = gap <= OPTIMAL_GAP     ? "optimal"
                  : solution->time_limit ? "time_limit"
                                         : "feasible",
        .objective_ms = objective_ms,
        .lower_bound_ms = bound_ms,
        .gap = gap,
        .searched = describe_search(arena, &built->problem, solution, bound_ms, err),
        .solver = zp_solver_glpk.name,
        .n_solves = solution->n_solves,
        .n_nodes = solution->n_nodes,
    };
    return plan->certificate.searched != NULL;
}

bool zp_place(zs_plan *out, zs_arena *arena, const zp_inputs *inputs, const zp_built *built,
              const zp_solution *solution, zs_error *err)
{
    group *groups = NULL;
    int n_groups = 0;
    if (!list_groups(&groups, &n_groups, arena, &built->problem, solution, err) ||
        !assign_devices(groups, n_groups, arena, built, err))
        return false;

    const int m = solution->batching.n_micro_batches;
    zs_plan plan = {
        .cluster = inputs->cluster,
        .job = inputs->job,
        .profile = inputs->profile,
        .model_name = inputs->model.name,
        .n_blocks = inputs->model.n_blocks,
        .schedule = ZS_SCHEDULE_1F1B,
        .n_micro_batches = m,
        .micro_batches = ZS_NEW(arena, int, m, err),
        .n_stages = solution->n_stages,
        .stages = ZS_NEW(arena, zs_plan_stage, solution->n_stages, err),
    };
    if (!plan.micro_batches || !plan.stages ||
        !write_model(&plan.model, arena, &inputs->model, err))
        return false;
    zp_build_micro_batches(plan.micro_batches, inputs->job.global_batch, m);
    int first_block = 0;
    for (int s = 0; s < plan.n_stages; s++) {
        if (!place_stage(&plan.stages[s], arena, inputs, &solution->stages[s], s, first_block,
                         groups, n_groups, err))
            return false;
        first_block = plan.stages[s].forward.end;
    }

    zp_recheck recheck;
    if (!zp_recheck_plan(&recheck, arena, &plan, err))
        return zs_error_prefix(err, "the plan found does not pass its own check");
    zp_recheck_fill(&plan, &recheck);
    if (!certify(&plan, arena, built, solution, err) ||
        !list_unused(&plan, arena, strcmp(plan.certificate.status, "optimal") == 0, err) ||
        !zs_plan_check(&plan, err))
        return false;
    *out = plan;
    return true;
}
