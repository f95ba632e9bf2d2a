#include "tests/fuzz/fuzz.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void fuzz_check(bool ok, const char *condition, const char *file, int line, const char *format, ...)
{
    if (ok)
        return;
    fprintf(stderr, "%s:%d: %s: ", file, line, condition);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

void fuzz_check_error(const zs_error *err)
{
    FUZZ_CHECK(err->code == ZS_ERR_INPUT || err->code == ZS_ERR_RUNTIME ||
                   err->code == ZS_ERR_INFEASIBLE,
               "code %d", (int)err->code);
    FUZZ_CHECK(err->message[0], "the message is empty");
    FUZZ_CHECK(memchr(err->message, 0, sizeof err->message), "the message has no end");
    FUZZ_CHECK(!strchr(err->message, '\n'), "%s", err->message);
}
