#include "shared/schedule.h"

#include "shared/schedule_checker.h"
#include "shared/schedule_pairs.h"
#include "shared/schedule_rendezvous.h"

bool zs_checker_fail(const zs_checker *c, int index)
{
    char text[ZS_INSTRUCTION_TEXT_SIZE];
    return zs_error_prefix(c->err, "rank %d, instruction %d (%s)", c->program->rank, index,
                           zs_instruction_text(text, &c->program->instructions[index]));
}

const char *zs_checker_text(const zs_program *program, int index)
{
    static _Thread_local char text[ZS_INSTRUCTION_TEXT_SIZE];
    return zs_instruction_text(text, &program->instructions[index]);
}

bool zs_op_is_transfer(zs_op op)
{
    return zs_op_lanes[op] == ZS_LANE_SEND || zs_op_lanes[op] == ZS_LANE_RECV;
}

bool zs_op_is_of_step(zs_op op)
{
    return zs_op_lanes[op] == ZS_LANE_COLLECTIVE || op == ZS_OP_STEP;
}

static bool check_micro_batches(const zs_checker *c)
{
    const zs_schedule *s = c->schedule;
    const zs_plan *plan = c->plan;
    int64_t sum = 0, global_batch = 0;
    for (int j = 0; j < plan->n_micro_batches; j++)
        global_batch += plan->micro_batches[j];
    if (s->n_micro_batches < 1 || (s->training && s->n_micro_batches != plan->n_micro_batches))
        return ZS_FAIL(c->err, ZS_ERR_INPUT, "schedule has %d micro-batches, the plan %d",
                       s->n_micro_batches, plan->n_micro_batches);
    const int planned = zs_plan_micro_batch(plan);
    for (int j = 0; j < s->n_micro_batches; j++) {
        const int size = s->micro_batches[j];
        if (size < 1 || size > planned || (s->training && size != plan->micro_batches[j]))
            return ZS_FAIL(c->err, ZS_ERR_INPUT, "micro-batch %d has %d samples, the plan %d", j,
                           size, s->training ? plan->micro_batches[j] : planned);
        sum += size;
    }
    if (sum > global_batch)
        return ZS_FAIL(c->err, ZS_ERR_INPUT, "micro-batches have %lld samples, the plan's %lld",
                       (long long)sum, (long long)global_batch);
    return true;
}

static bool open_checker(zs_checker *c)
{
    const zs_plan *plan = c->plan;
    const zs_schedule *schedule = c->schedule;
    if (!check_micro_batches(c))
        return false;
    c->first_ranks = ZS_NEW(c->arena, int, plan->n_stages + 1, c->err);
    if (!c->first_ranks)
        return false;
    for (int s = 0; s < plan->n_stages; s++)
        c->first_ranks[s + 1] = c->first_ranks[s] + plan->stages[s].n_ranks;
    if (schedule->n_ranks != c->first_ranks[plan->n_stages])
        return ZS_FAIL(c->err, ZS_ERR_INPUT, "schedule has %d ranks, the plan %d",
                       schedule->n_ranks, c->first_ranks[plan->n_stages]);
    int max_instructions = 0, max_slots = 0;
    for (int s = 0; s < plan->n_stages; s++)
        for (int rank = c->first_ranks[s]; rank < c->first_ranks[s + 1]; rank++) {
            const zs_program *program = &schedule->programs[rank];
            if (program->rank != rank || program->stage != s)
                return ZS_FAIL(c->err, ZS_ERR_INPUT,
                               "program %d is of rank %d, stage %d, expected rank %d, stage %d",
                               rank, program->rank, program->stage, rank, s);
            const int bound = zs_plan_in_flight(plan, s);
            if (program->n_slots < 0 || program->n_slots > bound)
                return ZS_FAIL(c->err, ZS_ERR_INPUT,
                               "rank %d: %d micro-batches in flight, at most %d on stage %d", rank,
                               program->n_slots, bound, s);
            if (program->n_instructions > max_instructions)
                max_instructions = program->n_instructions;
            if (program->n_slots > max_slots)
                max_slots = program->n_slots;
        }
    c->progress = ZS_NEW(c->arena, zs_progress, schedule->n_micro_batches, c->err);
    c->slot_users = ZS_NEW(c->arena, int, max_slots, c->err);
    c->last_users = ZS_NEW(c->arena, int, max_slots, c->err);
    c->next = ZS_NEW(c->arena, int, max_instructions, c->err);
    c->parents = ZS_NEW(c->arena, int, max_instructions, c->err);
    c->queue = ZS_NEW(c->arena, int, max_instructions, c->err);
    c->visited = ZS_NEW(c->arena, int, max_instructions, c->err);
    return c->progress && c->slot_users && c->last_users && c->next && c->parents && c->queue &&
           c->visited &&
           zs_cuts_build(&c->cuts, c->arena, plan, schedule->micro_batches,
                         schedule->n_micro_batches, c->err);
}

static bool check_all(zs_checker *c)
{
    const zs_schedule *schedule = c->schedule;
    if (!open_checker(c))
        return false;
    for (int rank = 0; rank < schedule->n_ranks; rank++) {
        c->program = &schedule->programs[rank];
        if (!zs_checker_list(c) || !zs_checker_step(c) || !zs_checker_meetings(c) ||
            !zs_checker_waits(c))
            return false;
    }
    int64_t *first_ids = NULL, *partner_of = NULL;
    if (!zs_schedule_pairs(&first_ids, &partner_of, c->arena, schedule, c->err))
        return false;
    const zs_links links = {.schedule = schedule,
                            .plan = c->plan,
                            .n_stages = c->plan->n_stages,
                            .first_ranks = c->first_ranks,
                            .first_ids = first_ids,
                            .partner_of = partner_of};
    return zs_rendezvous_check(&links, c->arena, ZS_PLAY_LISTS, c->err) &&
           zs_rendezvous_check(&links, c->arena, ZS_PLAY_LANES, c->err);
}

bool zs_schedule_check(const zs_schedule *schedule, const zs_plan *plan, zs_error *err)
{
    zs_checker c = {.schedule = schedule, .plan = plan, .err = err};
    if (!zs_arena_open(&c.arena, err))
        return false;
    const bool ok = check_all(&c);
    zs_arena_close(&c.arena);
    return ok;
}
