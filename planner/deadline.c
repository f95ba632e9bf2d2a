#include "planner/deadline.h"

#include <time.h>

double zp_deadline_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

bool zp_deadline_passed(const zp_deadline *deadline)
{
    return (deadline->stop && *deadline->stop) || zp_deadline_now_ms() >= deadline->end_ms;
}
