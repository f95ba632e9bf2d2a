#include "shared/schedule_checker.h"

static void own_samples(const zs_checker *c, int *first, int *end, int rank, int stage,
                        int micro_batch)
{
    const int *at = zs_cuts_at(&c->cuts, stage, micro_batch);
    *first = at[rank - c->first_ranks[stage]];
    *end = at[rank - c->first_ranks[stage] + 1];
}

/* Op, micro-batch and what belongs to them are in range; the order of the list comes later. */
static bool check_fields(const zs_checker *c, int index)
{
    const zs_instruction *i = &c->program->instructions[index];
    const int stage = c->program->stage;
    if ((int)i->op < 0 || i->op >= ZS_N_OPS)
        return ZS_FAIL_AT(c, index, "unknown instruction");
    if (zs_op_is_of_step(i->op)) {
        if (!c->schedule->training)
            return ZS_FAIL_AT(c, index, "an evaluation has none");
        if (i->micro_batch != ZS_NONE || i->slot != ZS_NONE || i->peer != ZS_NONE)
            return ZS_FAIL_AT(c, index, "micro-batch %d, slot %d, peer %d, expected -1 of each",
                              i->micro_batch, i->slot, i->peer);
        return true;
    }
    if (i->micro_batch < 0 || i->micro_batch >= c->schedule->n_micro_batches)
        return ZS_FAIL_AT(c, index, "there are %d micro-batches", c->schedule->n_micro_batches);
    const bool is_empty = !zs_op_is_transfer(i->op) && i->first_sample == i->end_sample;
    if (is_empty && i->slot != ZS_NONE)
        return ZS_FAIL_AT(c, index, "slot %d, expected -1 where there are no samples", i->slot);
    if (!is_empty && (i->slot < 0 || i->slot >= c->program->n_slots))
        return ZS_FAIL_AT(c, index, "slot %d, the rank has %d", i->slot, c->program->n_slots);
    const bool is_grad = i->op == ZS_OP_RECV_GRAD || i->op == ZS_OP_SEND_GRAD;
    if (!c->schedule->training && (is_grad || i->op == ZS_OP_BACKWARD))
        return ZS_FAIL_AT(c, index, "an evaluation has none");
    if (!zs_op_is_transfer(i->op)) {
        if (i->peer != ZS_NONE)
            return ZS_FAIL_AT(c, index, "peer %d, expected -1", i->peer);
        return true;
    }
    const bool from_next = i->op == ZS_OP_SEND_ACT || i->op == ZS_OP_RECV_GRAD;
    const int other = from_next ? stage + 1 : stage - 1;
    if (other < 0 || other >= c->plan->n_stages)
        return ZS_FAIL_AT(c, index, "stage %d is the %s", stage, from_next ? "last" : "first");
    if (i->peer < c->first_ranks[other] || i->peer >= c->first_ranks[other + 1])
        return ZS_FAIL_AT(c, index, "peer %d is not in stage %d", i->peer, other);
    return true;
}

/* The next piece of the samples that this rank shares with its peer, in ascending order. */
static bool check_transfer(zs_checker *c, int index, int own_first, int own_end)
{
    const zs_instruction *i = &c->program->instructions[index];
    zs_progress *p = &c->progress[i->micro_batch];
    const bool to_next = i->op == ZS_OP_SEND_ACT || i->op == ZS_OP_RECV_GRAD;
    int peer_first = 0, peer_end = 0;
    own_samples(c, &peer_first, &peer_end, i->peer, c->program->stage + (to_next ? 1 : -1),
                i->micro_batch);
    const int end = peer_end < own_end ? peer_end : own_end;
    const int start = p->moved[i->op] > own_first ? p->moved[i->op] : own_first;
    if (i->first_sample != start || i->first_sample < peer_first || i->end_sample != end ||
        i->end_sample <= i->first_sample)
        return ZS_FAIL_AT(c, index,
                          "samples do not tile: rank %d has [%d,%d), this rank [%d,%d), next is %d",
                          i->peer, peer_first, peer_end, own_first, own_end, start);
    p->moved[i->op] = end;
    return true;
}

static bool check_slot(zs_checker *c, int index)
{
    const zs_instruction *i = &c->program->instructions[index];
    zs_progress *p = &c->progress[i->micro_batch];
    if (p->slot == ZS_NONE) {
        if (i->op != ZS_OP_RECV_ACT && i->op != ZS_OP_FORWARD)
            return ZS_FAIL_AT(c, index, "comes before the forward of its micro-batch");
        if (c->slot_users[i->slot] != ZS_NONE)
            return ZS_FAIL_AT(c, index, "slot %d is used twice: micro-batch %d is in flight in it",
                              i->slot, c->slot_users[i->slot]);
        p->previous = c->last_users[i->slot];
        c->slot_users[i->slot] = c->last_users[i->slot] = i->micro_batch;
        p->slot = i->slot;
    }
    if (p->slot != i->slot)
        return ZS_FAIL_AT(c, index, "slot %d, its micro-batch is in slot %d", i->slot, p->slot);
    return true;
}

/* A forward or backward without samples, in which the rank only meets the others of its stage. */
static bool check_meeting(zs_checker *c, int index, int own_first)
{
    const zs_instruction *i = &c->program->instructions[index];
    const zs_plan_stage *stage = &c->plan->stages[c->program->stage];
    zs_progress *p = &c->progress[i->micro_batch];
    int *done = i->op == ZS_OP_FORWARD ? &p->forward : &p->backward;
    if (!zs_stage_meets(stage, i->op))
        return ZS_FAIL_AT(c, index, "the rank has no samples in this micro-batch");
    if (i->first_sample != own_first || i->end_sample != own_first)
        return ZS_FAIL_AT(c, index, "the rank has samples [%d,%d) of it", own_first, own_first);
    if (*done != ZS_NONE)
        return ZS_FAIL_AT(c, index, "%s occurs twice, before as instruction %d", zs_op_names[i->op],
                          *done);
    if (i->op == ZS_OP_BACKWARD && zs_stage_meets(stage, ZS_OP_FORWARD) && p->forward == ZS_NONE)
        return ZS_FAIL_AT(c, index, "comes before the forward of its micro-batch");
    *done = index;
    return true;
}

/* An instruction of a micro-batch against what the list has done before. */
static bool check_next(zs_checker *c, int index)
{
    const zs_instruction *i = &c->program->instructions[index];
    zs_progress *p = &c->progress[i->micro_batch];
    const int last_stage = c->plan->n_stages - 1, stage = c->program->stage;
    int first = 0, end = 0;
    own_samples(c, &first, &end, c->program->rank, stage, i->micro_batch);
    if (first == end)
        return check_meeting(c, index, first);
    if (i->slot == ZS_NONE)
        return ZS_FAIL_AT(c, index, "the rank has samples [%d,%d) of it", first, end);
    if (!check_slot(c, index))
        return false;
    if (zs_op_is_transfer(i->op)) {
        if (i->op == ZS_OP_RECV_ACT && p->forward != ZS_NONE)
            return ZS_FAIL_AT(c, index, "comes after the forward that needs it");
        if (i->op == ZS_OP_RECV_GRAD && p->backward != ZS_NONE)
            return ZS_FAIL_AT(c, index, "comes after the backward that needs it");
        if ((i->op == ZS_OP_SEND_ACT || i->op == ZS_OP_RECV_GRAD) && p->forward == ZS_NONE)
            return ZS_FAIL_AT(c, index, "comes before the forward of its micro-batch");
        if (i->op == ZS_OP_SEND_GRAD && p->backward == ZS_NONE)
            return ZS_FAIL_AT(c, index, "comes before the backward of its micro-batch");
        return check_transfer(c, index, first, end);
    }
    if (i->first_sample != first || i->end_sample != end)
        return ZS_FAIL_AT(c, index, "the rank has samples [%d,%d) of it", first, end);
    if (i->op == ZS_OP_FORWARD) {
        if (p->forward != ZS_NONE)
            return ZS_FAIL_AT(c, index, "forward occurs twice, before as instruction %d",
                              p->forward);
        if (stage > 0 && p->moved[ZS_OP_RECV_ACT] != end)
            return ZS_FAIL_AT(c, index, "samples up to %d of %d are received",
                              p->moved[ZS_OP_RECV_ACT], end);
        p->forward = index;
        if (!c->schedule->training)
            c->slot_users[i->slot] = ZS_NONE;
        return true;
    }
    if (p->backward != ZS_NONE)
        return ZS_FAIL_AT(c, index, "backward occurs twice, before as instruction %d", p->backward);
    if (p->forward == ZS_NONE)
        return ZS_FAIL_AT(c, index, "comes before the forward of its micro-batch");
    if (stage < last_stage && p->moved[ZS_OP_RECV_GRAD] != end)
        return ZS_FAIL_AT(c, index, "samples up to %d of %d are received",
                          p->moved[ZS_OP_RECV_GRAD], end);
    p->backward = index;
    c->slot_users[i->slot] = ZS_NONE;
    return true;
}

/* At the end of the list each micro-batch has all its instructions. */
static bool check_complete(const zs_checker *c)
{
    const int stage = c->program->stage, rank = c->program->rank;
    for (int j = 0; j < c->schedule->n_micro_batches; j++) {
        const zs_progress *p = &c->progress[j];
        const bool training = c->schedule->training;
        int first = 0, end = 0;
        const zs_plan_stage *of_plan = &c->plan->stages[stage];
        own_samples(c, &first, &end, rank, stage, j);
        const char *missing = NULL;
        if (first == end) {
            if (zs_stage_meets(of_plan, ZS_OP_FORWARD) && p->forward == ZS_NONE)
                missing = "forward";
            else if (training && zs_stage_meets(of_plan, ZS_OP_BACKWARD) && p->backward == ZS_NONE)
                missing = "backward";
        } else if (p->forward == ZS_NONE)
            missing = "forward";
        else if (stage < c->plan->n_stages - 1 && p->moved[ZS_OP_SEND_ACT] != end)
            missing = "send_act";
        else if (training && p->backward == ZS_NONE)
            missing = "backward";
        else if (training && stage > 0 && p->moved[ZS_OP_SEND_GRAD] != end)
            missing = "send_grad";
        if (missing)
            return ZS_FAIL(c->err, ZS_ERR_INPUT,
                           "rank %d: micro-batch %d lacks a %s of its samples [%d,%d)", rank, j,
                           missing, first, end);
    }
    return true;
}

bool zs_checker_list(zs_checker *c)
{
    const zs_program *program = c->program;
    for (int j = 0; j < c->schedule->n_micro_batches; j++) {
        zs_progress *p = &c->progress[j];
        *p = (zs_progress){
            .slot = ZS_NONE, .previous = ZS_NONE, .forward = ZS_NONE, .backward = ZS_NONE};
        for (int op = 0; op < ZS_N_OPS; op++)
            p->heads[op] = ZS_NONE;
    }
    for (int k = 0; k < program->n_slots; k++)
        c->slot_users[k] = c->last_users[k] = ZS_NONE;
    for (int i = 0; i < program->n_instructions; i++)
        if (!check_fields(c, i))
            return false;
    int first_of_step = ZS_NONE;
    for (int i = 0; i < program->n_instructions; i++) {
        const zs_op op = program->instructions[i].op;
        if (zs_op_is_of_step(op) && first_of_step == ZS_NONE)
            first_of_step = i;
        if (op == ZS_OP_BACKWARD && first_of_step != ZS_NONE)
            return ZS_FAIL_AT(c, i, "comes after instruction %d (%s), which needs its gradients",
                              first_of_step, zs_checker_text(program, first_of_step));
        if (!zs_op_is_of_step(op) && !check_next(c, i))
            return false;
    }
    for (int i = program->n_instructions - 1; i >= 0; i--)
        if (zs_op_is_transfer(program->instructions[i].op)) {
            const zs_instruction *instruction = &program->instructions[i];
            int *head = &c->progress[instruction->micro_batch].heads[instruction->op];
            c->next[i] = *head;
            *head = i;
        }
    return check_complete(c);
}

static bool is_tied(zs_op op)
{
    return op == ZS_OP_REDUCE_TIED || op == ZS_OP_GATHER_TIED;
}

/* The first instructions of a list that come once a step. */
typedef struct step_list {
    int n;
    int at[ZS_N_OPS];
} step_list;

static step_list step_of(const zs_program *program, bool with_tied)
{
    step_list list = {0};
    for (int i = 0; i < program->n_instructions && list.n < ZS_N_OPS; i++)
        if (zs_op_is_of_step(program->instructions[i].op) &&
            (with_tied || !is_tied(program->instructions[i].op)))
            list.at[list.n++] = i;
    return list;
}

bool zs_checker_step(const zs_checker *c)
{
    static const int phases[ZS_N_OPS] = {[ZS_OP_GRAD_NORM] = 1,
                                         [ZS_OP_STEP] = 2,
                                         [ZS_OP_GATHER_PARAMS] = 3,
                                         [ZS_OP_GATHER_TIED] = 3};
    const zs_program *program = c->program, *first = &c->schedule->programs[0];
    const int last_stage = c->plan->n_stages - 1;
    const bool shares_embedding = c->schedule->tied && last_stage > 0 &&
                                  (program->stage == 0 || program->stage == last_stage);
    const step_list own = step_of(program, true);
    const step_list expected = step_of(first, shares_embedding);
    int n_of[ZS_N_OPS] = {0}, phase = 0;
    for (int k = 0; k < own.n; k++) {
        const zs_op op = program->instructions[own.at[k]].op;
        if (n_of[op]++ > 0)
            return ZS_FAIL_AT(c, own.at[k], "occurs twice");
        if (is_tied(op) && !shares_embedding)
            return ZS_FAIL_AT(c, own.at[k], "the rank does not share the embedding");
        if (phases[op] < phase)
            return ZS_FAIL_AT(c, own.at[k], "order of the step: %s comes too late",
                              zs_op_names[op]);
        phase = phases[op];
        if (k < expected.n && first->instructions[expected.at[k]].op != op)
            return ZS_FAIL_AT(c, own.at[k], "order of collectives: rank 0 has %s here",
                              zs_checker_text(first, expected.at[k]));
    }
    for (int k = 0; k < ZS_N_OPS; k++) {
        const zs_op op = (zs_op)k;
        if (c->schedule->training && zs_op_is_of_step(op) && (!is_tied(op) || shares_embedding) &&
            n_of[op] == 0)
            return ZS_FAIL(c->err, ZS_ERR_INPUT, "rank %d: lacks %s", program->rank,
                           zs_op_names[op]);
    }
    return true;
}

/* The next instruction from `index` on in which the ranks of the stage meet; the list's length when
 * there is none. */
static int next_meeting(const zs_program *program, const zs_plan_stage *stage, int index)
{
    while (index < program->n_instructions &&
           !zs_stage_meets(stage, program->instructions[index].op))
        index++;
    return index;
}

bool zs_checker_meetings(const zs_checker *c)
{
    const zs_program *own = c->program;
    const zs_program *other = &c->schedule->programs[c->first_ranks[own->stage]];
    const zs_plan_stage *stage = &c->plan->stages[own->stage];
    int i = next_meeting(own, stage, 0), k = next_meeting(other, stage, 0);
    while (i < own->n_instructions && k < other->n_instructions) {
        const zs_instruction *a = &own->instructions[i], *b = &other->instructions[k];
        if (a->op != b->op || a->micro_batch != b->micro_batch)
            return ZS_FAIL_AT(c, i, "order of meetings: rank %d has %s here", other->rank,
                              zs_checker_text(other, k));
        i = next_meeting(own, stage, i + 1);
        k = next_meeting(other, stage, k + 1);
    }
    return true; /* of equal length: both lists are complete */
}
