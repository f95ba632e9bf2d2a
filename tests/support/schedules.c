#include "tests/support/schedules.h"

#include <stdlib.h>
#include <string.h>

static void end_unless(bool ok, const char *message)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", message);
    exit(1);
}

zs_schedule check_schedule(zs_arena *arena, const zs_plan *plan, bool tied, int n_eval)
{
    zs_error err;
    zs_schedule schedule;
    bool ok = n_eval ? zs_schedule_build_eval(&schedule, arena, plan, n_eval, &err)
                     : zs_schedule_build(&schedule, arena, plan, tied, &err);
    end_unless(ok, err.message);
    return schedule;
}

const char *check_schedule_text(zs_arena *arena, const zs_schedule *schedule)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    end_unless(out, "no memory stream");
    zs_schedule_print(out, schedule);
    fclose(out);
    zs_error err;
    const char *copy = zs_arena_strdup(arena, text, &err);
    free(text);
    end_unless(copy, err.message);
    return copy;
}

int check_find(const zs_schedule *schedule, int rank, const char *text)
{
    const zs_program *program = &schedule->programs[rank];
    for (int i = 0; i < program->n_instructions; i++) {
        char found[ZS_INSTRUCTION_TEXT_SIZE];
        zs_instruction_text(found, &program->instructions[i]);
        if (strncmp(found, text, strlen(text)) == 0)
            return i;
    }
    fprintf(stderr, "rank %d has no %s\n", rank, text);
    exit(1);
}

void check_reorder(zs_arena *arena, zs_schedule *schedule, int rank, const int *order, int n)
{
    zs_error err;
    zs_program *program = &schedule->programs[rank];
    int *place = ZS_NEW(arena, int, program->n_instructions, &err);
    zs_instruction *list = ZS_NEW(arena, zs_instruction, n, &err);
    end_unless(place && list, err.message);
    for (int i = 0; i < program->n_instructions; i++)
        place[i] = -1;
    for (int i = 0; i < n; i++)
        place[order[i]] = i;
    for (int i = 0; i < n; i++) {
        const zs_instruction *from = &program->instructions[order[i]];
        int *waits = ZS_NEW(arena, int, from->n_waits, &err);
        end_unless(waits, err.message);
        list[i] = *from;
        list[i].n_waits = 0;
        list[i].waits = waits;
        for (int k = 0; k < from->n_waits; k++)
            if (place[from->waits[k]] >= 0)
                waits[list[i].n_waits++] = place[from->waits[k]];
    }
    program->instructions = list;
    program->n_instructions = n;
}

void check_move(zs_arena *arena, zs_schedule *schedule, int rank, int from, int to)
{
    zs_error err;
    const int n = schedule->programs[rank].n_instructions;
    int *order = ZS_NEW(arena, int, n, &err);
    end_unless(order, err.message);
    int k = 0;
    for (int i = 0; i < n; i++) {
        if (i == to)
            order[k++] = from;
        if (i != from)
            order[k++] = i;
    }
    check_reorder(arena, schedule, rank, order, n);
}

void check_remove(zs_arena *arena, zs_schedule *schedule, int rank, int index)
{
    zs_error err;
    const int n = schedule->programs[rank].n_instructions;
    int *order = ZS_NEW(arena, int, n, &err);
    end_unless(order, err.message);
    for (int i = 0; i + 1 < n; i++)
        order[i] = i < index ? i : i + 1;
    check_reorder(arena, schedule, rank, order, n - 1);
}

void check_remove_wait(zs_arena *arena, zs_schedule *schedule, int rank, int index, int wait)
{
    zs_error err;
    zs_instruction *instruction = &schedule->programs[rank].instructions[index];
    int *waits = ZS_NEW(arena, int, instruction->n_waits, &err);
    end_unless(waits, err.message);
    int n = 0;
    for (int k = 0; k < instruction->n_waits; k++)
        if (instruction->waits[k] != wait)
            waits[n++] = instruction->waits[k];
    end_unless(n + 1 == instruction->n_waits, "no such wait");
    instruction->n_waits = n;
    instruction->waits = waits;
}

void check_add_wait(zs_arena *arena, zs_schedule *schedule, int rank, int index, int wait)
{
    zs_error err;
    zs_instruction *instruction = &schedule->programs[rank].instructions[index];
    int *waits = ZS_NEW(arena, int, instruction->n_waits + 1, &err);
    end_unless(waits, err.message);
    memcpy(waits, instruction->waits, (size_t)instruction->n_waits * sizeof *waits);
    waits[instruction->n_waits++] = wait;
    instruction->waits = waits;
}
