#include "planner/event_heap.h"

#include <string.h>

enum { FIRST_CAPACITY = 1024 };

static bool before(const zp_event *a, const zp_event *b)
{
    return a->at_ms < b->at_ms || (!(b->at_ms < a->at_ms) && a->number < b->number);
}

bool zp_event_heap_add(zp_event_heap *heap, zs_arena *arena, zp_event event, zs_error *err)
{
    if (heap->n == heap->capacity) {
        const int64_t capacity = heap->capacity > 0 ? 2 * heap->capacity : FIRST_CAPACITY;
        zp_event *events = ZS_NEW(arena, zp_event, capacity, err);
        if (!events)
            return false;
        if (heap->n > 0)
            memcpy(events, heap->events, (size_t)heap->n * sizeof *events);
        heap->events = events;
        heap->capacity = capacity;
    }
    event.number = heap->n_added++;
    int64_t at = heap->n++;
    for (; at > 0 && before(&event, &heap->events[(at - 1) / 2]); at = (at - 1) / 2)
        heap->events[at] = heap->events[(at - 1) / 2];
    heap->events[at] = event;
    return true;
}

zp_event zp_event_heap_take(zp_event_heap *heap)
{
    const zp_event first = heap->events[0], moved = heap->events[--heap->n];
    int64_t at = 0;
    for (int64_t child = 1; child < heap->n; child = 2 * at + 1) {
        if (child + 1 < heap->n && before(&heap->events[child + 1], &heap->events[child]))
            child++;
        if (!before(&heap->events[child], &moved))
            break;
        heap->events[at] = heap->events[child];
        at = child;
    }
    if (heap->n > 0)
        heap->events[at] = moved;
    return first;
}
