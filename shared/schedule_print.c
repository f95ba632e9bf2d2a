#include "shared/schedule.h"

const char *zs_instruction_text(char text[ZS_INSTRUCTION_TEXT_SIZE], const zs_instruction *i)
{
    const int mb = i->micro_batch, first = i->first_sample, end = i->end_sample;
    switch (i->op) {
    case ZS_OP_FORWARD:
    case ZS_OP_BACKWARD:
        snprintf(text, ZS_INSTRUCTION_TEXT_SIZE, "%c%d[%d,%d)", i->op == ZS_OP_FORWARD ? 'F' : 'B',
                 mb, first, end);
        break;
    case ZS_OP_RECV_ACT:
    case ZS_OP_RECV_GRAD:
        snprintf(text, ZS_INSTRUCTION_TEXT_SIZE, "%c%d<%d[%d,%d)",
                 i->op == ZS_OP_RECV_ACT ? 'a' : 'g', mb, i->peer, first, end);
        break;
    case ZS_OP_SEND_ACT:
    case ZS_OP_SEND_GRAD:
        snprintf(text, ZS_INSTRUCTION_TEXT_SIZE, "%c%d>%d[%d,%d)",
                 i->op == ZS_OP_SEND_ACT ? 'a' : 'g', mb, i->peer, first, end);
        break;
    case ZS_OP_REDUCE_GRADS:
    case ZS_OP_REDUCE_TIED:
    case ZS_OP_GRAD_NORM:
    case ZS_OP_STEP:
    case ZS_OP_GATHER_PARAMS:
    case ZS_OP_GATHER_TIED:
        snprintf(text, ZS_INSTRUCTION_TEXT_SIZE, "%s", zs_op_names[i->op]);
        break;
    case ZS_N_OPS:
    default:
        snprintf(text, ZS_INSTRUCTION_TEXT_SIZE, "op %d", (int)i->op);
        break;
    }
    return text;
}

void zs_schedule_print(FILE *out, const zs_schedule *schedule)
{
    for (int rank = 0; rank < schedule->n_ranks; rank++) {
        const zs_program *program = &schedule->programs[rank];
        fprintf(out, "%d:", rank);
        for (int i = 0; i < program->n_instructions; i++) {
            char text[ZS_INSTRUCTION_TEXT_SIZE];
            fprintf(out, " %s", zs_instruction_text(text, &program->instructions[i]));
        }
        fputc('\n', out);
    }
}
