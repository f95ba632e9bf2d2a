/* What will happen next: moments in a binary heap, the earliest first; equal moments in the order
 * in which they were added. */
#ifndef PLANNER_EVENT_HEAP_H
#define PLANNER_EVENT_HEAP_H

#include "shared/arena.h"

typedef struct zp_event {
    double at_ms;
    int64_t number; /* order of adding; set by add */
    int what;       /* the caller's */
    int subject;
    int64_t version;
} zp_event;

typedef struct zp_event_heap {
    int64_t n, capacity, n_added;
    zp_event *events;
} zp_event_heap;

/* Grows in the arena. */
ZS_MUST_CHECK bool zp_event_heap_add(zp_event_heap *heap, zs_arena *arena, zp_event event,
                                     zs_error *err);

/* Takes out the earliest; n > 0. */
zp_event zp_event_heap_take(zp_event_heap *heap);

#endif
