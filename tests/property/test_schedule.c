/* Random plans: their schedules pass the check; what passes the check computes the right thing when
 * it is played with data in a random order that only the waits restrict; what is broken in one
 * place does not pass. */
#include "tests/support/schedules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLES = 6, N_PLANS = 400 };

typedef enum state { IDLE, STARTED, DONE } state;

/* Each value says whose it is; 0 is rubbish. */
typedef struct values {
    int64_t at[MAX_SAMPLES];
} values;

typedef struct memory {
    values *inputs, *outputs; /* by slot */
    values grads_in[2], grads_out[2];
    int *activations; /* by slot: micro-batch, -1 for rubbish */
    bool accumulating;
    int n_forwards, n_backwards;
} memory;

typedef struct item {
    int rank, index;
    state state;
    struct item *partner; /* of a send or receive */
} item;

typedef struct play {
    const zs_schedule *schedule;
    const zs_plan *plan;
    zs_arena *arena;
    memory *memories;
    item *items;
    item **first_items; /* by rank */
    int n_items;
    int *n_forwards, *n_backwards; /* by rank: in its list */
    const char *fault;
} play;

static const zs_instruction *instruction_of(const play *p, const item *it)
{
    return &p->schedule->programs[it->rank].instructions[it->index];
}

static int64_t value_of(bool is_grad, int boundary, int micro_batch, int sample)
{
    return 1 + is_grad + 2 * (sample + INT64_C(10) * (micro_batch + INT64_C(1000) * boundary));
}

static void expect(play *p, bool ok, const item *it, const char *what)
{
    char text[ZS_INSTRUCTION_TEXT_SIZE];
    zs_error err;
    if (!ok && !p->fault)
        p->fault = zs_arena_printf(p->arena, &err, "rank %d at %d (%s): %s", it->rank, it->index,
                                   zs_instruction_text(text, instruction_of(p, it)), what);
}

static void put(play *p, const item *it, values *buffer, bool is_grad, int boundary, bool rubbish)
{
    const zs_instruction *i = instruction_of(p, it);
    for (int k = i->first_sample; k < i->end_sample; k++)
        buffer->at[k] = rubbish ? 0 : value_of(is_grad, boundary, i->micro_batch, k);
}

static void get(play *p, const item *it, const values *buffer, bool is_grad, int boundary,
                const char *what)
{
    const zs_instruction *i = instruction_of(p, it);
    for (int k = i->first_sample; k < i->end_sample; k++)
        expect(p, buffer->at[k] == value_of(is_grad, boundary, i->micro_batch, k), it, what);
}

/* Start and end of an instruction both look at what it reads; what it writes is rubbish between. */
static void compute(play *p, item *it, bool ends)
{
    const zs_instruction *i = instruction_of(p, it);
    const int stage = p->schedule->programs[it->rank].stage;
    const bool is_last = stage == p->plan->n_stages - 1, is_first = stage == 0;
    memory *m = &p->memories[it->rank];
    if (i->op == ZS_OP_STEP)
        return;
    if (i->first_sample == i->end_sample) {
        if (i->op == ZS_OP_BACKWARD) {
            expect(p, ends || !m->accumulating, it, "two backwards at a time");
            m->accumulating = !ends;
        }
        *(i->op == ZS_OP_FORWARD ? &m->n_forwards : &m->n_backwards) += ends;
        return;
    }
    if (is_first && i->op == ZS_OP_FORWARD && !ends)
        put(p, it, &m->inputs[i->slot], false, 0, false); /* the embedding */
    get(p, it, &m->inputs[i->slot], false, stage, "input");
    if (i->op == ZS_OP_FORWARD) {
        expect(p, ends || m->activations[i->slot] == -1, it, "slot is in use");
        put(p, it, &m->outputs[i->slot], false, stage + 1, !ends);
        m->activations[i->slot] = ends && p->schedule->training ? i->micro_batch : -1;
        m->n_forwards += ends;
        return;
    }
    expect(p, m->activations[i->slot] == i->micro_batch, it, "activations");
    get(p, it, &m->outputs[i->slot], false, stage + 1, "output");
    if (!is_last)
        get(p, it, &m->grads_in[i->micro_batch & 1], true, stage + 1, "gradient");
    expect(p, ends || !m->accumulating, it, "two backwards at a time");
    m->accumulating = !ends;
    put(p, it, &m->grads_out[i->micro_batch & 1], true, stage, !ends);
    if (ends) {
        m->n_backwards++;
        m->activations[i->slot] = -1;
        put(p, it, &m->inputs[i->slot], false, stage, true);
        put(p, it, &m->outputs[i->slot], false, stage, true);
    }
}

static void transfer(play *p, item *it, bool ends)
{
    const zs_instruction *i = instruction_of(p, it);
    const int stage = p->schedule->programs[it->rank].stage;
    memory *m = &p->memories[it->rank];
    switch (i->op) {
    case ZS_OP_SEND_ACT:
        get(p, it, &m->outputs[i->slot], false, stage + 1, "output to send");
        break;
    case ZS_OP_SEND_GRAD:
        get(p, it, &m->grads_out[i->micro_batch & 1], true, stage, "gradient to send");
        break;
    case ZS_OP_RECV_ACT:
        put(p, it, &m->inputs[i->slot], false, stage, !ends);
        break;
    default:
        put(p, it, &m->grads_in[i->micro_batch & 1], true, stage + 1, !ends);
        break;
    }
}

static bool waits_are_done(const play *p, const item *it)
{
    const zs_instruction *i = instruction_of(p, it);
    for (int k = 0; k < i->n_waits; k++)
        if (p->first_items[it->rank][i->waits[k]].state != DONE)
            return false;
    return true;
}

static bool is_member(const play *p, zs_op op, int stage, int of_stage)
{
    if (op == ZS_OP_REDUCE_GRADS || op == ZS_OP_GATHER_PARAMS)
        return stage == of_stage;
    return op == ZS_OP_GRAD_NORM || stage == 0 || stage == p->plan->n_stages - 1;
}

static item *find_collective(const play *p, int rank, zs_op op)
{
    for (int i = p->schedule->programs[rank].n_instructions - 1; i >= 0; i--)
        if (p->schedule->programs[rank].instructions[i].op == op)
            return &p->first_items[rank][i];
    return NULL;
}

static bool all_members_started(const play *p, const item *it)
{
    const zs_op op = instruction_of(p, it)->op;
    for (int rank = 0; rank < p->schedule->n_ranks; rank++)
        if (is_member(p, op, p->schedule->programs[rank].stage,
                      p->schedule->programs[it->rank].stage) &&
            find_collective(p, rank, op)->state == IDLE)
            return false;
    return true;
}

/* Where the ranks of a stage meet in a forward or backward, all are in it. */
static bool all_in_pass(const play *p, const item *it)
{
    const zs_instruction *i = instruction_of(p, it);
    const int stage = p->schedule->programs[it->rank].stage;
    if (!zs_stage_meets(&p->plan->stages[stage], i->op))
        return true;
    const int first = zs_plan_first_rank(p->plan, stage);
    for (int rank = first; rank < first + p->plan->stages[stage].n_ranks; rank++) {
        const zs_program *program = &p->schedule->programs[rank];
        int k = 0;
        while (k < program->n_instructions &&
               (program->instructions[k].op != i->op ||
                program->instructions[k].micro_batch != i->micro_batch))
            k++;
        if (k == program->n_instructions || p->first_items[rank][k].state == IDLE)
            return false;
    }
    return true;
}

/* Starts or ends the instruction if it can; false when it cannot. */
static bool move_on(play *p, item *it)
{
    const zs_op op = instruction_of(p, it)->op;
    const zs_lane lane = zs_op_lanes[op];
    if (it->state == IDLE) {
        if (!waits_are_done(p, it))
            return false;
        it->state = STARTED;
        if (lane == ZS_LANE_COMPUTE)
            compute(p, it, false);
        else if (lane != ZS_LANE_COLLECTIVE)
            transfer(p, it, false);
        else if (op == ZS_OP_REDUCE_GRADS)
            expect(p,
                   p->memories[it->rank].n_backwards == p->n_backwards[it->rank] &&
                       !p->memories[it->rank].accumulating,
                   it, "not all gradients are there");
        return true;
    }
    if (lane == ZS_LANE_COMPUTE) {
        if (!all_in_pass(p, it))
            return false;
        compute(p, it, true);
    } else if (lane == ZS_LANE_COLLECTIVE) {
        if (!all_members_started(p, it))
            return false;
    } else {
        if (it->partner->state != STARTED)
            return false;
        transfer(p, it, true);
        transfer(p, it->partner, true);
        it->partner->state = DONE;
    }
    it->state = DONE;
    return true;
}

static bool matches(const zs_instruction *a, const zs_instruction *b, int rank_of_a)
{
    static const zs_op other[ZS_N_OPS] = {[ZS_OP_RECV_ACT] = ZS_OP_SEND_ACT,
                                          [ZS_OP_SEND_ACT] = ZS_OP_RECV_ACT,
                                          [ZS_OP_RECV_GRAD] = ZS_OP_SEND_GRAD,
                                          [ZS_OP_SEND_GRAD] = ZS_OP_RECV_GRAD};
    return b->op == other[a->op] && b->micro_batch == a->micro_batch && b->peer == rank_of_a;
}

static void open_play(play *p)
{
    zs_error err;
    const zs_schedule *schedule = p->schedule;
    p->n_items = 0;
    for (int rank = 0; rank < schedule->n_ranks; rank++)
        p->n_items += schedule->programs[rank].n_instructions;
    p->items = ZS_NEW(p->arena, item, p->n_items, &err);
    p->first_items = ZS_NEW(p->arena, item *, schedule->n_ranks, &err);
    p->memories = ZS_NEW(p->arena, memory, schedule->n_ranks, &err);
    p->n_forwards = ZS_NEW(p->arena, int, schedule->n_ranks, &err);
    p->n_backwards = ZS_NEW(p->arena, int, schedule->n_ranks, &err);
    int n = 0;
    for (int rank = 0; rank < schedule->n_ranks; rank++) {
        const zs_program *program = &schedule->programs[rank];
        p->first_items[rank] = &p->items[n];
        for (int i = 0; i < program->n_instructions; i++) {
            p->items[n++] = (item){.rank = rank, .index = i};
            p->n_forwards[rank] += program->instructions[i].op == ZS_OP_FORWARD;
            p->n_backwards[rank] += program->instructions[i].op == ZS_OP_BACKWARD;
        }
        memory *m = &p->memories[rank];
        m->inputs = ZS_NEW(p->arena, values, program->n_slots, &err);
        m->outputs = ZS_NEW(p->arena, values, program->n_slots, &err);
        m->activations = ZS_NEW(p->arena, int, program->n_slots, &err);
        for (int k = 0; k < program->n_slots; k++)
            m->activations[k] = -1;
    }
    for (int k = 0; k < p->n_items; k++) {
        const zs_instruction *i = instruction_of(p, &p->items[k]);
        if (i->peer < 0)
            continue;
        const zs_program *peer = &schedule->programs[i->peer];
        for (int j = 0; j < peer->n_instructions; j++)
            if (matches(i, &peer->instructions[j], p->items[k].rank))
                p->items[k].partner = &p->first_items[i->peer][j];
    }
}

/* Micro-batches that reach the rank: all of them where its stage meets in backwards. */
static int n_active(const play *p, int rank)
{
    const zs_program *program = &p->schedule->programs[rank];
    const zs_plan_stage *stage = &p->plan->stages[program->stage];
    if (p->schedule->training && zs_stage_meets(stage, ZS_OP_FORWARD))
        return p->schedule->n_micro_batches;
    int n = 0;
    for (int i = 0; i < program->n_instructions; i++)
        n += program->instructions[i].op == ZS_OP_FORWARD;
    return n;
}

/* NULL when every instruction found what it needs, else the first that did not. */
static const char *run_play(zs_arena *arena, const zs_schedule *schedule, const zs_plan *plan,
                            check_rng *rng)
{
    zs_error err;
    play p = {.schedule = schedule, .plan = plan, .arena = arena};
    open_play(&p);
    int n = p.n_items;
    int *open = ZS_NEW(arena, int, n, &err);
    for (int k = 0; k < n; k++)
        open[k] = k;
    while (n > 0 && !p.fault) {
        const int start = (int)check_rng_int(rng, 0, n - 1);
        int k = 0;
        while (k < n && p.items[open[(start + k) % n]].state != DONE &&
               !move_on(&p, &p.items[open[(start + k) % n]]))
            k++;
        if (k == n)
            return "no instruction can go on";
        const int place = (start + k) % n;
        if (p.items[open[place]].state == DONE)
            open[place] = open[--n];
    }
    for (int rank = 0; rank < schedule->n_ranks && !p.fault; rank++)
        if (p.memories[rank].n_forwards != p.n_forwards[rank] ||
            p.memories[rank].n_backwards != p.n_backwards[rank] ||
            p.n_forwards[rank] < n_active(&p, rank) ||
            (schedule->training && p.n_backwards[rank] < n_active(&p, rank)))
            return "a rank has not done all its micro-batches";
    return p.fault;
}

static zs_schedule random_schedule(zs_arena *arena, zs_plan *plan, check_rng *rng)
{
    *plan = check_rng_plan(rng, arena, 5, 4, 9);
    const bool tied = check_rng_int(rng, 0, 1);
    const bool eval = check_rng_int(rng, 0, 3) == 0;
    return check_schedule(arena, plan, tied,
                          eval ? (int)check_rng_int(rng, 1, plan->job.global_batch) : 0);
}

static void check_built(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    zs_error err;
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, &err))
        return;
    zs_plan plan;
    zs_schedule s = random_schedule(arena, &plan, &rng);
    CHECK(zs_schedule_check(&s, &plan, &err), "seed %" PRIu64 ": %s: %s", seed,
          check_plan_text(arena, &plan), err.message);
    for (int k = 0; k < 3; k++) {
        const char *fault = run_play(arena, &s, &plan, &rng);
        CHECK(!fault, "seed %" PRIu64 ": %s: %s", seed, check_plan_text(arena, &plan), fault);
    }
    zs_arena_close(&arena);
}

/* Do the waits of `from` lead to `to`? */
static bool leads_to(const zs_program *program, int from, int to)
{
    if (from <= to)
        return from == to;
    for (int k = 0; k < program->instructions[from].n_waits; k++)
        if (leads_to(program, program->instructions[from].waits[k], to))
            return true;
    return false;
}

/* Without a wait the check fails, and some order of play often shows why. */
static void check_missing_wait(uint64_t seed)
{
    static int n_shown;
    check_rng rng = check_rng_from(seed);
    zs_error err;
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, &err))
        return;
    zs_plan plan = check_rng_plan(&rng, arena, 4, 3, 5);
    zs_schedule s = check_schedule(arena, &plan, true, 0);
    const int rank = (int)check_rng_int(&rng, 0, s.n_ranks - 1);
    zs_program *program = &s.programs[rank];
    for (int i = 0; i < program->n_instructions; i++) {
        const zs_instruction kept = program->instructions[i];
        for (int k = 0; k < kept.n_waits; k++) {
            check_remove_wait(arena, &s, rank, i, kept.waits[k]);
            const bool implied = leads_to(program, i, kept.waits[k]);
            CHECK(zs_schedule_check(&s, &plan, &err) == implied,
                  "seed %" PRIu64 ": %s: rank %d, %d without %d is %s", seed,
                  check_plan_text(arena, &plan), rank, i, kept.waits[k],
                  implied ? "the same" : "wrong");
            n_shown += !implied && run_play(arena, &s, &plan, &rng);
            program->instructions[i] = kept;
        }
    }
    if (seed == N_PLANS - 1)
        CHECK(n_shown > 500, "%d shown", n_shown);
    zs_arena_close(&arena);
}

/* One field of one instruction is another, or one instruction is missing. */
static void check_broken(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    zs_error err;
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, &err))
        return;
    zs_plan plan;
    zs_schedule s = random_schedule(arena, &plan, &rng);
    int rank = 0;
    do
        rank = (int)check_rng_int(&rng, 0, s.n_ranks - 1);
    while (s.programs[rank].n_instructions == 0);
    zs_program *program = &s.programs[rank];
    const int index = (int)check_rng_int(&rng, 0, program->n_instructions - 1);
    zs_instruction *i = &program->instructions[index];
    const bool of_step = i->micro_batch < 0;
    int kind = (int)check_rng_int(&rng, 0, 6);
    const int by = check_rng_int(&rng, 0, 1) ? 1 : -1;
    char text[ZS_INSTRUCTION_TEXT_SIZE];
    zs_instruction_text(text, i);
    if (of_step && (kind == 3 || kind == 4))
        kind = 0; /* it has no samples */
    switch (kind) {
    case 0:
        i->op = (zs_op)((i->op + check_rng_int(&rng, 1, ZS_N_OPS - 1)) % ZS_N_OPS);
        break;
    case 1:
        i->micro_batch += by;
        break;
    case 2:
        i->peer += by;
        break;
    case 3:
        i->first_sample += by;
        break;
    case 4:
        i->end_sample += by;
        break;
    case 5:
        i->slot += by;
        break;
    default:
        check_remove(arena, &s, rank, index);
        break;
    }
    CHECK(!zs_schedule_check(&s, &plan, &err) && err.code == ZS_ERR_INPUT &&
              (strstr(err.message, "rank ") || strstr(err.message, "deadlock")),
          "seed %" PRIu64 ": %s: rank %d, instruction %d (%s), change %d", seed,
          check_plan_text(arena, &plan), rank, index, text, kind);
    zs_arena_close(&arena);
}

/* A list in another order is refused or right. */
static void check_moved(uint64_t seed)
{
    static int n_right, n_refused;
    check_rng rng = check_rng_from(seed);
    zs_error err;
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, &err))
        return;
    zs_plan plan;
    zs_schedule s = random_schedule(arena, &plan, &rng);
    const int rank = (int)check_rng_int(&rng, 0, s.n_ranks - 1);
    const int n = s.programs[rank].n_instructions;
    if (n > 1) {
        const int from = (int)check_rng_int(&rng, 1, n - 1);
        const int to = from - (int)check_rng_int(&rng, 1, from < 4 ? from : 4);
        check_move(arena, &s, rank, from, to);
        if (zs_schedule_check(&s, &plan, &err)) {
            n_right++;
            const char *fault = run_play(arena, &s, &plan, &rng);
            CHECK(!fault, "seed %" PRIu64 ": %s: rank %d, %d before %d: %s", seed,
                  check_plan_text(arena, &plan), rank, from, to, fault);
        } else {
            n_refused++;
        }
    }
    if (seed == N_PLANS - 1)
        CHECK(n_right > 10 && n_refused > 10, "%d right, %d refused", n_right, n_refused);
    zs_arena_close(&arena);
}

int main(void)
{
    check_seeds(check_built, 0, N_PLANS);
    check_seeds(check_missing_wait, 0, N_PLANS);
    check_seeds(check_broken, 0, N_PLANS);
    check_seeds(check_moved, 0, N_PLANS);
    return check_done();
}
