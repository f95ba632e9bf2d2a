#include "shared/schedule.h"

#include "shared/schedule_cuts.h"

#include <assert.h>
#include <string.h>

const char *const zs_op_names[ZS_N_OPS] = {
#define OP(name, symbol, lane) [ZS_OP_##symbol] = #name,
    ZS_OPS(OP)
#undef OP
};

const zs_lane zs_op_lanes[ZS_N_OPS] = {
#define OP(name, symbol, lane) [ZS_OP_##symbol] = ZS_LANE_##lane,
    ZS_OPS(OP)
#undef OP
};

const char *const zs_lane_names[ZS_N_LANES] = {
    [ZS_LANE_COMPUTE] = "compute",
    [ZS_LANE_SEND] = "send",
    [ZS_LANE_RECV] = "recv",
    [ZS_LANE_COLLECTIVE] = "collective",
};

enum { NONE = -1 };

bool zs_stage_meets(const zs_plan_stage *stage, zs_op op)
{
    const int from_level = op == ZS_OP_FORWARD ? 3 : 2;
    return (op == ZS_OP_FORWARD || op == ZS_OP_BACKWARD) && stage->zero_stage >= from_level &&
           stage->n_ranks > 1;
}

typedef struct span {
    int first, end; /* instructions */
} span;

/* The last user of an activation slot. */
typedef struct slot_user {
    int forward;  /* instruction, NONE before the first use */
    int backward; /* instruction, NONE until it is there */
    span sends;
} slot_user;

/* The last user of one of the two gradient buffers. */
typedef struct grad_user {
    int backward; /* instruction or NONE */
    span sends;
} grad_user;

/* The list of one rank while it grows. */
typedef struct builder {
    const zs_plan *plan;
    const zs_cuts *cuts;
    const zs_schedule *schedule;
    const int *first_ranks; /* by stage */
    int stage;
    int rank_in_stage;
    zs_program *program;
    int *waits_end; /* behind the last wait written */
    slot_user *slots;
    grad_user grads[2];
    int n_forwards, n_backwards;
    int last_backward; /* instruction or NONE */
} builder;

static zs_instruction *emit(builder *b, zs_op op, int micro_batch, int slot)
{
    zs_instruction *instruction = &b->program->instructions[b->program->n_instructions++];
    *instruction = (zs_instruction){
        .op = op, .micro_batch = micro_batch, .peer = NONE, .slot = slot, .waits = b->waits_end};
    return instruction;
}

/* The instruction emitted last waits for `index`, unless that is NONE. */
static void wait_for(builder *b, int index)
{
    if (index == NONE)
        return;
    *b->waits_end++ = index;
    b->program->instructions[b->program->n_instructions - 1].n_waits++;
}

static void wait_for_all(builder *b, span s)
{
    for (int i = s.first; i < s.end; i++)
        wait_for(b, i);
}

/* The samples [*first, *end) of this rank. */
static bool own_samples(const builder *b, int *first, int *end, int micro_batch)
{
    const int *at = zs_cuts_at(b->cuts, b->stage, micro_batch);
    *first = at[b->rank_in_stage];
    *end = at[b->rank_in_stage + 1];
    return *first < *end;
}

/* One send or receive for each rank of the stage `other` that shares samples; each waits for
 * `after`. */
static span transfers(builder *b, zs_op op, int micro_batch, int slot, int other, int after)
{
    span result = {b->program->n_instructions, b->program->n_instructions};
    if (other < 0 || other >= b->plan->n_stages)
        return result;
    int first = 0, end = 0;
    own_samples(b, &first, &end, micro_batch);
    const int *at = zs_cuts_at(b->cuts, other, micro_batch);
    const int n_ranks = b->plan->stages[other].n_ranks;
    for (int i = zs_cuts_overlap(at, n_ranks, 0, first, end); i < n_ranks;
         i = zs_cuts_overlap(at, n_ranks, i + 1, first, end)) {
        zs_instruction *t = emit(b, op, micro_batch, slot);
        t->peer = b->first_ranks[other] + i;
        t->first_sample = at[i] > first ? at[i] : first;
        t->end_sample = at[i + 1] < end ? at[i + 1] : end;
        wait_for(b, after);
    }
    result.end = b->program->n_instructions;
    return result;
}

/* The rank meets the others of its stage without samples of its own. */
static int emit_meeting(builder *b, zs_op op, int micro_batch, int first)
{
    const int index = b->program->n_instructions;
    if (!zs_stage_meets(&b->plan->stages[b->stage], op))
        return NONE;
    zs_instruction *instruction = emit(b, op, micro_batch, NONE);
    instruction->first_sample = instruction->end_sample = first;
    return index;
}

static void emit_forward(builder *b, int micro_batch)
{
    int first = 0, end = 0;
    if (!own_samples(b, &first, &end, micro_batch)) {
        emit_meeting(b, ZS_OP_FORWARD, micro_batch, first);
        return;
    }
    const int slot = b->n_forwards++ % b->program->n_slots;
    slot_user *user = &b->slots[slot];
    /* the slot's activations are needed until its backward, or its forward in an evaluation */
    const int freed = b->schedule->training ? user->backward : user->forward;
    span receives = transfers(b, ZS_OP_RECV_ACT, micro_batch, slot, b->stage - 1, freed);
    const int forward = b->program->n_instructions;
    zs_instruction *f = emit(b, ZS_OP_FORWARD, micro_batch, slot);
    f->first_sample = first;
    f->end_sample = end;
    wait_for_all(b, receives);
    if (b->stage == 0)
        wait_for(b, freed); /* elsewhere the receives did */
    wait_for_all(b, user->sends);
    user->sends = transfers(b, ZS_OP_SEND_ACT, micro_batch, slot, b->stage + 1, forward);
    user->forward = forward;
    user->backward = NONE;
}

static void emit_backward(builder *b, int micro_batch)
{
    int first = 0, end = 0;
    if (!own_samples(b, &first, &end, micro_batch)) {
        const int meeting = emit_meeting(b, ZS_OP_BACKWARD, micro_batch, first);
        if (meeting != NONE) {
            wait_for(b, b->last_backward); /* parameter gradients are accumulated */
            b->last_backward = meeting;
        }
        return;
    }
    const int slot = b->n_backwards++ % b->program->n_slots;
    slot_user *user = &b->slots[slot];
    grad_user *grad = &b->grads[micro_batch & 1];
    span receives = transfers(b, ZS_OP_RECV_GRAD, micro_batch, slot, b->stage + 1, grad->backward);
    const int backward = b->program->n_instructions;
    zs_instruction *instruction = emit(b, ZS_OP_BACKWARD, micro_batch, slot);
    instruction->first_sample = first;
    instruction->end_sample = end;
    wait_for(b, user->forward);
    wait_for_all(b, receives);
    wait_for(b, b->last_backward); /* parameter gradients are accumulated */
    wait_for_all(b, grad->sends);
    grad->sends = transfers(b, ZS_OP_SEND_GRAD, micro_batch, slot, b->stage - 1, backward);
    grad->backward = user->backward = b->last_backward = backward;
}

/* Every rank takes part, also one without any sample: each waits for the one before. */
static void emit_step(builder *b)
{
    const bool shares_embedding =
        b->schedule->tied && (b->stage == 0 || b->stage == b->plan->n_stages - 1);
    static const zs_op ops[] = {ZS_OP_REDUCE_GRADS, ZS_OP_REDUCE_TIED,   ZS_OP_GRAD_NORM,
                                ZS_OP_STEP,         ZS_OP_GATHER_PARAMS, ZS_OP_GATHER_TIED};
    int before = b->last_backward;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if ((ops[i] == ZS_OP_REDUCE_TIED || ops[i] == ZS_OP_GATHER_TIED) && !shares_embedding)
            continue;
        emit(b, ops[i], NONE, NONE);
        wait_for(b, before);
        before = b->program->n_instructions - 1;
    }
}

/* Forwards before the first backward: all under GPipe; under 1F1B as many as there are stages
 * behind this one (Narayanan et al., PipeDream, SOSP 2019, sec. 3.2, with a flush each step). */
static int n_warmup(const builder *b)
{
    const int m = b->schedule->n_micro_batches;
    const int behind = b->plan->n_stages - b->stage - 1;
    return !b->schedule->training || b->plan->schedule == ZS_SCHEDULE_GPIPE || behind > m ? m
                                                                                          : behind;
}

static void emit_all(builder *b)
{
    const int m = b->schedule->n_micro_batches, warmup = n_warmup(b);
    for (int j = 0; j < warmup; j++)
        emit_forward(b, j);
    for (int j = warmup; j < m; j++) {
        emit_forward(b, j);
        if (b->schedule->training)
            emit_backward(b, j - warmup);
    }
    if (!b->schedule->training)
        return;
    for (int j = m - warmup; j < m; j++)
        emit_backward(b, j);
    emit_step(b);
}

/* Ranks of the stage `other` that share samples of the micro-batch with this one. */
static int n_peers(const builder *b, int other, int micro_batch)
{
    int first = 0, end = 0, n = 0;
    if (other < 0 || other >= b->plan->n_stages || !own_samples(b, &first, &end, micro_batch))
        return 0;
    const int *at = zs_cuts_at(b->cuts, other, micro_batch);
    const int n_ranks = b->plan->stages[other].n_ranks;
    for (int i = zs_cuts_overlap(at, n_ranks, 0, first, end); i < n_ranks;
         i = zs_cuts_overlap(at, n_ranks, i + 1, first, end))
        n++;
    return n;
}

/* Micro-batches of the plan's training step that have samples on this rank. */
static int n_active_in_training(const zs_cuts *training_cuts, int stage, int rank_in_stage)
{
    int n = 0;
    for (int j = 0; j < training_cuts->plan->n_micro_batches; j++) {
        const int *at = zs_cuts_at(training_cuts, stage, j);
        n += at[rank_in_stage] < at[rank_in_stage + 1];
    }
    return n;
}

static bool build_program(builder *b, zs_arena *arena, const zs_cuts *training_cuts, zs_error *err)
{
    int64_t n_instructions = 6, n_waits = 6; /* of the step itself */
    int n_active = 0;
    for (int j = 0; j < b->schedule->n_micro_batches; j++) {
        int first = 0, end = 0;
        if (!own_samples(b, &first, &end, j)) {
            n_instructions += 2; /* meetings, and the wait of the second */
            n_waits += 1;
            continue;
        }
        const int n = n_peers(b, b->stage - 1, j) + n_peers(b, b->stage + 1, j);
        n_active++;
        n_instructions += b->schedule->training ? 2 * n + 2 : n + 1;
        n_waits += 4 * n + 4;
    }
    int n_slots = n_active_in_training(training_cuts, b->stage, b->rank_in_stage);
    if (n_slots > zs_plan_in_flight(b->plan, b->stage))
        n_slots = zs_plan_in_flight(b->plan, b->stage);
    if (n_slots > n_active)
        n_slots = n_active;
    b->program->n_slots = n_slots;
    b->program->instructions = ZS_NEW(arena, zs_instruction, n_instructions, err);
    int *waits = ZS_NEW(arena, int, n_waits, err);
    b->slots = ZS_NEW(arena, slot_user, n_slots, err);
    if (!b->program->instructions || !waits || !b->slots)
        return false;
    for (int i = 0; i < n_slots; i++)
        b->slots[i] = (slot_user){.forward = NONE, .backward = NONE};
    b->waits_end = waits;
    emit_all(b);
    assert(b->program->n_instructions <= n_instructions && b->waits_end <= waits + n_waits);
    return true;
}

/* schedule has tied, training and micro-batches. */
static bool build(zs_schedule *schedule, zs_arena *arena, const zs_plan *plan, zs_error *err)
{
    zs_cuts cuts, training_cuts;
    if (!zs_cuts_build(&cuts, arena, plan, schedule->micro_batches, schedule->n_micro_batches,
                       err) ||
        !zs_cuts_build(&training_cuts, arena, plan, plan->micro_batches, plan->n_micro_batches,
                       err))
        return false;
    int *first_ranks = ZS_NEW(arena, int, plan->n_stages, err);
    if (!first_ranks)
        return false;
    schedule->n_ranks = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        first_ranks[s] = schedule->n_ranks;
        schedule->n_ranks += plan->stages[s].n_ranks;
    }
    schedule->programs = ZS_NEW(arena, zs_program, schedule->n_ranks, err);
    if (!schedule->programs)
        return false;
    for (int s = 0; s < plan->n_stages; s++)
        for (int i = 0; i < plan->stages[s].n_ranks; i++) {
            zs_program *program = &schedule->programs[first_ranks[s] + i];
            *program = (zs_program){.rank = first_ranks[s] + i, .stage = s};
            builder b = {.plan = plan,
                         .cuts = &cuts,
                         .schedule = schedule,
                         .first_ranks = first_ranks,
                         .stage = s,
                         .rank_in_stage = i,
                         .program = program,
                         .grads = {{.backward = NONE}, {.backward = NONE}},
                         .last_backward = NONE};
            if (!build_program(&b, arena, &training_cuts, err))
                return false;
        }
    return true;
}

bool zs_schedule_build(zs_schedule *out, zs_arena *arena, const zs_plan *plan, bool tied,
                       zs_error *err)
{
    zs_schedule schedule = {.tied = tied && plan->n_stages > 1,
                            .training = true,
                            .n_micro_batches = plan->n_micro_batches};
    schedule.micro_batches = ZS_NEW(arena, int, plan->n_micro_batches, err);
    if (!schedule.micro_batches)
        return false;
    memcpy(schedule.micro_batches, plan->micro_batches,
           (size_t)plan->n_micro_batches * sizeof(int));
    if (!build(&schedule, arena, plan, err))
        return false;
    *out = schedule;
    return true;
}

bool zs_schedule_build_eval(zs_schedule *out, zs_arena *arena, const zs_plan *plan, int n_samples,
                            zs_error *err)
{
    const int planned = zs_plan_micro_batch(plan);
    int64_t global_batch = 0;
    for (int j = 0; j < plan->n_micro_batches; j++)
        global_batch += plan->micro_batches[j];
    if (n_samples < 1 || n_samples > global_batch)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "evaluation over %d samples, expected 1 to the global batch of %lld",
                       n_samples, (long long)global_batch);
    zs_schedule schedule = {.n_micro_batches = (n_samples - 1) / planned + 1};
    schedule.micro_batches = ZS_NEW(arena, int, schedule.n_micro_batches, err);
    if (!schedule.micro_batches)
        return false;
    for (int j = 0; j < schedule.n_micro_batches; j++)
        schedule.micro_batches[j] = planned;
    schedule.micro_batches[schedule.n_micro_batches - 1] =
        n_samples - planned * (schedule.n_micro_batches - 1);
    if (!build(&schedule, arena, plan, err))
        return false;
    *out = schedule;
    return true;
}
