#include "shared/log.h"

#include <stdarg.h>
#include <time.h>

static struct {
    const char *program;
    int rank;
    zs_log_level level;
    double start_s;
} state = {.program = "zplan", .rank = -1, .level = ZS_LOG_INFO};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void zs_log_open(const char *program, int rank, zs_log_level level)
{
    state.program = program;
    state.rank = rank;
    state.level = level;
    if (state.start_s <= 0)
        state.start_s = now_s();
}

double zs_log_elapsed_s(void)
{
    return state.start_s > 0 ? now_s() - state.start_s : 0;
}

void zs_log(zs_log_level level, const char *format, ...)
{
    static const char *const words[] = {"error: ", "warning: ", "", ""};
    if (level > state.level)
        return;
    char text[ZS_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char rank[16] = "";
    if (state.rank >= 0)
        snprintf(rank, sizeof rank, " %d", state.rank);
    /* One call, so that lines of several ranks do not mix. */
    fprintf(stderr, "[%8.3fs %s%s] %s%s\n", zs_log_elapsed_s(), state.program, rank, words[level],
            text);
}
