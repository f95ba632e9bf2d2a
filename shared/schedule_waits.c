#include "shared/schedule_checker.h"

#include <string.h>

/* Along the waits of `from`: is `to` reached? Breadth first, since in a good list it is near.
 * Instructions before `lowest` are not looked at. parents lead back from `to`. */
static bool reaches(zs_checker *c, int from, int to, int lowest)
{
    const zs_program *program = c->program;
    int head = 0, tail = 0;
    c->queue[tail++] = from;
    c->visited[from] = ++c->n_searches;
    c->parents[from] = ZS_NONE;
    while (head < tail) {
        const int at = c->queue[head++];
        const zs_instruction *instruction = &program->instructions[at];
        for (int k = 0; k < instruction->n_waits; k++) {
            const int wait = instruction->waits[k];
            if (wait < lowest || wait >= program->n_instructions ||
                c->visited[wait] == c->n_searches)
                continue;
            c->parents[wait] = at;
            if (wait == to)
                return true;
            c->visited[wait] = c->n_searches;
            c->queue[tail++] = wait;
        }
    }
    return false;
}

/* After reaches(wait, index): index waits for wait, and wait for index. */
static bool fail_with_cycle(const zs_checker *c, int index)
{
    char cycle[ZS_ERROR_MESSAGE_SIZE / 2] = "";
    size_t length = 0;
    for (int at = index; at != ZS_NONE && length < sizeof cycle - 100; at = c->parents[at])
        length += (size_t)snprintf(cycle + length, sizeof cycle - length, "%d (%s) <- ", at,
                                   zs_checker_text(c->program, at));
    return ZS_FAIL_AT(c, index, "cycle of waits: %s%d", cycle, index);
}

static bool check_wait_indices(zs_checker *c)
{
    for (int i = 0; i < c->program->n_instructions; i++)
        for (int k = 0; k < c->program->instructions[i].n_waits; k++) {
            const int wait = c->program->instructions[i].waits[k];
            if (wait >= 0 && wait < i)
                continue;
            if (wait < 0 || wait >= c->program->n_instructions)
                return ZS_FAIL_AT(c, i, "waits for instruction %d, the list has %d", wait,
                                  c->program->n_instructions);
            if (wait == i)
                return ZS_FAIL_AT(c, i, "cycle of waits: it waits for itself");
            if (reaches(c, wait, i, 0))
                return fail_with_cycle(c, i);
            return ZS_FAIL_AT(c, i, "waits for instruction %d (%s), which comes later", wait,
                              zs_checker_text(c->program, wait));
        }
    return true;
}

/* `index` must be complete only after `before` is: by its waits, or theirs. */
static bool check_order(zs_checker *c, int index, int before, const char *why)
{
    if (before == ZS_NONE || reaches(c, index, before, before))
        return true;
    return ZS_FAIL_AT(c, index, "does not wait for instruction %d (%s), %s", before,
                      zs_checker_text(c->program, before), why);
}

static bool check_order_of_all(zs_checker *c, int index, int micro_batch, zs_op op, const char *why)
{
    if (micro_batch == ZS_NONE)
        return true;
    for (int i = c->progress[micro_batch].heads[op]; i != ZS_NONE; i = c->next[i])
        if (!check_order(c, index, i, why))
            return false;
    return true;
}

/* Do the list's waits guard data and buffers? Per slot an input buffer (recv_act) and an output
 * buffer (send_act), both alive until the backward; two buffers each for incoming and outgoing
 * gradients, used by even and odd micro-batches. */
static bool check_waits(zs_checker *c)
{
    int last_backward = ZS_NONE, last_of_step = ZS_NONE;
    int last_of_parity[2] = {ZS_NONE, ZS_NONE}; /* micro-batch whose backward came last */
    for (int i = 0; i < c->program->n_instructions; i++) {
        const zs_instruction *instruction = &c->program->instructions[i];
        const int mb = instruction->micro_batch;
        if (zs_op_is_of_step(instruction->op)) {
            if (!check_order(c, i, last_of_step, "which comes before it in a step") ||
                !check_order(c, i, last_backward, "whose gradients it needs"))
                return false;
            last_of_step = i;
            continue;
        }
        if (!zs_op_is_transfer(instruction->op) &&
            instruction->first_sample == instruction->end_sample) {
            /* it moves no data of its own, but shares the buffer of a layer's gradients */
            if (instruction->op == ZS_OP_BACKWARD) {
                if (!check_order(c, i, last_backward, "which accumulates into the same gradients"))
                    return false;
                last_backward = i;
            }
            continue;
        }
        const zs_progress *p = &c->progress[mb];
        const zs_progress *before = p->previous == ZS_NONE ? NULL : &c->progress[p->previous];
        const int freed = !before                 ? ZS_NONE
                          : c->schedule->training ? before->backward
                                                  : before->forward;
        const int other = last_of_parity[mb & 1];
        bool ok = true;
        switch (instruction->op) {
        case ZS_OP_RECV_ACT:
            ok = check_order(c, i, freed, "whose slot it overwrites");
            break;
        case ZS_OP_FORWARD:
            ok =
                check_order_of_all(c, i, mb, ZS_OP_RECV_ACT, "whose samples it reads") &&
                check_order(c, i, freed, "whose slot it overwrites") &&
                check_order_of_all(c, i, p->previous, ZS_OP_SEND_ACT, "whose buffer it overwrites");
            break;
        case ZS_OP_SEND_ACT:
            ok = check_order(c, i, p->forward, "whose output it sends");
            break;
        case ZS_OP_RECV_GRAD:
            ok = other == ZS_NONE ||
                 check_order(c, i, c->progress[other].backward, "whose buffer it overwrites");
            break;
        case ZS_OP_BACKWARD:
            ok = check_order(c, i, p->forward, "whose activations it reads") &&
                 check_order_of_all(c, i, mb, ZS_OP_RECV_GRAD, "whose samples it reads") &&
                 check_order(c, i, last_backward, "which accumulates into the same gradients") &&
                 check_order_of_all(c, i, other, ZS_OP_SEND_GRAD, "whose buffer it overwrites");
            last_backward = i;
            last_of_parity[mb & 1] = mb;
            break;
        case ZS_OP_SEND_GRAD:
            ok = check_order(c, i, p->backward, "whose output it sends");
            break;
        default:
            break;
        }
        if (!ok)
            return false;
    }
    return true;
}

bool zs_checker_waits(zs_checker *c)
{
    c->n_searches = 0;
    memset(c->visited, 0, (size_t)c->program->n_instructions * sizeof *c->visited);
    return check_wait_indices(c) && check_waits(c);
}
