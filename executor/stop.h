/* Being told to stop, as a batch system does before it takes the machine away: SIGTERM or SIGUSR1,
 * to any rank. The handler only takes note. All ranks agree at the end of a step, which they then
 * save (executor/train.c). */
#ifndef EXECUTOR_STOP_H
#define EXECUTOR_STOP_H

#include <stdbool.h>

/* Exit status of a run that was told to stop and did, in order. */
enum { ZX_STOP_STATUS = 4 };

/* Signals wait until zx_stop_open, also across exec: none is lost in between. */
void zx_stop_hold(void);
void zx_stop_open(void);

/* This process was told. */
bool zx_stop_wanted(void);

#endif
