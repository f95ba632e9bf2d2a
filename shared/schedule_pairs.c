#include "shared/schedule_pairs.h"

#include <string.h>

/* A send: instruction `index` of `rank`. */
typedef struct send {
    int rank;
    int index;
} send;

static zs_lane lane_of(const zs_instruction *instruction)
{
    return zs_op_lanes[instruction->op];
}

/* All sends by receiving rank, then sending rank, then place in its list. firsts[rank] is the first
 * to the rank; n_ranks + 1 of them. */
static bool collect_sends(send **out, int64_t **out_firsts, zs_arena *arena,
                          const zs_schedule *schedule, zs_error *err)
{
    int64_t *firsts = ZS_NEW(arena, int64_t, schedule->n_ranks + 1, err);
    int64_t *ends = ZS_NEW(arena, int64_t, schedule->n_ranks + 1, err);
    if (!firsts || !ends)
        return false;
    for (int rank = 0; rank < schedule->n_ranks; rank++)
        for (int i = 0; i < schedule->programs[rank].n_instructions; i++) {
            const zs_instruction *instruction = &schedule->programs[rank].instructions[i];
            if (lane_of(instruction) == ZS_LANE_SEND)
                firsts[instruction->peer + 1]++;
        }
    for (int rank = 0; rank < schedule->n_ranks; rank++)
        firsts[rank + 1] += firsts[rank];
    memcpy(ends, firsts, ((size_t)schedule->n_ranks + 1) * sizeof *ends);
    send *sends = ZS_NEW(arena, send, firsts[schedule->n_ranks], err);
    if (!sends)
        return false;
    for (int rank = 0; rank < schedule->n_ranks; rank++)
        for (int i = 0; i < schedule->programs[rank].n_instructions; i++) {
            const zs_instruction *instruction = &schedule->programs[rank].instructions[i];
            if (lane_of(instruction) == ZS_LANE_SEND)
                sends[ends[instruction->peer]++] = (send){rank, i};
        }
    *out = sends;
    *out_firsts = firsts;
    return true;
}

static bool fail_pair(int rank, int index, const zs_instruction *receive, int peer,
                      const zs_instruction *sent, zs_error *err)
{
    char text[ZS_INSTRUCTION_TEXT_SIZE], other[ZS_INSTRUCTION_TEXT_SIZE];
    return ZS_FAIL(err, ZS_ERR_INPUT,
                   "rank %d, instruction %d (%s): order of transfers: rank %d sends %s here", rank,
                   index, zs_instruction_text(text, receive), peer,
                   sent ? zs_instruction_text(other, sent) : "nothing");
}

bool zs_schedule_pairs(int64_t **first_ids, int64_t **partner_of, zs_arena *arena,
                       const zs_schedule *schedule, zs_error *err)
{
    const int n_ranks = schedule->n_ranks;
    send *sends = NULL;
    int64_t *firsts = NULL;
    int64_t *next_from = ZS_NEW(arena, int64_t, n_ranks, err);
    int64_t *ids = ZS_NEW(arena, int64_t, n_ranks + 1, err);
    if (!next_from || !ids || !collect_sends(&sends, &firsts, arena, schedule, err))
        return false;
    for (int rank = 0; rank < n_ranks; rank++)
        ids[rank + 1] = ids[rank] + schedule->programs[rank].n_instructions;
    int64_t *partners = ZS_NEW(arena, int64_t, ids[n_ranks], err);
    if (!partners)
        return false;
    memset(partners, 0xff, (size_t)ids[n_ranks] * sizeof *partners); /* -1 */
    for (int rank = 0; rank < n_ranks; rank++) {
        const zs_program *program = &schedule->programs[rank];
        for (int64_t k = firsts[rank + 1] - 1; k >= firsts[rank]; k--)
            next_from[sends[k].rank] = k;
        for (int i = 0; i < program->n_instructions; i++) {
            const zs_instruction *receive = &program->instructions[i];
            if (lane_of(receive) != ZS_LANE_RECV)
                continue;
            const int peer = receive->peer;
            const int64_t k = next_from[peer]++;
            if (k < firsts[rank] || k >= firsts[rank + 1] || sends[k].rank != peer)
                return fail_pair(rank, i, receive, peer, NULL, err);
            const zs_instruction *sent = &schedule->programs[peer].instructions[sends[k].index];
            if (sent->micro_batch != receive->micro_batch)
                return fail_pair(rank, i, receive, peer, sent, err);
            partners[ids[rank] + i] = ids[peer] + sends[k].index;
            partners[ids[peer] + sends[k].index] = ids[rank] + i;
        }
    }
    *first_ids = ids;
    *partner_of = partners;
    return true;
}
