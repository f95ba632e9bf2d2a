/* Any text is refused with a message or is a finite quantity of 0 or more; each line is one text.
 */
#include "shared/units.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static void check_text(const char *text)
{
    int64_t bytes = -1;
    double rate = -1, ms = -1, number = NAN, again = NAN;
    char buffer[64];
    zs_error err = {0};
    if (zs_units_parse_bytes(&bytes, text, &err)) {
        FUZZ_CHECK(bytes >= 0, "%s", text);
        zs_units_print_bytes(buffer, sizeof buffer, bytes);
    } else {
        fuzz_check_error(&err);
    }
    if (zs_units_parse_bandwidth(&rate, text, &err)) {
        FUZZ_CHECK(rate >= 0 && isfinite(rate), "%s", text);
        zs_units_print_bandwidth(buffer, sizeof buffer, rate);
    } else {
        fuzz_check_error(&err);
    }
    if (zs_units_parse_ms(&ms, text, &err)) {
        FUZZ_CHECK(ms >= 0 && isfinite(ms), "%s", text);
        zs_units_print_ms(buffer, sizeof buffer, ms);
    } else {
        fuzz_check_error(&err);
    }
    if (!zs_units_parse_int(&bytes, text, &err))
        fuzz_check_error(&err);
    if (zs_units_parse_double(&number, text, &err)) {
        zs_units_print_double(buffer, sizeof buffer, number);
        FUZZ_CHECK(zs_units_parse_double(&again, buffer, &err) &&
                       memcmp(&again, &number, sizeof again) == 0,
                   "%s became %s", text, buffer);
    } else {
        fuzz_check_error(&err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[256];
    size_t used = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i < size && data[i] != '\n' && data[i] != 0 && used < sizeof text - 1) {
            text[used++] = (char)data[i];
            continue;
        }
        text[used] = 0;
        check_text(text);
        used = 0;
    }
    return 0;
}
