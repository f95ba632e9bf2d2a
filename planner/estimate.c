#include "planner/estimate.h"
#include "models/cost.h"

#include <string.h>

/* Shares of the peak that layers reach, beside public layer times of GPT and OPT models from the
 * Sailor artefact (Strati et al., SOSP 2025): fp32 forward of a block at T = 2048 runs at 12.5 to
 * 13.3 of the V100's 15.7 TFLOP/s and 18.2 of the A100's 19.5. Capabilities 8.6 and 8.9 count two
 * fp32 units per lane of which one also does the integer work: 15.6 of the RTX 3090's 35.6. */
static const double FP32_SHARE = 0.85;
static const double FP32_SHARE_DUAL = 0.45;
/* Tensor cores: 106 to 116 of the A100's 312 TFLOP/s with the element-wise work included, at
 * hidden size 2560 (same source); half of the peak for the products alone. */
static const double BF16_SHARE = 0.5;
/* Device memory: streaming kernels reach 0.75 to 0.9 of the data sheet. */
static const double BANDWIDTH_SHARE = 0.8;
/* Launching a kernel and filling the device: 5 us (usual launch latency) and as much again. With a
 * constant time per kernel the efficiency of a layer is t / (t + t0), small layers being slow. */
static const double KERNEL_MS = 0.010;

typedef struct kernels {
    int forward, backward;
} kernels;

/* Kernels of a layer when element-wise neighbours are fused: in a block two norms, four products,
 * attention, activation function, two additions. */
static const kernels n_kernels[ZS_N_LAYER_KINDS] = {
    [ZS_LAYER_EMBEDDING] = {1, 2},
    [ZS_LAYER_BLOCK] = {10, 18},
    [ZS_LAYER_HEAD] = {4, 4},
};

static double flops_share(const zs_gpu *gpu, zs_precision precision)
{
    if (precision == ZS_BF16)
        return BF16_SHARE;
    const bool dual = gpu->compute_capability == 86 || gpu->compute_capability == 89;
    return dual ? FP32_SHARE_DUAL : FP32_SHARE;
}

double zp_estimate_layer_ms(const zs_gpu *gpu, const zm_model *model, zs_layer_kind kind,
                            bool backward, zs_precision precision, int seq_len, int samples)
{
    const double flops = samples * (backward ? zm_cost_backward_flops(model, kind, seq_len)
                                             : zm_cost_forward_flops(model, kind, seq_len));
    const double bytes = backward ? zm_cost_backward_bytes(model, kind, seq_len, samples, precision)
                                  : zm_cost_forward_bytes(model, kind, seq_len, samples, precision);
    const double flops_per_s = gpu->flops_per_s[precision] * flops_share(gpu, precision);
    const double bytes_per_s = gpu->memory_bytes_per_s * BANDWIDTH_SHARE;
    const int count = backward ? n_kernels[kind].backward : n_kernels[kind].forward;
    /* The sum, not the larger: products and element-wise kernels run one after the other. */
    return 1000.0 * (flops / flops_per_s + bytes / bytes_per_s) + count * KERNEL_MS;
}

/* The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... */
static int next_size(int samples)
{
    if (samples < 3)
        return samples + 1;
    const bool power_of_two = (samples & (samples - 1)) == 0;
    return power_of_two ? samples / 2 * 3 : samples / 3 * 4;
}

static int largest_fit(const zm_model *model, zs_precision precision, int seq_len,
                       int64_t memory_bytes, int max_samples)
{
    const int64_t act = zm_cost_block_act_bytes(model, seq_len, precision);
    const int64_t logits = zm_cost_logits_bytes(model, seq_len, precision);
    const int64_t fit = memory_bytes / (act > logits ? act : logits);
    return fit < 1 ? 1 : fit < max_samples ? (int)fit : max_samples;
}

static bool add_entry(zs_profile_entry *out, zs_arena *arena, const zs_gpu *gpu, const char *type,
                      const zm_model *model, zs_layer_kind kind, zs_precision precision,
                      int seq_len, int max_samples, zs_error *err)
{
    int n = 1;
    for (int b = 1; b < max_samples; b = next_size(b))
        n++;
    zs_profile_point *points = ZS_NEW(arena, zs_profile_point, n, err);
    if (!points)
        return false;
    int b = 1;
    for (int i = 0; i < n; i++, b = next_size(b)) {
        const int samples = b < max_samples ? b : max_samples;
        points[i] = (zs_profile_point){
            .samples = samples,
            .forward_ms =
                zp_estimate_layer_ms(gpu, model, kind, false, precision, seq_len, samples),
            .backward_ms =
                zp_estimate_layer_ms(gpu, model, kind, true, precision, seq_len, samples),
        };
    }
    *out = (zs_profile_entry){.device_type = type,
                              .kind = kind,
                              .precision = precision,
                              .seq_len = seq_len,
                              .n_points = n,
                              .points = points};
    return true;
}

static bool has_type(const zs_profile *profile, const char *type)
{
    for (int i = 0; i < profile->n_entries; i++) {
        if (strcmp(profile->entries[i].device_type, type) == 0)
            return true;
    }
    return false;
}

static bool add_type(zs_profile *profile, zs_arena *arena, const zs_device *device,
                     const zm_model *model, zs_precision precision, int seq_len, int max_samples,
                     zs_error *err)
{
    const zs_gpu *gpu = zs_gpus_find(device->type);
    if (!gpu) {
        (void)zs_gpus_fail_unknown(device->type, err);
        return zs_error_prefix(err, "no profile is given and there is no public data to estimate "
                                    "one");
    }
    if (gpu->flops_per_s[precision] <= 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "GPU type %s has no %s; use --precision fp32",
                       device->type, zs_precision_names[precision]);
    const int largest = largest_fit(model, precision, seq_len, device->memory_bytes, max_samples);
    for (int kind = 0; kind < ZS_N_LAYER_KINDS; kind++) {
        zs_profile_entry *entry = &profile->entries[profile->n_entries];
        if (!add_entry(entry, arena, gpu, device->type, model, (zs_layer_kind)kind, precision,
                       seq_len, largest, err))
            return false;
        profile->n_entries++;
    }
    return true;
}

bool zp_estimate(zs_profile *out, zs_arena *arena, const zs_cluster *cluster, const zm_model *model,
                 zs_precision precision, int seq_len, int max_samples, zs_error *err)
{
    zs_profile profile = {
        .model = model->name,
        .estimated = true,
        .source = "roofline estimate from public GPU data",
    };
    int n_types = 0; /* at most one per device */
    for (int node = 0; node < cluster->n_nodes; node++)
        n_types += cluster->nodes[node].n_devices;
    profile.entries = ZS_NEW(arena, zs_profile_entry, n_types * ZS_N_LAYER_KINDS, err);
    if (!profile.entries)
        return false;
    for (int node = 0; node < cluster->n_nodes; node++) {
        for (int gpu = 0; gpu < cluster->nodes[node].n_devices; gpu++) {
            const zs_device *device = &cluster->nodes[node].devices[gpu];
            if (!has_type(&profile, device->type) &&
                !add_type(&profile, arena, device, model, precision, seq_len, max_samples, err))
                return false;
        }
    }
    *out = profile;
    return true;
}
