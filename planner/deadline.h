/* When to stop: a moment on a clock that never jumps, or a flag that a signal handler sets. Every
 * long loop of the search asks. */
#ifndef PLANNER_DEADLINE_H
#define PLANNER_DEADLINE_H

#include <stdbool.h>

typedef struct zp_deadline {
    double end_ms;            /* on the clock of zp_deadline_now_ms; infinity: none */
    const volatile int *stop; /* nonzero: stop; may be NULL */
} zp_deadline;

double zp_deadline_now_ms(void);
bool zp_deadline_passed(const zp_deadline *deadline);

#endif
