#include "executor/convert.h"

#include "executor/data.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static zs_error err;
static zx_convert_result result;

static void check_tokens(const char *path, const char *text, int n)
{
    zx_data data;
    if (!CHECK(zx_data_open(&data, path, ZX_DATA_AUTO, 1, ZX_CONVERT_BYTE_VOCAB, &err), "%s",
               err.message))
        return;
    CHECK(data.n_tokens == n, "%" PRId64 " tokens, expected %d", data.n_tokens, n);
    for (int i = 0; i < n - 1; i++) {
        int32_t token, target;
        zx_data_read(&data, &token, &target, ZX_DATA_SEQUENTIAL, 1, i, 1);
        CHECK(token == (unsigned char)text[i] && target == (unsigned char)text[i + 1], "token %d",
              i);
    }
    zx_data_close(&data);
}

int main(void)
{
    const char text[] = "zexec \xc3\xa9t\xff 0123456789";
    const int n = (int)sizeof text - 1;
    const char *in = check_write_file("text.txt", text, sizeof text - 1);

    CHECK(zx_convert_text(&result, in, check_path("out.bin"), 0, &err), "%s", err.message);
    CHECK(result.n_tokens == n && result.n_held_back == 0, "%" PRId64, result.n_tokens);
    CHECK_STRING(result.path, check_path("out.bin"));
    check_tokens(result.path, text, n);

    CHECK(zx_convert_text(&result, in, check_path("two.bin"), 0.25, &err), "%s", err.message);
    CHECK_STRING(result.path, check_path("two.train.bin"));
    CHECK_STRING(result.held_back_path, check_path("two.val.bin"));
    CHECK(result.n_held_back == n / 4, "%" PRId64, result.n_held_back);
    check_tokens(result.path, text, n - n / 4);
    check_tokens(result.held_back_path, text + n - n / 4, n / 4);
    CHECK(access(check_path("two.bin"), F_OK) != 0, "two.bin was written as well");

    CHECK_FAILS(zx_convert_text(&result, check_write_file("empty.txt", "", 0),
                                check_path("none.bin"), 0, &err),
                &err, ZS_ERR_INPUT, "empty, expected text");
    CHECK_FAILS(zx_convert_text(&result, check_write_file("one.txt", "a", 1),
                                check_path("none.bin"), 0.5, &err),
                &err, ZS_ERR_INPUT, "leaves nothing");
    CHECK_FAILS(
        zx_convert_text(&result, check_path("missing.txt"), check_path("none.bin"), 0, &err), &err,
        ZS_ERR_INPUT, "No such file");
    CHECK_FAILS(zx_convert_text(&result, in, check_path("no/such/out.bin"), 0, &err), &err,
                ZS_ERR_INPUT, "cannot be written");
    CHECK(access(check_path("none.bin"), F_OK) != 0 &&
              access(check_path("none.train.bin"), F_OK) != 0,
          "a refused text left a file");
    return check_done();
}
