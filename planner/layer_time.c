#include "planner/layer_time.h"
#include "shared/log.h"

#include <math.h>
#include <string.h>

/* The entry of a kind, or a refusal that says what is missing and what is there. */
static bool find_entry(const zs_profile_entry **out, const zs_profile *profile,
                       const char *device_type, zs_layer_kind kind, zs_precision precision,
                       int seq_len, zs_error *err)
{
    *out = zs_profile_find(profile, device_type, kind, precision, seq_len);
    if (*out)
        return true;
    const zs_profile_entry *nearest = NULL;
    for (int i = 0; i < profile->n_entries; i++) {
        const zs_profile_entry *entry = &profile->entries[i];
        if (entry->kind == kind && strcmp(entry->device_type, device_type) == 0)
            nearest = entry;
    }
    if (!nearest)
        return ZS_FAIL(err, ZS_ERR_INPUT, "profile: no %s times of GPU type %s",
                       zs_layer_kind_names[kind], device_type);
    return ZS_FAIL(err, ZS_ERR_INPUT,
                   "profile: no %s times of GPU type %s in %s at sequence length %d (there are "
                   "some in %s at %d)",
                   zs_layer_kind_names[kind], device_type, zs_precision_names[precision], seq_len,
                   zs_precision_names[nearest->precision], nearest->seq_len);
}

static int largest_size(const zs_profile_entry *entry)
{
    int samples = 0;
    for (int i = 0; i < entry->n_points; i++) {
        if (!entry->points[i].out_of_memory && entry->points[i].samples > samples)
            samples = entry->points[i].samples;
    }
    return samples;
}

bool zp_layer_times_build(zp_layer_times *out, zs_arena *arena, const zs_profile *profile,
                          const char *device_type, zs_precision precision, int seq_len,
                          int max_samples, zs_error *err)
{
    const zs_profile_entry *entries[ZS_N_LAYER_KINDS];
    int b_end = max_samples;
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
        if (!find_entry(&entries[kind], profile, device_type, (zs_layer_kind)kind, precision,
                        seq_len, err))
            return false;
        const int largest = largest_size(entries[kind]);
        b_end = largest < b_end ? largest : b_end;
    }

    zp_layer_times times = {0};
    times.block_forward_ms = ZS_NEW(arena, double, b_end + 1, err);
    times.block_backward_ms = ZS_NEW(arena, double, b_end + 1, err);
    times.embedding_ms = ZS_NEW(arena, double, b_end + 1, err);
    times.head_ms = ZS_NEW(arena, double, b_end + 1, err);
    times.interpolated = ZS_NEW(arena, bool, b_end + 1, err);
    if (!times.block_forward_ms || !times.block_backward_ms || !times.embedding_ms ||
        !times.head_ms || !times.interpolated)
        return false;

    for (int b = 1; b <= b_end; b++) {
        double forward[ZS_N_LAYER_KINDS], backward[ZS_N_LAYER_KINDS];
        bool offered = true;
        for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
            bool interpolated = false;
            offered = offered && zs_profile_time(&forward[kind], &backward[kind], &interpolated,
                                                 entries[kind], b);
            times.interpolated[b] = times.interpolated[b] || interpolated;
        }
        if (!offered) {
            times.block_forward_ms[b] = times.block_backward_ms[b] = INFINITY;
            times.embedding_ms[b] = times.head_ms[b] = INFINITY;
            times.interpolated[b] = false;
            continue;
        }
        times.b_max = b;
        times.block_forward_ms[b] = forward[ZS_LAYER_BLOCK];
        times.block_backward_ms[b] = backward[ZS_LAYER_BLOCK];
        times.embedding_ms[b] = forward[ZS_LAYER_EMBEDDING] + backward[ZS_LAYER_EMBEDDING];
        times.head_ms[b] = forward[ZS_LAYER_HEAD] + backward[ZS_LAYER_HEAD];
    }
    if (times.b_max == 0)
        return ZS_FAIL(
            err, ZS_ERR_INPUT,
            "profile: GPU type %s has no size of 1..%d samples that all layer kinds were "
            "measured for",
            device_type, max_samples);
    *out = times;
    return true;
}

void zp_layer_time_warn(const zs_profile *profile)
{
    for (int i = 0; i < profile->n_entries; i++) {
        const zs_profile_entry *entry = &profile->entries[i];
        const zs_profile_point *before = NULL;
        for (int k = 0; k < entry->n_points; k++) {
            const zs_profile_point *point = &entry->points[k];
            if (point->out_of_memory)
                continue;
            const double now_ms = point->forward_ms + point->backward_ms;
            if (before && now_ms < before->forward_ms + before->backward_ms)
                zs_log_warn("profile: %s of %s: %d samples take %.6g ms, less than the %.6g ms of "
                            "%d samples; a noisy measurement?",
                            zs_layer_kind_names[entry->kind], entry->device_type, point->samples,
                            now_ms, before->forward_ms + before->backward_ms, before->samples);
            before = point;
        }
    }
}
