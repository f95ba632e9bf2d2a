#include "shared/plan.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static zs_arena *arena;
static const char *handwritten; /* paths of golden files */
static const char *normal_form;

static const char *write(const zs_plan *plan)
{
    zs_json_writer *w = NULL;
    const char *text = NULL;
    char *copy = NULL;
    size_t size = 0;
    zs_error err;
    if (!CHECK(zs_json_writer_open(&w, &err), "%s", err.message))
        return "";
    if (CHECK(zs_plan_write(w, plan, &err) && zs_json_writer_text(w, &text, &size, &err), "%s",
              err.message))
        copy = zs_arena_strndup(arena, text, size, &err);
    zs_json_writer_close(&w);
    return copy ? copy : "";
}

static void test_handwritten(void)
{
    zs_plan p;
    zs_error err;
    if (!CHECK(zs_plan_load(&p, arena, handwritten, &err), "%s", err.message))
        return;
    CHECK(p.n_stages == 2 && p.n_blocks == 5 && p.n_micro_batches == 3, "shape");
    CHECK_STRING(p.model_name, "two-stages");
    CHECK(p.schedule == ZS_SCHEDULE_1F1B && p.job.global_batch == 8, "job");
    const zs_plan_stage *a = &p.stages[0], *b = &p.stages[1];
    CHECK(a->backward.first == 0 && a->backward.end == 3 && !a->recompute && a->zero_stage == 2,
          "stage 0");
    CHECK(b->recompute && b->n_ranks == 1 && b->n_params == 6592, "stage 1");
    CHECK(a->ranks[1].shard.first == 7963 && a->ranks[1].samples == 1, "rank 1");
    CHECK(b->ranks[0].node == 1 && b->ranks[0].gpu == 1, "by uuid: %d", b->ranks[0].gpu);
    CHECK(p.n_unused == 1 && p.unused[0].node == 1 && p.unused[0].gpu == 0, "by PCI bus id");
    CHECK_STRING(p.unused[0].reason, "kept for the display");
    CHECK_STRING(p.certificate.status, "feasible");
    CHECK(p.certificate.gap == 1 && p.step_ms == 0 && zs_memory_total(&a->ranks[0].memory) == 0,
          "nothing predicted");
}

static void test_normal_form(void)
{
    zs_plan p, again;
    zs_error err;
    if (!CHECK(zs_plan_load(&p, arena, handwritten, &err) &&
                   zs_plan_load(&again, arena, normal_form, &err),
               "%s", err.message))
        return;
    char *expected = check_read_file(normal_form, NULL);
    if (CHECK(expected, "cannot read %s", normal_form)) {
        CHECK_STRING(write(&p), expected);
        CHECK_STRING(write(&again), expected);
    }
    const char *path = check_path("plan.json");
    if (CHECK(zs_plan_save(&p, path, &err), "%s", err.message)) {
        char *saved = check_read_file(path, NULL);
        CHECK(saved && expected && strcmp(saved, expected) == 0, "saved differs from written");
        free(saved);
    }
    free(expected);
}

static void test_look_ups(void)
{
    zs_plan p;
    zs_error err;
    if (!CHECK(zs_plan_load(&p, arena, handwritten, &err), "%s", err.message))
        return;
    CHECK(zs_plan_n_ranks(&p) == 3, "ranks");
    CHECK(zs_plan_first_rank(&p, 0) == 0 && zs_plan_first_rank(&p, 1) == 2, "first ranks");
    static const int stage_of[] = {0, 0, 1};
    for (int rank = 0; rank < 3; rank++)
        CHECK(zs_plan_stage_of(&p, rank) == stage_of[rank], "rank %d", rank);
    CHECK(zs_plan_rank_at(&p, 1) == &p.stages[0].ranks[1], "rank 1");
    CHECK(zs_plan_rank_at(&p, 2) == &p.stages[1].ranks[0], "rank 2");
}

/* min(m, S - s): 4 stages with 8, 2 and 1 micro-batches. */
static void test_in_flight(void)
{
    static const int n_micro_batches[] = {8, 2, 1};
    static const int expected[3][4] = {{4, 3, 2, 1}, {2, 2, 2, 1}, {1, 1, 1, 1}};
    for (int i = 0; i < 3; i++)
        for (int stage = 0; stage < 4; stage++) {
            zs_plan p = {
                .schedule = ZS_SCHEDULE_1F1B, .n_stages = 4, .n_micro_batches = n_micro_batches[i]};
            CHECK(zs_plan_in_flight(&p, stage) == expected[i][stage], "m %d, stage %d: %d",
                  n_micro_batches[i], stage, zs_plan_in_flight(&p, stage));
            p.schedule = ZS_SCHEDULE_GPIPE;
            CHECK(zs_plan_in_flight(&p, stage) == n_micro_batches[i], "gpipe");
        }
}

/* A fresh copy of the golden plan, to be spoilt. */
static zs_plan fresh(void)
{
    zs_plan p = {0};
    zs_error err;
    CHECK(zs_plan_load(&p, arena, handwritten, &err), "%s", err.message);
    return p;
}

#define CHECK_BROKEN(text, ...)                                                                    \
    do {                                                                                           \
        zs_plan p = fresh();                                                                       \
        zs_error err;                                                                              \
        if (p.n_stages == 2) {                                                                     \
            __VA_ARGS__;                                                                           \
            CHECK_FAILS(zs_plan_check(&p, &err), &err, ZS_ERR_INPUT, (text));                      \
        }                                                                                          \
    } while (0)

static void set_blocks(zs_plan *p, int stage, int first, int end)
{
    p->stages[stage].forward = p->stages[stage].backward = (zs_range){first, end};
}

static void test_block_rules(void)
{
    CHECK_BROKEN("$.stages: block 4 of 5 is in no stage", set_blocks(&p, 1, 3, 4));
    CHECK_BROKEN("$.stages: blocks 3 to 4 of 7 are in no stage", p.n_blocks = 7;
                 set_blocks(&p, 1, 5, 7));
    CHECK_BROKEN("$.stages: blocks 0 to 1 of 5 are in no stage", set_blocks(&p, 0, 2, 3));
    CHECK_BROKEN("$.stages[1].forward: block 2 is already in stage 0", set_blocks(&p, 1, 2, 5));
    CHECK_BROKEN("$.stages[1].forward: blocks 0 to 2 are already in stage 0",
                 set_blocks(&p, 1, 0, 5));
    CHECK_BROKEN("$.stages[0].forward: blocks 3 to 4 out of order, expected a stage that begins "
                 "at block 0",
                 set_blocks(&p, 0, 3, 5);
                 set_blocks(&p, 1, 0, 3));
    CHECK_BROKEN("$.stages[1].forward: block 5, but the model has 5 blocks, 0 to 4",
                 set_blocks(&p, 1, 3, 6));
    CHECK_BROKEN("$.stages[1].forward: blocks 3 to 4, but the model has 3 blocks", p.n_blocks = 3);
    CHECK_BROKEN("$.stages: blocks 5 to 6 of 7 are in no stage", p.n_blocks = 7);
    CHECK_BROKEN("$.stages[0].forward: [3, 3], a stage without blocks", set_blocks(&p, 0, 3, 3));
    CHECK_BROKEN("$.stages[0].forward: [3, 2]", set_blocks(&p, 0, 3, 2));
    CHECK_BROKEN("$.stages[0].forward: [-1, 3]", set_blocks(&p, 0, -1, 3));
    CHECK_BROKEN("$.stages[0].backward: [0, 2] differs from forward [0, 3]",
                 p.stages[0].backward.end = 2);
    CHECK_BROKEN("$.inputs.model.n_blocks: 0", p.n_blocks = 0);
    CHECK_BROKEN("$.stages: empty", p.n_stages = 0);
}

static void test_sample_rules(void)
{
    CHECK_BROKEN("$.micro_batches: sum to 7 samples, expected the global batch, 8",
                 p.micro_batches[2] = 1);
    CHECK_BROKEN("$.micro_batches[2]: 0 samples", p.micro_batches[2] = 0);
    CHECK_BROKEN("$.micro_batches: empty", p.n_micro_batches = 0);
    CHECK_BROKEN("$.stages[0].ranks: samples sum to 4, expected 3, the largest micro-batch",
                 p.stages[0].ranks[1].samples = 2);
    CHECK_BROKEN("$.stages[0].ranks[1].samples: -1", p.stages[0].ranks[1].samples = -1;
                 p.stages[0].ranks[0].samples = 4);
    CHECK_BROKEN("$.stages[1].ranks: empty", p.stages[1].n_ranks = 0);
}

static void test_shard_rules(void)
{
    CHECK_BROKEN("$.stages[0].shards: cover 11375 of 11376 parameters",
                 p.stages[0].ranks[1].shard.count--);
    CHECK_BROKEN("$.stages[0].shards: gap before rank 1", p.stages[0].ranks[0].shard.count--);
    CHECK_BROKEN("$.stages[0].shards: rank 1 begins at 7963, expected 7964",
                 p.stages[0].ranks[0].shard.count++);
    CHECK_BROKEN("$.stages[1].n_params: 0", p.stages[1].n_params = 0);
    CHECK_BROKEN("$.stages[1].zero_stage: 0", p.stages[1].zero_stage = 0);
    CHECK_BROKEN("$.stages[1].zero_stage: 4", p.stages[1].zero_stage = 4);
}

static void test_device_rules(void)
{
    CHECK_BROKEN("$.stages[0].ranks[1]: device 0 of node \"node0\" is already rank 0 of stage 0",
                 p.stages[0].ranks[1].gpu = 0);
    CHECK_BROKEN("$.stages[1].ranks[0]: device 0 of node \"old\" is listed as unused too",
                 p.stages[1].ranks[0].gpu = 0);
    CHECK_BROKEN("$.unused_devices: device 0 of node \"old\" (RTX-2080Ti) is in no stage",
                 p.n_unused = 0);
    CHECK_BROKEN("$.stages[1].ranks[0].node: 2, expected 0 to 1", p.stages[1].ranks[0].node = 2);
    CHECK_BROKEN("$.stages[1].ranks[0].gpu: 2, but node \"old\" has 2 devices",
                 p.stages[1].ranks[0].gpu = 2);
    CHECK_BROKEN("$.unused_devices[0].gpu: -1", p.unused[0].gpu = -1);
    CHECK_BROKEN("$.stages[1].ranks[0]: precision bf16, but RTX-2080Ti has compute capability 7.5",
                 p.job.precision = ZS_BF16);
}

static void test_other_rules(void)
{
    CHECK_BROKEN("$.inputs.job: seq_len", p.job.seq_len = 0);
    CHECK_BROKEN("$.schedule", p.schedule = ZS_N_SCHEDULES);
    CHECK_BROKEN("$.stages[0].ranks[1].memory_bytes.logits_bytes: -1",
                 p.stages[0].ranks[1].memory.logits_bytes = -1);
    CHECK_BROKEN("$.stages[1].micro_batch_ms: nan", p.stages[1].micro_batch_ms = NAN);
    CHECK_BROKEN("$.stages[1].sync_ms: -1", p.stages[1].sync_ms = -1);
    CHECK_BROKEN("$.predicted.step_ms: inf", p.step_ms = INFINITY);
    CHECK_BROKEN("$.predicted.bubble_share: 1.5", p.bubble_share = 1.5);
    CHECK_BROKEN("$.certificate.status: \"best\"", p.certificate.status = "best");
    CHECK_BROKEN("$.certificate.objective_ms: -1", p.certificate.objective_ms = -1);
    CHECK_BROKEN("$.certificate.lower_bound_ms: 3", p.certificate.lower_bound_ms = 3;
                 p.certificate.objective_ms = 2);
    CHECK_BROKEN("$.certificate.gap: 0, expected (objective_ms - lower_bound_ms) / objective_ms, "
                 "0.25",
                 p.certificate.objective_ms = 4;
                 p.certificate.lower_bound_ms = 3; p.certificate.gap = 0);
    CHECK_BROKEN("$.certificate: n_solves -1", p.certificate.n_solves = -1);
}

/* Loads the golden plan with its first `from` replaced by `to`. */
static bool load_edited(const char *from, const char *to, zs_error *err)
{
    size_t size = 0;
    char *text = check_read_file(handwritten, &size);
    char *at = text ? strstr(text, from) : NULL;
    if (!CHECK(at, "the golden plan has no %s", from)) {
        free(text);
        return true;
    }
    *at = 0;
    const char *edited = zs_arena_printf(arena, err, "%s%s%s", text, to, at + strlen(from));
    free(text);
    const zs_json *root = NULL;
    zs_plan p;
    return edited && zs_json_parse(&root, arena, edited, strlen(edited), "plan.json", err) &&
           zs_plan_parse(&p, arena, root, err);
}

static void test_file_rules(void)
{
    static const char *const cases[][3] = {
        {"[0, 3]", "[0, 2]", "plan.json: $.stages: block 2 of 5 is in no stage"},
        {"[0, 3]", "[0, 3.5]", "plan.json: $.stages[0].forward[1]"},
        {"[0, 3]", "[0]", "plan.json: $.stages[0].forward"},
        {"\"n_blocks\": 5", "\"n_blocks\": 6", "block 5 of 6 is in no stage"},
        {"\"schedule\": \"1f1b\"", "\"schedule\": \"2f2b\"", "plan.json: $.schedule"},
        {"\"schedule\": \"1f1b\",", "", "schedule"},
        {"[3, 3, 2]", "[3, 3, 0]", "plan.json: $.micro_batches[2]"},
        {"[3, 3, 2]", "[3, 3, 2, 1]", "sum to 9 samples"},
        {"\"zero_stage\": 2", "\"zero_stage\": 0", "plan.json: $.stages[0].zero_stage"},
        {"\"recompute\": \"full\"", "\"recompute\": \"auto\"", "plan.json: $.stages[1].recompute"},
        {"\"node\": \"node0\", \"gpu\": 0", "\"node\": \"node7\", \"gpu\": 0",
         "plan.json: $.stages[0].ranks[0].node: \"node7\" is no node"},
        {"\"node\": \"node0\", \"gpu\": 0", "\"node\": \"node0\", \"gpu\": 2",
         "plan.json: $.stages[0].ranks[0].gpu"},
        {"\"node\": \"node0\", \"gpu\": 0", "\"node\": \"node0\"", "gpu"},
        {"\"A100-40G\"", "\"A100-80\"",
         "$.stages[0].ranks[1].device: \"A100-80\", but device 1 of node \"node0\" is a A100-40"},
        {"\"device_memory\": \"40GiB\"", "\"device_memory\": \"39GiB\"",
         "$.stages[0].ranks[1]: device memory of 41875931136 bytes"},
        {"\"node\": \"old\", \"uuid\": \"GPU-9a41\"", "\"node\": \"old\", \"uuid\": \"GPU-0000\"",
         "$.stages[1].ranks[0].uuid: \"GPU-0000\" is no device of node \"old\""},
        {"\"node\": \"old\", \"uuid\": \"GPU-9a41\"", "\"node\": \"node0\", \"uuid\": \"GPU-9a41\"",
         "$.stages[1].ranks[0].uuid"},
        {"\"node\": \"old\", \"uuid\": \"GPU-9a41\"",
         "\"node\": \"old\", \"uuid\": \"GPU-9a41\", \"gpu\": 0", "$.stages[1].ranks[0].gpu: 0"},
        {"\"node\": \"old\", \"uuid\": \"GPU-9a41\"",
         "\"node\": \"old\", \"uuid\": \"GPU-9a41\", \"pci_bus_id\": \"00000000:3B:00.0\"",
         "$.stages[1].ranks[0].pci_bus_id"},
        {"\"samples\": 3, \"shard\"",
         "\"samples\": 3, \"memory_bytes\": {\"weights_bytes\": 5, "
         "\"total_bytes\": 6}, \"shard\"",
         "memory_bytes.total_bytes: 6, expected 5"},
        {"\"samples\": 3, \"shard\"", "\"sample\": 3, \"shard\"", "sample"},
        {"\"count\": 6592", "\"count\": 6591", "$.stages[1].shards: cover 6591 of 6592"},
        {"\"count\": 6592", "\"count\": 9007199254740993", "$.stages[1].ranks[0].shard.count"},
        {"\"unused_devices\": [", "\"unused_devices\": [{\"node\": \"old\", \"gpu\": 1},",
         "$.stages[1].ranks[0]: device 1 of node \"old\" is listed as unused too"},
        {"\"unused_devices\"", "\"Unused_devices\"", "Unused_devices"},
        {"\"unused_devices\"",
         "\"certificate\": {\"status\": \"optimal\", \"objective_ms\": 2, \"lower_bound_ms\": 2}, "
         "\"unused_devices\"",
         "$.certificate.gap"},
        {"\"zplan-plan\"", "\"zplan-job\"", "zplan-plan"},
        {"\"model_name\": \"two-stages\",", "", "model_name"},
    };
    zs_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(load_edited(cases[i][0], cases[i][1], &err), &err, ZS_ERR_INPUT, cases[i][2]);
    CHECK(load_edited("[3, 3, 2]", "[3, 2, 3]", &err), "%s", err.message);
    CHECK(load_edited("\"samples\": 3, \"shard\"",
                      "\"samples\": 3, \"memory_bytes\": {\"weights_bytes\": 5, \"total_bytes\": "
                      "5}, \"shard\"",
                      &err),
          "%s", err.message);
}

int main(int argc, char **argv)
{
    zs_error err;
    if (argc < 2 || !zs_arena_open(&arena, &err))
        return 1;
    handwritten = zs_arena_printf(arena, &err, "%s/two-stages/handwritten.json", argv[1]);
    normal_form = zs_arena_printf(arena, &err, "%s/two-stages/plan.json", argv[1]);
    test_handwritten();
    test_normal_form();
    test_look_ups();
    test_in_flight();
    test_block_rules();
    test_sample_rules();
    test_shard_rules();
    test_device_rules();
    test_other_rules();
    test_file_rules();
    zs_arena_close(&arena);
    return check_done();
}
