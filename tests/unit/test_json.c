#include "shared/json.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static zs_arena *arena;

static const zs_json *parse(const char *text)
{
    const zs_json *root = NULL;
    zs_error err = {0};
    CHECK(zs_json_parse(&root, arena, text, strlen(text), "f.json", &err), "%s: %s", text,
          err.message);
    return root;
}

static void check_syntax(const char *text, const char *message)
{
    const zs_json *root = NULL;
    zs_error err;
    if (CHECK_FAILS(zs_json_parse(&root, arena, text, strlen(text), "f.json", &err), &err,
                    ZS_ERR_INPUT, message))
        CHECK(!root, "output set on failure");
}

static void test_syntax_errors(void)
{
    check_syntax("", "f.json:1:1: the file is empty");
    check_syntax(" \n ", "f.json:2:2: the file is empty");
    check_syntax("{\"layers\":12}}", "f.json:1:14: unexpected text after the end");
    check_syntax("{\"layers\":12} x", "f.json:1:15: unexpected text");
    check_syntax("{\"layers\":12,\"layers\":24}", "f.json:1:14: duplicate key \"layers\"");
    check_syntax("{\"a\":{\"x\":1,\"y\":2},\n \"b\":1,\"\\u0061\":3}",
                 "f.json:2:8: duplicate key \"a\"");
    check_syntax("{\"a\": 1\n \"b\": 2}", "f.json:2:2: expected ',' or '}'");
    check_syntax("[1 2]", "f.json:1:4: expected ',' or ']'");
    check_syntax("[1,]", "f.json:1:4: expected a value");
    check_syntax("{\"a\":1,}", "f.json:1:8: expected a key in double quotes");
    check_syntax("{a:1}", "f.json:1:2: expected a key");
    check_syntax("{\"a\" 1}", "f.json:1:6: expected ':'");
    check_syntax("{\"a\":", "the text ends here");
    check_syntax("[1, 2", "f.json:1:6: expected ',' or ']', the text ends here");
    check_syntax("\"abc", "ends inside a string");
    check_syntax("\"\xC3\xBC\" x", "f.json:1:5: unexpected"); /* columns count characters */
    check_syntax("[0,5 ,]", "f.json:1:7: expected a value");
    check_syntax("{\"ms\": 0,5}", "f.json:1:10: expected a key");
    check_syntax("\xEF\xBB\xBF{}", "byte order mark");
    check_syntax("// x\n{}", "f.json:1:1: expected a value");
    check_syntax("['a']", "expected a value");
}

static void test_numbers(void)
{
    static const char *const bad[] = {"01",  "+1",  ".5",  "1.",   "1e",    "1e+", "-",
                                      "--1", "0x1", "1_0", "1.e1", "1.2.3", "-a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_syntax(bad[i], "f.json:1:1: ");
    check_syntax("[NaN]", "\"NaN\" is not a JSON value");
    check_syntax("[Infinity]", "\"Infinity\" is not a JSON value");
    check_syntax("[-Infinity]", "\"-Infinity\" is not a number");
    check_syntax("[1e999]", "f.json:1:2: the number 1e999 is not finite");
    check_syntax("[-1e999]", "not finite");
    const zs_json *list = parse("[0, -0, 1.5, 1e3, 1E-2, 123456789012345678901234567890"
                                "123456789012345678901234567890123456789012345, 0.5, 1e-999]");
    static const double expected[] = {0, 0, 1.5, 1000, 0.01, 1.2345678901234568e74, 0.5, 0.0};
    for (int i = 0; i < 8 && list; i++) {
        double value = -1;
        zs_error err;
        CHECK(zs_json_double(&value, zs_json_item(list, i), -1e300, 1e300, &err) &&
                  value >= expected[i] && value <= expected[i],
              "item %d is %.17g", i, value);
    }
}

static void test_integers(void)
{
    const zs_json *o = parse("{\"memory\": 150323855360, \"dot\": 12.0, \"exp\": 1.2e1,"
                             " \"max\": 9007199254740991, \"min\": -9007199254740991,"
                             " \"beyond\": 9007199254740993, \"half\": 12.5, \"text\": \"12\","
                             " \"null\": null, \"negative\": -3, \"big\": 1e300}");
    int64_t v = 0;
    zs_error err;
    CHECK(zs_json_get_int(&v, o, "memory", 0, INT64_MAX, &err) && v == INT64_C(150323855360),
          "kept");
    CHECK(zs_json_get_int(&v, o, "dot", 0, 100, &err) && v == 12, "12.0");
    CHECK(zs_json_get_int(&v, o, "exp", 0, 100, &err) && v == 12, "1.2e1");
    CHECK(zs_json_get_int(&v, o, "max", 0, INT64_MAX, &err) && v == INT64_C(9007199254740991),
          "2^53 - 1");
    CHECK(zs_json_get_int(&v, o, "min", INT64_MIN, 0, &err) && v == -INT64_C(9007199254740991),
          "-(2^53 - 1)");
    v = 7;
    CHECK_FAILS(zs_json_get_int(&v, o, "beyond", 0, INT64_MAX, &err), &err, ZS_ERR_INPUT,
                "f.json: $.beyond: is beyond 2^53 - 1");
    CHECK_FAILS(zs_json_get_int(&v, o, "big", 0, INT64_MAX, &err), &err, ZS_ERR_INPUT, "beyond");
    CHECK_FAILS(zs_json_get_int(&v, o, "half", 0, 100, &err), &err, ZS_ERR_INPUT,
                "$.half: is 12.5, expected an integer");
    CHECK_FAILS(zs_json_get_int(&v, o, "text", 0, 100, &err), &err, ZS_ERR_INPUT,
                "$.text: is \"12\", expected an integer");
    CHECK_FAILS(zs_json_get_int(&v, o, "null", 0, 100, &err), &err, ZS_ERR_INPUT,
                "$.null: is null, expected an integer");
    CHECK_FAILS(zs_json_get_int(&v, o, "negative", 0, 100, &err), &err, ZS_ERR_INPUT,
                "$.negative: is -3, expected 0 .. 100");
    CHECK_FAILS(zs_json_get_int(&v, o, "negative", 1, INT64_MAX, &err), &err, ZS_ERR_INPUT,
                "expected 1 or more");
    CHECK_FAILS(zs_json_get_int(&v, o, "absent", 0, 100, &err), &err, ZS_ERR_INPUT,
                "f.json: $: \"absent\" is missing");
    CHECK_FAILS(zs_json_opt_int(&v, o, "half", 0, 100, &err), &err, ZS_ERR_INPUT, "12.5");
    CHECK(zs_json_opt_int(&v, o, "absent", 0, 100, &err) && v == 7, "left as it was");
    CHECK_FAILS(zs_json_get_int(&v, parse("[]"), "layers", 0, 1, &err), &err, ZS_ERR_INPUT,
                "f.json: $: is an array, expected an object");
}

static void test_strings(void)
{
    const zs_json *v = parse("\"a\\n\\u00fc\\ud83d\\ude00\\\"\\/\"");
    const char *text = NULL;
    zs_error err;
    CHECK(zs_json_string(&text, v, &err), "%s", err.message);
    CHECK_STRING(text, "a\n\xC3\xBC\xF0\x9F\x98\x80\"/");
    check_syntax("\"\\u0000\"", "\\u0000 is not allowed");
    check_syntax("\"\\ud83d\"", "surrogate");
    check_syntax("\"\\ude00\"", "surrogate");
    check_syntax("\"\\ud83d\\u0041\"", "surrogate");
    check_syntax("\"\\u12g4\"", "hexadecimal");
    check_syntax("\"\\x\"", "after a backslash");
    check_syntax("\"a\tb\"", "control character 0x09");
    check_syntax("\"\xFF\"", "invalid UTF-8");
    check_syntax("\"\xC0\x80\"", "invalid UTF-8");         /* overlong */
    check_syntax("\"\xED\xA0\x80\"", "invalid UTF-8");     /* surrogate */
    check_syntax("\"\xF4\x90\x80\x80\"", "invalid UTF-8"); /* beyond U+10FFFF */
    check_syntax("\"\xE2\x82", "invalid UTF-8");           /* cut off */
    const zs_json *root = NULL;
    CHECK_FAILS(zs_json_parse(&root, arena, "[1,\0002]", 6, "f.json", &err), &err, ZS_ERR_INPUT,
                "f.json:1:4: expected a value");
    CHECK_FAILS(zs_json_parse(&root, arena, "1\0", 2, "f.json", &err), &err, ZS_ERR_INPUT,
                "f.json:1:2: unexpected text");
}

/* What a message quotes neither breaks its line nor its encoding. */
static void test_messages_are_clean(void)
{
    zs_error err;
    int64_t v = 0;
    const zs_json *o = parse("{\"a\":\"x\\ny\\u001b[0m\"}");
    CHECK(!zs_json_get_int(&v, o, "a", 0, 1, &err), "a string");
    CHECK_STRING(err.message, "f.json: $.a: is \"x?y?[0m\", expected an integer");
    /* 59 letters and a character of two bytes, which the limit of 60 bytes cuts. */
    o = parse("{\"a\":\"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeefffffffff\xC3\xBC\"}");
    CHECK_FAILS(zs_json_get_int(&v, o, "a", 0, 1, &err), &err, ZS_ERR_INPUT, "fffffffff?\"");
}

static void test_depth(void)
{
    char text[2 * ZS_JSON_MAX_DEPTH + 3] = "";
    memset(text, '[', ZS_JSON_MAX_DEPTH);
    memset(text + ZS_JSON_MAX_DEPTH, ']', ZS_JSON_MAX_DEPTH);
    parse(text);
    memset(text, '[', ZS_JSON_MAX_DEPTH + 1);
    memset(text + ZS_JSON_MAX_DEPTH + 1, ']', ZS_JSON_MAX_DEPTH + 1);
    check_syntax(text, "f.json:1:65: nested deeper than 64 levels");
}

static void test_keys(void)
{
    static const char *const keys[] = {"layers", "heads"};
    zs_error err;
    CHECK(zs_json_only_keys(parse("{\"heads\":1,\"layers\":2}"), keys, 2, &err), "%s", err.message);
    CHECK_FAILS(zs_json_only_keys(parse("{\"Layers\":12}"), keys, 2, &err), &err, ZS_ERR_INPUT,
                "f.json: $: unknown key \"Layers\", did you mean \"layers\"?");
    CHECK_FAILS(zs_json_only_keys(parse("{\"layerz\":12}"), keys, 2, &err), &err, ZS_ERR_INPUT,
                "unknown key \"layerz\", did you mean \"layers\"?");
    CHECK_FAILS(zs_json_only_keys(parse("{\"colour\":12}"), keys, 2, &err), &err, ZS_ERR_INPUT,
                "unknown key \"colour\"");
    const zs_json *o = parse("{\"b\":1,\"a\":2,\"c\":{}}");
    CHECK(zs_json_find(o, "A") == NULL && zs_json_find(o, "a") == zs_json_item(o, 1), "find");
    CHECK_STRING(zs_json_key_at(o, 0), "b");
    CHECK(zs_json_n_items(o) == 3, "%d", zs_json_n_items(o));
}

static void test_paths_and_quantities(void)
{
    const zs_json *root = parse("{\"nodes\":[{},{\"devices\":[{\"memory\":\"80\"}]}],"
                                "\"q\":{\"memory\":\"80GiB\",\"size_bytes\":12,\"bare\":80,"
                                "\"two\":\"1B\",\"two_bytes\":1,\"nic\":\"100Gb/s\","
                                "\"down_bytes_per_s\":-3,\"latency\":\"5us\",\"huge\":\"8PiB\"},"
                                "\"odd key\":[1]}");
    const zs_json *q = zs_json_find(root, "q");
    const zs_json *device =
        zs_json_item(zs_json_find(zs_json_item(zs_json_find(root, "nodes"), 1), "devices"), 0);
    int64_t bytes = 0;
    double x = 0;
    zs_error err;
    CHECK(!zs_json_get_bytes(&bytes, device, "memory", &err), "no unit");
    CHECK_STRING(err.message, "f.json: $.nodes[1].devices[0].memory: \"80\" has no unit, "
                              "expected bytes such as \"80GiB\"");
    CHECK(zs_json_get_bytes(&bytes, q, "memory", &err) && bytes == INT64_C(85899345920), "80GiB");
    CHECK(zs_json_get_bytes(&bytes, q, "size", &err) && bytes == 12, "size_bytes");
    CHECK_FAILS(zs_json_get_bytes(&bytes, q, "bare", &err), &err, ZS_ERR_INPUT,
                "$.q.bare: 80 has no unit");
    CHECK_FAILS(zs_json_get_bytes(&bytes, q, "two", &err), &err, ZS_ERR_INPUT,
                "$.q.two_bytes: is given together with \"two\"");
    CHECK_FAILS(zs_json_get_bytes(&bytes, q, "none", &err), &err, ZS_ERR_INPUT,
                "$.q: \"none\" (or \"none_bytes\") is missing");
    CHECK_FAILS(zs_json_get_bytes(&bytes, q, "huge", &err), &err, ZS_ERR_INPUT,
                "$.q.huge: \"8PiB\" is beyond 2^53 - 1 bytes");
    CHECK(zs_json_opt_bytes(&bytes, q, "none", &err) && bytes == 12, "left as it was");
    CHECK(zs_json_get_bandwidth(&x, q, "nic", &err), "%s", err.message);
    CHECK_NEAR(x, 12.5e9, 0);
    CHECK_FAILS(zs_json_opt_bandwidth(&x, q, "down", &err), &err, ZS_ERR_INPUT,
                "$.q.down_bytes_per_s: is -3, expected 0 or more");
    CHECK(zs_json_opt_ms(&x, q, "latency", &err), "%s", err.message);
    CHECK_NEAR(x, 0.005, 0);
    CHECK(!zs_json_fail(zs_json_item(zs_json_find(root, "odd key"), 0), &err, "x"), "fails");
    CHECK_STRING(err.message, "f.json: $[\"odd key\"][0]: x");
}

/* Each bad value of a time field is refused with the path of the field. */
static void test_bad_times(void)
{
    static const char *const values[] = {"-3", "null", "\"12\"", "[1]", "true"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char text[80];
        double ms = 0;
        zs_error err;
        snprintf(text, sizeof text, "{\"points\": [{\"forward_ms\": %s}]}", values[i]);
        const zs_json *point = zs_json_item(zs_json_find(parse(text), "points"), 0);
        CHECK_FAILS(zs_json_get_double(&ms, point, "forward_ms", 0, HUGE_VAL, &err), &err,
                    ZS_ERR_INPUT, "f.json: $.points[0].forward_ms: is ");
    }
    check_syntax("{\"points\": [{\"forward_ms\": NaN}]}", "f.json:1:28: \"NaN\"");
}

static void test_choice_and_format(void)
{
    static const char *const names[] = {"fp32", "bf16", "fp64"};
    int choice = -1;
    bool flag = false;
    zs_error err;
    const zs_json *o = parse("{\"p\":\"bf16\",\"bad\":\"fp8\",\"flag\":true}");
    CHECK(zs_json_get_choice(&choice, o, "p", names, 3, &err) && choice == 1, "bf16");
    CHECK_FAILS(zs_json_get_choice(&choice, o, "bad", names, 3, &err), &err, ZS_ERR_INPUT,
                "$.bad: is \"fp8\", expected \"fp32\", \"bf16\" or \"fp64\"");
    CHECK(zs_json_opt_bool(&flag, o, "flag", &err) && flag, "flag");
    CHECK_FAILS(zs_json_opt_bool(&flag, o, "p", &err), &err, ZS_ERR_INPUT, "true or false");
    CHECK(zs_json_check_format(parse("{\"format\":\"x\",\"version\":1}"), "x", 2, &err), "%s",
          err.message);
    CHECK_FAILS(zs_json_check_format(parse("{\"format\":\"x\",\"version\":3}"), "x", 2, &err), &err,
                ZS_ERR_INPUT, "$.version: is 3, this program reads x versions 1 .. 2");
    CHECK_FAILS(zs_json_check_format(parse("{\"format\":\"y\",\"version\":1}"), "x", 2, &err), &err,
                ZS_ERR_INPUT, "is \"y\", expected \"x\"");
    CHECK_FAILS(zs_json_check_format(parse("{}"), "x", 2, &err), &err, ZS_ERR_INPUT,
                "\"format\" is missing");
    CHECK_FAILS(zs_json_check_format(parse("[]"), "x", 2, &err), &err, ZS_ERR_INPUT,
                "expected an object");
}

static void write_sample(zs_json_writer *w)
{
    zs_json_begin_object(w, NULL);
    zs_json_put_int(w, "n", INT64_C(9007199254740991));
    zs_json_put_double(w, "x", 0.1);
    zs_json_put_string(w, "text", "a\"\\\n\x01\xC3\xBC");
    zs_json_begin_array(w, "flat");
    zs_json_put_int(w, NULL, 3);
    zs_json_put_double(w, NULL, 2.5);
    zs_json_end_array(w);
    zs_json_begin_array(w, "deep");
    zs_json_begin_object(w, NULL);
    zs_json_put_bool(w, "yes", true);
    zs_json_put_null(w, "nothing");
    zs_json_end_object(w);
    zs_json_begin_array(w, NULL);
    zs_json_end_array(w);
    zs_json_end_array(w);
    zs_json_end_object(w);
}

static const char sample_text[] = "{\n"
                                  "  \"n\": 9007199254740991,\n"
                                  "  \"x\": 0.1,\n"
                                  "  \"text\": \"a\\\"\\\\\\n\\u0001\xC3\xBC\",\n"
                                  "  \"flat\": [3, 2.5],\n"
                                  "  \"deep\": [\n"
                                  "    {\n"
                                  "      \"yes\": true,\n"
                                  "      \"nothing\": null\n"
                                  "    },\n"
                                  "    []\n"
                                  "  ]\n"
                                  "}\n";

static void test_writer(void)
{
    zs_json_writer *w = NULL, *again = NULL;
    zs_error err;
    const char *text = NULL;
    size_t size = 0;
    if (!zs_json_writer_open(&w, &err) || !zs_json_writer_open(&again, &err)) {
        CHECK(false, "%s", err.message);
        return;
    }
    write_sample(w);
    CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message);
    CHECK_STRING(text, sample_text);
    CHECK(size == strlen(sample_text), "%zu", size);

    const zs_json *root = parse(text);
    zs_json_put_value(again, NULL, root);
    CHECK(zs_json_writer_text(again, &text, &size, &err), "%s", err.message);
    CHECK_STRING(text, sample_text);
    zs_json_writer_close(&again);
    zs_json_writer_close(&w);
    CHECK(!w, "closed");

    if (zs_json_writer_open(&w, &err)) {
        zs_json_writer_set_compact(w);
        zs_json_begin_object(w, NULL);
        zs_json_put_int(w, "step", 1);
        zs_json_put_double(w, "loss", 2.5);
        zs_json_end_object(w);
        CHECK(zs_json_writer_text(w, &text, &size, &err), "%s", err.message);
        CHECK_STRING(text, "{\"step\": 1, \"loss\": 2.5}\n");
    }
    zs_json_writer_close(&w);
}

static void check_writer_fails(void (*fill)(zs_json_writer *w), const char *message)
{
    zs_json_writer *w = NULL;
    zs_error err;
    const char *text = NULL;
    size_t size = 0;
    if (!zs_json_writer_open(&w, &err))
        return;
    fill(w);
    CHECK_FAILS(zs_json_writer_text(w, &text, &size, &err), &err, ZS_ERR_RUNTIME, message);
    zs_json_writer_close(&w);
}

static void put_infinity(zs_json_writer *w)
{
    zs_json_begin_object(w, NULL);
    zs_json_put_double(w, "ms", HUGE_VAL);
    zs_json_end_object(w);
}

static void put_large(zs_json_writer *w)
{
    zs_json_put_int(w, NULL, INT64_C(9007199254740992));
}

static void put_not_utf8(zs_json_writer *w)
{
    zs_json_put_string(w, NULL, "\xFF");
}

static void put_without_key(zs_json_writer *w)
{
    zs_json_begin_object(w, NULL);
    zs_json_put_int(w, NULL, 1);
    zs_json_end_object(w);
}

static void leave_open(zs_json_writer *w)
{
    zs_json_begin_array(w, NULL);
}

static void end_other(zs_json_writer *w)
{
    zs_json_begin_array(w, NULL);
    zs_json_end_object(w);
}

static void test_digest(void)
{
    uint64_t a = zs_json_digest(parse("{\"a\":1, \"b\":[0.5,\"x\"]}"));
    CHECK(a == zs_json_digest(parse(" {\"b\": [5e-1, \"\\u0078\"],\n\"a\":1.0}")), "same content");
    CHECK(a != zs_json_digest(parse("{\"a\":1, \"b\":[\"x\",0.5]}")), "order of an array counts");
    CHECK(a != zs_json_digest(parse("{\"a\":2, \"b\":[0.5,\"x\"]}")), "values count");
    /* FNV-1a 64 of "{}", from the published parameters. */
    CHECK(zs_json_digest(parse("{}")) == UINT64_C(0x08f44b07b5901a25), "%016" PRIx64,
          zs_json_digest(parse("{}")));
}

static void test_save(void)
{
    char folder[] = "/tmp/zs-json-XXXXXX";
    zs_json_writer *w = NULL;
    zs_error err;
    const zs_json *root = NULL;
    if (!CHECK(mkdtemp(folder) != NULL, "folder") || !zs_json_writer_open(&w, &err))
        return;
    write_sample(w);
    char path[64], nowhere[64];
    snprintf(path, sizeof path, "%s/a.json", folder);
    snprintf(nowhere, sizeof nowhere, "%s/no/a.json", folder);
    CHECK(zs_json_writer_save(w, path, &err), "%s", err.message);
    CHECK(zs_json_writer_save(w, path, &err), "over the old one: %s", err.message);
    CHECK(zs_json_load(&root, arena, path, &err) && zs_json_n_items(root) == 5, "%s", err.message);
    CHECK_FAILS(zs_json_writer_save(w, nowhere, &err), &err, ZS_ERR_RUNTIME, "cannot write");
    CHECK_FAILS(zs_json_writer_save(w, folder, &err), &err, ZS_ERR_RUNTIME, "cannot write");
    if (access("/dev/full", W_OK) == 0)
        CHECK_FAILS(zs_json_writer_save(w, "/dev/full", &err), &err, ZS_ERR_RUNTIME,
                    "cannot write");
    CHECK_FAILS(zs_json_load(&root, arena, nowhere, &err), &err, ZS_ERR_INPUT, "cannot open");
    CHECK_FAILS(zs_json_load(&root, arena, folder, &err), &err, ZS_ERR_INPUT, "cannot read");
    CHECK(unlink(path) == 0 && rmdir(folder) == 0, "something was left behind in %s", folder);
    zs_json_writer_close(&w);
}

int main(void)
{
    zs_error err;
    if (!zs_arena_open(&arena, &err))
        return 1;
    test_syntax_errors();
    test_numbers();
    test_integers();
    test_strings();
    test_depth();
    test_messages_are_clean();
    test_keys();
    test_paths_and_quantities();
    test_bad_times();
    test_choice_and_format();
    test_writer();
    check_writer_fails(put_infinity, "\"ms\" is inf");
    check_writer_fails(put_large, "beyond 2^53 - 1");
    check_writer_fails(put_not_utf8, "not valid UTF-8");
    check_writer_fails(put_without_key, "wrong nesting");
    check_writer_fails(leave_open, "not ended");
    check_writer_fails(end_other, "wrong nesting");
    test_digest();
    test_save();
    /* The same again with a decimal comma, where such a locale is installed. */
    if (setlocale(LC_ALL, "de_DE.UTF-8")) {
        test_numbers();
        test_syntax_errors();
        test_writer();
    } else {
        fprintf(stderr, "locale de_DE.UTF-8 is not installed: not tested\n");
    }
    zs_arena_close(&arena);
    return check_done();
}
