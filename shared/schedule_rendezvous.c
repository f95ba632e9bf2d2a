#include "shared/schedule_rendezvous.h"

#include <string.h>

enum { NONE = -1 };

typedef enum state { IDLE, STARTED, DONE } state;

/* A thread: walks the instructions of one rank, or of one lane of it. */
typedef struct walker {
    int rank;
    int lane;       /* NONE: all lanes */
    int at;         /* instruction it stands at; the list's length at the end */
    int blocked_on; /* instruction of its rank that is not done; NONE while it can go on */
    bool seen;      /* while looking for a cycle */
} walker;

typedef struct game {
    const zs_links *links;
    zs_play play;
    int walkers_per_rank;
    int64_t n_walkers;
    walker *walkers;
    int64_t *ready; /* stack of walkers that can go on */
    int64_t n_ready;
    unsigned char *states; /* by number of the instruction */
    int *met_at;    /* [rank * ZS_N_OPS + op]: instruction in which the rank waits for the others of
                       a group, NONE if it is not there */
    int *n_arrived; /* [stage * ZS_N_OPS + op]: members at it, at the group's first stage */
} game;

/* The members of a group that meets: ranks of one range of stages, for a tied one of two. */
typedef struct members {
    int stage; /* the first */
    int first[2], end[2];
} members;

static members members_of(const zs_links *links, zs_op op, int stage)
{
    const int *at = links->first_ranks, last = links->n_stages - 1;
    if (op == ZS_OP_REDUCE_GRADS || op == ZS_OP_GATHER_PARAMS || zs_op_lanes[op] == ZS_LANE_COMPUTE)
        return (members){stage, {at[stage]}, {at[stage + 1]}};
    if (op == ZS_OP_GRAD_NORM || last == 0)
        return (members){0, {at[0]}, {at[last + 1]}};
    return (members){0, {at[0], at[last]}, {at[1], at[last + 1]}};
}

static const zs_program *program_of(const game *g, int rank)
{
    return &g->links->schedule->programs[rank];
}

static unsigned char *state_of(const game *g, int rank, int index)
{
    return &g->states[g->links->first_ids[rank] + index];
}

static walker *walker_of(const game *g, int rank, zs_op op)
{
    const int lane = g->play == ZS_PLAY_LANES ? (int)zs_op_lanes[op] : 0;
    return &g->walkers[(int64_t)rank * g->walkers_per_rank + lane];
}

static void finish(game *g, int rank, int index)
{
    *state_of(g, rank, index) = DONE;
    for (int k = 0; k < g->walkers_per_rank; k++) {
        const int64_t w = (int64_t)rank * g->walkers_per_rank + k;
        if (g->walkers[w].blocked_on == index) {
            g->walkers[w].blocked_on = NONE;
            g->ready[g->n_ready++] = w;
        }
    }
}

static int *meeting_of(const game *g, int rank, zs_op op)
{
    return &g->met_at[(int64_t)rank * ZS_N_OPS + (int)op];
}

static void arrive(game *g, int rank_that_arrives, int index)
{
    const zs_program *program = program_of(g, rank_that_arrives);
    const zs_op op = program->instructions[index].op;
    const members m = members_of(g->links, op, program->stage);
    const int n_members = m.end[0] - m.first[0] + m.end[1] - m.first[1];
    int *n_arrived = &g->n_arrived[m.stage * ZS_N_OPS + (int)op];
    *meeting_of(g, rank_that_arrives, op) = index;
    if (++*n_arrived < n_members)
        return;
    *n_arrived = 0;
    for (int k = 0; k < 2; k++)
        for (int rank = m.first[k]; rank < m.end[k]; rank++) {
            finish(g, rank, *meeting_of(g, rank, op));
            *meeting_of(g, rank, op) = NONE;
        }
}

static bool meets_others(const game *g, const zs_program *program, zs_op op)
{
    return zs_op_lanes[op] == ZS_LANE_COLLECTIVE ||
           zs_stage_meets(&g->links->plan->stages[program->stage], op);
}

static void start(game *g, int rank, int index)
{
    const zs_program *program = program_of(g, rank);
    const zs_op op = program->instructions[index].op;
    *state_of(g, rank, index) = STARTED;
    switch (zs_op_lanes[op]) {
    case ZS_LANE_SEND:
    case ZS_LANE_RECV: {
        const int64_t partner = g->links->partner_of[g->links->first_ids[rank] + index];
        if (g->states[partner] == IDLE)
            return;
        const int other = program->instructions[index].peer;
        finish(g, other, (int)(partner - g->links->first_ids[other]));
        finish(g, rank, index);
        return;
    }
    case ZS_LANE_COLLECTIVE:
    case ZS_LANE_COMPUTE:
    default:
        if (meets_others(g, program, op))
            arrive(g, rank, index);
        else
            finish(g, rank, index);
        return;
    }
}

/* Goes on until the walker's end or until it has to wait. */
static void walk(game *g, walker *w)
{
    const zs_program *program = program_of(g, w->rank);
    for (; w->at < program->n_instructions; w->at++) {
        const zs_instruction *instruction = &program->instructions[w->at];
        const zs_lane lane = zs_op_lanes[instruction->op];
        if (w->lane != NONE && w->lane != (int)lane)
            continue;
        for (int k = 0; k < instruction->n_waits; k++)
            if (*state_of(g, w->rank, instruction->waits[k]) != DONE) {
                w->blocked_on = instruction->waits[k];
                return;
            }
        if (*state_of(g, w->rank, w->at) == IDLE)
            start(g, w->rank, w->at);
        const bool only_posted =
            g->play == ZS_PLAY_LISTS && (lane == ZS_LANE_SEND || lane == ZS_LANE_RECV);
        if (!only_posted && *state_of(g, w->rank, w->at) != DONE) {
            w->blocked_on = w->at;
            return;
        }
    }
}

/* The walker that has to move before w can. */
static walker *blocker_of(const game *g, const walker *w)
{
    const zs_program *program = program_of(g, w->rank);
    const zs_op op = program->instructions[w->blocked_on].op;
    if (*state_of(g, w->rank, w->blocked_on) == IDLE)
        return walker_of(g, w->rank, op);
    if (!meets_others(g, program, op)) {
        const int64_t partner = g->links->partner_of[g->links->first_ids[w->rank] + w->blocked_on];
        const int peer = program->instructions[w->blocked_on].peer;
        const int64_t index = partner - g->links->first_ids[peer];
        return walker_of(g, peer, program_of(g, peer)->instructions[index].op);
    }
    const members m = members_of(g->links, op, program->stage);
    for (int k = 0; k < 2; k++)
        for (int rank = m.first[k]; rank < m.end[k]; rank++)
            if (*meeting_of(g, rank, op) == NONE)
                return walker_of(g, rank, op);
    return NULL; /* not reached: the meeting would be over */
}

/* Follows blockers from w onto their cycle and prints it. */
static bool fail_with_cycle(const game *g, walker *w, zs_error *err)
{
    for (; w && !w->seen; w = blocker_of(g, w))
        w->seen = true; /* the first one seen twice is on the cycle */
    char cycle[ZS_ERROR_MESSAGE_SIZE] = "";
    size_t length = 0;
    const walker *first = w;
    while (w) {
        char text[ZS_INSTRUCTION_TEXT_SIZE];
        zs_instruction_text(text, &program_of(g, w->rank)->instructions[w->at]);
        length += (size_t)snprintf(cycle + length, sizeof cycle - length, "%srank %d at %d (%s)",
                                   length ? ", waits for " : "", w->rank, w->at, text);
        w = blocker_of(g, w);
        if (w == first)
            break;
        if (length > sizeof cycle * 2 / 3) {
            length += (size_t)snprintf(cycle + length, sizeof cycle - length, ", ...");
            break;
        }
    }
    return ZS_FAIL(err, ZS_ERR_INPUT, "deadlock with %s: %s, which waits for the first",
                   g->play == ZS_PLAY_LISTS ? "every list run in order" : "lanes running ahead",
                   cycle);
}

static bool open_game(game *g, zs_arena *arena, zs_error *err)
{
    const zs_schedule *schedule = g->links->schedule;
    const int n_ranks = schedule->n_ranks;
    g->walkers_per_rank = g->play == ZS_PLAY_LANES ? ZS_N_LANES : 1;
    g->n_walkers = (int64_t)n_ranks * g->walkers_per_rank;
    g->walkers = ZS_NEW(arena, walker, g->n_walkers, err);
    g->ready = ZS_NEW(arena, int64_t, g->n_walkers, err);
    g->states = ZS_NEW(arena, unsigned char, g->links->first_ids[n_ranks], err);
    g->met_at = ZS_NEW(arena, int, (int64_t)n_ranks *ZS_N_OPS, err);
    g->n_arrived = ZS_NEW(arena, int, (int64_t)g->links->n_stages *ZS_N_OPS, err);
    if (!g->walkers || !g->ready || !g->states || !g->met_at || !g->n_arrived)
        return false;
    memset(g->met_at, 0xff, (size_t)n_ranks * ZS_N_OPS * sizeof *g->met_at); /* NONE */
    for (int64_t k = 0; k < g->n_walkers; k++) {
        g->walkers[k] = (walker){.rank = (int)(k / g->walkers_per_rank),
                                 .lane = g->play == ZS_PLAY_LANES ? (int)(k % ZS_N_LANES) : NONE,
                                 .blocked_on = NONE};
        g->ready[g->n_ready++] = k;
    }
    return true;
}

bool zs_rendezvous_check(const zs_links *links, zs_arena *arena, zs_play play, zs_error *err)
{
    game g = {.links = links, .play = play};
    if (!open_game(&g, arena, err))
        return false;
    while (g.n_ready > 0)
        walk(&g, &g.walkers[g.ready[--g.n_ready]]);
    for (int64_t k = 0; k < g.n_walkers; k++)
        if (g.walkers[k].blocked_on != NONE)
            return fail_with_cycle(&g, &g.walkers[k], err);
    return true;
}
