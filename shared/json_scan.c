#include "shared/json_scan.h"

#include "shared/units.h"
#include "shared/utf8.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct scanner {
    const zs_json_source *source;
    const char *text;
    size_t size, at;
    int depth;
    zs_json_scan out;
    size_t n_numbers, n_keys;
    zs_error *err;
} scanner;

bool zs_json_scan_fail(const zs_json_source *source, size_t offset, zs_error *err,
                       const char *format, ...)
{
    char message[ZS_ERROR_MESSAGE_SIZE / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    long long line = 1, column = 1;
    for (size_t i = 0; i < offset && i < source->size; i++) {
        if (source->text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)source->text[i] & 0xC0) != 0x80) {
            column++; /* the later bytes of a character do not count */
        }
    }
    return ZS_FAIL(err, ZS_ERR_INPUT, "%.300s:%lld:%lld: %s", source->name, line, column, message);
}

#define SCAN_FAIL(s, ...) zs_json_scan_fail((s)->source, (s)->at, (s)->err, __VA_ARGS__)

/* The character at the cursor; 0 at the end (a 0 byte in the text is refused wherever it stands,
 * because nothing expects it). */
static char peek(const scanner *s)
{
    return s->at < s->size ? s->text[s->at] : 0;
}

static void skip_blanks(scanner *s)
{
    while (s->at < s->size && strchr(" \t\r\n", s->text[s->at]) && s->text[s->at])
        s->at++;
}

static bool fail_expected(scanner *s, const char *expected)
{
    if (s->at >= s->size)
        return SCAN_FAIL(s, "expected %s, the text ends here", expected);
    return SCAN_FAIL(s, "expected %s", expected);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '+' || c == '-';
}

/* Length of what looks like one word or number at the cursor, for messages. */
static int word_size(const scanner *s, size_t start)
{
    size_t i = start;
    while (i < s->size && is_word(s->text[i]) && i - start < 40)
        i++;
    return (int)(i - start);
}

/* Value of \uXXXX with the cursor behind the u; -1 if those are not four hexadecimal digits. */
static int scan_hex(scanner *s)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = peek(s);
        const int digit = is_digit(c)            ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
        s->at++;
    }
    return value;
}

static bool scan_escape(scanner *s)
{
    s->at++;
    const char c = peek(s);
    if (c && strchr("\"\\/bfnrt", c)) {
        s->at++;
        return true;
    }
    if (c != 'u')
        return fail_expected(s, "one of \" \\ / b f n r t u after a backslash");
    s->at++;
    const int unit = scan_hex(s);
    if (unit < 0)
        return fail_expected(s, "four hexadecimal digits after \\u");
    if (unit == 0)
        return SCAN_FAIL(s, "\\u0000 is not allowed in a text");
    if (unit < 0xD800 || unit > 0xDFFF)
        return true;
    bool paired = unit < 0xDC00 && s->size - s->at >= 2 && memcmp(s->text + s->at, "\\u", 2) == 0;
    if (paired) {
        s->at += 2;
        const int low = scan_hex(s);
        paired = low >= 0xDC00 && low <= 0xDFFF;
    }
    return paired || SCAN_FAIL(s, "half of a surrogate pair in \\u escapes");
}

static bool scan_string(scanner *s)
{
    s->at++;
    while (peek(s) != '"') {
        if (s->at >= s->size)
            return SCAN_FAIL(s, "expected '\"', the text ends inside a string");
        if (s->text[s->at] == '\\') {
            if (!scan_escape(s))
                return false;
            continue;
        }
        if ((unsigned char)s->text[s->at] < 0x20)
            return SCAN_FAIL(s, "control character 0x%02x inside a string, expected an escape",
                             (unsigned)(unsigned char)s->text[s->at]);
        const int n = zs_utf8_size(s->text + s->at, s->size - s->at);
        if (n == 0)
            return SCAN_FAIL(s, "invalid UTF-8 inside a string");
        s->at += (size_t)n;
    }
    s->at++;
    return true;
}

static bool scan_number(scanner *s)
{
    const size_t start = s->at;
    if (peek(s) == '-')
        s->at++;
    bool good = is_digit(peek(s));
    if (peek(s) == '0') {
        s->at++;
    } else {
        while (is_digit(peek(s)))
            s->at++;
    }
    if (good && peek(s) == '.') {
        s->at++;
        good = is_digit(peek(s));
        while (is_digit(peek(s)))
            s->at++;
    }
    if (good && (peek(s) == 'e' || peek(s) == 'E')) {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        good = is_digit(peek(s));
        while (is_digit(peek(s)))
            s->at++;
    }
    if (!good || is_word(peek(s))) {
        s->at = start;
        return SCAN_FAIL(s, "\"%.*s\" is not a number", word_size(s, start), s->text + start);
    }
    char small[64];
    const size_t n = s->at - start;
    char *copy = n < sizeof small ? small : malloc(n + 1);
    if (!copy)
        return ZS_FAIL(s->err, ZS_ERR_RUNTIME, "out of memory");
    memcpy(copy, s->text + start, n);
    copy[n] = 0;
    double *number = &s->out.numbers[s->n_numbers++];
    const bool finite = zs_units_parse_double(number, copy, NULL);
    if (copy != small)
        free(copy);
    if (!finite) {
        s->at = start;
        return SCAN_FAIL(s, "the number %.*s is not finite as a double", word_size(s, start),
                         s->text + start);
    }
    memset(s->out.plain + start, ' ', n);
    s->out.plain[start] = '0';
    return true;
}

static bool scan_word(scanner *s)
{
    static const char *const words[] = {"true", "false", "null"};
    const int n = word_size(s, s->at);
    for (int i = 0; i < 3; i++) {
        if ((size_t)n == strlen(words[i]) && memcmp(s->text + s->at, words[i], (size_t)n) == 0) {
            s->at += (size_t)n;
            return true;
        }
    }
    if (n == 0)
        return fail_expected(s, "a value");
    return SCAN_FAIL(s, "\"%.*s\" is not a JSON value", n, s->text + s->at);
}

static bool scan_value(scanner *s);

static bool scan_member(scanner *s)
{
    if (peek(s) != '"')
        return fail_expected(s, "a key in double quotes");
    s->out.key_places[s->n_keys++] = s->at;
    if (!scan_string(s))
        return false;
    skip_blanks(s);
    if (peek(s) != ':')
        return fail_expected(s, "':'");
    s->at++;
    return scan_value(s);
}

static bool scan_container(scanner *s, bool object)
{
    const char end = object ? '}' : ']';
    if (++s->depth > ZS_JSON_MAX_DEPTH)
        return SCAN_FAIL(s, "nested deeper than %d levels", (int)ZS_JSON_MAX_DEPTH);
    s->at++;
    skip_blanks(s);
    if (peek(s) != end) {
        for (;;) {
            if (object ? !scan_member(s) : !scan_value(s))
                return false;
            skip_blanks(s);
            if (peek(s) == end)
                break;
            if (peek(s) != ',')
                return fail_expected(s, object ? "',' or '}'" : "',' or ']'");
            s->at++;
            skip_blanks(s);
        }
    }
    s->at++;
    s->depth--;
    return true;
}

static bool scan_value(scanner *s)
{
    skip_blanks(s);
    const char c = peek(s);
    if (c == '{' || c == '[')
        return scan_container(s, c == '{');
    if (c == '"')
        return scan_string(s);
    /* -Infinity and -NaN are words too: the message then shows the whole of them. */
    if (is_digit(c) || c == '-')
        return scan_number(s);
    return scan_word(s);
}

/* Upper bounds of the lengths of both lists: digits that follow a non-digit, and
 * colons. A key that fails before its colon is one more. */
static void count(int64_t *n_numbers, int64_t *n_keys, const char *text, size_t size)
{
    *n_numbers = *n_keys = 1;
    for (size_t i = 0; i < size; i++) {
        *n_numbers += is_digit(text[i]) && (i == 0 || !is_digit(text[i - 1]));
        *n_keys += text[i] == ':';
    }
}

bool zs_json_scan_text(zs_json_scan *out, zs_arena *arena, const zs_json_source *source,
                       zs_error *err)
{
    scanner s = {.source = source, .text = source->text, .size = source->size, .err = err};
    int64_t n_numbers = 0, n_keys = 0;
    count(&n_numbers, &n_keys, s.text, s.size);
    s.out.plain = zs_arena_strndup(arena, s.text, s.size, err);
    s.out.numbers = ZS_NEW(arena, double, n_numbers, err);
    s.out.key_places = ZS_NEW(arena, size_t, n_keys, err);
    if (!s.out.plain || !s.out.numbers || !s.out.key_places)
        return false;
    if (s.size >= 3 && memcmp(s.text, "\xEF\xBB\xBF", 3) == 0)
        return SCAN_FAIL(&s, "the file begins with a byte order mark, expected plain UTF-8");
    skip_blanks(&s);
    if (s.at == s.size)
        return SCAN_FAIL(&s, "the file is empty, expected a JSON value");
    if (!scan_value(&s))
        return false;
    skip_blanks(&s);
    if (s.at < s.size)
        return SCAN_FAIL(&s, "unexpected text after the end of the JSON value");
    *out = s.out;
    return true;
}
