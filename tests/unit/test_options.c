#include "shared/options.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static zs_arena *arena;

/* clang-format off */
static const zs_option options[] = {
    {"batch", 'b', ZS_OPTION_INT, "N", NULL, 1, 1048576, NULL, "Samples of one step."},
    {"overlap", 0, ZS_OPTION_DOUBLE, "X", "0.7", 0, 1, NULL,
     "Share of compute that hides traffic, a sentence long enough to need a second line."},
    {"seed", 0, ZS_OPTION_INT, "N", "1", 0, HUGE_VAL, NULL, "Seed."},
    {"offset", 0, ZS_OPTION_INT, "N", NULL, 0, 0, NULL, "Any integer."},
    {"output", 'o', ZS_OPTION_STRING, "FILE", "-", 0, 0, NULL, "Where to write."},
    {"precision", 0, ZS_OPTION_CHOICE, NULL, "bf16", 0, 0, "fp32|bf16", "Precision."},
    {"reserve", 0, ZS_OPTION_BYTES, "SIZE", "1GiB", 0, 0, NULL, "Kept free."},
    {"time-limit", 't', ZS_OPTION_MS, "TIME", NULL, 0, 0, NULL, "Stop after this time."},
    {"verbose", 'v', ZS_OPTION_FLAG, NULL, NULL, 0, 0, NULL, "Say more."},
    {"progress", 'p', ZS_OPTION_FLAG, NULL, "true", 0, 0, NULL, "No progress bar."},
};
/* clang-format on */
static const zs_command commands[] = {
    {"solve", "PLAN [DATA]", 1, 2, "find a plan", "Long text.\n\n  zplan solve x.json\n", options,
     (int)(sizeof options / sizeof options[0])},
    {"simulate", "", 0, 0, "time a plan", NULL, NULL, 0},
};

static bool parse(zs_options **out, bool *help, zs_error *err, const char *line)
{
    char *argv[32], *copy = zs_arena_strdup(arena, line, err);
    int argc = 0;
    for (char *word = copy ? strtok(copy, " ") : NULL; word; word = strtok(NULL, " "))
        argv[argc++] = word;
    char **lasting = ZS_NEW(arena, char *, argc, err);
    for (int i = 0; lasting && i < argc; i++)
        lasting[i] = argv[i];
    return zs_options_parse(out, help, arena, &commands[0], argc, lasting, err);
}

static zs_options *parse_good(const char *line)
{
    zs_options *o = NULL;
    bool help = true;
    zs_error err = {0};
    CHECK(parse(&o, &help, &err, line), "%s: %s", line, err.message);
    CHECK(!help, "%s", line);
    return o;
}

static void test_defaults(void)
{
    const zs_options *o = parse_good("plan.json");
    CHECK(zs_options_int(o, "batch") == 0 && !zs_options_is_set(o, "batch"), "unset number");
    CHECK_NEAR(zs_options_double(o, "overlap"), 0.7, 0);
    CHECK_STRING(zs_options_string(o, "precision"), "bf16");
    CHECK(zs_options_bytes(o, "reserve") == INT64_C(1073741824), "bytes");
    CHECK(!zs_options_is_set(o, "reserve"), "a default is not given");
    CHECK(!zs_options_flag(o, "verbose") && zs_options_flag(o, "progress"), "flags");
    CHECK(zs_options_n_arguments(o) == 1, "%d", zs_options_n_arguments(o));
}

static void test_forms(void)
{
    const zs_options *o =
        parse_good("--batch 8 --overlap=0.5 a -vo out.json --no-progress -t10s --offset -5 -- -b");
    CHECK(zs_options_int(o, "batch") == 8 && zs_options_is_set(o, "batch"), "--batch 8");
    CHECK_NEAR(zs_options_double(o, "overlap"), 0.5, 0);
    CHECK_STRING(zs_options_string(o, "output"), "out.json");
    CHECK(zs_options_flag(o, "verbose") && !zs_options_flag(o, "progress"), "flags");
    CHECK_NEAR(zs_options_ms(o, "time-limit"), 10000, 0);
    CHECK(zs_options_int(o, "offset") == -5, "negative value");
    CHECK(zs_options_n_arguments(o) == 2, "%d", zs_options_n_arguments(o));
    CHECK_STRING(zs_options_argument(o, 0), "a");
    CHECK_STRING(zs_options_argument(o, 1), "-b");
    o = parse_good("- -b2 --batch=3 --output=");
    CHECK(zs_options_int(o, "batch") == 3, "the last one counts");
    CHECK_STRING(zs_options_argument(o, 0), "-");
    CHECK_STRING(zs_options_string(o, "output"), "");
}

static void check_bad(const char *line, const char *message)
{
    zs_options *o = NULL;
    bool help = false;
    zs_error err;
    CHECK_FAILS(parse(&o, &help, &err, line), &err, ZS_ERR_INPUT, message);
}

static void test_failures(void)
{
    check_bad("p --btach 8", "unknown option \"--btach\", did you mean \"--batch\"?");
    check_bad("p --time 8s", "unknown option \"--time\", did you mean \"--time-limit\"?");
    check_bad("p --colour", "unknown option \"--colour\", see --help");
    check_bad("p --no-batch", "unknown option \"--no-batch\"");
    check_bad("p -x", "unknown option \"-x\"");
    check_bad("p --batch", "--batch needs a value, expected --batch N");
    check_bad("p -b", "--batch needs a value");
    check_bad("p --precision", "expected --precision fp32|bf16");
    check_bad("p --batch x", "--batch: \"x\" is not an integer");
    check_bad("p --batch=", "--batch: \"\" is not an integer");
    check_bad("p --batch 0", "--batch is 0, expected 1 .. 1048576");
    check_bad("p --batch 1048577", "--batch is 1048577, expected 1 .. 1048576");
    check_bad("p --batch 8,5", "--batch: \"8,5\" is not an integer");
    check_bad("p --seed -1", "--seed is -1, expected 0 or more");
    check_bad("p --overlap nan", "--overlap: \"nan\" is not a number");
    check_bad("p --overlap 1.5", "--overlap is 1.5, expected 0 .. 1");
    check_bad("p --precision fp", "--precision is \"fp\", expected one of fp32|bf16");
    check_bad("p --precision=", "--precision is \"\"");
    check_bad("p --reserve 80", "--reserve: \"80\" has no unit, expected bytes such as \"80GiB\"");
    check_bad("p --time-limit 10", "--time-limit: \"10\" has no unit");
    check_bad("p --verbose=yes", "--verbose takes no value");
    check_bad("", "solve: 0 of 1 arguments given, expected PLAN [DATA]");
    check_bad("a b c", "solve: unexpected argument \"c\"");
}

static void test_help_asked(void)
{
    zs_options *o = NULL;
    bool help = false;
    zs_error err;
    CHECK(parse(&o, &help, &err, "--nonsense --help") && help, "--help");
    help = false;
    CHECK(parse(&o, &help, &err, "-h") && help, "-h");
    CHECK(parse(&o, &help, &err, "-- -h") && !help, "an argument");
}

static void test_commands(void)
{
    zs_error err;
    CHECK(zs_options_find_command(commands, 2, "simulate", &err) == &commands[1], "found");
    CHECK(!zs_options_find_command(commands, 2, "slove", &err), "unknown");
    CHECK_STRING(err.message, "unknown command \"slove\", did you mean \"solve\"?");
    CHECK(!zs_options_find_command(commands, 2, "", &err) && err.code == ZS_ERR_INPUT, "empty");
    CHECK_STRING(err.message, "unknown command \"\", see --help");
}

static char *print_help(const zs_command *command)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    zs_options_print_help(out, "zplan",
                          "Finds the best division of a model's training among mixed GPUs, in more "
                          "words than fit into a line.",
                          commands, 2, command);
    fclose(out);
    return text;
}

/* At most 80 columns, no blank at the end. */
static void check_lines(const char *text)
{
    size_t size = 0;
    for (size_t i = 0; text[i]; i += size + 1) {
        size = strcspn(text + i, "\n");
        CHECK(size <= 80 && (size == 0 || text[i + size - 1] != ' '), "line of %zu in\n%s", size,
              text);
    }
}

static void test_help_text(void)
{
    for (int i = 0; i < 2; i++) {
        char *text = print_help(i ? &commands[0] : NULL);
        if (!text) {
            CHECK(false, "out of memory");
            return;
        }
        check_lines(text);
        static const char *const parts[2][3] = {
            {"Usage: zplan COMMAND", "  solve       find a plan\n", "zplan COMMAND --help"},
            {"\n  zplan solve x.json\n",
             "  -b, --batch N           Samples of one step. (1 .. 1048576)\n",
             "      --precision fp32|bf16\n                          Precision. (default bf16)\n"}};
        for (int k = 0; k < 3; k++)
            CHECK(strstr(text, parts[i][k]), "\"%s\" is not in\n%s", parts[i][k], text);
        free(text);
    }
    char *text = print_help(&commands[0]);
    CHECK(text && strstr(text, "(0 .. 1; default 0.7)") && strstr(text, "(0 or more; default 1)") &&
              strstr(text, "  -p, --no-progress ") && strstr(text, "  -h, --help "),
          "%s", text ? text : "");
    free(text);
}

int main(void)
{
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_defaults();
    test_forms();
    test_failures();
    test_help_asked();
    test_commands();
    test_help_text();
    zs_arena_close(&arena);
    return check_done();
}
