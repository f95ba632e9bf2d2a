#include "executor/data.h"

#include "tests/support/check.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static zs_error err;
static zx_data data;

static void put_u16(unsigned char *p, int value)
{
    p[0] = (unsigned char)(value & 255);
    p[1] = (unsigned char)(value >> 8);
}

static void test_vocabulary(void)
{
    enum { N = 1001, V = 32000, AT = 990 };
    int ids[N] = {0};
    ids[AT] = 31999;
    const char *path = check_write_tokens("vocab.bin", ids, N);
    CHECK(zx_data_open(&data, path, ZX_DATA_AUTO, 100, V, &err), "%s", err.message);
    CHECK(data.n_tokens == N && data.n_sequences == 10, "%" PRId64 " sequences", data.n_sequences);
    int32_t tokens[100], targets[100];
    zx_data_read(&data, tokens, targets, ZX_DATA_SEQUENTIAL, 1, 9, 1);
    CHECK(tokens[90] == 31999 && targets[89] == 31999 && targets[90] == 0, "token %d target %d",
          tokens[90], targets[89]);
    zx_data_close(&data);

    ids[AT] = 32000;
    path = check_write_tokens("vocab.bin", ids, N);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 100, V, &err), &err, ZS_ERR_INPUT,
                "id 32000 at byte 3004 (token 990), the vocabulary has 32000");
    /* 1024 + 2 * 990 = 3004 */
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 100, 70000, &err), &err, ZS_ERR_INPUT,
                "16-bit ids cannot hold a vocabulary of 70000");
}

static void test_layout(void)
{
    enum { N = 64 };
    int ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = i % 8;
    const char *path = check_write_tokens("layout.bin", ids, N);
    size_t size;
    unsigned char *bytes = (unsigned char *)check_read_file(path, &size);
    CHECK(size == 1024 + 2 * N, "%zu bytes", size);

    path = check_write_file("odd.bin", bytes, size - 1);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 8, 8, &err), &err, ZS_ERR_INPUT,
                "1151 bytes, but the header's 64 tokens of 2 bytes need 1152");
    path = check_write_file("short.bin", bytes, 100);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 8, 8, &err), &err, ZS_ERR_INPUT,
                "100 bytes, expected a header of 1024");
    CHECK_FAILS(zx_data_open(&data, check_path("layout.bin"), ZX_DATA_U32, 8, 8, &err), &err,
                ZS_ERR_INPUT, "the header says u16 ids");

    unsigned char swapped[4] = {bytes[3], bytes[2], bytes[1], bytes[0]};
    unsigned char magic[4];
    memcpy(magic, bytes, 4);
    memcpy(bytes, swapped, 4);
    path = check_write_file("swapped.bin", bytes, size);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 8, 8, &err), &err, ZS_ERR_INPUT,
                "bytes are swapped");
    memcpy(bytes, magic, 4);
    bytes[4] = 9;
    path = check_write_file("version.bin", bytes, size);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 8, 8, &err), &err, ZS_ERR_INPUT,
                "version 9 at byte 4, expected 1");
    free(bytes);

    CHECK_FAILS(zx_data_open(&data, check_path("missing.bin"), ZX_DATA_AUTO, 8, 8, &err), &err,
                ZS_ERR_INPUT, "No such file");
    CHECK_FAILS(zx_data_open(&data, check_write_file("empty.bin", "", 0), ZX_DATA_AUTO, 8, 8, &err),
                &err, ZS_ERR_INPUT, "empty");
}

static void test_raw(void)
{
    enum { N = 64 };
    unsigned char narrow[2 * N] = {0}, wide[4 * N] = {0};
    for (int i = 0; i < N; i++) {
        put_u16(narrow + 2 * i, i % 7 + 1);
        put_u16(wide + 4 * i, i % 7 + 1);
    }
    const char *path = check_write_file("narrow.bin", narrow, sizeof narrow);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 8, 8, &err), &err, ZS_ERR_INPUT,
                "no token header");
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_U32, 8, 8, &err), &err, ZS_ERR_INPUT,
                "id 131073 at byte 0");
    CHECK(zx_data_open(&data, path, ZX_DATA_U16, 8, 8, &err), "%s", err.message);
    CHECK(data.n_tokens == N, "%" PRId64, data.n_tokens);
    zx_data_close(&data);
    path = check_write_file("odd.bin", narrow, sizeof narrow - 1);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_U16, 8, 8, &err), &err, ZS_ERR_INPUT,
                "127 bytes are not whole ids of 2 bytes");

    path = check_write_file("wide.bin", wide, sizeof wide);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_U16, 8, 8, &err), &err, ZS_ERR_INPUT,
                "these are 32-bit ids");
    CHECK(zx_data_open(&data, path, ZX_DATA_U32, 8, 70000, &err), "%s", err.message);
    int32_t tokens[8];
    zx_data_read(&data, tokens, NULL, ZX_DATA_SEQUENTIAL, 1, 1, 1);
    CHECK(tokens[0] == 2 && tokens[6] == 1, "%d %d", tokens[0], tokens[6]);
    zx_data_close(&data);
}

static void test_sequences(void)
{
    int ids[9] = {0};
    const char *path = check_write_tokens("eight.bin", ids, 8);
    CHECK_FAILS(zx_data_open(&data, path, ZX_DATA_AUTO, 8, 8, &err), &err, ZS_ERR_INPUT,
                "8 tokens hold no sequence of 8 tokens and its targets; expected 9 or more");
    path = check_write_tokens("nine.bin", ids, 9);
    CHECK(zx_data_open(&data, path, ZX_DATA_AUTO, 8, 8, &err), "%s", err.message);
    CHECK(data.n_sequences == 1, "%" PRId64, data.n_sequences);
    zx_data_close(&data);
}

/* Global batch 10, 10 steps on 100 sequences: each once; then again in another order. */
static void check_epochs(uint64_t seed)
{
    enum { N_SEQUENCES = 100, T = 4 };
    int ids[N_SEQUENCES * T + 1] = {0};
    for (int q = 0; q < N_SEQUENCES; q++)
        ids[q * T] = q;
    const char *path = check_write_tokens("epochs.bin", ids, N_SEQUENCES * T + 1);
    CHECK(zx_data_open(&data, path, ZX_DATA_AUTO, T, 256, &err), "%s", err.message);
    int n_same = 0;
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[N_SEQUENCES] = {0};
        for (int i = 0; i < N_SEQUENCES; i++) {
            int64_t position = epoch * N_SEQUENCES + i;
            int64_t q = zx_data_sequence(&data, ZX_DATA_SHUFFLED, seed, position);
            int32_t tokens[T];
            zx_data_read(&data, tokens, NULL, ZX_DATA_SHUFFLED, seed, position, 1);
            CHECK(tokens[0] == q, "position %" PRId64 ": %d, sequence %" PRId64, position,
                  tokens[0], q);
            seen[q]++;
            n_same += q == zx_data_sequence(&data, ZX_DATA_SHUFFLED, seed, i + N_SEQUENCES * 3);
        }
        for (int q = 0; q < N_SEQUENCES; q++)
            CHECK(seen[q] == 1, "epoch %d: sequence %d %d times", epoch, q, seen[q]);
    }
    CHECK(n_same < N_SEQUENCES, "epochs repeat the order: %d places", n_same);
    zx_data_close(&data);
}

/* 3 sequences against a global batch of 8: the stream repeats, in the file's order. */
static void test_repeats(void)
{
    int ids[13] = {0};
    const char *path = check_write_tokens("three.bin", ids, 13);
    CHECK(zx_data_open(&data, path, ZX_DATA_AUTO, 4, 8, &err), "%s", err.message);
    for (int i = 0; i < 8; i++)
        CHECK(zx_data_sequence(&data, ZX_DATA_SEQUENTIAL, 1, i) == i % 3, "%d", i);
    zx_data_close(&data);
}

/* A sparse file of 2^31 + T + 1 tokens whose last T + 1 are 7. */
static void test_beyond_int(void)
{
    enum { T = 1024 };
    const int64_t n_tokens = (INT64_C(1) << 31) + T + 1;
    const char *path = check_write_file("large.bin", "", 0);
    int fd = open(path, O_WRONLY);
    unsigned char tail[2 * (T + 1)];
    for (int i = 0; i <= T; i++)
        put_u16(tail + 2 * i, 7);
    bool written = fd >= 0 && pwrite(fd, tail, sizeof tail,
                                     (off_t)(2 * n_tokens) - (off_t)sizeof tail) == sizeof tail;
    if (fd >= 0)
        close(fd);
    if (!CHECK(written, "sparse file of %" PRId64 " tokens", n_tokens))
        return;
    CHECK(zx_data_open(&data, path, ZX_DATA_U16, T, 8, &err), "%s", err.message);
    CHECK(data.n_sequences == ((INT64_C(1) << 31) + T) / T, "%" PRId64, data.n_sequences);
    int32_t tokens[T], targets[T];
    zx_data_read(&data, tokens, targets, ZX_DATA_SEQUENTIAL, 1, data.n_sequences - 1, 1);
    int sevens = 0;
    for (int t = 0; t < T; t++)
        sevens += (tokens[t] == 7) + (targets[t] == 7);
    CHECK(sevens == 2 * T, "%d of %d", sevens, 2 * T);
    zx_data_close(&data);
    unlink(path);
}

int main(void)
{
    test_vocabulary();
    test_layout();
    test_raw();
    test_sequences();
    check_seeds(check_epochs, 1, 5);
    test_repeats();
    test_beyond_int();
    return check_done();
}
