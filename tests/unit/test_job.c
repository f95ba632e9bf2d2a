#include "shared/job.h"
#include "tests/support/check.h"

#include <math.h>
#include <string.h>

static zs_arena *arena;
static const char *golden; /* folder of golden files */

static bool parse(zs_job *job, const char *members, zs_error *err)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"format\": \"zplan-job\", \"version\": 1%s%s}",
             *members ? ", " : "", members);
    const zs_json *root = NULL;
    zs_job_set_defaults(job);
    return zs_json_parse(&root, arena, text, strlen(text), "job.json", err) &&
           zs_job_parse(job, NULL, NULL, NULL, root, err);
}

static void test_defaults(void)
{
    zs_job job;
    zs_error err;
    CHECK(parse(&job, "", &err), "%s", err.message);
    CHECK(job.global_batch == 0 && job.seq_len == 0, "missing");
    CHECK(job.precision == ZS_FP32 && job.recompute == ZS_RECOMPUTE_AUTO, "choices");
    CHECK(!job.zero_stages[0] && job.zero_stages[1] && job.zero_stages[2] && job.zero_stages[3],
          "ZeRO");
    CHECK(job.context_bytes == 1073741824 && job.reserve_bytes == 1073741824, "1 GiB each");
    CHECK_NEAR(job.overlap_zero, 0.7, 0);
    CHECK_NEAR(job.overlap_send, 0.7, 0);
    CHECK_FAILS(zs_job_check(&job, &err), &err, ZS_ERR_INPUT, "global_batch (--batch) is missing");
    job.global_batch = 8;
    CHECK_FAILS(zs_job_check(&job, &err), &err, ZS_ERR_INPUT, "seq_len (--seq) is missing");
    job.seq_len = 128;
    CHECK(zs_job_check(&job, &err), "%s", err.message);
}

static void test_file(void)
{
    const zs_json *root = NULL;
    const char *cluster = NULL, *model = NULL, *profile = NULL;
    zs_job job;
    zs_error err;
    zs_job_set_defaults(&job);
    const char *path = zs_arena_printf(arena, &err, "%s/two-stages/job.json", golden);
    if (!CHECK(zs_json_load(&root, arena, path, &err) &&
                   zs_job_parse(&job, &cluster, &model, &profile, root, &err),
               "%s", err.message))
        return;
    CHECK_STRING(cluster, "cluster.json");
    CHECK_STRING(model, "model.json");
    CHECK_STRING(profile, "profile.json");
    CHECK(job.global_batch == 8 && job.seq_len == 64 && job.max_micro_batch == 3, "numbers");
    CHECK(job.context_bytes == 536870912, "512 MiB");
    CHECK(zs_job_check(&job, &err), "%s", err.message);
}

static void test_refusals(void)
{
    static const char *const cases[][2] = {
        {"\"global_batch\": 0", "job.json: $.global_batch"},
        {"\"global_batch\": -4", "job.json: $.global_batch"},
        {"\"global_batch\": 2.5", "job.json: $.global_batch"},
        {"\"global_batch\": \"8\"", "job.json: $.global_batch"},
        {"\"global_batch\": null", "job.json: $.global_batch"},
        {"\"global_batch\": 1048577", "job.json: $.global_batch"},
        {"\"global_batch\": 8, \"global_batch\": 9", "global_batch"},
        {"\"Global_batch\": 8", "Global_batch"},
        {"\"seq_len\": 0", "job.json: $.seq_len"},
        {"\"precision\": \"fp16\"", "job.json: $.precision"},
        {"\"zero_stages\": []", "job.json: $.zero_stages"},
        {"\"zero_stages\": [0]", "job.json: $.zero_stages[0]"},
        {"\"zero_stages\": [1, 1]", "$.zero_stages[1]: 1 is listed twice"},
        {"\"recompute\": true", "job.json: $.recompute"},
        {"\"context\": 1073741824", "job.json: $.context"},
        {"\"reserve\": \"2PiB\"", "reserve of 2251799813685248 bytes"},
        {"\"overlap_zero\": 1.5", "job.json: $.overlap_zero"},
        {"\"overlap_send\": -0.1", "job.json: $.overlap_send"},
        {"\"n_stages\": -1", "job.json: $.n_stages"},
    };
    zs_job job;
    zs_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(parse(&job, cases[i][0], &err), &err, ZS_ERR_INPUT, cases[i][1]);
}

/* The same ranges where values come from options. */
static void test_check(void)
{
    zs_job good, job;
    zs_error err;
    zs_job_set_defaults(&good);
    good.global_batch = 8;
    good.seq_len = 128;
    CHECK(zs_job_check(&good, &err), "%s", err.message);
#define CHECK_FIELD(field, value, text)                                                            \
    do {                                                                                           \
        job = good;                                                                                \
        job.field = (value);                                                                       \
        CHECK_FAILS(zs_job_check(&job, &err), &err, ZS_ERR_INPUT, (text));                         \
    } while (0)
    CHECK_FIELD(global_batch, -4, "global_batch (--batch) is -4");
    CHECK_FIELD(global_batch, 1048577, "1 to 1048576");
    CHECK_FIELD(seq_len, -1, "seq_len (--seq) is -1");
    CHECK_FIELD(n_stages, -1, "n_stages (--stages)");
    CHECK_FIELD(max_micro_batch, -1, "max_micro_batch (--max-micro-batch)");
    CHECK_FIELD(max_gpus_per_stage, -1, "max_gpus_per_stage (--max-gpus-per-stage)");
    CHECK_FIELD(context_bytes, -1, "context_bytes (--context)");
    CHECK_FIELD(reserve_bytes, INT64_MAX, "reserve_bytes (--reserve)");
    CHECK_FIELD(overlap_zero, NAN, "overlap_zero (--overlap-zero) is nan");
    CHECK_FIELD(overlap_send, 1.01, "overlap_send (--overlap-send) is 1.01");
#undef CHECK_FIELD
    job = good;
    memset(job.zero_stages, 0, sizeof job.zero_stages);
    CHECK_FAILS(zs_job_check(&job, &err), &err, ZS_ERR_INPUT, "zero_stages (--zero) is empty");
}

static void test_write(void)
{
    zs_job job, again;
    zs_error err;
    zs_json_writer *w = NULL;
    const char *text = NULL;
    size_t size = 0;
    const zs_json *root = NULL;
    CHECK(parse(&job,
                "\"global_batch\": 10, \"seq_len\": 7, \"precision\": \"bf16\", \"zero_stages\": "
                "[2], \"recompute\": \"full\", \"n_stages\": 3, \"max_gpus_per_stage\": 1, "
                "\"context\": \"1.5GiB\", \"reserve_bytes\": 0, \"overlap_zero\": 0.1",
                &err),
          "%s", err.message);
    if (!CHECK(zs_json_writer_open(&w, &err), "%s", err.message))
        return;
    zs_job_write(w, NULL, &job);
    zs_job_set_defaults(&again);
    if (CHECK(zs_json_writer_text(w, &text, &size, &err) &&
                  zs_json_parse(&root, arena, text, size, "again", &err) &&
                  zs_job_parse(&again, NULL, NULL, NULL, root, &err),
              "%s", err.message)) {
        CHECK(again.global_batch == 10 && again.seq_len == 7 && again.precision == ZS_BF16 &&
                  !again.zero_stages[1] && again.zero_stages[2] && !again.zero_stages[3] &&
                  again.recompute == ZS_RECOMPUTE_FULL && again.n_stages == 3 &&
                  again.max_gpus_per_stage == 1 && again.context_bytes == 1610612736 &&
                  again.reserve_bytes == 0 && again.max_micro_batch == 0,
              "%s", text);
        CHECK_NEAR(again.overlap_zero, 0.1, 0);
    }
    zs_json_writer_close(&w);
}

int main(int argc, char **argv)
{
    zs_error err;
    if (argc < 2 || !zs_arena_open(&arena, &err))
        return 1;
    golden = argv[1];
    test_defaults();
    test_file();
    test_refusals();
    test_check();
    test_write();
    zs_arena_close(&arena);
    return check_done();
}
