#include "shared/timeline.h"

#include <math.h>
#include <stdlib.h>

static bool build_rank(zs_timeline_rank *out, zs_arena *arena, const zs_program *program,
                       const zs_plan *plan, zs_error *err)
{
    const zs_plan_rank *rank = zs_plan_rank_at(plan, program->rank);
    const zs_node *node = &plan->cluster.nodes[rank->node];
    out->stage = program->stage;
    out->name = zs_arena_printf(arena, err, "stage %d %s:gpu%d %s", program->stage, node->name,
                                rank->gpu, node->devices[rank->gpu].type);
    out->n_events = program->n_instructions;
    out->events = ZS_NEW(arena, zs_timeline_event, program->n_instructions, err);
    if (!out->name || !out->events)
        return false;
    for (int i = 0; i < program->n_instructions; i++) {
        const zs_instruction *instruction = &program->instructions[i];
        out->events[i] = (zs_timeline_event){.op = instruction->op,
                                             .micro_batch = instruction->micro_batch,
                                             .peer = instruction->peer};
    }
    return true;
}

bool zs_timeline_build(zs_timeline *out, zs_arena *arena, const zs_schedule *schedule,
                       const zs_plan *plan, zs_error *err)
{
    zs_timeline timeline = {.n_ranks = schedule->n_ranks};
    timeline.ranks = ZS_NEW(arena, zs_timeline_rank, schedule->n_ranks, err);
    if (!timeline.ranks)
        return false;
    for (int rank = 0; rank < schedule->n_ranks; rank++)
        if (!build_rank(&timeline.ranks[rank], arena, &schedule->programs[rank], plan, err))
            return false;
    *out = timeline;
    return true;
}

double zs_timeline_end_ms(const zs_timeline *timeline)
{
    double end_ms = 0;
    for (int rank = 0; rank < timeline->n_ranks; rank++)
        for (int i = 0; i < timeline->ranks[rank].n_events; i++)
            end_ms = fmax(end_ms, timeline->ranks[rank].events[i].end_ms);
    return end_ms;
}

/* An event begins or ends. */
typedef struct edge {
    double at_ms;
    int event; /* index; ends are stored as -1 - index */
} edge;

/* A stretch of a rank's time in which the same events are on. */
typedef struct stretch {
    double start_ms, end_ms;
    const zs_timeline_event *compute; /* NULL: nothing computes */
    bool communicates;
} stretch;

static int compare_edges(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->at_ms < y->at_ms || x->at_ms > y->at_ms)
        return x->at_ms < y->at_ms ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event); /* ends before beginnings */
}

static int largest_n_events(const zs_timeline *timeline)
{
    int n = 0;
    for (int rank = 0; rank < timeline->n_ranks; rank++)
        n = timeline->ranks[rank].n_events > n ? timeline->ranks[rank].n_events : n;
    return n;
}

/* Cuts the time of a rank where something begins or ends; edges has room for 2 n_events, stretches
 * for as many. Returns the number of stretches; what lies between and behind them is waiting. */
static int64_t cut_time(stretch *stretches, edge *edges, const zs_timeline_rank *rank)
{
    int64_t n_edges = 0, n = 0;
    for (int i = 0; i < rank->n_events; i++) {
        if (!(rank->events[i].end_ms > rank->events[i].start_ms))
            continue;
        edges[n_edges++] = (edge){rank->events[i].start_ms, i};
        edges[n_edges++] = (edge){rank->events[i].end_ms, -1 - i};
    }
    qsort(edges, (size_t)n_edges, sizeof *edges, compare_edges);
    int n_computing = 0, n_communicating = 0;
    const zs_timeline_event *compute = NULL;
    for (int64_t k = 0; k + 1 < n_edges; k++) {
        const bool begins = edges[k].event >= 0;
        const zs_timeline_event *event =
            &rank->events[begins ? edges[k].event : -1 - edges[k].event];
        if (zs_op_lanes[event->op] == ZS_LANE_COMPUTE) {
            n_computing += begins ? 1 : -1;
            compute = begins ? event : compute;
        } else {
            n_communicating += begins ? 1 : -1;
        }
        if ((n_computing > 0 || n_communicating > 0) && edges[k + 1].at_ms > edges[k].at_ms)
            stretches[n++] = (stretch){edges[k].at_ms, edges[k + 1].at_ms,
                                       n_computing > 0 ? compute : NULL, n_communicating > 0};
    }
    return n;
}

/* Room for cut_time, for the rank that needs most. */
static bool make_room(stretch **stretches, edge **edges, zs_arena *arena,
                      const zs_timeline *timeline, zs_error *err)
{
    const int64_t n = 2 * (int64_t)largest_n_events(timeline);
    *stretches = ZS_NEW(arena, stretch, n, err);
    *edges = ZS_NEW(arena, edge, n, err);
    return *stretches && *edges;
}

bool zs_timeline_use(zs_timeline_usage *usage, const zs_timeline *timeline, zs_error *err)
{
    zs_arena *arena = NULL;
    stretch *stretches = NULL;
    edge *edges = NULL;
    bool ok = zs_arena_open(&arena, err) && make_room(&stretches, &edges, arena, timeline, err);
    const double length_ms = zs_timeline_end_ms(timeline);
    for (int rank = 0; ok && rank < timeline->n_ranks; rank++) {
        zs_timeline_usage u = {0, 0, 0};
        const int64_t n = cut_time(stretches, edges, &timeline->ranks[rank]);
        for (int64_t k = 0; k < n; k++) {
            const double ms = stretches[k].end_ms - stretches[k].start_ms;
            if (stretches[k].compute)
                u.compute_ms += ms;
            else
                u.exposed_ms += ms;
        }
        u.bubble_ms = fmax(0, length_ms - u.compute_ms - u.exposed_ms);
        usage[rank] = u;
    }
    zs_arena_close(&arena);
    return ok;
}

enum { N_COLUMNS = 64 };

/* What a column of the picture shows so far. */
typedef struct column {
    double compute_ms, exposed_ms; /* of the column's time */
    double longest_ms;             /* of one compute event */
    char letter;                   /* of that one */
} column;

static char letter_of(const zs_timeline_event *event)
{
    const int digit = event->micro_batch % 10;
    switch (event->op) {
    case ZS_OP_FORWARD:
        return (char)('0' + digit);
    case ZS_OP_BACKWARD:
        return (char)('a' + digit);
    default:
        return '*';
    }
}

static void add_stretch(column columns[N_COLUMNS], const stretch *s, double column_ms)
{
    const int last = (int)fmin(N_COLUMNS - 1, s->end_ms / column_ms);
    for (int k = (int)fmin(N_COLUMNS - 1, s->start_ms / column_ms); k <= last; k++) {
        column *c = &columns[k];
        const double ms = fmin(s->end_ms, (k + 1) * column_ms) - fmax(s->start_ms, k * column_ms);
        if (!(ms > 0))
            continue;
        if (!s->compute) {
            c->exposed_ms += ms;
            continue;
        }
        c->compute_ms += ms;
        if (ms > c->longest_ms) {
            c->longest_ms = ms;
            c->letter = letter_of(s->compute);
        }
    }
}

static void print_rank(FILE *out, int index, const zs_timeline_rank *rank, const stretch *stretches,
                       int64_t n, double column_ms)
{
    column columns[N_COLUMNS] = {0};
    for (int64_t k = 0; k < n; k++)
        add_stretch(columns, &stretches[k], column_ms);
    char row[N_COLUMNS + 1] = "";
    for (int k = 0; k < N_COLUMNS; k++) {
        const column *c = &columns[k];
        const double idle_ms = column_ms - c->compute_ms - c->exposed_ms;
        row[k] = c->compute_ms > 0 && c->compute_ms >= fmax(c->exposed_ms, idle_ms) ? c->letter
                 : c->exposed_ms > 0 && c->exposed_ms >= idle_ms                    ? '~'
                                                                                    : '.';
    }
    fprintf(out, "%5d %5d |%s|\n", index, rank->stage, row);
}

bool zs_timeline_print(FILE *out, const zs_timeline *timeline, zs_error *err)
{
    zs_arena *arena = NULL;
    stretch *stretches = NULL;
    edge *edges = NULL;
    const double column_ms = zs_timeline_end_ms(timeline) / N_COLUMNS;
    const bool ok =
        zs_arena_open(&arena, err) && make_room(&stretches, &edges, arena, timeline, err);
    if (ok)
        fprintf(out, " rank stage  0 to %.6g ms, %.3g ms a column\n", column_ms * N_COLUMNS,
                column_ms);
    for (int rank = 0; ok && rank < timeline->n_ranks; rank++) {
        const int64_t n = cut_time(stretches, edges, &timeline->ranks[rank]);
        print_rank(out, rank, &timeline->ranks[rank], stretches, n, column_ms);
    }
    if (ok)
        fprintf(out,
                "            0-9 forward, a-j backward of a micro-batch (last digit), * step,\n"
                "            ~ communication that nothing hides, . waiting\n");
    zs_arena_close(&arena);
    return ok;
}
