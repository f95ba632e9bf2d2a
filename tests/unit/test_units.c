#include "shared/units.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static void check_bytes(const char *text, int64_t expected)
{
    int64_t bytes = -1;
    zs_error err;
    if (CHECK(zs_units_parse_bytes(&bytes, text, &err), "%s: %s", text, err.message))
        CHECK(bytes == expected, "%s is %" PRId64 ", expected %" PRId64, text, bytes, expected);
}

static void check_bytes_fail(const char *text, const char *message)
{
    int64_t bytes = -1;
    zs_error err;
    CHECK_FAILS(zs_units_parse_bytes(&bytes, text, &err), &err, ZS_ERR_INPUT, message);
    CHECK(bytes == -1, "%s: output set on failure", text);
}

static void test_bytes(void)
{
    check_bytes("24GB", INT64_C(24000000000));
    check_bytes("24 GB", INT64_C(24000000000));
    check_bytes("24GiB", INT64_C(25769803776));
    check_bytes("24 GiB", INT64_C(25769803776));
    check_bytes("80GiB", INT64_C(85899345920));
    check_bytes("512MiB", INT64_C(536870912));
    check_bytes("0B", 0);
    check_bytes("1.5KiB", 1536);
    check_bytes("0.1GB", INT64_C(100000000));
    check_bytes("1.000000000000000000000GB", INT64_C(1000000000));
    check_bytes("1e3B", 1000);
    check_bytes("1.25e-1KiB", 128);
    check_bytes("150323855360B", INT64_C(150323855360));
    check_bytes("9223372036854775807B", INT64_MAX);
    check_bytes("9007199254740993B", INT64_C(9007199254740993));
    check_bytes("0.000000001GB", 1);

    check_bytes_fail("80", "\"80\" has no unit, expected bytes such as \"80GiB\"");
    check_bytes_fail("0.3B", "not a whole number of bytes");
    check_bytes_fail("0.1GiB", "not a whole number of bytes");
    check_bytes_fail("80Gb", "unknown unit \"Gb\"");
    check_bytes_fail("80gib", "unknown unit \"gib\"");
    check_bytes_fail("80G", "unknown unit \"G\"");
    check_bytes_fail("-1GiB", "number of 0 or more");
    check_bytes_fail("", "number of 0 or more");
    check_bytes_fail("nanGiB", "number of 0 or more");
    check_bytes_fail("infB", "number of 0 or more");
    check_bytes_fail("0,5GiB", "unknown unit \",5GiB\"");
    check_bytes_fail("9223372036854775808B", "beyond 2^63 - 1");
    check_bytes_fail("8388608TiB", "beyond 2^63 - 1");
    check_bytes_fail("1e999B", "beyond 2^63 - 1");
    check_bytes_fail("1e-999B", "not a whole number");
    check_bytes_fail("80GiB x", "unknown unit");
    check_bytes_fail("1.GiB", "number of 0 or more");
}

static void check_rate(const char *text, double expected)
{
    double rate = -1;
    zs_error err;
    if (CHECK(zs_units_parse_bandwidth(&rate, text, &err), "%s: %s", text, err.message))
        CHECK(rate >= expected && rate <= expected, "%s is %.17g", text, rate);
}

/* A message of 1e9 bytes takes 0.08 s over 100 Gb/s however that is spelled; 1 GiB takes 0.0859. */
static void test_bandwidth(void)
{
    check_rate("100Gb/s", 12.5e9);
    check_rate("12.5GB/s", 12.5e9);
    check_rate("12.5 GB/s", 12.5e9);
    check_rate("25GiB/s", 25 * 0x1p30);
    check_rate("8b/s", 1);
    check_rate("0B/s", 0);
    double rate = 0;
    zs_error err;
    CHECK(zs_units_parse_bandwidth(&rate, "100Gb/s", &err), "%s", err.message);
    CHECK_NEAR(1e9 / rate, 0.08, 1e-15);
    CHECK_NEAR(0x1p30 / rate, 0.08589934592, 1e-15);
    CHECK_FAILS(zs_units_parse_bandwidth(&rate, "100", &err), &err, ZS_ERR_INPUT, "has no unit");
    CHECK_FAILS(zs_units_parse_bandwidth(&rate, "100Gb", &err), &err, ZS_ERR_INPUT, "unknown unit");
    CHECK_FAILS(zs_units_parse_bandwidth(&rate, "1e308GB/s", &err), &err, ZS_ERR_INPUT,
                "too large");
}

static void check_time(const char *text, double expected)
{
    double ms = -1;
    zs_error err;
    if (CHECK(zs_units_parse_ms(&ms, text, &err), "%s: %s", text, err.message))
        CHECK(ms >= expected && ms <= expected, "%s is %.17g", text, ms);
}

static void test_times(void)
{
    check_time("5us", 0.005);
    check_time("250ns", 0.00025);
    check_time("1.5ms", 1.5);
    check_time("2s", 2000);
    check_time("1min", 60000);
    check_time("0.5 h", 1800000);
    double ms = 0;
    zs_error err;
    CHECK_FAILS(zs_units_parse_ms(&ms, "5", &err), &err, ZS_ERR_INPUT, "has no unit");
    CHECK_FAILS(zs_units_parse_ms(&ms, "-5ms", &err), &err, ZS_ERR_INPUT, "0 or more");
}

static void test_plain_numbers(void)
{
    int64_t integer = 0;
    double number = 0;
    zs_error err;
    CHECK(zs_units_parse_int(&integer, "-9223372036854775808", &err) && integer == INT64_MIN,
          "smallest");
    CHECK(zs_units_parse_int(&integer, "9223372036854775807", &err) && integer == INT64_MAX,
          "largest");
    CHECK_FAILS(zs_units_parse_int(&integer, "9223372036854775808", &err), &err, ZS_ERR_INPUT,
                "64 bits");
    CHECK_FAILS(zs_units_parse_int(&integer, "12.5", &err), &err, ZS_ERR_INPUT, "not an integer");
    CHECK_FAILS(zs_units_parse_int(&integer, "", &err), &err, ZS_ERR_INPUT, "not an integer");
    CHECK_FAILS(zs_units_parse_int(&integer, "-", &err), &err, ZS_ERR_INPUT, "not an integer");
    CHECK_FAILS(zs_units_parse_int(&integer, " 1", &err), &err, ZS_ERR_INPUT, "not an integer");
    CHECK(zs_units_parse_double(&number, "-0.5", &err) && number <= -0.5 && number >= -0.5, "-0.5");
    CHECK_FAILS(zs_units_parse_double(&number, "0,5", &err), &err, ZS_ERR_INPUT, "not a number");
    CHECK_FAILS(zs_units_parse_double(&number, "1e999", &err), &err, ZS_ERR_INPUT, "too large");
    CHECK_FAILS(zs_units_parse_double(&number, "nan", &err), &err, ZS_ERR_INPUT, "not a number");
    CHECK_FAILS(zs_units_parse_double(&number, "inf", &err), &err, ZS_ERR_INPUT, "not a number");
    CHECK_FAILS(zs_units_parse_double(&number, "0x10", &err), &err, ZS_ERR_INPUT, "not a number");
}

static void check_double_text(double value, const char *expected)
{
    char text[40];
    CHECK_STRING(zs_units_print_double(text, sizeof text, value), expected);
}

static void test_print_double(void)
{
    check_double_text(0, "0");
    check_double_text(-0.0, "-0");
    check_double_text(0.1, "0.1");
    check_double_text(0.1 + 0.2, "0.30000000000000004");
    check_double_text(12.5e9, "12500000000");
    check_double_text(9007199254740991.0, "9007199254740991");
    check_double_text(1e300, "1e300");
    check_double_text(1e-9, "1e-9");
    check_double_text(-1.5e-10, "-1.5e-10");
    check_double_text(5e-324, "5e-324");
    check_double_text(1.7976931348623157e308, "1.7976931348623157e308");
}

/* Whatever the bits, the text reads back to them. */
static void check_round_trip(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    const uint64_t bits = (uint64_t)check_rng_int(&rng, INT64_MIN, INT64_MAX);
    double value = 0, back = 0;
    memcpy(&value, &bits, sizeof value);
    if ((bits >> 52 & 0x7FF) == 0x7FF)
        return; /* not finite */
    char text[40];
    zs_error err;
    zs_units_print_double(text, sizeof text, value);
    CHECK(zs_units_parse_double(&back, text, &err), "seed %" PRIu64 ": %s", seed, err.message);
    CHECK(memcmp(&back, &value, sizeof back) == 0, "seed %" PRIu64 ": %s", seed, text);
}

static void test_print_for_people(void)
{
    char text[40];
    CHECK_STRING(zs_units_print_bytes(text, sizeof text, 0), "0 B");
    CHECK_STRING(zs_units_print_bytes(text, sizeof text, 1023), "1023 B");
    CHECK_STRING(zs_units_print_bytes(text, sizeof text, 1536), "1.5 KiB");
    CHECK_STRING(zs_units_print_bytes(text, sizeof text, INT64_C(46278272614)), "43.1 GiB");
    CHECK_STRING(zs_units_print_bytes(text, sizeof text, INT64_MAX), "8192 PiB");
    CHECK_STRING(zs_units_print_bandwidth(text, sizeof text, 12.5e9), "12.5 GB/s");
    CHECK_STRING(zs_units_print_bandwidth(text, sizeof text, 999.9e6), "1.00 GB/s");
    CHECK_STRING(zs_units_print_ms(text, sizeof text, 1.53), "1.53 ms");
    CHECK_STRING(zs_units_print_ms(text, sizeof text, 0.005), "5.00 us");
    CHECK_STRING(zs_units_print_ms(text, sizeof text, 34), "34.0 ms");
    CHECK_STRING(zs_units_print_ms(text, sizeof text, 123.4), "123 ms");
    CHECK_STRING(zs_units_print_ms(text, sizeof text, 12345), "12.3 s");
}

int main(void)
{
    test_bytes();
    test_bandwidth();
    test_times();
    test_plain_numbers();
    test_print_double();
    test_print_for_people();
    check_seeds(check_round_trip, 1, 2000);
    /* The same again with a decimal comma, where such a locale is installed. */
    if (setlocale(LC_ALL, "de_DE.UTF-8")) {
        test_bytes();
        test_plain_numbers();
        test_print_double();
        test_print_for_people();
    } else {
        fprintf(stderr, "locale de_DE.UTF-8 is not installed: not tested\n");
    }
    return check_done();
}
