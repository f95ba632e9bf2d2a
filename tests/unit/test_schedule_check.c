/* Each rule of zs_schedule_check: a schedule that breaks it is refused, with the right words. */
#include "tests/support/schedules.h"

#include <string.h>

static zs_arena *arena;
static zs_error err;
static zs_plan plan;
static zs_schedule s;

/* A fresh schedule that passes. */
static void begin(const char *samples, const char *micro_batches, zs_schedule_kind kind)
{
    plan = check_plan(arena, samples, micro_batches, kind);
    s = check_schedule(arena, &plan, true, 0);
    CHECK(zs_schedule_check(&s, &plan, &err), "%s: %s", check_plan_text(arena, &plan), err.message);
}

/* Stage 0: rank 0 with [0,2), rank 1 with [2,3); stage 1: rank 2 with [0,1), rank 3 with [1,3). */
static void begin_uneven(void)
{
    begin("2+1|1+2", "3+3", ZS_SCHEDULE_1F1B);
}

static zs_instruction *at(int rank, const char *text)
{
    return &s.programs[rank].instructions[check_find(&s, rank, text)];
}

#define REFUSED(text) CHECK_FAILS(zs_schedule_check(&s, &plan, &err), &err, ZS_ERR_INPUT, text)

static void test_missing(void)
{
    static const struct {
        int rank;
        const char *instruction, *message;
    } cases[] = {
        {0, "a1>3", "rank 0: micro-batch 1 lacks a send_act of its samples [0,2)"},
        {0, "a0>2",
         "rank 0, instruction 1 (a0>3[1,2)): samples do not tile: rank 3 has [1,3), "
         "this rank [0,2), next is 0"},
        {2, "a0<0", "rank 2, instruction 0 (F0[0,1)): samples up to 0 of 1 are received"},
        {3, "a0<1", "rank 3, instruction 1 (F0[1,3)): samples up to 2 of 3 are received"},
        {0, "g1<3", "(B1[0,2)): samples up to 1 of 2 are received"},
        {2, "g1>0", "rank 2: micro-batch 1 lacks a send_grad of its samples [0,1)"},
        {0, "F1", "(a1>2[0,1)): comes before the forward of its micro-batch"},
        {1, "F1", "rank 1, instruction 2 (a1>3[2,3)): comes before the forward of its micro-batch"},
        {0, "B1", "rank 0: micro-batch 1 lacks a backward of its samples [0,2)"},
        {2, "B1", "(g1>0[0,1)): comes before the backward of its micro-batch"},
        {2, "reduce_grads", "(reduce_tied): order of collectives: rank 0 has reduce_grads here"},
        {2, "gather_tied", "rank 2: lacks gather_tied"},
        {0, "grad_norm", "rank 0: lacks grad_norm"},
        {3, "step", "order of collectives: rank 0 has step here"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        begin_uneven();
        check_remove(arena, &s, cases[k].rank, check_find(&s, cases[k].rank, cases[k].instruction));
        REFUSED(cases[k].message);
    }
}

/* The instruction becomes one of micro-batch 0, in its slot 0. */
static void make_first(int rank, const char *text)
{
    zs_instruction *instruction = at(rank, text);
    instruction->micro_batch = instruction->slot = 0;
}

static void move(int rank, const char *from, const char *to)
{
    check_move(arena, &s, rank, check_find(&s, rank, from), check_find(&s, rank, to));
}

static void test_order_of_a_list(void)
{
    begin_uneven();
    move(3, "a0<1", "a0<0"); /* receives of two peers swapped */
    REFUSED("rank 3, instruction 0 (a0<1[2,3)): samples do not tile");
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    move(1, "a0<0", "F1"); /* micro-batch 0 is received when only its forward is over */
    REFUSED("rank 1, instruction 0 (F0[0,1)): samples up to 0 of 1 are received");
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    make_first(1, "a1<0"); /* both receives for micro-batch 0 */
    REFUSED("rank 1, instruction 2 (a0<0[0,1)): comes after the forward that needs it");
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    make_first(0, "g1<1");
    REFUSED("(g0<1[0,1)): comes after the backward that needs it");
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    make_first(1, "F1");
    check_remove(arena, &s, 1, check_find(&s, 1, "a1<0"));
    REFUSED("forward occurs twice, before as instruction 1");
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    make_first(1, "B1");
    REFUSED("backward occurs twice, before as instruction 4");
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    move(1, "reduce_grads", "B1");
    REFUSED("(B1[0,1)): comes after instruction 6 (reduce_grads), which needs its gradients");
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    move(0, "g1<1", "F0");
    REFUSED("rank 0, instruction 0 (g1<1[0,1)): comes before the forward of its micro-batch");
}

static void test_fields(void)
{
    begin_uneven();
    at(0, "a0>2")->peer = 3;
    REFUSED("rank 0, instruction 1 (a0>3[0,1)): samples do not tile: rank 3 has [1,3)");
    begin_uneven();
    at(0, "a0>2")->peer = 1;
    REFUSED("(a0>1[0,1)): peer 1 is not in stage 1");
    begin_uneven();
    at(0, "a0>2")->peer = -1;
    REFUSED("peer -1 is not in stage 1");
    begin_uneven();
    at(0, "a0>2")->op = ZS_OP_RECV_ACT;
    REFUSED("(a0<2[0,1)): stage 0 is the first");
    begin_uneven();
    at(2, "g0>0")->op = ZS_OP_SEND_ACT;
    REFUSED("stage 1 is the last");
    begin_uneven();
    at(0, "a0>2")->end_sample = 2;
    REFUSED("samples do not tile");
    begin_uneven();
    at(0, "F1")->end_sample = 3;
    REFUSED("rank 0, instruction 3 (F1[0,3)): the rank has samples [0,2) of it");
    begin_uneven();
    at(0, "F1")->peer = 2;
    REFUSED("peer 2, expected -1");
    begin_uneven();
    at(0, "F1")->micro_batch = 2;
    REFUSED("there are 2 micro-batches");
    begin_uneven();
    at(0, "F1")->slot = 2;
    REFUSED("slot 2, the rank has 2");
    begin_uneven();
    at(0, "F1")->op = ZS_N_OPS;
    REFUSED("unknown instruction");
    begin_uneven();
    at(0, "step")->slot = 0;
    REFUSED("micro-batch -1, slot 0, peer -1, expected -1 of each");
    begin("0+1|1", "1", ZS_SCHEDULE_1F1B);
    zs_instruction *step = at(0, "step");
    *step = *at(1, "F0");
    s.programs[0].n_slots = 1;
    REFUSED("(F0[0,1)): the rank has no samples in this micro-batch");
}

static void test_whole(void)
{
    begin_uneven();
    s.n_ranks = 3;
    REFUSED("schedule has 3 ranks, the plan 4");
    begin_uneven();
    s.programs[2].stage = 0;
    REFUSED("program 2 is of rank 2, stage 0, expected rank 2, stage 1");
    begin_uneven();
    s.n_micro_batches = 1;
    REFUSED("schedule has 1 micro-batches, the plan 2");
    begin_uneven();
    s.micro_batches[1] = 2;
    REFUSED("micro-batch 1 has 2 samples, the plan 3");
    begin_uneven();
    s.programs[3].n_slots = 2;
    REFUSED("rank 3: 2 micro-batches in flight, at most 1 on stage 1");
    begin_uneven();
    s.training = false;
    REFUSED("an evaluation has none");
    begin_uneven();
    s.tied = false;
    REFUSED("the rank does not share the embedding");
    begin_uneven();
    s = check_schedule(arena, &plan, true, 6);
    s.micro_batches[0] = 1;
    s.micro_batches[1] = 7;
    REFUSED("micro-batch 1 has 7 samples, the plan 3");
    begin("2", "2+1", ZS_SCHEDULE_1F1B);
    s = check_schedule(arena, &plan, true, 3);
    s.micro_batches[1] = 2;
    REFUSED("micro-batches have 4 samples, the plan's 3");
}

static void test_slots(void)
{
    begin("1|1", "1+1+1", ZS_SCHEDULE_1F1B);
    at(0, "F1")->slot = 0;
    REFUSED("rank 0, instruction 2 (F1[0,1)): slot 0 is used twice: micro-batch 0 is in flight");
    begin("1|1", "1+1+1", ZS_SCHEDULE_1F1B);
    move(1, "a1<0", "B0");
    REFUSED("(a1<0[0,1)): slot 0 is used twice: micro-batch 0 is in flight in it");
    begin("1|1", "1+1+1", ZS_SCHEDULE_1F1B);
    at(0, "B0")->slot = 1;
    REFUSED("(B0[0,1)): slot 1, its micro-batch is in slot 0");
}

static void test_collectives(void)
{
    begin_uneven();
    move(2, "reduce_tied", "reduce_grads");
    REFUSED("(reduce_tied): order of collectives: rank 0 has reduce_grads here");
    begin_uneven();
    move(3, "gather_tied", "gather_params");
    REFUSED("rank 3, instruction 16 (gather_tied): order of collectives: rank 0 has gather_params");
    begin_uneven();
    for (int rank = 0; rank < 4; rank++)
        move(rank, "step", "grad_norm");
    REFUSED("(grad_norm): order of the step: grad_norm comes too late");
    begin_uneven();
    at(1, "gather_tied")->op = ZS_OP_GATHER_PARAMS;
    REFUSED("(gather_params): occurs twice");
    begin("1|1|1", "1", ZS_SCHEDULE_1F1B);
    at(1, "gather_params")->op = ZS_OP_GATHER_TIED;
    REFUSED("rank 1, instruction 9 (gather_tied): the rank does not share the embedding");
}

static void test_waits(void)
{
    static const struct {
        int rank;
        const char *instruction, *wait, *message;
    } cases[] = {
        {0, "F2", "B0", "whose slot it overwrites"},
        {0, "F2", "a0>1",
         "rank 0, instruction 6 (F2[0,1)): does not wait for instruction 1 "
         "(a0>1[0,1)), whose buffer it overwrites"},
        {0, "a0>1", "F0", "whose output it sends"},
        {0, "B1", "F1", "whose activations it reads"},
        {0, "B1", "g1<1", "whose samples it reads"},
        {0, "B1", "B0", "which accumulates into the same gradients"},
        {0, "g2<1", "B0", "whose buffer it overwrites"},
        {0, "reduce_grads", "B3", "whose gradients it needs"},
        {0, "reduce_tied", "reduce_grads", "which comes before it in a step"},
        {0, "grad_norm", "reduce_tied", "which comes before it in a step"},
        {0, "step", "grad_norm", "which comes before it in a step"},
        {0, "gather_params", "step", "which comes before it in a step"},
        {1, "a1<0", "B0", "whose slot it overwrites"},
        {1, "F1", "a1<0", "whose samples it reads"},
        {1, "B2", "g0>0", "whose buffer it overwrites"},
        {1, "g1>0", "B1", "whose output it sends"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        begin("1|1", "1+1+1+1", ZS_SCHEDULE_1F1B);
        const int rank = cases[k].rank;
        check_remove_wait(arena, &s, rank, check_find(&s, rank, cases[k].instruction),
                          check_find(&s, rank, cases[k].wait));
        REFUSED(cases[k].message);
    }
    begin("1|1|1", "1+1+1+1", ZS_SCHEDULE_GPIPE);
    s = check_schedule(arena, &plan, true, 4);
    CHECK(zs_schedule_check(&s, &plan, &err), "%s", err.message);
    s.programs[1].n_slots = 1;
    REFUSED("slot 1, the rank has 1");
    begin("1|1|1", "1+1+1+1", ZS_SCHEDULE_1F1B);
    s = check_schedule(arena, &plan, true, 4);
    check_remove_wait(arena, &s, 1, check_find(&s, 1, "F2"), check_find(&s, 1, "a0>2"));
    REFUSED("(a0>2[0,1)), whose buffer it overwrites");
}

static void test_wait_indices(void)
{
    begin("1|1", "1+1", ZS_SCHEDULE_1F1B);
    check_add_wait(arena, &s, 0, check_find(&s, 0, "F0"), check_find(&s, 0, "B0"));
    REFUSED("rank 0, instruction 0 (F0[0,1)): cycle of waits: 0 (F0[0,1)) <- 5 (B0[0,1)) <- 0");
    begin("1|1", "1+1", ZS_SCHEDULE_1F1B);
    check_add_wait(arena, &s, 0, check_find(&s, 0, "F0"), check_find(&s, 0, "B1"));
    REFUSED("cycle of waits: 0 (F0[0,1)) <- 5 (B0[0,1)) <- 7 (B1[0,1)) <- 0");
    begin("1|1", "1+1", ZS_SCHEDULE_1F1B);
    check_add_wait(arena, &s, 0, 3, 3);
    REFUSED("cycle of waits: it waits for itself");
    begin("1|1", "1+1", ZS_SCHEDULE_1F1B);
    check_add_wait(arena, &s, 0, 0, 2);
    REFUSED("(F0[0,1)): waits for instruction 2 (F1[0,1)), which comes later");
    begin("1|1", "1+1", ZS_SCHEDULE_1F1B);
    check_add_wait(arena, &s, 0, 0, -1);
    REFUSED("waits for instruction -1, the list has 14");
    begin("1|1", "1+1", ZS_SCHEDULE_1F1B);
    check_add_wait(arena, &s, 0, 0, 14);
    REFUSED("waits for instruction 14, the list has 14");
}

/* The order of sends and receives is wrong only when both ranks are looked at. */
static void test_transfers_out_of_order(void)
{
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    const int order[] = {2, 3, 0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    check_reorder(arena, &s, 0, order, 14); /* micro-batch 1 first */
    REFUSED("rank 1, instruction 0 (a0<0[0,1)): order of transfers: rank 0 sends a1>1[0,1) here");
}

static void test_deadlocks(void)
{
    /* rank 0 wants the gradient of micro-batch 0 before it forwards 1; rank 1 wants both first */
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    move(0, "g0<1", "F1");
    move(0, "B0", "F1");
    REFUSED("deadlock with every list run in order: rank 0 at 3 (B0[0,1)), waits for rank 1 at 3 "
            "(F1[0,1)), which waits for the first");

    /* posted, rank 1's early receive of a gradient does no harm; but as long as its lane is busy
     * with it, the activations behind it stay away from stage 2 */
    begin("1|1|1", "1+1", ZS_SCHEDULE_GPIPE);
    move(1, "g0<2", "a1<0");
    REFUSED("deadlock with lanes running ahead: ");
    CHECK(strstr(err.message, "rank 1 at 3 (g0<2[0,1))") && strstr(err.message, "rank 2 at "), "%s",
          err.message);

    /* both sides send first and receive later: each list alone is right, and waiting for one's own
     * send is harmless on one side */
    begin("1|1", "1+1", ZS_SCHEDULE_GPIPE);
    move(1, "B0", "a1<0");
    move(1, "g0>0", "a1<0");
    check_add_wait(arena, &s, 1, check_find(&s, 1, "a1<0"), check_find(&s, 1, "g0>0"));
    CHECK(zs_schedule_check(&s, &plan, &err), "%s", err.message);
    check_add_wait(arena, &s, 0, check_find(&s, 0, "g0<1"), check_find(&s, 0, "a1>1"));
    REFUSED("deadlock with every list run in order: rank 0 at 4 (g0<1[0,1)), waits for rank 1 at 4 "
            "(a1<0[0,1)), which waits for the first");
}

/* Rank 1 has no samples in micro-batch 1; the stage's three ranks meet in every pass. */
static void begin_meetings(void)
{
    plan = check_plan(arena, "2+1+0", "3+1", ZS_SCHEDULE_GPIPE);
    plan.stages[0].zero_stage = 3;
    s = check_schedule(arena, &plan, true, 0);
    CHECK(zs_schedule_check(&s, &plan, &err), "%s", err.message);
}

static void test_meetings(void)
{
    begin_meetings();
    check_remove(arena, &s, 2, check_find(&s, 2, "F1"));
    REFUSED("rank 2, instruction 2 (B1[1,1)): comes before the forward of its micro-batch");
    begin_meetings();
    check_remove(arena, &s, 1, check_find(&s, 1, "B1"));
    REFUSED("rank 1: micro-batch 1 lacks a backward of its samples [1,1)");
    begin_meetings();
    move(2, "F1", "F0");
    REFUSED("rank 2, instruction 0 (F1[1,1)): order of meetings: rank 0 has F0[0,2) here");
    begin_meetings();
    move(2, "B0", "F1");
    REFUSED("rank 2, instruction 1 (B0[3,3)): order of meetings: rank 0 has F1[0,1) here");
    begin_meetings();
    at(2, "F1")->slot = 0;
    REFUSED("slot 0, expected -1 where there are no samples");
    begin_meetings();
    at(0, "F1")->first_sample = 1;
    REFUSED("rank 0, instruction 1 (F1[1,1)): slot 1, expected -1 where there are no samples");
    begin_meetings();
    at(0, "F1")->first_sample = 1;
    at(0, "F1")->slot = -1;
    REFUSED("rank 0, instruction 1 (F1[1,1)): the rank has samples [0,1) of it");
    begin_meetings();
    *at(2, "B1") = *at(2, "B0");
    REFUSED("backward occurs twice");
    begin_meetings();
    plan.stages[0].zero_stage = 2; /* forwards without samples are for ZeRO 3 */
    REFUSED("rank 1, instruction 1 (F1[1,1)): the rank has no samples in this micro-batch");
    begin_meetings();
    const int last = check_find(&s, 1, "B1");
    check_remove_wait(arena, &s, 1, last, check_find(&s, 1, "B0"));
    REFUSED("does not wait for instruction 2 (B0[2,3)), which accumulates into the same gradients");

    /* Rank 1 goes into its second forward when the gradient of the first is there, which takes the
     * output of rank 0's second forward, which meets rank 1's. */
    plan = check_plan(arena, "1+1|2", "2+2", ZS_SCHEDULE_GPIPE);
    plan.stages[0].zero_stage = 3;
    s = check_schedule(arena, &plan, false, 0);
    CHECK(zs_schedule_check(&s, &plan, &err), "%s", err.message);
    move(1, "g0<2", "F1");
    CHECK(zs_schedule_check(&s, &plan, &err), "%s", err.message);
    check_add_wait(arena, &s, 1, check_find(&s, 1, "F1"), check_find(&s, 1, "g0<2"));
    REFUSED("deadlock with every list run in order: rank 0 at 2 (F1[0,1)), waits for rank 1 at 3 "
            "(F1[1,2)), waits for rank 2 at 5 (F1[0,2)), which waits for the first");
}

int main(void)
{
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_missing();
    test_order_of_a_list();
    test_fields();
    test_whole();
    test_slots();
    test_collectives();
    test_waits();
    test_wait_indices();
    test_transfers_out_of_order();
    test_deadlocks();
    test_meetings();
    zs_arena_close(&arena);
    return check_done();
}
