#include "tests/support/files.h"
#include "tests/support/schedules.h"

#include <stdlib.h>
#include <string.h>

static zs_arena *arena;
static zs_error err;

/* "0@0 1@0(0) ...": index, slot and waits of each instruction of a rank. */
static const char *waits_text(const zs_schedule *schedule, int rank)
{
    const zs_program *program = &schedule->programs[rank];
    const char *text = "";
    for (int i = 0; i < program->n_instructions; i++) {
        const zs_instruction *instruction = &program->instructions[i];
        text = zs_arena_printf(arena, &err, "%s%s%d@%d", text, i ? " " : "", i, instruction->slot);
        for (int k = 0; k < instruction->n_waits; k++)
            text = zs_arena_printf(arena, &err, "%s%s%d%s", text, k ? "," : "(",
                                   instruction->waits[k], k + 1 < instruction->n_waits ? "" : ")");
    }
    return text;
}

static void check_passes(const zs_schedule *schedule, const zs_plan *plan)
{
    CHECK(zs_schedule_check(schedule, plan, &err), "%s: %s", check_plan_text(arena, plan),
          err.message);
}

static void test_one_rank(void)
{
    zs_plan plan = check_plan(arena, "2", "2+1", ZS_SCHEDULE_1F1B);
    zs_schedule s = check_schedule(arena, &plan, true, 0);
    CHECK_STRING(check_schedule_text(arena, &s),
                 "0: F0[0,2) B0[0,2) F1[0,1) B1[0,1) reduce_grads grad_norm step gather_params\n");
    CHECK_STRING(waits_text(&s, 0), "0@0 1@0(0) 2@0(1) 3@0(2,1) 4@-1(3) 5@-1(4) 6@-1(5) 7@-1(6)");
    CHECK(!s.tied && s.training && s.programs[0].n_slots == 1, "one stage shares nothing");
    check_passes(&s, &plan);
}

static void test_1f1b(void)
{
    zs_plan plan = check_plan(arena, "1|1", "1+1+1+1", ZS_SCHEDULE_1F1B);
    zs_schedule s = check_schedule(arena, &plan, true, 0);
    CHECK_STRING(
        check_schedule_text(arena, &s),
        "0: F0[0,1) a0>1[0,1) F1[0,1) a1>1[0,1) g0<1[0,1) B0[0,1) F2[0,1) a2>1[0,1) g1<1[0,1) "
        "B1[0,1) F3[0,1) a3>1[0,1) g2<1[0,1) B2[0,1) g3<1[0,1) B3[0,1) "
        "reduce_grads reduce_tied grad_norm step gather_params gather_tied\n"
        "1: a0<0[0,1) F0[0,1) B0[0,1) g0>0[0,1) a1<0[0,1) F1[0,1) B1[0,1) g1>0[0,1) a2<0[0,1) "
        "F2[0,1) B2[0,1) g2>0[0,1) a3<0[0,1) F3[0,1) B3[0,1) g3>0[0,1) "
        "reduce_grads reduce_tied grad_norm step gather_params gather_tied\n");
    /* F2 overwrites slot 0: after B0 (5) and after the send of its output (1); g2 (12) overwrites
     * the even gradient buffer: after B0 (5) */
    CHECK_STRING(waits_text(&s, 0),
                 "0@0 1@0(0) 2@1 3@1(2) 4@0 5@0(0,4) 6@0(5,1) 7@0(6) 8@1 9@1(2,8,5) 10@1(9,3) "
                 "11@1(10) 12@0(5) 13@0(6,12,9) 14@1(9) 15@1(10,14,13) 16@-1(15) 17@-1(16) "
                 "18@-1(17) 19@-1(18) 20@-1(19) 21@-1(20)");
    /* a1 (4) overwrites the one slot: after B0 (2); B2 (10) overwrites the even gradients: after
     * their send (3) */
    CHECK_STRING(waits_text(&s, 1),
                 "0@0 1@0(0) 2@0(1) 3@0(2) 4@0(2) 5@0(4) 6@0(5,2) 7@0(6) 8@0(6) 9@0(8) "
                 "10@0(9,6,3) 11@0(10) 12@0(10) 13@0(12) 14@0(13,10,7) 15@0(14) 16@-1(14) "
                 "17@-1(16) 18@-1(17) 19@-1(18) 20@-1(19) 21@-1(20)");
    CHECK(s.programs[0].n_slots == 2 && s.programs[1].n_slots == 1, "in flight 2, 1");
    check_passes(&s, &plan);
}

static void test_gpipe(void)
{
    zs_plan plan = check_plan(arena, "1|1", "1+1+1", ZS_SCHEDULE_GPIPE);
    zs_schedule s = check_schedule(arena, &plan, false, 0);
    CHECK_STRING(check_schedule_text(arena, &s),
                 "0: F0[0,1) a0>1[0,1) F1[0,1) a1>1[0,1) F2[0,1) a2>1[0,1) g0<1[0,1) B0[0,1) "
                 "g1<1[0,1) B1[0,1) g2<1[0,1) B2[0,1) reduce_grads grad_norm step gather_params\n"
                 "1: a0<0[0,1) F0[0,1) a1<0[0,1) F1[0,1) a2<0[0,1) F2[0,1) B0[0,1) g0>0[0,1) "
                 "B1[0,1) g1>0[0,1) B2[0,1) g2>0[0,1) reduce_grads grad_norm step gather_params\n");
    CHECK(s.programs[0].n_slots == 3 && s.programs[1].n_slots == 3, "all in flight");
    check_passes(&s, &plan);
}

/* A rank of one stage meets two of the next, and in the smaller micro-batch others than before. */
static void test_uneven_cut(void)
{
    zs_plan plan = check_plan(arena, "2+1|1+1+1", "3+3+2", ZS_SCHEDULE_1F1B);
    zs_schedule s = check_schedule(arena, &plan, false, 0);
    CHECK_STRING(
        check_schedule_text(arena, &s),
        "0: F0[0,2) a0>2[0,1) a0>3[1,2) F1[0,2) a1>2[0,1) a1>3[1,2) g0<2[0,1) g0<3[1,2) B0[0,2) "
        "F2[0,1) a2>2[0,1) g1<2[0,1) g1<3[1,2) B1[0,2) g2<2[0,1) B2[0,1) "
        "reduce_grads grad_norm step gather_params\n"
        "1: F0[2,3) a0>4[2,3) F1[2,3) a1>4[2,3) g0<4[2,3) B0[2,3) F2[1,2) a2>3[1,2) g1<4[2,3) "
        "B1[2,3) g2<3[1,2) B2[1,2) reduce_grads grad_norm step gather_params\n"
        "2: a0<0[0,1) F0[0,1) B0[0,1) g0>0[0,1) a1<0[0,1) F1[0,1) B1[0,1) g1>0[0,1) a2<0[0,1) "
        "F2[0,1) B2[0,1) g2>0[0,1) reduce_grads grad_norm step gather_params\n"
        "3: a0<0[1,2) F0[1,2) B0[1,2) g0>0[1,2) a1<0[1,2) F1[1,2) B1[1,2) g1>0[1,2) a2<1[1,2) "
        "F2[1,2) B2[1,2) g2>1[1,2) reduce_grads grad_norm step gather_params\n"
        "4: a0<1[2,3) F0[2,3) B0[2,3) g0>1[2,3) a1<1[2,3) F1[2,3) B1[2,3) g1>1[2,3) "
        "reduce_grads grad_norm step gather_params\n");
    check_passes(&s, &plan);
}

static void test_rank_without_samples(void)
{
    zs_plan plan = check_plan(arena, "0+2|2+0", "2", ZS_SCHEDULE_1F1B);
    zs_schedule s = check_schedule(arena, &plan, true, 0);
    CHECK_STRING(check_schedule_text(arena, &s),
                 "0: reduce_grads reduce_tied grad_norm step gather_params gather_tied\n"
                 "1: F0[0,2) a0>2[0,2) g0<2[0,2) B0[0,2) "
                 "reduce_grads reduce_tied grad_norm step gather_params gather_tied\n"
                 "2: a0<1[0,2) F0[0,2) B0[0,2) g0>1[0,2) "
                 "reduce_grads reduce_tied grad_norm step gather_params gather_tied\n"
                 "3: reduce_grads reduce_tied grad_norm step gather_params gather_tied\n");
    CHECK(s.programs[0].n_slots == 0 && s.programs[1].n_slots == 1, "slots");
    CHECK_STRING(waits_text(&s, 0), "0@-1 1@-1(0) 2@-1(1) 3@-1(2) 4@-1(3) 5@-1(4)");
    check_passes(&s, &plan);
}

/* The same where the stages meet: ZeRO 2 in backwards, ZeRO 3 in forwards too, also of an
 * evaluation. */
static void test_meetings(void)
{
    zs_plan plan = check_plan(arena, "0+2|2+0", "2+1", ZS_SCHEDULE_1F1B);
    plan.stages[0].zero_stage = 3;
    plan.stages[1].zero_stage = 2;
    zs_schedule s = check_schedule(arena, &plan, false, 0);
    CHECK_STRING(check_schedule_text(arena, &s),
                 "0: F0[0,0) F1[0,0) B0[0,0) B1[0,0) reduce_grads grad_norm step gather_params\n"
                 "1: F0[0,2) a0>2[0,2) F1[0,1) a1>2[0,1) g0<2[0,2) B0[0,2) g1<2[0,1) B1[0,1) "
                 "reduce_grads grad_norm step gather_params\n"
                 "2: a0<1[0,2) F0[0,2) B0[0,2) g0>1[0,2) a1<1[0,1) F1[0,1) B1[0,1) g1>1[0,1) "
                 "reduce_grads grad_norm step gather_params\n"
                 "3: B0[2,2) B1[1,1) reduce_grads grad_norm step gather_params\n");
    CHECK(s.programs[0].n_slots == 0 && s.programs[3].n_slots == 0, "slots");
    CHECK_STRING(waits_text(&s, 0), "0@-1 1@-1 2@-1 3@-1(2) 4@-1(3) 5@-1(4) 6@-1(5) 7@-1(6)");
    check_passes(&s, &plan);
    s = check_schedule(arena, &plan, false, 2);
    CHECK_STRING(check_schedule_text(arena, &s), "0: F0[0,0)\n"
                                                 "1: F0[0,2) a0>2[0,2)\n"
                                                 "2: a0<1[0,2) F0[0,2)\n"
                                                 "3:\n");
    check_passes(&s, &plan);
    plan = check_plan(arena, "2", "2", ZS_SCHEDULE_1F1B);
    plan.stages[0].zero_stage = 3;
    CHECK(!zs_stage_meets(&plan.stages[0], ZS_OP_FORWARD), "one rank meets nobody");
}

static void test_tied_middle_stage(void)
{
    zs_plan plan = check_plan(arena, "1|1|1", "1", ZS_SCHEDULE_1F1B);
    zs_schedule s = check_schedule(arena, &plan, true, 0);
    CHECK_STRING(check_schedule_text(arena, &s),
                 "0: F0[0,1) a0>1[0,1) g0<1[0,1) B0[0,1) "
                 "reduce_grads reduce_tied grad_norm step gather_params gather_tied\n"
                 "1: a0<0[0,1) F0[0,1) a0>2[0,1) g0<2[0,1) B0[0,1) g0>0[0,1) "
                 "reduce_grads grad_norm step gather_params\n"
                 "2: a0<1[0,1) F0[0,1) B0[0,1) g0>1[0,1) "
                 "reduce_grads reduce_tied grad_norm step gather_params gather_tied\n");
    check_passes(&s, &plan);
}

static void test_eval(void)
{
    zs_plan plan = check_plan(arena, "2+1|1+1+1", "3+3+2", ZS_SCHEDULE_1F1B);
    zs_schedule s = check_schedule(arena, &plan, true, 5);
    CHECK_STRING(check_schedule_text(arena, &s),
                 "0: F0[0,2) a0>2[0,1) a0>3[1,2) F1[0,1) a1>2[0,1)\n"
                 "1: F0[2,3) a0>4[2,3) F1[1,2) a1>3[1,2)\n"
                 "2: a0<0[0,1) F0[0,1) a1<0[0,1) F1[0,1)\n"
                 "3: a0<0[1,2) F0[1,2) a1<1[1,2) F1[1,2)\n"
                 "4: a0<1[2,3) F0[2,3)\n");
    CHECK(!s.training && !s.tied && s.n_micro_batches == 2 && s.micro_batches[0] == 3 &&
              s.micro_batches[1] == 2,
          "3 + 2 samples");
    CHECK_STRING(waits_text(&s, 2), "0@0 1@0(0) 2@0(1) 3@0(2)");
    check_passes(&s, &plan);
    for (int n = 1; n <= 8; n++) {
        s = check_schedule(arena, &plan, false, n);
        check_passes(&s, &plan);
    }
    CHECK_FAILS(zs_schedule_build_eval(&s, arena, &plan, 0, &err), &err, ZS_ERR_INPUT,
                "evaluation over 0 samples");
    CHECK_FAILS(zs_schedule_build_eval(&s, arena, &plan, 9, &err), &err, ZS_ERR_INPUT,
                "1 to the global batch of 8");
}

/* The buffers of the training step must do for an evaluation, also where the rank is idle in most
 * of the step's micro-batches: rank 1 has samples in the first one only. */
static void test_eval_needs_no_more_slots(void)
{
    zs_plan plan = check_plan(arena, "2+1|3", "3+1+1+1", ZS_SCHEDULE_GPIPE);
    zs_schedule step = check_schedule(arena, &plan, false, 0);
    zs_schedule eval = check_schedule(arena, &plan, false, 6);
    CHECK(step.programs[1].n_slots == 1 && eval.programs[1].n_slots == 1, "%d and %d slots",
          step.programs[1].n_slots, eval.programs[1].n_slots);
    check_passes(&step, &plan);
    check_passes(&eval, &plan);
}

/* Sends that wait for their receive never stop each other, however long the pipeline and the step:
 * the order in which both sides sent first and received later would. */
static void test_no_deadlock(void)
{
    static const char *const samples[] = {"2|2", "2|2|2", "2|2|2|2", "1+1|2|0+2|1+1"};
    static const char *const micro_batches[] = {"2", "2+2", "2+2+2+2+2+2+2+1"};
    for (size_t a = 0; a < sizeof samples / sizeof *samples; a++)
        for (size_t b = 0; b < sizeof micro_batches / sizeof *micro_batches; b++)
            for (int kind = 0; kind < ZS_N_SCHEDULES; kind++) {
                zs_plan plan =
                    check_plan(arena, samples[a], micro_batches[b], (zs_schedule_kind)kind);
                zs_schedule s = check_schedule(arena, &plan, true, 0);
                check_passes(&s, &plan);
            }
}

static void test_large(void)
{
    const char *samples = "1";
    for (int stage = 1; stage < 16; stage++)
        samples = zs_arena_printf(arena, &err, "%s|%s", samples, stage % 2 ? "0+1+0" : "1");
    const char *micro_batches = "1";
    for (int j = 1; j < 512; j++)
        micro_batches = zs_arena_printf(arena, &err, "%s+1", micro_batches);
    zs_plan plan = check_plan(arena, samples, micro_batches, ZS_SCHEDULE_1F1B);
    zs_schedule s = check_schedule(arena, &plan, true, 0);
    CHECK(s.n_ranks == 32 && s.programs[0].n_slots == 16, "%d ranks", s.n_ranks);
    check_passes(&s, &plan);
}

/* Each golden file has a first line "plan SAMPLES MICRO_BATCHES SCHEDULE [tied] [eval N]", then
 * what is printed. */
static void test_golden(const char *folder)
{
    static const char *const names[] = {"1f1b-4-stages.txt", "gpipe-uneven.txt",
                                        "1f1b-idle-ranks.txt", "eval-3-stages.txt"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const char *path = zs_arena_printf(arena, &err, "%s/schedules/%s", folder, names[k]);
        size_t size = 0;
        char *text = check_read_file(path, &size);
        if (!CHECK(text != NULL, "cannot read %s", path))
            continue;
        char samples[64], micro_batches[64], kind[16], option[2][16] = {"", ""};
        char *lines = strchr(text, '\n');
        int n = sscanf(text, "plan %63s %63s %15s %15[a-z] %15[0-9]", samples, micro_batches, kind,
                       option[0], option[1]);
        if (CHECK(n >= 3 && lines, "%s: first line", path)) {
            zs_plan plan =
                check_plan(arena, samples, micro_batches,
                           strcmp(kind, "gpipe") == 0 ? ZS_SCHEDULE_GPIPE : ZS_SCHEDULE_1F1B);
            zs_schedule s =
                check_schedule(arena, &plan, strcmp(option[0], "tied") == 0, atoi(option[1]));
            CHECK_STRING(check_schedule_text(arena, &s), lines + 1);
            check_passes(&s, &plan);
        }
        free(text);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2 || !zs_arena_open(&arena, &err))
        return 1;
    test_one_rank();
    test_1f1b();
    test_gpipe();
    test_uneven_cut();
    test_rank_without_samples();
    test_meetings();
    test_tied_middle_stage();
    test_eval();
    test_eval_needs_no_more_slots();
    test_no_deadlock();
    test_large();
    test_golden(argv[1]);
    zs_arena_close(&arena);
    return check_done();
}
