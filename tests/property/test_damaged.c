/* Files that are damaged at random, token by token or byte by byte: each is refused with one clean
 * line that names the file, or read; and what is read keeps every rule that others rely on. */
#include "shared/schedule.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 4096, N_CASES = 3000 };

static const char *folder;

/* ---- damage ---- */

typedef struct token {
    const char *text;
    int size;
} token;

typedef struct tokens {
    int n;
    token at[MAX_TOKENS];
} tokens;

/* Strings whole, the rest up to the next structural character. Blanks belong to no token. */
static void split(tokens *out, const char *text)
{
    out->n = 0;
    while (*text && out->n < MAX_TOKENS) {
        const char *start = text;
        if (*text == '"') {
            for (text++; *text && *text != '"'; text++)
                if (*text == '\\' && text[1])
                    text++;
            text += *text == '"';
        } else if (strchr("{}[]:, \n", *text)) {
            text++;
        } else {
            text += strcspn(text, "{}[]:, \n\"");
        }
        if (*start != ' ' && *start != '\n')
            out->at[out->n++] = (token){start, (int)(text - start)};
    }
}

static const char *const strange[] = {
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "65536",
    "65537",
    "1048577",
    "2147483647",
    "2147483648",
    "4294967296",
    "9007199254740991",
    "9007199254740993",
    "1e308",
    "1e999",
    "-0",
    "0.5",
    "1e-320",
    "null",
    "true",
    "\"\"",
    "\"x\"",
    "\"80\"",
    "[]",
    "{}",
    "[1]",
    "{\"a\":1}",
    "\"1e400GB/s\"",
    "\"0GiB\"",
    "\"1e-9Gb/s\"",
    "\"8388608TiB\"",
    "\"old\"",
    "\"node0\"",
    "\"A100-40\"",
    "\"\\u00e9\"",
    "\"\\n\"",
    ",",
    ":",
    "}",
    "]",
};

static const char *join(zs_arena *arena, const tokens *t)
{
    zs_error err;
    size_t size = 1;
    for (int i = 0; i < t->n; i++)
        size += (size_t)t->at[i].size + 1;
    char *text = zs_arena_alloc(arena, (int64_t)size, 1, &err);
    char *to = text;
    for (int i = 0; text && i < t->n; i++) {
        memcpy(to, t->at[i].text, (size_t)t->at[i].size);
        to += t->at[i].size;
        *to++ = ' ';
    }
    return text;
}

static const char *damage_tokens(check_rng *rng, zs_arena *arena, const char *text)
{
    static tokens t;
    split(&t, text);
    const int n_faults = check_rng_int(rng, 0, 2) ? 1 : 2;
    for (int k = 0; k < n_faults; k++) {
        const int i = (int)check_rng_int(rng, 0, t.n - 1), j = (int)check_rng_int(rng, 0, t.n - 1);
        const char *other = strange[check_rng_int(rng, 0, sizeof strange / sizeof *strange - 1)];
        const int rest = t.n - i - 1;
        switch (check_rng_int(rng, 0, 4)) {
        case 0:
            memmove(&t.at[i], &t.at[i + 1], (size_t)rest * sizeof t.at[0]);
            t.n--;
            break;
        case 1: { /* the next value of the same kind, such as another number */
            int like = j;
            while (like < t.n - 1 && (t.at[like].text[0] == '"') != (t.at[i].text[0] == '"'))
                like++;
            t.at[i] = t.at[like];
            break;
        }
        case 2: {
            const token kept = t.at[i];
            t.at[i] = t.at[j];
            t.at[j] = kept;
            break;
        }
        default: { /* values only: other damage rarely gets past the syntax */
            int value = i;
            while (value < t.n - 1 &&
                   (strchr("{}[]:,", t.at[value].text[0]) || t.at[value + 1].text[0] == ':'))
                value++;
            t.at[value] = (token){other, (int)strlen(other)};
            break;
        }
        }
    }
    return join(arena, &t);
}

static const char *damage_bytes(check_rng *rng, zs_arena *arena, const char *text)
{
    zs_error err;
    size_t size = strlen(text);
    if (check_rng_int(rng, 0, 3) == 0)
        size = (size_t)check_rng_int(rng, 0, (int64_t)size);
    char *copy = zs_arena_strndup(arena, text, size, &err);
    for (int k = (int)check_rng_int(rng, 1, 3); copy && size > 0 && k > 0; k--)
        copy[check_rng_int(rng, 0, (int64_t)size - 1)] = (char)check_rng_int(rng, 1, 255);
    return copy;
}

static const char *damage(check_rng *rng, zs_arena *arena, const char *text)
{
    return check_rng_int(rng, 0, 4) ? damage_tokens(rng, arena, text)
                                    : damage_bytes(rng, arena, text);
}

/* ---- what must hold ---- */

static bool is_clean(const zs_error *err, const char *prefix)
{
    if (err->code != ZS_ERR_INPUT || strncmp(err->message, prefix, strlen(prefix)) != 0)
        return false;
    for (const char *c = err->message; *c; c++)
        if ((unsigned char)*c < 0x20)
            return false;
    return strlen(err->message) > strlen(prefix) + 4;
}

static const char *write_cluster(zs_arena *arena, const zs_cluster *cluster)
{
    zs_json_writer *w = NULL;
    zs_error err;
    const char *text = NULL, *copy = NULL;
    size_t size = 0;
    if (!zs_json_writer_open(&w, &err))
        return NULL;
    zs_cluster_write(w, NULL, cluster);
    if (zs_json_writer_text(w, &text, &size, &err))
        copy = zs_arena_strndup(arena, text, size, &err);
    zs_json_writer_close(&w);
    return copy;
}

static const char *write_plan(zs_arena *arena, const zs_plan *plan)
{
    zs_json_writer *w = NULL;
    zs_error err;
    const char *text = NULL, *copy = NULL;
    size_t size = 0;
    if (!zs_json_writer_open(&w, &err))
        return NULL;
    if (zs_plan_write(w, plan, &err) && zs_json_writer_text(w, &text, &size, &err))
        copy = zs_arena_strndup(arena, text, size, &err);
    zs_json_writer_close(&w);
    return copy;
}

static bool read_cluster(zs_cluster *out, zs_arena *arena, const char *text, zs_error *err)
{
    const zs_json *root = NULL;
    return zs_json_parse(&root, arena, text, strlen(text), "cluster.json", err) &&
           zs_cluster_parse(out, arena, root, err);
}

static bool read_plan(zs_plan *out, zs_arena *arena, const char *text, zs_error *err)
{
    const zs_json *root = NULL;
    return zs_json_parse(&root, arena, text, strlen(text), "plan.json", err) &&
           zs_plan_parse(out, arena, root, err);
}

/* Written and read again it is the same; bandwidths are such that times stay finite. */
static void check_cluster(zs_arena *arena, const zs_cluster *cluster, const char *text,
                          uint64_t seed)
{
    zs_error err = {.message = ""};
    zs_cluster again;
    const int n_devices = zs_cluster_n_devices(cluster);
    CHECK(n_devices >= 1 && n_devices <= ZS_CLUSTER_MAX_DEVICES, "seed %" PRIu64, seed);
    for (int i = 0; i < cluster->n_nodes && i < 10; i++) {
        const zs_node *node = &cluster->nodes[i];
        /* an exabyte on this link, and all of 65536 such transfers */
        const double ms =
            65536 * (node->intra_latency_ms + node->nic_latency_ms +
                     1e18 / node->intra_bytes_per_s * 1e3 + 1e18 / node->nic_bytes_per_s * 1e3);
        CHECK(ms >= 0 && ms < 1e300, "seed %" PRIu64 ": node %d takes %g ms: %s", seed, i, ms,
              text);
    }
    if (n_devices > 1000)
        return;
    const char *written = write_cluster(arena, cluster);
    if (CHECK(written != NULL, "seed %" PRIu64 ": cannot be written: %s", seed, text) &&
        CHECK(read_cluster(&again, arena, written, &err), "seed %" PRIu64 ": %s: %s", seed,
              err.message, text)) {
        CHECK(again.n_nodes == cluster->n_nodes && zs_cluster_n_devices(&again) == n_devices,
              "seed %" PRIu64 ": differs: %s", seed, text);
        CHECK_STRING(write_cluster(arena, &again), written);
    }
}

static void check_plan_read(zs_arena *arena, const zs_plan *plan, const char *text, uint64_t seed)
{
    zs_error err = {.message = ""};
    zs_plan again;
    zs_schedule schedule;
    check_cluster(arena, &plan->cluster, text, seed);
    const char *written = write_plan(arena, plan);
    if (CHECK(written != NULL, "seed %" PRIu64 ": cannot be written: %s", seed, text) &&
        CHECK(read_plan(&again, arena, written, &err), "seed %" PRIu64 ": %s: %s", seed,
              err.message, text))
        CHECK_STRING(write_plan(arena, &again), written);
    CHECK(zs_schedule_build(&schedule, arena, plan, true, &err) &&
              zs_schedule_check(&schedule, plan, &err),
          "seed %" PRIu64 ": %s: %s", seed, err.message, text);
}

static char *read_golden(zs_arena *arena, const char *name)
{
    zs_error err;
    size_t size = 0;
    const char *path = zs_arena_printf(arena, &err, "%s/two-stages/%s", folder, name);
    char *text = check_read_file(path, &size);
    if (!text) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    return text;
}

static void check_damaged_plan(uint64_t seed)
{
    static int n_read;
    check_rng rng = check_rng_from(seed);
    zs_error err = {.message = ""};
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, &err))
        return;
    char *whole = read_golden(arena, check_rng_int(&rng, 0, 1) ? "plan.json" : "handwritten.json");
    const char *text = damage(&rng, arena, whole);
    zs_plan plan;
    if (read_plan(&plan, arena, text, &err)) {
        n_read++;
        check_plan_read(arena, &plan, text, seed);
    } else {
        CHECK(is_clean(&err, "plan.json:"), "seed %" PRIu64 ": code %d: %s", seed, (int)err.code,
              err.message);
    }
    if (seed == N_CASES - 1)
        CHECK(n_read > N_CASES / 30, "only %d plans were read", n_read);
    free(whole);
    zs_arena_close(&arena);
}

static void check_damaged_cluster(uint64_t seed)
{
    static int n_read;
    check_rng rng = check_rng_from(seed);
    zs_error err = {.message = ""};
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, &err))
        return;
    char *whole = read_golden(arena, "cluster.json");
    const char *text = damage(&rng, arena, whole);
    zs_cluster cluster;
    if (read_cluster(&cluster, arena, text, &err)) {
        n_read++;
        check_cluster(arena, &cluster, text, seed);
    } else {
        CHECK(is_clean(&err, "cluster.json:"), "seed %" PRIu64 ": code %d: %s", seed, (int)err.code,
              err.message);
    }
    if (seed == N_CASES - 1)
        CHECK(n_read > N_CASES / 30, "only %d clusters were read", n_read);
    free(whole);
    zs_arena_close(&arena);
}

static void check_line(uint64_t seed)
{
    static const char *const words[] = {"1x",       "2x",        "(",
                                        ")",        "+",         "@",
                                        "A100-40",  "T4",        "V100-32G",
                                        "a100",     "25Gb/s",    " ",
                                        "\t",       "65536x",    "65537x",
                                        "0x",       "007x",      "1e999GB/s",
                                        "0B/s",     "1e-300B/s", "x",
                                        "\xC3\xA9", "\x01",      "\xFF",
                                        "(4xT4)",   "1x(1xT4)",  "99999999999999999999x",
                                        "GB/s",     "-1x",       ".json",
                                        "RTX-3090"};
    static int n_read;
    check_rng rng = check_rng_from(seed);
    zs_error err = {.message = ""};
    zs_arena *arena = NULL;
    if (!zs_arena_open(&arena, &err))
        return;
    const char *text = "";
    if (check_rng_int(&rng, 0, 1)) { /* nearly right */
        for (int k = (int)check_rng_int(&rng, 1, 3); k > 0; k--)
            text = zs_arena_printf(arena, &err, "%s%s%s(%s%s)", text, *text ? "+" : "",
                                   check_rng_int(&rng, 0, 1) ? "2x" : "",
                                   words[check_rng_int(&rng, 0, 30) ? 1 : 13],
                                   words[check_rng_int(&rng, 6, 8)]);
        if (check_rng_int(&rng, 0, 1))
            text = zs_arena_printf(arena, &err, "%s@%s", text,
                                   words[check_rng_int(&rng, 0, 1) ? 10 : 19]);
    } else {
        for (int k = (int)check_rng_int(&rng, 0, 12); k > 0; k--)
            text = zs_arena_printf(arena, &err, "%s%s", text,
                                   words[check_rng_int(&rng, 0, sizeof words / sizeof *words - 1)]);
    }
    zs_cluster cluster;
    if (zs_cluster_parse_line(&cluster, arena, text, &err)) {
        n_read++;
        check_cluster(arena, &cluster, text, seed);
    } else {
        CHECK(is_clean(&err, "cluster \""), "seed %" PRIu64 ": code %d: %s", seed, (int)err.code,
              err.message);
    }
    if (seed == N_CASES - 1)
        CHECK(n_read > N_CASES / 20, "only %d lines were read", n_read);
    zs_arena_close(&arena);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    folder = argv[1];
    check_seeds(check_damaged_plan, 0, N_CASES);
    check_seeds(check_damaged_cluster, 0, N_CASES);
    check_seeds(check_line, 0, N_CASES);
    return check_done();
}
