#include "planner/play.h"

#include "planner/event_heap.h"
#include "shared/schedule_pairs.h"

#include <math.h>

enum { NONE = -1 };

typedef enum state { IDLE, READY, DONE } state;

typedef enum what { COMPUTE_ENDS, LATENCY_ENDS, TRANSFER_ENDS } what;

/* A transfer on one of its links, in the link's list. */
typedef struct use {
    struct use *previous, *next;
    struct transfer *transfer;
    int link;
    int weight;
} use;

/* Bytes on their way: a send with its receive, or a collective. */
typedef struct transfer {
    int rank, index; /* of the send; rank NONE: a collective */
    zs_op op;        /* of a collective */
    int stage;
    int n_arrived; /* members of a collective that are ready */
    double remaining_bytes;
    double bytes_per_ms; /* now; 0 before its latency is over */
    double since_ms;     /* moment of remaining_bytes */
    int64_t version;     /* of its latest end in the heap; earlier ones are void */
    int n_uses;
    use *uses;
} transfer;

typedef struct link {
    double bytes_per_ms;
    int64_t weight; /* of all transfers on it */
    use *uses;
} link;

typedef struct player {
    const zp_timing *timing;
    const zs_schedule *schedule;
    zs_timeline *timeline;
    bool share_links;
    zs_arena *arena;
    zs_error *err;
    double now_ms;
    zp_event_heap heap;
    int64_t *first_ids, *partner_of;
    unsigned char *states;    /* by number of the instruction */
    int *next_in_lane;        /* by number: index in the list, or NONE */
    int (*heads)[ZS_N_LANES]; /* by rank: next instruction of each lane, NONE at its end */
    int64_t n_left;           /* instructions not done */
    transfer *sends;          /* by rank: its send lane has one at a time */
    transfer *collectives;    /* as rings of the timing */
    link *links;
} player;

static unsigned char *state_of(const player *p, int rank, int index)
{
    return &p->states[p->first_ids[rank] + index];
}

static bool add_event(player *p, double at_ms, what kind, int subject, int64_t version)
{
    return zp_event_heap_add(
        &p->heap, p->arena,
        (zp_event){.at_ms = at_ms, .what = (int)kind, .subject = subject, .version = version},
        p->err);
}

/* Sends are numbered by rank, collectives behind them. */
static int number_of(const player *p, const transfer *t)
{
    return t->rank != NONE ? t->rank : p->timing->n_ranks + (int)(t - p->collectives);
}

/* What the transfer gets of the link that gives it least. */
static double rate_of(const player *p, const transfer *t)
{
    double bytes_per_ms = INFINITY;
    for (int i = 0; i < t->n_uses; i++) {
        const link *l = &p->links[t->uses[i].link];
        const double weight = p->share_links ? (double)l->weight : t->uses[i].weight;
        bytes_per_ms = fmin(bytes_per_ms, l->bytes_per_ms / weight);
    }
    return bytes_per_ms;
}

static bool set_rate(player *p, transfer *t)
{
    const double bytes_per_ms = rate_of(p, t);
    if (!(bytes_per_ms < t->bytes_per_ms) && !(bytes_per_ms > t->bytes_per_ms))
        return true;
    if (p->now_ms > t->since_ms)
        t->remaining_bytes =
            fmax(0, t->remaining_bytes - t->bytes_per_ms * (p->now_ms - t->since_ms));
    t->since_ms = p->now_ms;
    t->bytes_per_ms = bytes_per_ms;
    return add_event(p, p->now_ms + t->remaining_bytes / bytes_per_ms, TRANSFER_ENDS,
                     number_of(p, t), ++t->version);
}

/* All transfers on the links of t, t included while it is on them. */
static bool set_rates_around(player *p, const transfer *t)
{
    for (int i = 0; i < t->n_uses; i++)
        for (use *u = p->links[t->uses[i].link].uses; u; u = u->next)
            if (!set_rate(p, u->transfer))
                return false;
    return true;
}

static bool join_links(player *p, transfer *t)
{
    t->since_ms = p->now_ms;
    t->bytes_per_ms = 0;
    if (!(t->remaining_bytes > 0))
        return add_event(p, p->now_ms, TRANSFER_ENDS, number_of(p, t), ++t->version);
    if (!p->share_links)
        return set_rate(p, t);
    for (int i = 0; i < t->n_uses; i++) {
        use *u = &t->uses[i];
        link *l = &p->links[u->link];
        l->weight += u->weight;
        u->previous = NULL;
        u->next = l->uses;
        if (l->uses)
            l->uses->previous = u;
        l->uses = u;
    }
    return set_rates_around(p, t);
}

static bool leave_links(player *p, transfer *t)
{
    if (!p->share_links || !(t->bytes_per_ms > 0))
        return true;
    for (int i = 0; i < t->n_uses; i++) {
        use *u = &t->uses[i];
        link *l = &p->links[u->link];
        l->weight -= u->weight;
        if (u->previous)
            u->previous->next = u->next;
        else
            l->uses = u->next;
        if (u->next)
            u->next->previous = u->previous;
    }
    return set_rates_around(p, t);
}

static bool start_transfer(player *p, transfer *t, double bytes, double latency_ms)
{
    t->remaining_bytes = bytes;
    if (latency_ms > 0)
        return add_event(p, p->now_ms + latency_ms, LATENCY_ENDS, number_of(p, t), t->version);
    return join_links(p, t);
}

static void set_start(player *p, int rank, int index)
{
    p->timeline->ranks[rank].events[index].start_ms = p->now_ms;
}

static bool start_send(player *p, int rank, int index)
{
    const zs_instruction *send = &p->schedule->programs[rank].instructions[index];
    const int to = send->peer;
    transfer *t = &p->sends[rank];
    zp_hop hops[2];
    double latency_ms = 0;
    zp_timing_route(hops, &latency_ms, p->timing, rank, to);
    for (int i = 0; i < 2; i++)
        t->uses[i] = (use){.transfer = t, .link = hops[i].link, .weight = hops[i].weight};
    t->index = index;
    set_start(p, rank, index);
    set_start(p, to, (int)(p->partner_of[p->first_ids[rank] + index] - p->first_ids[to]));
    return start_transfer(p, t, (send->end_sample - send->first_sample) * p->timing->boundary_bytes,
                          latency_ms);
}

static int ring_of(const player *p, zs_op op, int stage)
{
    const bool is_own = op == ZS_OP_REDUCE_GRADS || op == ZS_OP_GATHER_PARAMS;
    return (int)op * p->timing->n_stages + (is_own ? stage : 0);
}

static bool arrive(player *p, zs_op op, int stage)
{
    const int k = ring_of(p, op, stage);
    const zp_ring *ring = &p->timing->rings[k];
    transfer *t = &p->collectives[k];
    if (++t->n_arrived < ring->end[0] - ring->first[0] + ring->end[1] - ring->first[1])
        return true;
    t->n_arrived = 0;
    for (int i = 0; i < 2; i++)
        for (int rank = ring->first[i]; rank < ring->end[i]; rank++)
            set_start(p, rank, p->heads[rank][ZS_LANE_COLLECTIVE]);
    return start_transfer(p, t, ring->bytes, ring->latency_ms);
}

static bool start_compute(player *p, int rank, int index)
{
    const zs_instruction *instruction = &p->schedule->programs[rank].instructions[index];
    const zp_rank_timing *timing = &p->timing->ranks[rank];
    const int b = instruction->end_sample - instruction->first_sample;
    const double ms = instruction->op == ZS_OP_FORWARD    ? timing->forward_ms[b]
                      : instruction->op == ZS_OP_BACKWARD ? timing->backward_ms[b]
                                                          : timing->step_ms;
    set_start(p, rank, index);
    return add_event(p, p->now_ms + ms, COMPUTE_ENDS, rank, 0);
}

/* The lane's next instruction becomes ready, unless it is or waits. */
static bool try_lane(player *p, int rank, zs_lane lane)
{
    const int index = p->heads[rank][lane];
    if (index == NONE || *state_of(p, rank, index) != IDLE)
        return true;
    const zs_program *program = &p->schedule->programs[rank];
    const zs_instruction *instruction = &program->instructions[index];
    for (int k = 0; k < instruction->n_waits; k++)
        if (*state_of(p, rank, instruction->waits[k]) != DONE)
            return true;
    *state_of(p, rank, index) = READY;
    if (lane == ZS_LANE_COMPUTE)
        return start_compute(p, rank, index);
    if (lane == ZS_LANE_COLLECTIVE)
        return arrive(p, instruction->op, program->stage);
    const int64_t partner = p->partner_of[p->first_ids[rank] + index];
    if (p->states[partner] != READY)
        return true;
    if (lane == ZS_LANE_SEND)
        return start_send(p, rank, index);
    return start_send(p, instruction->peer, (int)(partner - p->first_ids[instruction->peer]));
}

/* The lane's running instruction is done: what waited for it may go on. */
static bool finish(player *p, int rank, zs_lane lane)
{
    const int index = p->heads[rank][lane];
    *state_of(p, rank, index) = DONE;
    p->timeline->ranks[rank].events[index].end_ms = p->now_ms;
    p->heads[rank][lane] = p->next_in_lane[p->first_ids[rank] + index];
    p->n_left--;
    for (int other = 0; other < ZS_N_LANES; other++)
        if (!try_lane(p, rank, (zs_lane)other))
            return false;
    return true;
}

static bool end_transfer(player *p, transfer *t)
{
    if (!leave_links(p, t))
        return false;
    t->bytes_per_ms = 0;
    if (t->rank != NONE) {
        const int to = p->schedule->programs[t->rank].instructions[t->index].peer;
        return finish(p, t->rank, ZS_LANE_SEND) && finish(p, to, ZS_LANE_RECV);
    }
    const zp_ring *ring = &p->timing->rings[t - p->collectives];
    for (int i = 0; i < 2; i++)
        for (int rank = ring->first[i]; rank < ring->end[i]; rank++)
            if (!finish(p, rank, ZS_LANE_COLLECTIVE))
                return false;
    return true;
}

static bool happen(player *p, const zp_event *event)
{
    p->now_ms = event->at_ms;
    if (event->what == COMPUTE_ENDS)
        return finish(p, event->subject, ZS_LANE_COMPUTE);
    transfer *t = event->subject < p->timing->n_ranks
                      ? &p->sends[event->subject]
                      : &p->collectives[event->subject - p->timing->n_ranks];
    if (event->version != t->version)
        return true;
    return event->what == LATENCY_ENDS ? join_links(p, t) : end_transfer(p, t);
}

static bool open_lists(player *p)
{
    const zs_schedule *schedule = p->schedule;
    if (!zs_schedule_pairs(&p->first_ids, &p->partner_of, p->arena, schedule, p->err))
        return false;
    p->n_left = p->first_ids[schedule->n_ranks];
    p->states = ZS_NEW(p->arena, unsigned char, p->n_left, p->err);
    p->next_in_lane = ZS_NEW(p->arena, int, p->n_left, p->err);
    p->heads = zs_arena_alloc(p->arena, schedule->n_ranks, sizeof *p->heads, p->err);
    if (!p->states || !p->next_in_lane || !p->heads)
        return false;
    for (int rank = 0; rank < schedule->n_ranks; rank++) {
        const zs_program *program = &schedule->programs[rank];
        for (int lane = 0; lane < ZS_N_LANES; lane++)
            p->heads[rank][lane] = NONE;
        for (int i = program->n_instructions - 1; i >= 0; i--) {
            int *head = &p->heads[rank][zs_op_lanes[program->instructions[i].op]];
            p->next_in_lane[p->first_ids[rank] + i] = *head;
            *head = i;
        }
    }
    return true;
}

static bool open_transfers(player *p)
{
    const zp_timing *timing = p->timing;
    const int n_rings = ZS_N_OPS * timing->n_stages;
    p->links = ZS_NEW(p->arena, link, timing->n_links, p->err);
    p->sends = ZS_NEW(p->arena, transfer, timing->n_ranks, p->err);
    p->collectives = ZS_NEW(p->arena, transfer, n_rings, p->err);
    use *uses = ZS_NEW(p->arena, use, 2 * (int64_t)timing->n_ranks, p->err);
    if (!p->links || !p->sends || !p->collectives || !uses)
        return false;
    for (int k = 0; k < timing->n_links; k++)
        p->links[k].bytes_per_ms = timing->link_bytes_per_ms[k];
    for (int rank = 0; rank < timing->n_ranks; rank++)
        p->sends[rank] = (transfer){.rank = rank, .n_uses = 2, .uses = &uses[2 * (int64_t)rank]};
    for (int k = 0; k < n_rings; k++) {
        const zp_ring *ring = &timing->rings[k];
        transfer *t = &p->collectives[k];
        *t = (transfer){.rank = NONE, .n_uses = ring->n_hops};
        t->uses = ZS_NEW(p->arena, use, ring->n_hops, p->err);
        if (!t->uses)
            return false;
        for (int i = 0; i < ring->n_hops; i++)
            t->uses[i] =
                (use){.transfer = t, .link = ring->hops[i].link, .weight = ring->hops[i].weight};
    }
    return true;
}

static bool play_all(player *p)
{
    if (!open_lists(p) || !open_transfers(p))
        return false;
    for (int rank = 0; rank < p->schedule->n_ranks; rank++)
        for (int lane = 0; lane < ZS_N_LANES; lane++)
            if (!try_lane(p, rank, (zs_lane)lane))
                return false;
    while (p->heap.n > 0) {
        const zp_event event = zp_event_heap_take(&p->heap);
        if (!happen(p, &event))
            return false;
    }
    if (p->n_left == 0)
        return true;
    for (int rank = 0; rank < p->schedule->n_ranks; rank++)
        for (int lane = 0; lane < ZS_N_LANES; lane++)
            if (p->heads[rank][lane] != NONE)
                return ZS_FAIL(p->err, ZS_ERR_INPUT,
                               "the schedule does not end: rank %d stands at instruction %d", rank,
                               p->heads[rank][lane]);
    return false;
}

bool zp_play(zs_timeline *timeline, const zp_timing *timing, const zs_schedule *schedule,
             bool share_links, zs_error *err)
{
    player p = {.timing = timing,
                .schedule = schedule,
                .timeline = timeline,
                .share_links = share_links,
                .err = err};
    if (!zs_arena_open(&p.arena, err))
        return false;
    const bool ok = play_all(&p);
    zs_arena_close(&p.arena);
    return ok;
}
