/* Log lines on stderr: "[   0.123s zexec 2] message" for rank 2, without the rank for a program
 * of one process. Results go to stdout, never through here. */
#ifndef SHARED_LOG_H
#define SHARED_LOG_H

#include "shared/error.h"

typedef enum zs_log_level { ZS_LOG_ERROR, ZS_LOG_WARN, ZS_LOG_INFO, ZS_LOG_DEBUG } zs_log_level;

/* program is kept (static text); rank < 0: not shown. Elapsed time counts from the first call. */
void zs_log_open(const char *program, int rank, zs_log_level level);

void zs_log(zs_log_level level, const char *format, ...) ZS_PRINTF(2, 3);

#define zs_log_error(...) zs_log(ZS_LOG_ERROR, __VA_ARGS__)
#define zs_log_warn(...) zs_log(ZS_LOG_WARN, __VA_ARGS__)
#define zs_log_info(...) zs_log(ZS_LOG_INFO, __VA_ARGS__)
#define zs_log_debug(...) zs_log(ZS_LOG_DEBUG, __VA_ARGS__)

/* Seconds since zs_log_open on a clock that never jumps. */
double zs_log_elapsed_s(void);

#endif
