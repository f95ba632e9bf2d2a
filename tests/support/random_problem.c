#include "tests/support/random_problem.h"

#include "tests/support/check.h"

#include <math.h>
#include <string.h>

static bool chance(check_rng *rng, double probability)
{
    return check_rng_double(rng, 0, 1) < probability;
}

/* Times of 1..b_max samples: affine with noise of up to 10 %, a tenth of the sizes not offered in
 * every third problem. */
static void fill_class(zp_class *c, double tables_ms[4][RANDOM_MAX_SAMPLES + 1], check_rng *rng,
                       bool gaps)
{
    static const double scale[4] = {1, 2, 0.3, 1.5};
    double speed = check_rng_double(rng, 0.5, 4);
    for (int t = 0; t < 4; t++) {
        tables_ms[t][0] = 0;
        for (int b = 1; b <= c->b_max; b++)
            tables_ms[t][b] = speed * scale[t] * (0.3 + b) * check_rng_double(rng, 0.95, 1.05);
    }
    for (int b = 1; gaps && b <= c->b_max; b++)
        if (chance(rng, 0.15))
            tables_ms[0][b] = INFINITY;
    c->forward_ms = tables_ms[0];
    c->backward_ms = tables_ms[1];
    c->embed_ms = tables_ms[2];
    c->head_ms = tables_ms[3];
}

static void fill_classes(random_problem *out, check_rng *rng, int max_gpus, double memory_gib)
{
    static const char *const names[] = {"A", "B", "C"};
    zp_problem *p = &out->problem;
    int left = max_gpus;
    int n_classes = (int)check_rng_int(rng, 1, 3);
    bool gaps = chance(rng, 0.3);
    for (int k = 0; k < n_classes && left > 0; k++) {
        zp_class *c = &p->classes[p->n_classes++];
        int most = left < 4 ? left : 4;
        c->gpu = names[k];
        c->gpus_per_node = (int)check_rng_int(rng, 1, most);
        c->n_nodes =
            (int)check_rng_int(rng, 1, left / c->gpus_per_node < 3 ? left / c->gpus_per_node : 3);
        left -= c->n_nodes * c->gpus_per_node;
        c->memory_gib = memory_gib * check_rng_double(rng, 0.5, 2);
        c->intra_gib_per_s = check_rng_double(rng, 5, 100);
        c->nic_gib_per_s = check_rng_double(rng, 2, 12);
        if (chance(rng, 0.4)) {
            c->intra_latency_ms = check_rng_double(rng, 0, 1);
            c->nic_latency_ms = check_rng_double(rng, 0, 2);
            c->send_latency_ms = check_rng_double(rng, 0, 2);
        }
        c->b_max = chance(rng, 0.05) ? 0 : (int)check_rng_int(rng, 1, 6);
        fill_class(c, out->tables_ms[k], rng, gaps);
    }
}

/* Two allowed levels as a rule; the bytes per parameter of mixed precision training. */
static void fill_zero(zp_problem *p, check_rng *rng)
{
    static const double repl[] = {0, 4, 2, 4}, shard[] = {0, 12, 14, 16};
    static const double volume[] = {0, 0, 2, 6}, sync[] = {0, 4, 2, 0};
    int left_out = (int)check_rng_int(rng, 0, 3);
    double params[ZP_N_PARTS];
    params[ZP_PART_BLOCK] = 0.1;
    params[ZP_PART_FIRST] = check_rng_double(rng, 0, 0.2);
    params[ZP_PART_LAST] = check_rng_double(rng, 0, 0.2);
    params[ZP_PART_SINGLE] = params[ZP_PART_FIRST] + params[ZP_PART_LAST];
    double working = chance(rng, 0.3) ? 1 : 0;
    for (int level = 1; level <= 3; level++) {
        zp_zero *z = &p->zero[level];
        z->allowed = level != left_out;
        for (int part = 0; part < ZP_N_PARTS; part++) {
            z->repl_gib[part] = repl[level] * params[part];
            z->working_gib[part] = working * params[part];
            z->shard_gib[part] = shard[level] * params[part];
            z->volume_gib[part] = volume[level] * params[part];
            z->sync_volume_gib[part] = sync[level] * params[part];
        }
        z->collectives = level == 3 ? 3 : level - 1;
        z->sync_collectives = 3 - level;
    }
}

void random_problem_fill(random_problem *out, uint64_t seed, random_size size)
{
    check_rng rng = check_rng_from(seed);
    memset(out, 0, sizeof *out);
    zp_problem *p = &out->problem;
    bool small = size == RANDOM_SMALL;
    p->n_blocks = (int)check_rng_int(&rng, 1, small ? 8 : 16);
    /* Between what is plenty for the whole model on one GPU and a fraction of it. */
    double memory_gib = p->n_blocks * 1.6 * check_rng_double(&rng, 0.3, 2);
    fill_zero(p, &rng);
    fill_classes(out, &rng, (int)check_rng_int(&rng, 1, small ? 6 : 12), memory_gib);
    p->act_gib = check_rng_double(&rng, 0.05, 0.4);
    p->act_ckpt_gib = p->act_gib * check_rng_double(&rng, 0.02, 0.2);
    p->logits_gib = check_rng_double(&rng, 0, 0.5);
    p->output_gib = chance(&rng, 0.3) ? 0.05 : 0;
    p->workspace_gib = chance(&rng, 0.3) ? 0.1 : 0;
    p->boundary_gib = check_rng_double(&rng, 0, 0.02);
    p->overlap_zero = chance(&rng, 0.2) ? 1 : check_rng_double(&rng, 0, 1);
    p->overlap_send = check_rng_double(&rng, 0, 1);
    int recompute = (int)check_rng_int(&rng, 0, 2);
    p->recompute_none = recompute != 1;
    p->recompute_full = recompute != 0;
    p->min_stages = chance(&rng, 0.2) ? (int)check_rng_int(&rng, 1, 3) : 1;
    p->max_stages = chance(&rng, 0.2) ? (int)check_rng_int(&rng, p->min_stages, 4) : 12;
    p->max_gpus_per_stage = chance(&rng, 0.2) ? (int)check_rng_int(&rng, 1, 3) : 0;
    p->n_batchings = (int)check_rng_int(&rng, 1, small ? 2 : RANDOM_MAX_BATCHINGS);
    for (int i = 0; i < p->n_batchings; i++)
        out->batchings[i] = (zp_batching){(int)check_rng_int(&rng, 1, small ? 4 : 8),
                                          (int)check_rng_int(&rng, 1, 8)};
    p->batchings = out->batchings;
}
