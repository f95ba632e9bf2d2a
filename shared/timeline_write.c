#include "shared/timeline.h"

#include "shared/files.h"
#include "shared/units.h"

#include <stdlib.h>

enum { NUMBER_SIZE = 40 };

bool zs_timeline_save_csv(const zs_timeline *timeline, const char *path, zs_error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", path);
    fputs("rank,stage,lane,op,micro_batch,peer,start_ms,end_ms\n", out);
    for (int rank = 0; rank < timeline->n_ranks; rank++)
        for (int i = 0; i < timeline->ranks[rank].n_events; i++) {
            const zs_timeline_event *e = &timeline->ranks[rank].events[i];
            char start[NUMBER_SIZE], end[NUMBER_SIZE];
            fprintf(out, "%d,%d,%s,%s,%d,%d,%s,%s\n", rank, timeline->ranks[rank].stage,
                    zs_lane_names[zs_op_lanes[e->op]], zs_op_names[e->op], e->micro_batch, e->peer,
                    zs_units_print_double(start, sizeof start, e->start_ms),
                    zs_units_print_double(end, sizeof end, e->end_ms));
        }
    const bool complete = !ferror(out);
    const bool ok = fclose(out) == 0 && complete
                        ? zs_files_save(path, text, size, err)
                        : ZS_FAIL(err, ZS_ERR_RUNTIME, "%s: out of memory", path);
    free(text);
    return ok;
}

static void put_metadata(zs_json_writer *w, const char *what, int rank, int lane, const char *name,
                         int sort_index)
{
    zs_json_begin_object(w, NULL);
    zs_json_put_string(w, "ph", "M");
    zs_json_put_string(w, "name", what);
    zs_json_put_int(w, "pid", rank);
    zs_json_put_int(w, "tid", lane);
    zs_json_begin_object(w, "args");
    if (name)
        zs_json_put_string(w, "name", name);
    else
        zs_json_put_int(w, "sort_index", sort_index);
    zs_json_end_object(w);
    zs_json_end_object(w);
}

static void put_event(zs_json_writer *w, int rank, const zs_timeline_event *e)
{
    const char *lane = zs_lane_names[zs_op_lanes[e->op]];
    char name[NUMBER_SIZE];
    if (e->micro_batch >= 0)
        snprintf(name, sizeof name, "%s %d", zs_op_names[e->op], e->micro_batch);
    else
        snprintf(name, sizeof name, "%s", zs_op_names[e->op]);
    zs_json_begin_object(w, NULL);
    zs_json_put_string(w, "ph", "X");
    zs_json_put_string(w, "name", name);
    zs_json_put_string(w, "cat", lane);
    zs_json_put_int(w, "pid", rank);
    zs_json_put_int(w, "tid", (int)zs_op_lanes[e->op]);
    zs_json_put_double(w, "ts", 1e3 * e->start_ms);
    zs_json_put_double(w, "dur", 1e3 * (e->end_ms - e->start_ms));
    zs_json_begin_object(w, "args");
    if (e->micro_batch >= 0)
        zs_json_put_int(w, "micro_batch", e->micro_batch);
    if (e->peer >= 0)
        zs_json_put_int(w, "peer", e->peer);
    zs_json_end_object(w);
    zs_json_end_object(w);
}

static void put_trace(zs_json_writer *w, const zs_timeline *timeline)
{
    zs_json_begin_object(w, NULL);
    zs_json_put_string(w, "displayTimeUnit", "ms");
    zs_json_begin_array(w, "traceEvents");
    for (int rank = 0; rank < timeline->n_ranks; rank++) {
        const zs_timeline_rank *r = &timeline->ranks[rank];
        put_metadata(w, "process_name", rank, 0, r->name, 0);
        put_metadata(w, "process_sort_index", rank, 0, NULL, rank);
        for (int lane = 0; lane < ZS_N_LANES; lane++) {
            put_metadata(w, "thread_name", rank, lane, zs_lane_names[lane], 0);
            put_metadata(w, "thread_sort_index", rank, lane, NULL, lane);
        }
        for (int i = 0; i < r->n_events; i++)
            put_event(w, rank, &r->events[i]);
    }
    zs_json_end_array(w);
    zs_json_end_object(w);
}

bool zs_timeline_save_trace(const zs_timeline *timeline, const char *path, zs_error *err)
{
    zs_json_writer *w = NULL;
    if (!zs_json_writer_open(&w, err))
        return false;
    zs_json_writer_set_compact(w); /* one line: half the size */
    put_trace(w, timeline);
    const bool ok = zs_json_writer_save(w, path, err);
    zs_json_writer_close(&w);
    return ok;
}
