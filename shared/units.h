/* Quantities as text. 1 GB = 10^9 bytes, 1 GiB = 2^30 bytes; B is byte, b is bit. A bare number
 * is refused. "80GiB", "80 GiB", "24GB", "100Gb/s", "12.5GB/s", "25GiB/s", "5us", "1.5ms", "2s",
 * "1min". Only "." is a decimal point, whatever the locale; no sign, no inf, no nan. */
#ifndef SHARED_UNITS_H
#define SHARED_UNITS_H

#include "shared/error.h"

#include <stddef.h>
#include <stdint.h>

/* On failure the message says what is wrong with the text and gives an example; ZS_ERR_INPUT.
 * Bytes must come out whole ("0.3B" is refused) and below 2^63. */
ZS_MUST_CHECK bool zs_units_parse_bytes(int64_t *bytes, const char *text, zs_error *err);
ZS_MUST_CHECK bool zs_units_parse_bandwidth(double *bytes_per_s, const char *text, zs_error *err);
ZS_MUST_CHECK bool zs_units_parse_ms(double *ms, const char *text, zs_error *err);

/* Plain numbers: the whole text, C locale. */
ZS_MUST_CHECK bool zs_units_parse_int(int64_t *out, const char *text, zs_error *err);
ZS_MUST_CHECK bool zs_units_parse_double(double *out, const char *text, zs_error *err);

/* The shortest text that reads back to the same bits, whole numbers below 2^53 without exponent:
 * "0.1", "25000000000", "1e-9". Writes at most size bytes (32 are enough), returns buffer. */
const char *zs_units_print_double(char *buffer, size_t size, double value);

/* For people: "43.1 GiB", "12.5 GB/s", "1.53 ms". Writes at most size bytes, returns buffer. */
const char *zs_units_print_bytes(char *buffer, size_t size, int64_t bytes);
const char *zs_units_print_bandwidth(char *buffer, size_t size, double bytes_per_s);
const char *zs_units_print_ms(char *buffer, size_t size, double ms);

#endif
