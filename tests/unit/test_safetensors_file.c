/* Reading safetensors: one good file to the bit, and all the ways in which a header can lie. */
#include "executor/weights.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static zs_arena *arena;
static zs_error err;

/* A file of this header, padded to a multiple of 8, and so many bytes of data: 0, 1, 2, ... */
static const char *make(const char *name, const char *header, size_t data_bytes)
{
    static unsigned char bytes[8192];
    const size_t n = strlen(header), padded = (n + 7) / 8 * 8;
    const uint64_t size = padded;
    memcpy(bytes, &size, 8);
    memset(bytes + 8, ' ', padded);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + padded + i] = (unsigned char)i;
    return check_write_file(name, bytes, 8 + padded + data_bytes);
}

#define A(dtype, shape, begin, end)                                                                \
    "\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define B(dtype, shape, begin, end)                                                                \
    "\"b\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define GOOD A("F32", "[2,3]", "0", "24") "," B("F32", "[2]", "24", "32")

static void check_good(void)
{
    zx_safetensors_file f;
    const char *path = make("good", "{\"__metadata__\":{\"format\":\"pt\"}," GOOD "}", 32);
    float values[6], expected[8];
    for (int i = 0; i < 8; i++) {
        const uint8_t bytes[4] = {(uint8_t)(4 * i), (uint8_t)(4 * i + 1), (uint8_t)(4 * i + 2),
                                  (uint8_t)(4 * i + 3)};
        memcpy(&expected[i], bytes, 4);
    }
    if (!CHECK(zx_safetensors_open(&f, arena, path, &err), "%s", err.message))
        return;
    const zx_safetensors_entry *a = zx_safetensors_find(&f, "a"), *b = zx_safetensors_find(&f, "b");
    CHECK(f.n_entries == 2 && a && b && !zx_safetensors_find(&f, "c"), "%d", f.n_entries);
    CHECK(a->n_dims == 2 && a->shape[0] == 2 && a->shape[1] == 3 && a->count == 6, "a");
    CHECK(zx_safetensors_read(values, &f, a, 0, 6, &err) && memcmp(values, expected, 24) == 0, "a");
    CHECK(zx_safetensors_read(values, &f, b, 1, 1, &err) && memcmp(values, expected + 7, 4) == 0,
          "b[1]");
    zx_safetensors_close(&f);

    /* No tensor, an empty one, a scalar, the whole order upside down. */
    CHECK(zx_safetensors_open(&f, arena, make("none", "{}", 0), &err), "%s", err.message);
    zx_safetensors_close(&f);
    path = make(
        "odd",
        "{" B("F16", "[]", "4", "6") "," A("U8", "[2,2]", "0", "4") ",\"empty\":{\"dtype\":"
                                                                    "\"F32\",\"shape\":[0,7]"
                                                                    ",\"data_offsets\":[4,4]}}",
        6);
    CHECK(zx_safetensors_open(&f, arena, path, &err), "%s", err.message);
    a = zx_safetensors_find(&f, "a");
    CHECK_FAILS(zx_safetensors_read(values, &f, a, 0, 1, &err), &err, ZS_ERR_INPUT,
                "tensor a has dtype U8, weights are F32");
    zx_safetensors_close(&f);
}

static void check_refused(const char *path, const char *message)
{
    zx_safetensors_file f;
    CHECK_FAILS(zx_safetensors_open(&f, arena, path, &err), &err, ZS_ERR_INPUT, message);
    CHECK(strstr(err.message, path) != NULL, "%s does not name the file", err.message);
}

/* The good file with another header size, cut to n bytes. */
static void check_size(uint64_t size, size_t n, const char *message)
{
    size_t n_good;
    char *bytes = check_read_file(check_path("good"), &n_good);
    if (!CHECK(bytes && n <= n_good, "good"))
        return;
    if (size > 0)
        memcpy(bytes, &size, 8);
    check_refused(check_write_file("bad", bytes, n ? n : n_good), message);
    free(bytes);
}

static void check_bad(void)
{
    size_t n_good;
    free(check_read_file(check_path("good"), &n_good));
    check_size(UINT64_MAX, 0, "say that 18446744073709551615 bytes of header follow, but the file");
    check_size(UINT64_C(1) << 63, 0, "say that 9223372036854775808 bytes");
    check_size(n_good - 7, 0, "bytes of header follow, but the file has");
    check_size(n_good - 8, 0, "unexpected text after the end");
    check_size(0, 7, "7 bytes, expected a safetensors file");
    check_size(0, n_good - 1, "$.b.data_offsets: ends at byte 32, but 31 bytes follow the header");
    for (size_t n = 1; n < n_good; n++) {
        zx_safetensors_file f;
        char *bytes = check_read_file(check_path("good"), NULL);
        const char *path = check_write_file("bad", bytes, n);
        CHECK(!zx_safetensors_open(&f, arena, path, &err), "%zu of %zu bytes", n, n_good);
        free(bytes);
    }

    /* clang-format off */
    static const struct {
        const char *header;
        int data_bytes;
        const char *message;
    } cases[] = {
        {"[]",                                             0,  "does not begin with \"{\""},
        {"{\"a\":",                                        0,  "bad:1:"},
        {"not JSON",                                       0,  "does not begin with \"{\""},
        {"{" GOOD "} x",                                   32, "bad:1:"},
        {"{" A("F32", "[2,3]", "0", "24") "," B("F32", "[2]", "24", "36") "}", 32,
                                                               "$.b.data_offsets: ends at byte 36, but 32 bytes follow"},
        {"{" A("F32", "[2,3]", "0", "20") "}",             20, "$.a.data_offsets: 20 bytes, but 6 elements of F32 have 4"},
        {"{" A("F32", "[2,3]", "24", "0") "}",             24, "$.a.data_offsets: begins at 24, behind its end at 0"},
        {"{" A("F32", "[2,3]", "0", "24") "," B("F32", "[2]", "20", "28") "}", 28,
                                                               "tensor b begins at 20, inside tensor a, which ends at 24"},
        {"{" A("F32", "[2,3]", "0", "24") "," B("F32", "[6]", "0", "24") "}", 24,
                                                               "inside tensor"},
        {"{" A("F32", "[2,3]", "0", "24") "," B("F32", "[2]", "28", "36") "}", 36,
                                                               "bytes 24 to 28, before tensor b, belong to no tensor"},
        {"{" A("F32", "[2,3]", "0", "24") "}",             32, "the last tensor, a, ends at 24, but 32 bytes follow"},
        {"{}",                                             4,  "but 4 bytes follow the header"},
        {"{" A("F32", "[2,3]", "0", "24") "," A("F32", "[2]", "24", "32") "}", 32, "\"a\""},
        {"{" A("F7", "[2,3]", "0", "24") "}",              24, "$.a.dtype: is \"F7\", expected"},
        {"{" A("F32", "[4294967296,4294967296]", "0", "24") "}", 24, "$.a.shape: the product of its sizes is beyond 64 bits"},
        {"{" A("F64", "[4611686018427387904]", "0", "0") "}", 0, "$.a.shape[0]"},
        {"{" A("F64", "[2305843009213693952]", "0", "0") "}", 0, "$.a.shape[0]"},
        {"{" A("F64", "[2147483648,1073741824]", "0", "0") "}", 0, "$.a.data_offsets: 0 bytes, but"},
        {"{" A("F32", "[-1]", "0", "4") "}",               4,  "$.a.shape[0]"},
        {"{" A("F32", "[1.5]", "0", "6") "}",              6,  "$.a.shape[0]"},
        {"{" A("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "$.a.shape"},
        {"{" A("F32", "[1]", "-4", "0") "}",               4,  "$.a.data_offsets[0]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}",      4,  "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4, "offsets"},
        {"{\"a\":[]}",                                     0,  "$.a"},
        {"{\"__metadata__\":{\"n\":1}}",                   0,  "$.__metadata__.n"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_refused(make("bad", cases[i].header, (size_t)cases[i].data_bytes), cases[i].message);
    check_refused(check_folder("folder"), "not a regular file");
}

/* Half precision against its definition; the others keep their bits. */
static void check_dtypes(void)
{
    zx_safetensors_file f;
    static float values[65536];
    static unsigned char bytes[8 + 80 + 2 * 65536];
    const char *header =
        "{\"a\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}";
    const uint64_t size = 80;
    memcpy(bytes, &size, 8);
    memset(bytes + 8, ' ', 80);
    memcpy(bytes + 8, header, strlen(header));
    for (int i = 0; i < 65536; i++) {
        const uint16_t half = (uint16_t)i;
        memcpy(bytes + 88 + 2 * i, &half, 2);
    }
    const char *path = check_write_file("half", bytes, sizeof bytes);
    if (!CHECK(zx_safetensors_open(&f, arena, path, &err) &&
                   zx_safetensors_read(values, &f, zx_safetensors_find(&f, "a"), 0, 65536, &err),
               "%s", err.message))
        return;
    int n_wrong = 0;
    for (int i = 0; i < 65536; i++) {
        const int exponent = i >> 10 & 31, fraction = i & 0x3ff;
        const double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                                 : exponent == 0 ? fraction * 0x1p-24
                                                 : ldexp(1 + fraction / 1024.0, exponent - 15);
        const double expected = i & 0x8000 ? -magnitude : magnitude;
        n_wrong += isnan(expected)
                       ? !isnan(values[i])
                       : (double)values[i] != expected || !signbit(values[i]) != !signbit(expected);
    }
    CHECK(n_wrong == 0, "%d halves are wrong", n_wrong);
    zx_safetensors_close(&f);

    const double wide[2] = {1.0 / 3, -2.5};
    unsigned char file[256];
    header = "{" A("F64", "[2]", "0", "16") "," B("BF16", "[2]", "16", "20") "}";
    const uint64_t padded = (strlen(header) + 7) / 8 * 8;
    const uint16_t brain[2] = {0x3f80, 0xc049};
    memcpy(file, &padded, 8);
    memset(file + 8, ' ', padded);
    memcpy(file + 8, header, strlen(header));
    memcpy(file + 8 + padded, wide, 16);
    memcpy(file + 24 + padded, brain, 4);
    path = check_write_file("wide", file, 28 + padded);
    CHECK(zx_safetensors_open(&f, arena, path, &err) &&
              zx_safetensors_read(values, &f, zx_safetensors_find(&f, "a"), 0, 2, &err) &&
              zx_safetensors_read(values + 2, &f, zx_safetensors_find(&f, "b"), 0, 2, &err),
          "%s", err.message);
    CHECK(values[0] == (float)(1.0 / 3) && values[1] == -2.5f && values[2] == 1 &&
              values[3] == -3.140625f,
          "%g %g %g %g", (double)values[0], (double)values[1], (double)values[2],
          (double)values[3]);
    zx_safetensors_close(&f);
}

int main(void)
{
    if (!zs_arena_open(&arena, &err))
        return 1;
    check_good();
    check_bad();
    check_dtypes();
    zs_arena_close(&arena);
    return check_done();
}
