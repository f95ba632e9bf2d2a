#include "shared/units.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const double MAX_EXACT = 9007199254740991.0; /* 2^53 - 1 */

__extension__ typedef unsigned __int128 uint128;

/* Numbers are read and printed in the C locale whatever the process has set. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void open_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale)
        abort(); /* POSIX guarantees this locale */
}

static double c_strtod(const char *text, char **end)
{
    pthread_once(&c_locale_once, open_c_locale);
    locale_t saved = uselocale(c_locale);
    const double value = strtod(text, end);
    uselocale(saved);
    return value;
}

ZS_PRINTF(3, 4)
static int c_snprintf(char *buffer, size_t size, const char *format, ...)
{
    pthread_once(&c_locale_once, open_c_locale);
    locale_t saved = uselocale(c_locale);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buffer, size, format, args);
    va_end(args);
    uselocale(saved);
    return n;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of digits [ "." digits ] [ e [sign] digits ] at text; 0 if there is none. */
static size_t scan_number(const char *text)
{
    size_t i = 0;
    while (is_digit(text[i]))
        i++;
    if (i == 0)
        return 0;
    if (text[i] == '.') {
        size_t first = ++i;
        while (is_digit(text[i]))
            i++;
        if (i == first)
            return 0;
    }
    if (text[i] == 'e' || text[i] == 'E') {
        size_t j = i + 1;
        if (text[j] == '+' || text[j] == '-')
            j++;
        if (is_digit(text[j])) {
            while (is_digit(text[j]))
                j++;
            i = j;
        }
    }
    return i;
}

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* clang-format off */
static const unit byte_units[] = {
    {"B", 1},
    {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50},
};
static const unit bandwidth_units[] = { /* bytes per second */
    {"B/s", 1},
    {"kB/s", 1e3}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12},
    {"KiB/s", 0x1p10}, {"MiB/s", 0x1p20}, {"GiB/s", 0x1p30}, {"TiB/s", 0x1p40},
    {"b/s", 1 / 8.0},
    {"kb/s", 1e3 / 8}, {"Kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8}, {"Tb/s", 1e12 / 8},
};
static const unit time_units[] = { /* milliseconds */
    {"ns", 1e-6}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {"min", 60e3}, {"h", 3600e3},
};
/* clang-format on */

#define N_ITEMS(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Finds where the number of text ends and which of the n units follows. */
static bool split(size_t *number_size, const unit **found, const char *text, const unit *units,
                  int n, const char *expected, zs_error *err)
{
    const size_t size = scan_number(text);
    if (size == 0)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "\"%.60s\" does not begin with a number of 0 or more, expected %s", text,
                       expected);
    const char *name = text + size;
    while (*name == ' ')
        name++;
    if (!*name)
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" has no unit, expected %s", text, expected);
    for (int i = 0; i < n; i++) {
        if (strcmp(name, units[i].name) == 0) {
            *number_size = size;
            *found = &units[i];
            return true;
        }
    }
    return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" has the unknown unit \"%.20s\", expected %s", text,
                   name, expected);
}

/* value = digits * 10^-n_decimals with all zeros at the end of digits taken away; false if digits
 * need more than 128 bits or the exponent is absurd. */
static bool parse_decimal(uint128 *digits, int *n_decimals, const char *text, size_t size)
{
    const uint128 limit = ~(uint128)0 / 10 - 1;
    uint128 value = 0;
    int64_t decimals = 0, zeros = 0; /* zeros not yet multiplied in */
    bool point = false;
    size_t i = 0;
    for (; i < size && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            point = true;
            continue;
        }
        decimals += point;
        if (text[i] == '0') {
            zeros += value != 0;
            continue;
        }
        for (; zeros >= 0; zeros--) {
            if (value > limit)
                return false;
            value *= 10;
        }
        zeros = 0;
        value += (unsigned)(text[i] - '0');
    }
    int64_t exponent = i < size ? strtol(text + i + 1, NULL, 10) : 0;
    if (exponent < -100000 || exponent > 100000)
        return false;
    decimals -= zeros + exponent;
    if (value == 0)
        decimals = 0;
    if (decimals > 40 || decimals < -40)
        return false;
    *digits = value;
    *n_decimals = (int)decimals;
    return true;
}

bool zs_units_parse_bytes(int64_t *bytes, const char *text, zs_error *err)
{
    static const char expected[] = "bytes such as \"80GiB\"";
    size_t size = 0;
    const unit *u = NULL;
    if (!split(&size, &u, text, byte_units, N_ITEMS(byte_units), expected, err))
        return false;
    /* The double may be rounded up to 2^63; the exact comparison comes at the end. */
    if (c_strtod(text, NULL) * u->factor >= 0x1p64)
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is beyond 2^63 - 1 bytes", text);
    uint128 value = 0;
    int n_decimals = 0;
    bool whole = parse_decimal(&value, &n_decimals, text, size);
    const uint128 factor = (uint128)u->factor;
    whole = whole && value <= ~(uint128)0 / factor;
    if (whole) {
        value *= factor;
        for (; whole && n_decimals > 0; n_decimals--) {
            whole = value % 10 == 0;
            value /= 10;
        }
        for (; whole && n_decimals < 0; n_decimals++)
            value *= 10; /* cannot overflow: the product is below 2^65 */
    }
    if (!whole)
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is not a whole number of bytes, expected %s",
                       text, expected);
    if (value > INT64_MAX)
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is beyond 2^63 - 1 bytes", text);
    *bytes = (int64_t)value;
    return true;
}

static bool parse_scaled(double *out, const char *text, const unit *units, int n,
                         const char *expected, zs_error *err)
{
    size_t size = 0;
    const unit *u = NULL;
    if (!split(&size, &u, text, units, n, expected, err))
        return false;
    /* Dividing by the exact inverse keeps 5us at the double nearest to 0.005. */
    double number = c_strtod(text, NULL);
    double value = u->factor < 1 ? number / round(1 / u->factor) : number * u->factor;
    if (!isfinite(value))
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is too large, expected %s", text, expected);
    *out = value;
    return true;
}

bool zs_units_parse_bandwidth(double *bytes_per_s, const char *text, zs_error *err)
{
    return parse_scaled(bytes_per_s, text, bandwidth_units, N_ITEMS(bandwidth_units),
                        "a bandwidth such as \"12.5GB/s\" or \"100Gb/s\"", err);
}

bool zs_units_parse_ms(double *ms, const char *text, zs_error *err)
{
    return parse_scaled(ms, text, time_units, N_ITEMS(time_units),
                        "a time such as \"5us\", \"1.5ms\" or \"10s\"", err);
}

bool zs_units_parse_int(int64_t *out, const char *text, zs_error *err)
{
    const bool negative = text[0] == '-';
    int64_t value = 0;
    size_t i = negative ? 1 : 0;
    if (!is_digit(text[i]))
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is not an integer", text);
    for (; is_digit(text[i]); i++) {
        const int digit = text[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, negative ? -digit : digit, &value))
            return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is beyond the range of 64 bits", text);
    }
    if (text[i])
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is not an integer", text);
    *out = value;
    return true;
}

bool zs_units_parse_double(double *out, const char *text, zs_error *err)
{
    const size_t sign = text[0] == '-' ? 1 : 0;
    const size_t size = scan_number(text + sign);
    if (size == 0 || text[sign + size])
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is not a number", text);
    const double value = c_strtod(text, NULL);
    if (!isfinite(value))
        return ZS_FAIL(err, ZS_ERR_INPUT, "\"%.60s\" is too large for a number", text);
    *out = value;
    return true;
}

const char *zs_units_print_double(char *buffer, size_t size, double value)
{
    if (value == floor(value) && fabs(value) <= MAX_EXACT) {
        c_snprintf(buffer, size, "%.0f", value);
        return buffer;
    }
    /* Any decimal of 15 digits survives the way through a normal double, so the shortest text has
     * at most the digits of %.15g, or 16 or 17 (Steele and White, PLDI 1990); subnormals have
     * fewer. */
    char text[40];
    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        c_snprintf(text, sizeof text, "%.*g", digits, value);
        if (!(c_strtod(text, NULL) < value) && !(c_strtod(text, NULL) > value))
            break;
    }
    char *e = strchr(text, 'e'); /* "1e-09" -> "1e-9", "1e+20" -> "1e20" */
    if (e) {
        char *from = e + 1, *to = e + 1;
        if (*from == '-')
            to++;
        from++;
        while (*from == '0')
            from++;
        memmove(to, from, strlen(from) + 1);
    }
    c_snprintf(buffer, size, "%s", text);
    return buffer;
}

/* Three significant digits or all of the integer part, so that columns of a table line up. */
static const char *print_scaled(char *buffer, size_t size, double value, const char *unit_name)
{
    const double magnitude = fabs(value);
    const int decimals = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
    c_snprintf(buffer, size, "%.*f %s", decimals, value, unit_name);
    return buffer;
}

const char *zs_units_print_bytes(char *buffer, size_t size, int64_t bytes)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes / 1024;
    if (fabs(value) < 1) {
        c_snprintf(buffer, size, "%d B", (int)bytes);
        return buffer;
    }
    int i = 0;
    for (; i < N_ITEMS(names) - 1 && fabs(value) >= 1000; i++)
        value /= 1024;
    const double magnitude = fabs(value);
    c_snprintf(buffer, size, "%.*f %s", magnitude >= 999.95 ? 0 : 1, value, names[i]);
    return buffer;
}

const char *zs_units_print_bandwidth(char *buffer, size_t size, double bytes_per_s)
{
    static const char *const names[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    int i = 0;
    for (; i < N_ITEMS(names) - 1 && bytes_per_s >= 999.5; i++)
        bytes_per_s /= 1000;
    return print_scaled(buffer, size, bytes_per_s, names[i]);
}

const char *zs_units_print_ms(char *buffer, size_t size, double ms)
{
    if (ms != 0 && fabs(ms) < 0.01)
        return print_scaled(buffer, size, ms * 1e3, "us");
    if (fabs(ms) < 9999.5)
        return print_scaled(buffer, size, ms, "ms");
    if (fabs(ms) < 600e3)
        return print_scaled(buffer, size, ms / 1e3, "s");
    return print_scaled(buffer, size, ms / 60e3, "min");
}
