#include "shared/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_BLOCKS = 65536 };

const char *const zs_schedule_names[ZS_N_SCHEDULES] = {"1f1b", "gpipe"};
const char *const zs_plan_status_names[ZS_PLAN_N_STATUSES] = {"optimal", "time_limit", "feasible"};

int64_t zs_memory_total(const zs_memory *memory)
{
    int64_t total = 0;
#define TERM(name) total += memory->name##_bytes;
    ZS_MEMORY_TERMS(TERM)
#undef TERM
    return total;
}

int zs_plan_n_ranks(const zs_plan *plan)
{
    return zs_plan_first_rank(plan, plan->n_stages);
}

int zs_plan_first_rank(const zs_plan *plan, int stage)
{
    int rank = 0;
    for (int s = 0; s < stage; s++)
        rank += plan->stages[s].n_ranks;
    return rank;
}

int zs_plan_stage_of(const zs_plan *plan, int rank)
{
    int stage = 0;
    for (int end = plan->stages[0].n_ranks; rank >= end; end += plan->stages[stage].n_ranks)
        stage++;
    return stage;
}

const zs_plan_rank *zs_plan_rank_at(const zs_plan *plan, int rank)
{
    const int stage = zs_plan_stage_of(plan, rank);
    return &plan->stages[stage].ranks[rank - zs_plan_first_rank(plan, stage)];
}

int zs_plan_in_flight(const zs_plan *plan, int stage)
{
    const int depth = plan->n_stages - stage;
    if (plan->schedule == ZS_SCHEDULE_GPIPE || plan->n_micro_batches < depth)
        return plan->n_micro_batches;
    return depth;
}

/* "block 3" or "blocks 3 to 5" of [first, end). */
static const char *print_blocks(char *buffer, size_t size, int first, int end)
{
    if (end - first == 1)
        snprintf(buffer, size, "block %d", first);
    else
        snprintf(buffer, size, "blocks %d to %d", first, end - 1);
    return buffer;
}

static bool check_ranges(const zs_plan *plan, zs_error *err)
{
    char blocks[64];
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_range forward = plan->stages[s].forward, backward = plan->stages[s].backward;
        if (forward.first < 0 || forward.end < forward.first)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "$.stages[%d].forward: [%d, %d], expected [first block, one past the "
                           "last]",
                           s, forward.first, forward.end);
        if (forward.first == forward.end)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "$.stages[%d].forward: [%d, %d], a stage without blocks", s,
                           forward.first, forward.end);
        if (forward.end > plan->n_blocks)
            return ZS_FAIL(
                err, ZS_ERR_INPUT, "$.stages[%d].forward: %s, but the model has %d blocks, 0 to %d",
                s,
                print_blocks(blocks, sizeof blocks,
                             forward.first > plan->n_blocks ? forward.first : plan->n_blocks,
                             forward.end),
                plan->n_blocks, plan->n_blocks - 1);
        if (backward.first != forward.first || backward.end != forward.end)
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "$.stages[%d].backward: [%d, %d] differs from forward [%d, %d], which "
                           "this version does not run",
                           s, backward.first, backward.end, forward.first, forward.end);
    }
    return true;
}

static int stages_with(const zs_plan *plan, int block, int *first_stage, int *last_stage)
{
    int n = 0;
    for (int s = 0; s < plan->n_stages; s++)
        if (block >= plan->stages[s].forward.first && block < plan->stages[s].forward.end) {
            if (n++ == 0)
                *first_stage = s;
            *last_stage = s;
        }
    return n;
}

/* Stages cover [0, n_blocks) once and in order. Looks for the reason only when they do not. */
static bool check_blocks(const zs_plan *plan, zs_error *err)
{
    if (plan->n_blocks < 1 || plan->n_blocks > MAX_BLOCKS)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.inputs.model.n_blocks: %d, expected 1 to %d",
                       plan->n_blocks, MAX_BLOCKS);
    if (!check_ranges(plan, err))
        return false;
    int end = 0, wrong = -1;
    for (int s = 0; s < plan->n_stages && wrong < 0; s++) {
        if (plan->stages[s].forward.first != end)
            wrong = s;
        end = plan->stages[s].forward.end;
    }
    if (wrong < 0 && end == plan->n_blocks)
        return true;

    char blocks[64];
    for (int block = 0; block < plan->n_blocks; block++) {
        int a = 0, b = 0, next = block + 1;
        const int n = stages_with(plan, block, &a, &b);
        if (n == 1)
            continue;
        for (int c = a, d = b; next < plan->n_blocks; next++)
            if (stages_with(plan, next, &c, &d) != n || c != a || d != b)
                break;
        print_blocks(blocks, sizeof blocks, block, next);
        if (n == 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages: %s of %d %s in no stage", blocks,
                           plan->n_blocks, next - block == 1 ? "is" : "are");
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages[%d].forward: %s %s already in stage %d", b,
                       blocks, next - block == 1 ? "is" : "are", a);
    }
    return ZS_FAIL(err, ZS_ERR_INPUT,
                   "$.stages[%d].forward: %s out of order, expected a stage that begins at block "
                   "%d",
                   wrong,
                   print_blocks(blocks, sizeof blocks, plan->stages[wrong].forward.first,
                                plan->stages[wrong].forward.end),
                   wrong ? plan->stages[wrong - 1].forward.end : 0);
}

int zs_plan_micro_batch(const zs_plan *plan)
{
    int largest = 0;
    for (int j = 0; j < plan->n_micro_batches; j++)
        largest = plan->micro_batches[j] > largest ? plan->micro_batches[j] : largest;
    return largest;
}

static bool check_batches(const zs_plan *plan, zs_error *err)
{
    if (plan->n_micro_batches < 1)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.micro_batches: empty, expected 1 or more");
    int64_t sum = 0;
    for (int j = 0; j < plan->n_micro_batches; j++) {
        if (plan->micro_batches[j] < 1)
            return ZS_FAIL(err, ZS_ERR_INPUT, "$.micro_batches[%d]: %d samples, expected 1 or more",
                           j, plan->micro_batches[j]);
        sum += plan->micro_batches[j];
    }
    if (sum != plan->job.global_batch)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "$.micro_batches: sum to %" PRId64 " samples, expected the global batch, "
                       "%" PRId64,
                       sum, plan->job.global_batch);
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        int64_t samples = 0;
        if (stage->n_ranks < 1)
            return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages[%d].ranks: empty, expected 1 or more", s);
        for (int i = 0; i < stage->n_ranks; i++) {
            if (stage->ranks[i].samples < 0)
                return ZS_FAIL(err, ZS_ERR_INPUT,
                               "$.stages[%d].ranks[%d].samples: %d, expected 0 or more", s, i,
                               stage->ranks[i].samples);
            samples += stage->ranks[i].samples;
        }
        if (samples != zs_plan_micro_batch(plan))
            return ZS_FAIL(err, ZS_ERR_INPUT,
                           "$.stages[%d].ranks: samples sum to %" PRId64
                           ", expected %d, the largest micro-batch",
                           s, samples, zs_plan_micro_batch(plan));
    }
    return true;
}

static bool check_stage_shards(const zs_plan_stage *stage, int s, zs_arena *arena, zs_error *err)
{
    if (stage->zero_stage < 1 || stage->zero_stage > 3)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages[%d].zero_stage: %d, expected 1, 2 or 3", s,
                       stage->zero_stage);
    if (stage->n_params < 1)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages[%d].n_params: %" PRId64 ", expected 1 or more",
                       s, stage->n_params);
    zs_shard *shards = ZS_NEW(arena, zs_shard, stage->n_ranks, err);
    if (!shards)
        return false;
    for (int i = 0; i < stage->n_ranks; i++)
        shards[i] = stage->ranks[i].shard;
    return zs_shards_check(shards, stage->n_ranks, stage->n_params, err) ||
           zs_error_prefix(err, "$.stages[%d].shards", s);
}

static bool check_predictions(const zs_plan *plan, zs_error *err)
{
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        for (int i = 0; i < stage->n_ranks; i++) {
#define TERM(name)                                                                                 \
    if (stage->ranks[i].memory.name##_bytes < 0)                                                   \
        return ZS_FAIL(err, ZS_ERR_INPUT,                                                          \
                       "$.stages[%d].ranks[%d].memory_bytes." #name "_bytes: %" PRId64             \
                       ", expected 0 or more",                                                     \
                       s, i, stage->ranks[i].memory.name##_bytes);
            ZS_MEMORY_TERMS(TERM)
#undef TERM
        }
        if (!isfinite(stage->micro_batch_ms) || stage->micro_batch_ms < 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages[%d].micro_batch_ms: %g, expected 0 or more",
                           s, stage->micro_batch_ms);
        if (!isfinite(stage->sync_ms) || stage->sync_ms < 0)
            return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages[%d].sync_ms: %g, expected 0 or more", s,
                           stage->sync_ms);
    }
    if (!isfinite(plan->step_ms) || plan->step_ms < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.predicted.step_ms: %g, expected 0 or more",
                       plan->step_ms);
    if (!isfinite(plan->simulated_step_ms) || plan->simulated_step_ms < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.predicted.simulated_step_ms: %g, expected 0 or more",
                       plan->simulated_step_ms);
    if (!(plan->bubble_share >= 0 && plan->bubble_share <= 1))
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.predicted.bubble_share: %g, expected 0 to 1",
                       plan->bubble_share);
    return true;
}

static bool check_certificate(const zs_certificate *c, zs_error *err)
{
    bool known = false;
    for (int i = 0; i < ZS_PLAN_N_STATUSES; i++)
        known = known || (c->status && strcmp(c->status, zs_plan_status_names[i]) == 0);
    if (!known)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "$.certificate.status: \"%s\", expected optimal, time_limit or feasible",
                       c->status ? c->status : "");
    if (!isfinite(c->objective_ms) || c->objective_ms < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.certificate.objective_ms: %g, expected 0 or more",
                       c->objective_ms);
    /* both come from sums of doubles: allow for their rounding */
    if (!(c->lower_bound_ms >= 0 && c->lower_bound_ms <= c->objective_ms * (1 + 1e-6)))
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "$.certificate.lower_bound_ms: %.12g, expected 0 to objective_ms, %.12g",
                       c->lower_bound_ms, c->objective_ms);
    double gap = 1;
    if (c->lower_bound_ms > 0)
        gap = fmax(0, (c->objective_ms - c->lower_bound_ms) / c->objective_ms);
    if (!(fabs(c->gap - gap) <= 1e-6))
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "$.certificate.gap: %.9g, expected (objective_ms - lower_bound_ms) / "
                       "objective_ms, %.9g",
                       c->gap, gap);
    if (c->n_solves < 0 || c->n_nodes < 0)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "$.certificate: n_solves %" PRId64 ", n_nodes %" PRId64
                       ", expected 0 or more",
                       c->n_solves, c->n_nodes);
    return true;
}

/* Where a device of the cluster is used. */
typedef struct place {
    int stage;
    int index;
} place;

enum { STAGE_NONE = -1, STAGE_UNUSED = -2 };

static bool take_device(place *places, const int *first_device, const zs_cluster *cluster, int node,
                        int gpu, place here, zs_error *err)
{
    char at[64];
    if (here.stage == STAGE_UNUSED)
        snprintf(at, sizeof at, "$.unused_devices[%d]", here.index);
    else
        snprintf(at, sizeof at, "$.stages[%d].ranks[%d]", here.stage, here.index);
    if (node < 0 || node >= cluster->n_nodes)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s.node: %d, expected 0 to %d", at, node,
                       cluster->n_nodes - 1);
    const zs_node *n = &cluster->nodes[node];
    if (gpu < 0 || gpu >= n->n_devices)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s.gpu: %d, but node \"%s\" has %d devices", at, gpu,
                       n->name, n->n_devices);
    place *p = &places[first_device[node] + gpu];
    if (p->stage == STAGE_UNUSED)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: device %d of node \"%s\" is listed as unused too",
                       at, gpu, n->name);
    if (p->stage != STAGE_NONE)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: device %d of node \"%s\" is already rank %d of stage %d", at, gpu,
                       n->name, p->index, p->stage);
    *p = here;
    return true;
}

/* Each device is in one stage or unused; bf16 runs only where the device has it. */
static bool check_devices(const zs_plan *plan, zs_arena *arena, zs_error *err)
{
    const zs_cluster *cluster = &plan->cluster;
    const int n_devices = zs_cluster_n_devices(cluster);
    place *places = ZS_NEW(arena, place, n_devices, err);
    int *first_device = ZS_NEW(arena, int, cluster->n_nodes, err);
    if (!places || !first_device)
        return false;
    for (int node = 1; node < cluster->n_nodes; node++)
        first_device[node] = first_device[node - 1] + cluster->nodes[node - 1].n_devices;
    for (int i = 0; i < n_devices; i++)
        places[i].stage = STAGE_NONE;

    for (int i = 0; i < plan->n_unused; i++)
        if (!take_device(places, first_device, cluster, plan->unused[i].node, plan->unused[i].gpu,
                         (place){STAGE_UNUSED, i}, err))
            return false;
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_ranks; i++) {
            const zs_plan_rank *rank = &plan->stages[s].ranks[i];
            if (!take_device(places, first_device, cluster, rank->node, rank->gpu, (place){s, i},
                             err))
                return false;
            const zs_device *device = &cluster->nodes[rank->node].devices[rank->gpu];
            if (plan->job.precision == ZS_BF16 && device->compute_capability < 80)
                return ZS_FAIL(err, ZS_ERR_INPUT,
                               "$.stages[%d].ranks[%d]: precision bf16, but %s has compute "
                               "capability %d.%d, expected 8.0 or more",
                               s, i, device->type, device->compute_capability / 10,
                               device->compute_capability % 10);
        }
    for (int node = 0; node < cluster->n_nodes; node++)
        for (int gpu = 0; gpu < cluster->nodes[node].n_devices; gpu++)
            if (places[first_device[node] + gpu].stage == STAGE_NONE)
                return ZS_FAIL(err, ZS_ERR_INPUT,
                               "$.unused_devices: device %d of node \"%s\" (%s) is in no stage and "
                               "not listed",
                               gpu, cluster->nodes[node].name,
                               cluster->nodes[node].devices[gpu].type);
    return true;
}

bool zs_plan_check(const zs_plan *plan, zs_error *err)
{
    if (!zs_job_check(&plan->job, err))
        return zs_error_prefix(err, "$.inputs.job");
    if ((int)plan->schedule < 0 || plan->schedule >= ZS_N_SCHEDULES)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.schedule: %d is not known", (int)plan->schedule);
    if (plan->n_stages < 1)
        return ZS_FAIL(err, ZS_ERR_INPUT, "$.stages: empty, expected 1 or more");
    if (!check_blocks(plan, err) || !check_batches(plan, err))
        return false;
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, err))
        return false;
    bool ok = check_devices(plan, arena, err);
    for (int s = 0; ok && s < plan->n_stages; s++)
        ok = check_stage_shards(&plan->stages[s], s, arena, err);
    zs_arena_close(&arena);
    return ok && check_predictions(plan, err) && check_certificate(&plan->certificate, err);
}
