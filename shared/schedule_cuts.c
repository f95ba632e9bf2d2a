#include "shared/schedule_cuts.h"

bool zs_cuts_build(zs_cuts *out, zs_arena *arena, const zs_plan *plan, const int *micro_batches,
                   int n_micro_batches, zs_error *err)
{
    zs_cuts cuts = {.plan = plan};
    const int planned = zs_plan_micro_batch(plan);
    /* few sizes occur, so each is cut once: number_of[size] is 1 + its number */
    int *number_of = ZS_NEW(arena, int, planned + 1, err);
    int *sizes = ZS_NEW(arena, int, n_micro_batches, err);
    cuts.size_of = ZS_NEW(arena, int, n_micro_batches, err);
    cuts.of_stages = ZS_NEW(arena, int *, plan->n_stages, err);
    if (!number_of || !sizes || !cuts.size_of || !cuts.of_stages)
        return false;
    int n_sizes = 0;
    for (int j = 0; j < n_micro_batches; j++) {
        int *number = &number_of[micro_batches[j]];
        if (!*number) {
            sizes[n_sizes++] = micro_batches[j];
            *number = n_sizes;
        }
        cuts.size_of[j] = *number - 1;
    }
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        const int64_t n_bounds = stage->n_ranks + 1;
        int *samples = ZS_NEW(arena, int, stage->n_ranks, err);
        cuts.of_stages[s] = ZS_NEW(arena, int, n_bounds *n_sizes, err);
        if (!samples || !cuts.of_stages[s])
            return false;
        for (int i = 0; i < stage->n_ranks; i++)
            samples[i] = stage->ranks[i].samples;
        for (int k = 0; k < n_sizes; k++)
            zs_samples_cut(cuts.of_stages[s] + k * n_bounds, samples, stage->n_ranks, sizes[k]);
    }
    *out = cuts;
    return true;
}

const int *zs_cuts_at(const zs_cuts *cuts, int stage, int micro_batch)
{
    const int64_t n_bounds = cuts->plan->stages[stage].n_ranks + 1;
    return cuts->of_stages[stage] + cuts->size_of[micro_batch] * n_bounds;
}

int zs_cuts_overlap(const int *at, int n_ranks, int rank, int first, int end)
{
    /* binary search for the rank that ends behind `first`: a stage can have thousands */
    if (rank < n_ranks && at[rank + 1] <= first) {
        int low = rank, high = n_ranks; /* at[low + 1] <= first; high may be the answer */
        while (high - low > 1) {
            int middle = low + (high - low) / 2;
            if (at[middle + 1] <= first)
                low = middle;
            else
                high = middle;
        }
        rank = high;
    }
    while (rank < n_ranks && at[rank] < end && at[rank] == at[rank + 1])
        rank++;
    return rank < n_ranks && at[rank] < end ? rank : n_ranks;
}
