/* Timelines against ones computed by hand. */
#include "models/cost.h"
#include "planner/simulate.h"
#include "tests/support/check.h"
#include "tests/support/timed_plans.h"

#include <math.h>
#include <string.h>

static zs_arena *arena;

static const double EXACT = 1e-12;

static zp_simulation simulate(const zs_plan *plan, const zm_model *model, const char *conditions)
{
    zs_error err;
    zp_simulation s = {0};
    zp_what_if what_if;
    CHECK(zp_what_if_parse(&what_if, arena, &plan->cluster, conditions, &err), "%s", err.message);
    CHECK(zp_simulate(&s, arena, plan, model, &what_if, &err), "%s", err.message);
    return s;
}

static double step_ms(const char *samples, const char *micro_batches, zs_schedule_kind schedule,
                      const double *forward_ms, const double *backward_ms)
{
    zs_plan plan = check_plan(arena, samples, micro_batches, schedule);
    const check_timing timing = check_timing_free(forward_ms, backward_ms);
    const zm_model model = check_time_plan(&plan, arena, &timing);
    return simulate(&plan, &model, NULL).step_ms;
}

/* The event of an instruction; one without times when the rank has none. */
static const zs_timeline_event *find(const zp_simulation *s, int rank, zs_op op, int micro_batch)
{
    static const zs_timeline_event none = {.start_ms = NAN, .end_ms = NAN};
    for (int i = 0; rank < s->timeline.n_ranks && i < s->timeline.ranks[rank].n_events; i++) {
        const zs_timeline_event *e = &s->timeline.ranks[rank].events[i];
        if (e->op == op && e->micro_batch == micro_batch)
            return e;
    }
    return &none;
}

/* rank runs the instruction from start to end. */
#define CHECK_TIMES(s, rank, op, micro_batch, start, end)                                          \
    do {                                                                                           \
        const zs_timeline_event *e_ = find((s), (rank), (op), (micro_batch));                      \
        CHECK_NEAR(e_->start_ms, (start), EXACT);                                                  \
        CHECK_NEAR(e_->end_ms, (end), EXACT);                                                      \
    } while (0)

static void test_one_rank(void)
{
    const double f[] = {1}, b[] = {2};
    CHECK_NEAR(step_ms("2", "2", ZS_SCHEDULE_1F1B, f, b), 3, EXACT);
    CHECK_NEAR(step_ms("2", "2+2+1", ZS_SCHEDULE_1F1B, f, b), 9, EXACT);
    CHECK_NEAR(step_ms("2", "2+2+1", ZS_SCHEDULE_GPIPE, f, b), 9, EXACT);

    /* T4: 28 bytes for each parameter at 320 GB/s */
    zs_plan plan = check_plan(arena, "2", "2+2", ZS_SCHEDULE_1F1B);
    check_timing timing = check_timing_free(f, b);
    timing.gpu = "T4";
    const zm_model model = check_time_plan(&plan, arena, &timing);
    const zp_simulation s = simulate(&plan, &model, NULL);
    CHECK_NEAR(s.step_ms, 6 + (double)plan.stages[0].n_params * 28 / 320e9 * 1e3, EXACT);
    CHECK_TIMES(&s, 0, ZS_OP_BACKWARD, 1, 4.0, 6.0);
    CHECK(s.usage[0].bubble_ms < 1e-9 && s.usage[0].exposed_ms < 1e-9, "always computes");
    CHECK_STRING(s.timeline.ranks[0].name, "stage 0 node0:gpu0 T4");
}

/* Equal stages and links that take no time: (m + S - 1) t. */
static void test_equal_stages(void)
{
    static const char *const stages[] = {"1", "1|1", "1|1|1", "1|1|1|1"};
    static const char *const batches[] = {"1", "1+1", "1+1+1", "1+1+1+1", "1+1+1+1+1+1+1+1"};
    static const int m[] = {1, 2, 3, 4, 8};
    const double f[] = {1, 1, 1, 1}, b[] = {2, 2, 2, 2};
    CHECK_NEAR(step_ms("1|1", "1+1+1+1", ZS_SCHEDULE_1F1B, f, b), 15, EXACT);
    for (int s = 0; s < 4; s++)
        for (int k = 0; k < 5; k++)
            for (int schedule = 0; schedule < ZS_N_SCHEDULES; schedule++)
                CHECK_NEAR(step_ms(stages[s], batches[k], (zs_schedule_kind)schedule, f, b),
                           (m[k] + s) * 3, EXACT);
}

/* Sum and (m - 1) of the largest where the last stage is the largest. Where an earlier one is, its
 * last micro-batches hide the stages behind it, and a step can be shorter than the closed form. */
static void test_unequal_stages(void)
{
    const double f[] = {1, 2, 3}, b[] = {2, 3, 4};
    CHECK_NEAR(step_ms("1|1|1", "1+1+1+1", ZS_SCHEDULE_1F1B, f, b), 15 + 3 * 7, EXACT);
    const double first_f[] = {2, 0.1}, first_b[] = {2, 0.1};
    CHECK_NEAR(step_ms("1|1", "1", ZS_SCHEDULE_1F1B, first_f, first_b), 4.2, EXACT);
    CHECK_NEAR(step_ms("1|1", "1+1", ZS_SCHEDULE_1F1B, first_f, first_b), 8, EXACT);

    /* GPipe, each pass on its own: 1+2+3 + 3*3 forward, 4+3+2 + 3*4 backward */
    CHECK_NEAR(step_ms("1|1|1", "1+1+1+1", ZS_SCHEDULE_GPIPE, f, b), 15 + 21, EXACT);
}

/* Case 21 of units: 1e9 bytes over 100 Gb/s take 80 ms and the latency. */
static void test_send(void)
{
    const double f[] = {1, 1}, b[] = {2, 2};
    zs_error err;
    zs_plan plan = check_plan(arena, "1|1", "1", ZS_SCHEDULE_1F1B);
    const check_timing timing = check_timing_free(f, b);
    zm_model model = check_time_plan(&plan, arena, &timing);
    static zs_cluster cluster;
    if (!CHECK(zs_cluster_parse_line(&cluster, arena, "2x(1xT4)@100Gb/s", &err), "%s", err.message))
        return;
    plan.cluster.nodes[0].nic_bytes_per_s = cluster.nodes[0].nic_bytes_per_s;
    plan.cluster.nodes[1].nic_bytes_per_s = cluster.nodes[1].nic_bytes_per_s;
    plan.cluster.nodes[1].nic_latency_ms = 0.005;
    model.n_channels = 31250000; /* 8 tokens, 4 bytes each */
    CHECK(zm_cost_boundary_bytes(&model, 8, ZS_FP32) == 1000000000, "1e9 bytes");
    const zp_simulation s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 0, ZS_OP_SEND_ACT, 0, 1.0, 81.005);
    CHECK_TIMES(&s, 1, ZS_OP_RECV_ACT, 0, 1.0, 81.005);
    CHECK_TIMES(&s, 1, ZS_OP_FORWARD, 0, 81.005, 82.005);
    CHECK_TIMES(&s, 1, ZS_OP_SEND_GRAD, 0, 84.005, 164.01);
    CHECK_TIMES(&s, 0, ZS_OP_BACKWARD, 0, 164.01, 166.01);
    CHECK_NEAR(s.usage[0].compute_ms, 3, EXACT);
    CHECK_NEAR(s.usage[0].exposed_ms, 160.02, EXACT); /* and two latencies for grad_norm */
    CHECK_NEAR(s.usage[1].bubble_ms, 3, EXACT);       /* while rank 0 computes */
    CHECK_NEAR(s.step_ms, 166.02, EXACT);
}

/* Sends of 2 and 1 samples from one node to another, 1 ms a sample when alone. */
static void test_shared_nic(void)
{
    const double f[] = {1, 1}, b[] = {1, 1};
    zs_error err;
    zs_plan plan = check_plan(arena, "2+1|2+1", "3", ZS_SCHEDULE_1F1B);
    check_timing timing = check_timing_free(f, b);
    timing.ranks_per_node = 2;
    timing.nic_bytes_per_s = 128e3;
    zm_model model = check_time_plan(&plan, arena, &timing);
    zp_simulation s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 1, ZS_OP_SEND_ACT, 0, 1.0, 3.0); /* half of the NIC */
    CHECK_TIMES(&s, 0, ZS_OP_SEND_ACT, 0, 1.0, 4.0); /* the same, then all of it */
    CHECK_TIMES(&s, 3, ZS_OP_FORWARD, 0, 3.0, 4.0);
    CHECK_TIMES(&s, 3, ZS_OP_SEND_GRAD, 0, 5.0, 6.0); /* one after the other */
    CHECK_TIMES(&s, 2, ZS_OP_SEND_GRAD, 0, 6.0, 8.0);
    CHECK_NEAR(s.step_ms, 9, EXACT);

    zs_schedule schedule;
    CHECK(zs_schedule_build(&schedule, arena, &plan, false, &err) &&
              zp_simulate_schedule(&s, arena, &plan, &model, &schedule, NULL, false, &err),
          "%s", err.message);
    CHECK_TIMES(&s, 0, ZS_OP_SEND_ACT, 0, 1.0, 3.0);
    CHECK_TIMES(&s, 1, ZS_OP_SEND_ACT, 0, 1.0, 2.0);
    CHECK_NEAR(s.step_ms, 8, EXACT);

    /* inside a node every GPU has a link of its own */
    timing.ranks_per_node = 0;
    timing.intra_bytes_per_s = 128e3;
    model = check_time_plan(&plan, arena, &timing);
    s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 0, ZS_OP_SEND_ACT, 0, 1.0, 3.0);
    CHECK_TIMES(&s, 1, ZS_OP_SEND_ACT, 0, 1.0, 2.0);
}

static void set_shards(zs_plan_stage *stage, const int64_t *counts)
{
    int64_t first = 0;
    for (int i = 0; i < stage->n_ranks; i++) {
        stage->ranks[i].shard = (zs_shard){first, counts[i]};
        first += counts[i];
    }
}

/* Two ranks share 540 parameters: with 270 each, 1080 bytes cross a link in 1 ms. */
static void test_collectives(void)
{
    const double f[] = {1}, b[] = {2};
    zs_plan plan = check_plan(arena, "1+1", "2", ZS_SCHEDULE_1F1B);
    check_timing timing = check_timing_free(f, b);
    timing.nic_bytes_per_s = 1080e3;
    timing.nic_latency_ms = 0.25;
    const zm_model model = check_time_plan(&plan, arena, &timing);
    CHECK(plan.stages[0].n_params == 540, "%d", (int)plan.stages[0].n_params);
    zp_simulation s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 0, ZS_OP_REDUCE_GRADS, -1, 3.0, 4.25);
    CHECK_TIMES(&s, 1, ZS_OP_GRAD_NORM, -1, 4.25, 4.75);
    CHECK_TIMES(&s, 1, ZS_OP_GATHER_PARAMS, -1, 4.75, 6.0);

    set_shards(&plan.stages[0], (int64_t[]){405, 135});
    s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 1, ZS_OP_REDUCE_GRADS, -1, 3.0, 4.75);
    set_shards(&plan.stages[0], (int64_t[]){0, 540});
    s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 1, ZS_OP_REDUCE_GRADS, -1, 3.0, 5.25);
    set_shards(&plan.stages[0], (int64_t[]){270, 270});

    /* Half of the compute hides traffic: under 1F1B 1.5 ms, of both passes; under GPipe 0.5 ms in
     * the forward and 1 ms in the backward pass. */
    plan.stages[0].zero_stage = 2;
    s = simulate(&plan, &model, NULL); /* 1.25 ms to reduce: hidden */
    CHECK_TIMES(&s, 0, ZS_OP_BACKWARD, 0, 1.0, 3.0);
    plan.schedule = ZS_SCHEDULE_GPIPE;
    s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 0, ZS_OP_FORWARD, 0, 0.0, 1.0);
    CHECK_TIMES(&s, 0, ZS_OP_BACKWARD, 0, 1.0, 3.25);
    CHECK_TIMES(&s, 0, ZS_OP_REDUCE_GRADS, -1, 3.25, 3.25);
    CHECK_TIMES(&s, 0, ZS_OP_GATHER_PARAMS, -1, 3.75, 5.0);
    plan.schedule = ZS_SCHEDULE_1F1B;
    plan.stages[0].zero_stage = 3;
    s = simulate(&plan, &model, NULL); /* 3 x 1.25 ms, a third of them in the forward pass */
    CHECK_TIMES(&s, 0, ZS_OP_FORWARD, 0, 0.0, 1.75);
    CHECK_TIMES(&s, 0, ZS_OP_BACKWARD, 0, 1.75, 5.25);
    CHECK_TIMES(&s, 0, ZS_OP_GATHER_PARAMS, -1, 5.75, 5.75);
    plan.stages[0].recompute = true;
    plan.stages[0].zero_stage = 1;
    s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 0, ZS_OP_BACKWARD, 0, 1.0, 4.0);
}

/* Ranks on nodes by turns: two hops of the ring leave each node, 405 parameters over each. */
static void test_ring_over_nodes(void)
{
    const double f[] = {1}, b[] = {2};
    zs_plan plan = check_plan(arena, "1+1+1+1", "4", ZS_SCHEDULE_1F1B);
    check_timing timing = check_timing_free(f, b);
    timing.ranks_per_node = 2;
    timing.nic_bytes_per_s = 1620e3;
    const zm_model model = check_time_plan(&plan, arena, &timing);
    zp_simulation s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 3, ZS_OP_REDUCE_GRADS, -1, 3.0, 4.0);
    for (int i = 0; i < 4; i++) {
        plan.stages[0].ranks[i].node = i % 2;
        plan.stages[0].ranks[i].gpu = i / 2;
    }
    s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 3, ZS_OP_REDUCE_GRADS, -1, 3.0, 5.0);
}

/* The embedding of 128 parameters, all rank 0's, is 512 bytes: 1 ms; a sample 0.25 ms. */
static void test_tied(void)
{
    const double f[] = {1, 1}, b[] = {2, 2};
    zs_plan plan = check_plan(arena, "1|1", "1", ZS_SCHEDULE_1F1B);
    check_timing timing = check_timing_free(f, b);
    timing.nic_bytes_per_s = 512e3;
    timing.tied = true;
    const zm_model model = check_time_plan(&plan, arena, &timing);
    const zp_simulation s = simulate(&plan, &model, NULL);
    CHECK_TIMES(&s, 0, ZS_OP_BACKWARD, 0, 4.5, 6.5);
    CHECK_TIMES(&s, 0, ZS_OP_REDUCE_TIED, -1, 6.5, 7.5);
    CHECK_TIMES(&s, 1, ZS_OP_REDUCE_TIED, -1, 6.5, 7.5);
    CHECK_TIMES(&s, 1, ZS_OP_GATHER_TIED, -1, 7.5, 8.5);
    CHECK_NEAR(s.usage[1].compute_ms + s.usage[1].exposed_ms + s.usage[1].bubble_ms, 8.5, EXACT);
}

/* Two samples where only three are offered take as long as three; a rank without samples waits. */
static void test_sizes(void)
{
    const double f[] = {1}, b[] = {2};
    zs_error err;
    zs_plan plan = check_plan(arena, "3+0", "3+2", ZS_SCHEDULE_1F1B);
    check_timing timing = check_timing_free(f, b);
    timing.per_sample = 1;
    const zm_model model = check_time_plan(&plan, arena, &timing);
    zp_simulation s = simulate(&plan, &model, NULL);
    CHECK_NEAR(s.step_ms, 15, EXACT);
    CHECK_NEAR(s.usage[1].bubble_ms, 15, EXACT);
    for (int i = 0; i < plan.profile.n_entries; i++) {
        plan.profile.entries[i].points += 2;
        plan.profile.entries[i].n_points = 1;
    }
    s = simulate(&plan, &model, NULL);
    CHECK_NEAR(s.step_ms, 18, EXACT);
    plan.profile.entries[1].points[0].samples = 2;
    CHECK_FAILS(zp_simulate(&s, arena, &plan, &model, NULL, &err), &err, ZS_ERR_INPUT,
                "no block times of GPU type gpu 0 for 3 samples");
}

static void test_what_if(void)
{
    const double f[] = {1, 1}, b[] = {2, 2};
    zs_error err;
    zp_what_if w;
    zs_plan plan = check_plan(arena, "1|1", "1", ZS_SCHEDULE_1F1B);
    check_timing timing = check_timing_free(f, b);
    timing.nic_bytes_per_s = 128e3;
    const zm_model model = check_time_plan(&plan, arena, &timing);
    CHECK_NEAR(simulate(&plan, &model, "").step_ms, 8, EXACT);
    CHECK_NEAR(simulate(&plan, &model, "node0:gpu0 slower 10%").step_ms, 8.3, EXACT);
    CHECK_NEAR(simulate(&plan, &model, "gpu 1 slower 50%").step_ms, 9.5, EXACT);
    CHECK_NEAR(simulate(&plan, &model, "node1 faster 100%").step_ms, 6.5, EXACT);
    CHECK_NEAR(simulate(&plan, &model, "nic node0 half").step_ms, 10, EXACT);
    CHECK_NEAR(simulate(&plan, &model, "nic 50%, nic double").step_ms, 8, EXACT);
    CHECK_NEAR(simulate(&plan, &model, " nic 25% ,gpu 0 slower 100% ").step_ms, 17, EXACT);
    CHECK_NEAR(simulate(&plan, &model, "link half").step_ms, 8, EXACT);
    static const char *const bad[][2] = {
        {"node2 slower 10%", "\"node2\" is no GPU"},
        {"node0:gpu1 slower 10%", "no GPU"},
        {"node0 slower", "expected such as"},
        {"node0 slower 10", "\"10\" is no percentage"},
        {"node0 slower -1%", "out of range"},
        {"node0 slower x%", "node0 slower x%"},
        {"nic", "expected such as"},
        {"nic half,,nic half", "expected such as"},
        {"nic half,", "expected such as"},
        {"nic 0.001%", "out of range"},
        {"nic node7 half", "\"node7\" is no node"},
        {"nic node0 fast", "\"fast\" is no percentage"},
        {"nic node0 0%", "out of range"},
        {"node0 is slow", "expected such as"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(zp_what_if_parse(&w, arena, &plan.cluster, bad[i][0], &err), &err, ZS_ERR_INPUT,
                    bad[i][1]);
}

int main(void)
{
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_one_rank();
    test_equal_stages();
    test_unequal_stages();
    test_send();
    test_shared_nic();
    test_collectives();
    test_ring_over_nodes();
    test_tied();
    test_sizes();
    test_what_if();
    zs_arena_close(&arena);
    return check_done();
}
