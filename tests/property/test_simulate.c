/* Random plans on random clusters: no instruction starts before what it needs, none waits without
 * reason, slower GPUs and links never help, and nobody beats the bounds that hold for any order. */
#include "planner/link_time.h"
#include "planner/simulate.h"
#include "tests/support/check.h"
#include "tests/support/timed_plans.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_STAGES = 4, MAX_RANKS = 12, BOUNDARY_BYTES = 128 };

static const double ROUNDING = 1e-9; /* of sums of some hundred doubles */

typedef struct world {
    zs_arena *arena;
    zs_plan plan;
    zm_model model;
    zs_schedule schedule;
    double forward_ms[MAX_STAGES], backward_ms[MAX_STAGES];
    check_timing timing;
} world;

static bool make_world(world *w, check_rng *rng, uint64_t seed)
{
    zs_error err;
    w->plan = check_rng_plan(rng, w->arena, MAX_STAGES, MAX_RANKS / MAX_STAGES, 5);
    w->timing = check_timing_free(w->forward_ms, w->backward_ms);
    for (int s = 0; s < MAX_STAGES; s++) {
        w->forward_ms[s] = check_rng_double(rng, 0.1, 4);
        w->backward_ms[s] = check_rng_double(rng, 0.1, 4);
    }
    w->timing.ranks_per_node = (int)check_rng_int(rng, 0, 4);
    w->timing.per_sample = check_rng_double(rng, 0, 1);
    w->timing.tied = check_rng_int(rng, 0, 1);
    w->timing.intra_bytes_per_s = check_rng_double(rng, 100e3, 5e6);
    w->timing.nic_bytes_per_s = check_rng_double(rng, 100e3, 5e6);
    w->timing.intra_latency_ms = check_rng_int(rng, 0, 2) ? check_rng_double(rng, 0, 0.3) : 0;
    w->timing.nic_latency_ms = check_rng_int(rng, 0, 2) ? check_rng_double(rng, 0, 0.3) : 0;
    w->model = check_time_plan(&w->plan, w->arena, &w->timing);
    for (int s = 0; s < w->plan.n_stages; s++) {
        zs_plan_stage *stage = &w->plan.stages[s];
        double weights[MAX_RANKS];
        zs_shard shards[MAX_RANKS];
        check_rng_weights(rng, weights, stage->n_ranks);
        stage->zero_stage = (int)check_rng_int(rng, 1, 3);
        stage->recompute = check_rng_int(rng, 0, 1);
        if (!CHECK(zs_shards_divide(shards, weights, stage->n_ranks, stage->n_params, &err),
                   "seed %" PRIu64 ": %s", seed, err.message))
            return false;
        for (int i = 0; i < stage->n_ranks; i++)
            stage->ranks[i].shard = shards[i];
    }
    return CHECK(zs_schedule_build(&w->schedule, w->arena, &w->plan, w->model.tied, &err),
                 "seed %" PRIu64 ": %s", seed, err.message);
}

static zp_simulation simulate(const world *w, const zp_what_if *what_if, bool share_links)
{
    zs_error err;
    zp_simulation s = {0};
    CHECK(zp_simulate_schedule(&s, w->arena, &w->plan, &w->model, &w->schedule, what_if,
                               share_links, &err),
          "%s", err.message);
    return s;
}

static const zs_timeline_event *event_at(const zp_simulation *s, int rank, int index)
{
    return &s->timeline.ranks[rank].events[index];
}

/* Index of the send of a receive in the peer's list; every pair has one per micro-batch and way. */
static int find_send(const world *w, int rank, const zs_instruction *receive)
{
    const zs_program *peer = &w->schedule.programs[receive->peer];
    const zs_op op = receive->op == ZS_OP_RECV_ACT ? ZS_OP_SEND_ACT : ZS_OP_SEND_GRAD;
    for (int i = 0; i < peer->n_instructions; i++)
        if (peer->instructions[i].op == op && peer->instructions[i].peer == rank &&
            peer->instructions[i].micro_batch == receive->micro_batch)
            return i;
    return -1;
}

static bool is_member(const world *w, zs_op op, int stage, int other)
{
    if (op == ZS_OP_GRAD_NORM)
        return true;
    if (op == ZS_OP_REDUCE_GRADS || op == ZS_OP_GATHER_PARAMS)
        return stage == other;
    return other == 0 || other == w->plan.n_stages - 1;
}

/* When the instruction could have started: its lane free, its waits done. */
static double ready_ms(const world *w, const zp_simulation *s, int rank, int index)
{
    const zs_program *program = &w->schedule.programs[rank];
    const zs_instruction *instruction = &program->instructions[index];
    double ms = 0;
    for (int k = 0; k < instruction->n_waits; k++)
        ms = fmax(ms, event_at(s, rank, instruction->waits[k])->end_ms);
    for (int i = index - 1; i >= 0; i--)
        if (zs_op_lanes[program->instructions[i].op] == zs_op_lanes[instruction->op])
            return fmax(ms, event_at(s, rank, i)->end_ms);
    return ms;
}

/* All that have to be there, and nothing else, decide when an instruction starts: so the timeline
 * is the longest path through the instructions. */
static void check_starts(const world *w, const zp_simulation *s, uint64_t seed)
{
    for (int rank = 0; rank < w->schedule.n_ranks; rank++) {
        const zs_program *program = &w->schedule.programs[rank];
        for (int i = 0; i < program->n_instructions; i++) {
            const zs_instruction *instruction = &program->instructions[i];
            const zs_lane lane = zs_op_lanes[instruction->op];
            double ms = ready_ms(w, s, rank, i);
            if (lane == ZS_LANE_SEND)
                continue; /* with its receive */
            if (lane == ZS_LANE_RECV) {
                const int send = find_send(w, rank, instruction);
                ms = fmax(ms, ready_ms(w, s, instruction->peer, send));
                const zs_timeline_event *sent = event_at(s, instruction->peer, send);
                CHECK(!(sent->start_ms < event_at(s, rank, i)->start_ms) &&
                          !(sent->start_ms > event_at(s, rank, i)->start_ms),
                      "seed %" PRIu64 ": rank %d, instruction %d starts without its send", seed,
                      rank, i);
            }
            for (int other = 0; lane == ZS_LANE_COLLECTIVE && other < w->schedule.n_ranks;
                 other++) {
                const zs_program *o = &w->schedule.programs[other];
                for (int k = 0; k < o->n_instructions; k++)
                    if (o->instructions[k].op == instruction->op &&
                        is_member(w, instruction->op, program->stage, o->stage))
                        ms = fmax(ms, ready_ms(w, s, other, k));
            }
            CHECK(fabs(event_at(s, rank, i)->start_ms - ms) <= ROUNDING * fmax(1, ms),
                  "seed %" PRIu64 ": rank %d, instruction %d starts at %.12g, expected %.12g", seed,
                  rank, i, event_at(s, rank, i)->start_ms, ms);
        }
    }
}

/* Durations by formulas that the simulator does not use, transfers with their links to themselves.
 */
static void check_durations(const world *w, const zp_simulation *s, uint64_t seed)
{
    for (int rank = 0; rank < w->schedule.n_ranks; rank++) {
        const zs_program *program = &w->schedule.programs[rank];
        const zs_plan_stage *stage = &w->plan.stages[program->stage];
        for (int i = 0; i < program->n_instructions; i++) {
            const zs_instruction *in = &program->instructions[i];
            const int b = in->end_sample - in->first_sample;
            const double scale = 1 + w->timing.per_sample * (b - 1);
            const double forward_ms = scale * w->forward_ms[program->stage];
            double ms = 0;
            if (in->op == ZS_OP_SEND_ACT || in->op == ZS_OP_SEND_GRAD)
                ms = zp_link_send_ms(zp_link_between(&w->plan.cluster,
                                                     zs_plan_rank_at(&w->plan, rank)->node,
                                                     zs_plan_rank_at(&w->plan, in->peer)->node),
                                     b * BOUNDARY_BYTES);
            else if (in->op == ZS_OP_FORWARD && stage->zero_stage < 3)
                ms = forward_ms;
            else if (in->op == ZS_OP_BACKWARD && stage->zero_stage < 2)
                ms = scale * w->backward_ms[program->stage] + (stage->recompute ? forward_ms : 0);
            else if (in->op != ZS_OP_STEP)
                continue;
            const zs_timeline_event *e = event_at(s, rank, i);
            CHECK(fabs(e->end_ms - e->start_ms - ms) <= ROUNDING * fmax(1, e->end_ms),
                  "seed %" PRIu64 ": rank %d, instruction %d takes %.12g ms, expected %.12g", seed,
                  rank, i, e->end_ms - e->start_ms, ms);
        }
    }
}

/* No event of later ends before its twin of sooner. */
static void check_not_sooner(const zp_simulation *later, const zp_simulation *sooner,
                             const char *what, uint64_t seed)
{
    for (int rank = 0; rank < later->timeline.n_ranks; rank++)
        for (int i = 0; i < later->timeline.ranks[rank].n_events; i++) {
            const double ms = event_at(sooner, rank, i)->end_ms;
            CHECK(event_at(later, rank, i)->end_ms >= ms - ROUNDING * fmax(1, ms),
                  "seed %" PRIu64 ": %s: rank %d, instruction %d ends at %.12g instead of %.12g",
                  seed, what, rank, i, event_at(later, rank, i)->end_ms, ms);
        }
    CHECK(later->step_ms >= sooner->step_ms - ROUNDING * fmax(1, sooner->step_ms),
          "seed %" PRIu64 ": %s: step of %.12g instead of %.12g ms", seed, what, later->step_ms,
          sooner->step_ms);
}

static double shortest_ms(const zp_simulation *s, int stage, zs_op op)
{
    double ms = INFINITY;
    for (int rank = 0; rank < s->timeline.n_ranks; rank++)
        for (int i = 0; i < s->timeline.ranks[rank].n_events; i++) {
            const zs_timeline_event *e = event_at(s, rank, i);
            if (s->timeline.ranks[rank].stage == stage && e->op == op)
                ms = fmin(ms, e->end_ms - e->start_ms);
        }
    return ms;
}

/* A rank computes all of its own after some micro-batch came through the stages before it, and its
 * last gradient goes back through them. */
static void check_bound(const zp_simulation *s, uint64_t seed)
{
    for (int rank = 0; rank < s->timeline.n_ranks; rank++) {
        double ms = 0;
        for (int i = 0; i < s->timeline.ranks[rank].n_events; i++) {
            const zs_timeline_event *e = event_at(s, rank, i);
            if (e->op == ZS_OP_FORWARD || e->op == ZS_OP_BACKWARD)
                ms += e->end_ms - e->start_ms;
        }
        for (int stage = 0; ms > 0 && stage < s->timeline.ranks[rank].stage; stage++)
            ms += shortest_ms(s, stage, ZS_OP_FORWARD) + shortest_ms(s, stage, ZS_OP_BACKWARD);
        CHECK(s->step_ms >= ms - ROUNDING * fmax(1, ms),
              "seed %" PRIu64 ": a step of %.12g ms, but rank %d alone needs %.12g", seed,
              s->step_ms, rank, ms);
        const zs_timeline_usage *u = &s->usage[rank];
        CHECK(u->compute_ms >= 0 && u->exposed_ms >= 0 && u->bubble_ms >= 0,
              "seed %" PRIu64 ": rank %d", seed, rank);
        CHECK_NEAR(u->compute_ms + u->exposed_ms + u->bubble_ms, s->step_ms, ROUNDING);
    }
}

static void check_equal(const zp_simulation *a, const zp_simulation *b, uint64_t seed)
{
    for (int rank = 0; rank < a->timeline.n_ranks; rank++)
        for (int i = 0; i < a->timeline.ranks[rank].n_events; i++) {
            const zs_timeline_event *x = event_at(a, rank, i), *y = event_at(b, rank, i);
            CHECK(memcmp(&x->start_ms, &y->start_ms, sizeof x->start_ms) == 0 &&
                      memcmp(&x->end_ms, &y->end_ms, sizeof x->end_ms) == 0,
                  "seed %" PRIu64 ": rank %d, instruction %d differs when played again", seed, rank,
                  i);
        }
}

/* Something of the cluster becomes slower. */
static zp_what_if random_change(const world *w, check_rng *rng)
{
    zs_error err;
    zp_what_if change = {0};
    CHECK(zp_what_if_parse(&change, w->arena, &w->plan.cluster, NULL, &err), "%s", err.message);
    const int node = (int)check_rng_int(rng, 0, w->plan.cluster.n_nodes - 1);
    const double share = check_rng_double(rng, 0.1, 1);
    switch (check_rng_int(rng, 0, 2)) {
    case 0:
        change.time_factor[check_rng_int(rng, 0, zs_plan_n_ranks(&w->plan) - 1)] = 1 / share;
        break;
    case 1:
        change.nic_factor[node] = share;
        break;
    default:
        change.intra_factor[node] = share;
        break;
    }
    return change;
}

static void test_plan(uint64_t seed)
{
    world w = {0};
    zs_error err;
    check_rng rng = check_rng_from(seed);
    if (!CHECK(zs_arena_open(&w.arena, &err), "%s", err.message))
        return;
    if (make_world(&w, &rng, seed)) {
        const zp_simulation alone = simulate(&w, NULL, false), shared = simulate(&w, NULL, true);
        check_starts(&w, &alone, seed);
        check_starts(&w, &shared, seed);
        check_durations(&w, &alone, seed);
        check_bound(&alone, seed);
        check_bound(&shared, seed);
        const zp_simulation again = simulate(&w, NULL, true);
        check_equal(&shared, &again, seed);
        check_not_sooner(&shared, &alone, "shared links", seed);
        /* Where links are shared a late transfer can leave the link to another, and the step may
         * end sooner; with links to itself nothing can. */
        const zp_what_if change = random_change(&w, &rng);
        const zp_simulation slow = simulate(&w, &change, false);
        const zp_simulation slow_shared = simulate(&w, &change, true);
        check_not_sooner(&slow, &alone, "slower", seed);
        check_not_sooner(&slow_shared, &alone, "slower, with shared links", seed);
    }
    zs_arena_close(&w.arena);
}

/* One rank a stage and links that take no time: under GPipe exactly the closed form, pass by pass;
 * under 1F1B no less than it where the last stage is the slowest. */
static void test_closed_form(uint64_t seed)
{
    static const char *const shapes[] = {"1", "1|1", "1|1|1", "1|1|1|1"};
    world w = {0};
    zs_error err;
    check_rng rng = check_rng_from(seed);
    if (!CHECK(zs_arena_open(&w.arena, &err), "%s", err.message))
        return;
    const int n_stages = (int)check_rng_int(&rng, 1, MAX_STAGES);
    const int m = (int)check_rng_int(&rng, 1, 9);
    const bool gpipe = check_rng_int(&rng, 0, 1);
    char micro_batches[32] = "1";
    for (int j = 1; j < m; j++)
        strcat(micro_batches, "+1");
    double sum_ms = 0, max_forward_ms = 0, max_backward_ms = 0, max_ms = 0;
    for (int s = 0; s < n_stages; s++) {
        const bool last = !gpipe && s == n_stages - 1;
        w.forward_ms[s] = check_rng_double(&rng, 0, 5);
        w.backward_ms[s] =
            check_rng_double(&rng, last ? fmax(0, max_ms - w.forward_ms[s]) : 0, last ? 10 : 5);
        sum_ms += w.forward_ms[s] + w.backward_ms[s];
        max_ms = fmax(max_ms, w.forward_ms[s] + w.backward_ms[s]);
        max_forward_ms = fmax(max_forward_ms, w.forward_ms[s]);
        max_backward_ms = fmax(max_backward_ms, w.backward_ms[s]);
    }
    w.timing = check_timing_free(w.forward_ms, w.backward_ms);
    w.plan = check_plan(w.arena, shapes[n_stages - 1], micro_batches,
                        gpipe ? ZS_SCHEDULE_GPIPE : ZS_SCHEDULE_1F1B);
    w.model = check_time_plan(&w.plan, w.arena, &w.timing);
    if (CHECK(zs_schedule_build(&w.schedule, w.arena, &w.plan, false, &err), "%s", err.message)) {
        const zp_simulation s = simulate(&w, NULL, true);
        if (gpipe)
            CHECK_NEAR(s.step_ms, sum_ms + (m - 1) * (max_forward_ms + max_backward_ms), ROUNDING);
        else
            CHECK(s.step_ms >= (sum_ms + (m - 1) * max_ms) * (1 - ROUNDING),
                  "seed %" PRIu64 ": %.12g ms, closed form %.12g", seed, s.step_ms,
                  sum_ms + (m - 1) * max_ms);
    }
    zs_arena_close(&w.arena);
}

int main(void)
{
    check_seeds(test_plan, 1, 200);
    check_seeds(test_closed_form, 1001, 100);
    return check_done();
}
