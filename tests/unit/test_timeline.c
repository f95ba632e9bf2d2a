/* Picture, table and trace of timelines. */
#include "planner/simulate.h"
#include "tests/support/check.h"
#include "tests/support/files.h"
#include "tests/support/timed_plans.h"

#include <stdlib.h>
#include <string.h>

static zs_arena *arena;

static const double EXACT = 1e-12;

/* Two stages, three micro-batches, forward 1 ms, backward 3 ms: 16 ms, 4 columns of the picture a
 * millisecond. */
static zs_timeline two_stages(void)
{
    const double f[] = {1, 1}, b[] = {3, 3};
    zs_error err;
    zs_plan plan = check_plan(arena, "1|1", "1+1+1", ZS_SCHEDULE_1F1B);
    const check_timing timing = check_timing_free(f, b);
    const zm_model model = check_time_plan(&plan, arena, &timing);
    plan.cluster.nodes[1].name = "a \"node\"";
    zp_simulation s = {0};
    CHECK(zp_simulate(&s, arena, &plan, &model, NULL, &err), "%s", err.message);
    return s.timeline;
}

static const char *print(const zs_timeline *timeline)
{
    static char text[4096];
    zs_error err;
    FILE *out = fmemopen(text, sizeof text, "w");
    CHECK(out && zs_timeline_print(out, timeline, &err), "%s", err.message);
    if (out)
        fclose(out);
    return text;
}

static void test_picture(void)
{
    const zs_timeline timeline = two_stages();
    CHECK_NEAR(zs_timeline_end_ms(&timeline), 16, EXACT);
    CHECK_STRING(print(&timeline),
                 " rank stage  0 to 16 ms, 0.25 ms a column\n"
                 "    0     0 |00001111............aaaaaaaaaaaa2222bbbbbbbbbbbb....cccccccccccc|\n"
                 "    1     1 |....0000aaaaaaaaaaaa1111bbbbbbbbbbbb2222cccccccccccc............|\n"
                 "            0-9 forward, a-j backward of a micro-batch (last digit), * step,\n"
                 "            ~ communication that nothing hides, . waiting\n");

    /* communication beside compute is hidden, alone it is not; what a column has most of shows */
    zs_timeline_event events[] = {{ZS_OP_STEP, -1, -1, 32, 64},
                                  {ZS_OP_FORWARD, 13, -1, 0, 8.5},
                                  {ZS_OP_SEND_ACT, 13, 1, 4, 16.25},
                                  {ZS_OP_RECV_ACT, 14, 1, 6, 20.75},
                                  {ZS_OP_GRAD_NORM, -1, -1, 24.75, 25}};
    zs_timeline_rank rank = {.stage = 7, .name = "", .n_events = 5, .events = events};
    const zs_timeline one = {.n_ranks = 1, .ranks = &rank};
    const char *row = strchr(print(&one), '|');
    CHECK(row && strncmp(row, "|333333333~~~~~~~~~~~~...........********************************|",
                         66) == 0,
          "%s", row ? row : "");
    zs_error err;
    zs_timeline_usage usage;
    CHECK(zs_timeline_use(&usage, &one, &err), "%s", err.message);
    CHECK_NEAR(usage.compute_ms, 40.5, EXACT);
    CHECK_NEAR(usage.exposed_ms, 12.5, EXACT);
    CHECK_NEAR(usage.bubble_ms, 11, EXACT);

    const zs_timeline empty = {0};
    CHECK(zs_timeline_use(&usage, &empty, &err), "%s", err.message);
    CHECK_NEAR(zs_timeline_end_ms(&empty), 0, EXACT);
    rank.n_events = 0;
    CHECK(strstr(print(&one), "|......"), "%s", print(&one));
}

static void test_csv(void)
{
    const zs_timeline timeline = two_stages();
    zs_error err;
    const char *path = check_path("timeline.csv");
    CHECK(zs_timeline_save_csv(&timeline, path, &err), "%s", err.message);
    size_t size = 0;
    char *text = check_read_file(path, &size);
    CHECK(text != NULL, "no file");
    if (!text)
        return;
    int n_lines = 0;
    for (size_t i = 0; i < size; i++)
        n_lines += text[i] == '\n';
    CHECK(n_lines == 1 + timeline.ranks[0].n_events + timeline.ranks[1].n_events, "%d", n_lines);
    static const char first[] = "rank,stage,lane,op,micro_batch,peer,start_ms,end_ms\n"
                                "0,0,compute,forward,0,-1,0,1\n"
                                "0,0,send,send_act,0,1,1,1\n";
    CHECK(strncmp(text, first, sizeof first - 1) == 0, "%.200s", text);
    CHECK(strstr(text, "\n1,1,recv,recv_act,0,0,1,1\n") != NULL, "receive");
    CHECK(strstr(text, "\n1,1,collective,grad_norm,-1,-1,16,16\n") != NULL, "norm");
    free(text);
}

static void check_event(const zs_json *event, const zs_timeline *timeline, int *n_complete)
{
    const char *phase = "", *name = "";
    int64_t rank = 0, lane = 0;
    zs_error err;
    const zs_json *args = NULL;
    if (!CHECK(zs_json_get_string(&phase, event, "ph", &err) &&
                   zs_json_get_string(&name, event, "name", &err) &&
                   zs_json_get_int(&rank, event, "pid", 0, timeline->n_ranks - 1, &err) &&
                   zs_json_get_int(&lane, event, "tid", 0, ZS_N_LANES - 1, &err) &&
                   zs_json_get(&args, event, "args", &err),
               "%s", err.message))
        return;
    if (strcmp(phase, "M") == 0) {
        const char *text = "";
        if (strcmp(name, "process_name") == 0 &&
            CHECK(zs_json_get_string(&text, args, "name", &err), "%s", err.message))
            CHECK_STRING(text, timeline->ranks[rank].name);
        if (strcmp(name, "thread_name") == 0 &&
            CHECK(zs_json_get_string(&text, args, "name", &err), "%s", err.message))
            CHECK_STRING(text, zs_lane_names[lane]);
        return;
    }
    CHECK_STRING(phase, "X");
    double ts = 0, dur = 0;
    if (CHECK(zs_json_get_double(&ts, event, "ts", 0, 16000, &err) &&
                  zs_json_get_double(&dur, event, "dur", 0, 3000, &err),
              "%s", err.message) &&
        rank == 1 && strcmp(name, "backward 1") == 0) {
        CHECK_NEAR(ts, 6000, EXACT);
        CHECK_NEAR(dur, 3000, EXACT);
    }
    ++*n_complete;
}

static void test_trace(void)
{
    const zs_timeline timeline = two_stages();
    zs_error err;
    const zs_json *root = NULL, *events = NULL;
    const char *path = check_path("trace.json");
    CHECK(zs_timeline_save_trace(&timeline, path, &err), "%s", err.message);
    if (!CHECK(zs_json_load(&root, arena, path, &err) &&
                   zs_json_get(&events, root, "traceEvents", &err),
               "%s", err.message))
        return;
    int n_complete = 0;
    for (int i = 0; i < zs_json_n_items(events); i++)
        check_event(zs_json_item(events, i), &timeline, &n_complete);
    CHECK(n_complete == timeline.ranks[0].n_events + timeline.ranks[1].n_events, "%d", n_complete);
    CHECK(zs_json_n_items(events) - n_complete == 2 * (2 + 2 * ZS_N_LANES), "metadata");
    CHECK_FAILS(zs_timeline_save_trace(&timeline, "/nowhere/trace.json", &err), &err,
                ZS_ERR_RUNTIME, "/nowhere/trace.json");
    CHECK_FAILS(zs_timeline_save_csv(&timeline, "/nowhere/t.csv", &err), &err, ZS_ERR_RUNTIME,
                "/nowhere/t.csv");
}

int main(void)
{
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_picture();
    test_csv();
    test_trace();
    zs_arena_close(&arena);
    return check_done();
}
