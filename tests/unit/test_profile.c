#include "shared/profile.h"
#include "tests/support/check.h"

#include <string.h>

static zs_arena *arena;

static bool parse_text(zs_profile *out, const char *text, zs_error *err)
{
    const zs_json *root = NULL;
    return zs_json_parse(&root, arena, text, strlen(text), "p.json", err) &&
           zs_profile_parse(out, arena, root, err);
}

/* A profile of one entry: a block on an A100-40, fp32, 1024 tokens. */
static bool parse_points(zs_profile *out, const char *points, zs_error *err)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"format\": \"zplan-profile\", \"version\": 1, \"model\": \"m\", \"entries\": "
             "[{\"device_type\": \"A100-40G\", \"kind\": \"block\", \"precision\": \"fp32\", "
             "\"seq_len\": 1024, \"points\": [%s]}]}",
             points);
    return parse_text(out, text, err);
}

#define POINT(samples, forward, backward)                                                          \
    "{\"samples\": " #samples ", \"forward_ms\": " #forward ", \"backward_ms\": " #backward "}"
#define OOM(samples) "{\"samples\": " #samples ", \"out_of_memory\": true}"

static const zs_profile_entry *only_entry(const char *points)
{
    static zs_profile profile;
    zs_error err;
    if (!CHECK(parse_points(&profile, points, &err), "%s", err.message))
        return NULL;
    const zs_profile_entry *entry =
        zs_profile_find(&profile, "A100-40", ZS_LAYER_BLOCK, ZS_FP32, 1024);
    CHECK(entry, "entry not found");
    return entry;
}

static void check_time(const zs_profile_entry *entry, int samples, double forward, double backward,
                       bool expected_interpolated)
{
    double f = 0, b = 0;
    bool interpolated = false;
    if (!CHECK(zs_profile_time(&f, &b, &interpolated, entry, samples), "%d is not offered",
               samples))
        return;
    CHECK_NEAR(f, forward, 1e-15);
    CHECK_NEAR(b, backward, 1e-15);
    CHECK(interpolated == expected_interpolated, "%d: interpolated %d", samples, interpolated);
}

static void check_not_offered(const zs_profile_entry *entry, int samples)
{
    double f = -1, b = -1;
    bool interpolated = true;
    CHECK(!zs_profile_time(&f, &b, &interpolated, entry, samples) && f == -1 && b == -1,
          "%d is offered: %g, %g", samples, f, b);
}

/* 1: 10, 2: 18, 8: 66, 16: out of memory; 4 is 18 + 2/6 * 48 = 34. */
static void test_interpolation(void)
{
    const zs_profile_entry *e =
        only_entry(POINT(1, 10, 20) "," POINT(2, 18, 36) "," POINT(8, 66, 132) "," OOM(16));
    if (!e)
        return;
    check_time(e, 1, 10, 20, false);
    check_time(e, 2, 18, 36, false);
    check_time(e, 4, 34, 68, true);
    check_time(e, 8, 66, 132, false);
    check_not_offered(e, 9);
    check_not_offered(e, 16);
    check_not_offered(e, 17);

    e = only_entry(POINT(1, 10, 20));
    if (e) {
        check_time(e, 1, 10, 20, false);
        check_not_offered(e, 2);
    }
    e = only_entry(POINT(2, 10, 20) "," POINT(4, 14, 28));
    if (e) {
        check_not_offered(e, 1); /* below the smallest */
        check_time(e, 3, 12, 24, true);
    }
    e = only_entry(POINT(1, 10, 20) "," POINT(2, 9, 18) "," POINT(4, 20, 40));
    if (e) { /* noise: faster with more samples */
        check_time(e, 2, 9, 18, false);
        check_time(e, 3, 14.5, 29, true);
    }
    e = only_entry(OOM(1));
    if (e)
        check_not_offered(e, 1);
}

static void test_find(void)
{
    zs_profile p;
    zs_error err;
    if (!CHECK(parse_points(&p, POINT(1, 0.5, 1), &err), "%s", err.message))
        return;
    CHECK(!zs_profile_find(&p, "A100-80", ZS_LAYER_BLOCK, ZS_FP32, 1024), "other type");
    CHECK(!zs_profile_find(&p, "A100-40", ZS_LAYER_HEAD, ZS_FP32, 1024), "other kind");
    CHECK(!zs_profile_find(&p, "A100-40", ZS_LAYER_BLOCK, ZS_BF16, 1024), "other precision");
    CHECK(!zs_profile_find(&p, "A100-40", ZS_LAYER_BLOCK, ZS_FP32, 512), "other length");
}

static void test_refusals(void)
{
    static const char *const times[] = {"NaN", "1e999", "-3", "0", "null", "\"12\"", "[1]", "1e10"};
    zs_profile p;
    zs_error err;
    char points[512];
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        snprintf(points, sizeof points,
                 POINT(1, 1, 1) ",{\"samples\": 2, \"forward_ms\": %s, "
                                "\"backward_ms\": 2}",
                 times[i]);
        /* NaN and 1e999 are no JSON numbers of this program: place or line and column */
        CHECK_FAILS(parse_points(&p, points, &err), &err, ZS_ERR_INPUT,
                    i < 2 ? "p.json:1:" : "$.entries[0].points[1].forward_ms");
    }
    static const char *const cases[][2] = {
        {"{\"samples\": 1, \"backward_ms\": 2}", "forward_ms"},
        {"{\"samples\": 1, \"forward_ms\": 2}", "backward_ms"},
        {"{\"forward_ms\": 2, \"backward_ms\": 2}", "samples"},
        {POINT(0, 1, 1), "$.entries[0].points[0].samples"},
        {POINT(1.5, 1, 1), "$.entries[0].points[0].samples"},
        {POINT(2, 1, 1) "," POINT(2, 1, 1), "points[1]: samples are 2 after 2"},
        {POINT(2, 1, 1) "," POINT(1, 1, 1), "points[1]: samples are 1 after 2"},
        {OOM(2) "," POINT(4, 1, 1), "4 samples have times, but 2 were out of memory"},
        {"{\"samples\": 1, \"out_of_memory\": true, \"forward_ms\": 1}", "has no times"},
        {"{\"samples\": 1, \"out_of_memory\": false}", "forward_ms"},
        {"{\"samples\": 1, \"forward_us\": 1, \"backward_ms\": 1}", "forward_us"},
        {"", "$.entries[0].points"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(parse_points(&p, cases[i][0], &err), &err, ZS_ERR_INPUT, cases[i][1]);
    CHECK_FAILS(
        parse_text(
            &p,
            "{\"format\": \"zplan-profile\", \"version\": 1, \"model\": \"m\", \"entries\": "
            "[{\"device_type\": \"T4\", \"kind\": \"head\", \"precision\": \"fp32\", "
            "\"seq_len\": 8, \"points\": [" POINT(
                1, 1,
                1) "]},"
                   "{\"device_type\": \"T4-16G\", \"kind\": \"head\", \"precision\": \"fp32\", "
                   "\"seq_len\": 8, \"points\": [" POINT(1, 1, 1) "]}]}",
            &err),
        &err, ZS_ERR_INPUT, "$.entries[1]: a second entry for T4, head, fp32, seq_len 8");
    CHECK_FAILS(parse_text(&p,
                           "{\"format\": \"zplan-profile\", \"version\": 1, \"model\": \"m\", "
                           "\"entries\": []}",
                           &err),
                &err, ZS_ERR_INPUT, "$.entries");
}

static void test_round_trip(const char *golden)
{
    zs_profile p, again;
    zs_error err;
    zs_json_writer *w[2] = {NULL, NULL};
    const char *text[2] = {NULL, NULL};
    size_t size[2];
    const zs_json *root = NULL;
    const char *path = zs_arena_printf(arena, &err, "%s/two-stages/profile.json", golden);
    if (!CHECK(zs_profile_load(&p, arena, path, &err) && zs_json_writer_open(&w[0], &err) &&
                   zs_json_writer_open(&w[1], &err),
               "%s", err.message))
        return;
    CHECK(p.n_entries == 6 && p.entries[4].n_points == 4 && p.entries[4].points[3].out_of_memory,
          "entries");
    CHECK_STRING(p.source, "made up for tests");
    zs_profile_write(w[0], NULL, &p);
    if (CHECK(zs_json_writer_text(w[0], &text[0], &size[0], &err) &&
                  zs_json_parse(&root, arena, text[0], size[0], "again", &err) &&
                  zs_profile_parse(&again, arena, root, &err),
              "%s", err.message)) {
        zs_profile_write(w[1], NULL, &again);
        if (CHECK(zs_json_writer_text(w[1], &text[1], &size[1], &err), "%s", err.message))
            CHECK_STRING(text[1], text[0]);
    }
    zs_json_writer_close(&w[0]);
    zs_json_writer_close(&w[1]);
}

int main(int argc, char **argv)
{
    zs_error err;
    if (argc < 2 || !zs_arena_open(&arena, &err))
        return 1;
    test_interpolation();
    test_find();
    test_refusals();
    test_round_trip(argv[1]);
    zs_arena_close(&arena);
    return check_done();
}
