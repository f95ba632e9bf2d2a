/* Public data of GPU models: what a roofline estimate and a one-line cluster need. Each figure has
 * its source beside it in gpus.c. */
#ifndef SHARED_GPUS_H
#define SHARED_GPUS_H

#include "shared/error.h"

#include <stdint.h>

typedef enum zs_precision { ZS_FP32, ZS_BF16, ZS_N_PRECISIONS } zs_precision;

extern const char *const zs_precision_names[ZS_N_PRECISIONS]; /* "fp32", "bf16" */

typedef struct zs_gpu {
    const char *type;                    /* "A100-80" */
    const char *product;                 /* full name as the driver prints it */
    int nominal_gb;                      /* size in its name: 80 for "A100-80" */
    int64_t memory_bytes;                /* what the driver offers: the nominal size in GiB, less
                                            1/16 where ECC in GDDR6 is on as shipped */
    int compute_capability;              /* 80 for 8.0; bf16 needs 80 */
    double flops_per_s[ZS_N_PRECISIONS]; /* dense peak; bf16: tensor cores, fp32 accumulation;
                                            0 where there is no bf16 */
    double memory_bytes_per_s;           /* device memory bandwidth */
    double intra_bytes_per_s;            /* to its neighbours in a node, per direction: NVLink, else
                                            PCIe */
    const char *source;                  /* data sheet and date */
} zs_gpu;

/* Finds by type or by product; case, "-", "_" and blanks do not matter. "A100-80G", "A100-80GB" and
 * "a100-80" mean "A100-80"; a type of one size only ("T4", "L4-24G") needs no size. NULL if
 * unknown. */
const zs_gpu *zs_gpus_find(const char *type);

const zs_gpu *zs_gpus_all(int *n);

/* "unknown GPU type ..., did you mean ...? known: ..." (ZS_ERR_INPUT); a type that exists in
 * several sizes is answered with these. Returns false. */
bool zs_gpus_fail_unknown(const char *type, zs_error *err);

#endif
