/* What a run says about itself: one line on stdout per step and evaluation, and metrics.jsonl with
 * one JSON object per line:
 *   step        {"step", "loss", "grad_norm", "lr", "tokens", "sequences_digest", "sequences" (the
 *               ids, up to 64 of them), "step_ms", "tokens_per_s"}
 *   evaluation  {"step", "eval_loss", "eval_sequences", "eval_ms"}
 *   last line   {"done": true, "steps", "params_digest", "memory_bytes" (peak by rank), "total_ms"}
 * Numbers read back to the same bits. Under one plan only the fields that end in _ms or _per_s
 * differ between runs. Lines are whole and flushed. */
#ifndef EXECUTOR_METRICS_H
#define EXECUTOR_METRICS_H

#include "executor/run.h"

typedef struct zx_metrics zx_metrics;

/* Makes the folder where it is missing and starts metrics.jsonl in it; folder NULL: lines on stdout
 * only. n_done: steps that a resumed run is behind; of a file that is there the lines up to that
 * step stay. n_steps: of the run; every log_every-th step is printed. */
ZS_MUST_CHECK bool zx_metrics_open(zx_metrics **out, const char *folder, int64_t n_done,
                                   int64_t n_steps, int64_t log_every, zs_error *err);
void zx_metrics_close(zx_metrics **metrics);

/* ids: the n_ids sequences of the batch in order; memory_bytes: of the rank that uses most. */
ZS_MUST_CHECK bool zx_metrics_step(zx_metrics *m, const zx_step_result *result, const int64_t *ids,
                                   int64_t n_ids, double step_ms, int64_t memory_bytes,
                                   zs_error *err);
ZS_MUST_CHECK bool zx_metrics_eval(zx_metrics *m, int64_t step, double loss, int64_t n_sequences,
                                   double eval_ms, zs_error *err);
ZS_MUST_CHECK bool zx_metrics_done(zx_metrics *m, int64_t n_steps, uint64_t params_digest,
                                   const double *memory_bytes, int n_ranks, double total_ms,
                                   zs_error *err);

#endif
