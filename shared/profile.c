#include "shared/profile.h"

#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { MAX_ENTRIES = 4096, MAX_POINTS = 4096, MAX_SAMPLES = 1048576, MAX_SEQ_LEN = 1048576 };

/* 11 days for one layer: whatever is longer is a mistake. */
static const double max_ms = 1e9;

const char *const zs_layer_kind_names[ZS_N_LAYER_KINDS] = {"embedding", "block", "head"};

static const char *const profile_keys[] = {"format",    "version", "model",
                                           "estimated", "source",  "entries"};
static const char *const entry_keys[] = {"device_type", "kind", "precision", "seq_len", "points"};
static const char *const point_keys[] = {"samples", "out_of_memory", "forward_ms", "backward_ms"};

static bool parse_ms(double *out, const zs_json *object, const char *key, zs_error *err)
{
    if (!zs_json_get_double(out, object, key, 0, max_ms, err))
        return false;
    if (*out <= 0)
        return zs_json_fail(zs_json_find(object, key), err, "0, expected a time above 0 ms");
    return true;
}

static bool parse_point(zs_profile_point *out, const zs_json *object, zs_error *err)
{
    int64_t samples = 0;
    zs_profile_point point = {0};
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, point_keys, COUNT(point_keys), err) ||
        !zs_json_get_int(&samples, object, "samples", 1, MAX_SAMPLES, err) ||
        !zs_json_opt_bool(&point.out_of_memory, object, "out_of_memory", err))
        return false;
    point.samples = (int)samples;
    if (point.out_of_memory) {
        if (zs_json_find(object, "forward_ms") || zs_json_find(object, "backward_ms"))
            return zs_json_fail(object, err, "out_of_memory has no times");
    } else if (!parse_ms(&point.forward_ms, object, "forward_ms", err) ||
               !parse_ms(&point.backward_ms, object, "backward_ms", err))
        return false;
    *out = point;
    return true;
}

static bool parse_points(zs_profile_entry *entry, zs_arena *arena, const zs_json *list,
                         zs_error *err)
{
    if (!zs_json_is_array(&entry->n_points, list, 1, MAX_POINTS, err))
        return false;
    entry->points = ZS_NEW(arena, zs_profile_point, entry->n_points, err);
    if (!entry->points)
        return false;
    for (int i = 0; i < entry->n_points; i++) {
        const zs_json *item = zs_json_item(list, i);
        if (!parse_point(&entry->points[i], item, err))
            return false;
        if (i == 0)
            continue;
        const zs_profile_point *before = &entry->points[i - 1], *point = &entry->points[i];
        if (point->samples <= before->samples)
            return zs_json_fail(item, err, "samples are %d after %d, expected ascending",
                                point->samples, before->samples);
        if (before->out_of_memory && !point->out_of_memory)
            return zs_json_fail(item, err, "%d samples have times, but %d were out of memory",
                                point->samples, before->samples);
    }
    return true;
}

static bool parse_entry(zs_profile_entry *out, zs_arena *arena, const zs_json *object,
                        zs_error *err)
{
    zs_profile_entry entry = {0};
    const char *type = NULL;
    const zs_json *list = NULL;
    int kind = 0, precision = 0;
    int64_t seq_len = 0;
    if (!zs_json_is_object(object, err) ||
        !zs_json_only_keys(object, entry_keys, COUNT(entry_keys), err) ||
        !zs_json_get_string(&type, object, "device_type", err) ||
        !zs_json_get_choice(&kind, object, "kind", zs_layer_kind_names, ZS_N_LAYER_KINDS, err) ||
        !zs_json_get_choice(&precision, object, "precision", zs_precision_names, ZS_N_PRECISIONS,
                            err) ||
        !zs_json_get_int(&seq_len, object, "seq_len", 1, MAX_SEQ_LEN, err) ||
        !zs_json_get(&list, object, "points", err) || !parse_points(&entry, arena, list, err))
        return false;
    if (!*type)
        return zs_json_fail(zs_json_find(object, "device_type"), err, "empty text");
    const zs_gpu *gpu = zs_gpus_find(type);
    entry.device_type = gpu ? gpu->type : zs_arena_strdup(arena, type, err);
    if (!entry.device_type)
        return false;
    entry.kind = (zs_layer_kind)kind;
    entry.precision = (zs_precision)precision;
    entry.seq_len = (int)seq_len;
    *out = entry;
    return true;
}

bool zs_profile_parse(zs_profile *out, zs_arena *arena, const zs_json *object, zs_error *err)
{
    zs_profile profile = {0};
    const char *model = NULL, *source = "";
    const zs_json *list = NULL;
    int n_entries = 0;
    if (!zs_json_check_format(object, ZS_PROFILE_FORMAT, ZS_PROFILE_VERSION, err) ||
        !zs_json_only_keys(object, profile_keys, COUNT(profile_keys), err) ||
        !zs_json_get_string(&model, object, "model", err) ||
        !zs_json_opt_bool(&profile.estimated, object, "estimated", err) ||
        !zs_json_opt_string(&source, object, "source", err) ||
        !zs_json_get(&list, object, "entries", err) ||
        !zs_json_is_array(&n_entries, list, 1, MAX_ENTRIES, err))
        return false;
    profile.model = zs_arena_strdup(arena, model, err);
    profile.source = zs_arena_strdup(arena, source, err);
    profile.entries = ZS_NEW(arena, zs_profile_entry, n_entries, err);
    if (!profile.model || !profile.source || !profile.entries)
        return false;
    for (int i = 0; i < n_entries; i++) {
        zs_profile_entry *entry = &profile.entries[i];
        const zs_json *item = zs_json_item(list, i);
        if (!parse_entry(entry, arena, item, err))
            return false;
        if (zs_profile_find(&profile, entry->device_type, entry->kind, entry->precision,
                            entry->seq_len))
            return zs_json_fail(item, err, "a second entry for %s, %s, %s, seq_len %d",
                                entry->device_type, zs_layer_kind_names[entry->kind],
                                zs_precision_names[entry->precision], entry->seq_len);
        profile.n_entries++;
    }
    *out = profile;
    return true;
}

bool zs_profile_load(zs_profile *out, zs_arena *arena, const char *path, zs_error *err)
{
    const zs_json *root = NULL;
    return zs_json_load(&root, arena, path, err) && zs_profile_parse(out, arena, root, err);
}

static void write_entry(zs_json_writer *w, const zs_profile_entry *entry)
{
    zs_json_begin_object(w, NULL);
    zs_json_put_string(w, "device_type", entry->device_type);
    zs_json_put_string(w, "kind", zs_layer_kind_names[entry->kind]);
    zs_json_put_string(w, "precision", zs_precision_names[entry->precision]);
    zs_json_put_int(w, "seq_len", entry->seq_len);
    zs_json_begin_array(w, "points");
    for (int i = 0; i < entry->n_points; i++) {
        const zs_profile_point *point = &entry->points[i];
        zs_json_begin_object(w, NULL);
        zs_json_put_int(w, "samples", point->samples);
        if (point->out_of_memory) {
            zs_json_put_bool(w, "out_of_memory", true);
        } else {
            zs_json_put_double(w, "forward_ms", point->forward_ms);
            zs_json_put_double(w, "backward_ms", point->backward_ms);
        }
        zs_json_end_object(w);
    }
    zs_json_end_array(w);
    zs_json_end_object(w);
}

void zs_profile_write(zs_json_writer *w, const char *key, const zs_profile *profile)
{
    zs_json_begin_object(w, key);
    zs_json_put_string(w, "format", ZS_PROFILE_FORMAT);
    zs_json_put_int(w, "version", ZS_PROFILE_VERSION);
    zs_json_put_string(w, "model", profile->model);
    zs_json_put_bool(w, "estimated", profile->estimated);
    zs_json_put_string(w, "source", profile->source ? profile->source : "");
    zs_json_begin_array(w, "entries");
    for (int i = 0; i < profile->n_entries; i++)
        write_entry(w, &profile->entries[i]);
    zs_json_end_array(w);
    zs_json_end_object(w);
}

const zs_profile_entry *zs_profile_find(const zs_profile *profile, const char *device_type,
                                        zs_layer_kind kind, zs_precision precision, int seq_len)
{
    for (int i = 0; i < profile->n_entries; i++) {
        const zs_profile_entry *entry = &profile->entries[i];
        if (entry->kind == kind && entry->precision == precision && entry->seq_len == seq_len &&
            strcmp(entry->device_type, device_type) == 0)
            return entry;
    }
    return NULL;
}

bool zs_profile_time(double *forward_ms, double *backward_ms, bool *interpolated,
                     const zs_profile_entry *entry, int samples)
{
    const zs_profile_point *below = NULL;
    for (int i = 0; i < entry->n_points; i++) {
        const zs_profile_point *point = &entry->points[i];
        if (point->out_of_memory)
            return false;
        if (point->samples < samples) {
            below = point;
            continue;
        }
        if (point->samples == samples) {
            *forward_ms = point->forward_ms;
            *backward_ms = point->backward_ms;
            *interpolated = false;
            return true;
        }
        if (!below)
            return false;
        const double share =
            (double)(samples - below->samples) / (double)(point->samples - below->samples);
        *forward_ms = below->forward_ms + share * (point->forward_ms - below->forward_ms);
        *backward_ms = below->backward_ms + share * (point->backward_ms - below->backward_ms);
        *interpolated = true;
        return true;
    }
    return false;
}
