#include "shared/plan.h"
#include "tests/support/check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const types[] = {"H200", "A100-40", "L4", "RTX-3090", "Made-Up"};
static const int capabilities[] = {90, 80, 89, 86, 80};

static zs_cluster random_cluster(check_rng *rng, zs_arena *arena)
{
    zs_error err;
    zs_cluster c = {.name = "random", .n_nodes = (int)check_rng_int(rng, 1, 6)};
    c.nodes = ZS_NEW(arena, zs_node, c.n_nodes, &err);
    for (int i = 0; i < c.n_nodes; i++) {
        zs_node *node = &c.nodes[i];
        /* equal neighbours are frequent, so that "count" is written */
        if (i > 0 && check_rng_int(rng, 0, 1)) {
            *node = c.nodes[i - 1];
            node->devices = ZS_NEW(arena, zs_device, node->n_devices, &err);
            memcpy(node->devices, c.nodes[i - 1].devices,
                   (size_t)node->n_devices * sizeof *node->devices);
        } else {
            node->site = check_rng_int(rng, 0, 2) ? "" : "elsewhere";
            node->n_devices = (int)check_rng_int(rng, 1, 4);
            node->devices = ZS_NEW(arena, zs_device, node->n_devices, &err);
            node->intra_bytes_per_s = check_rng_double(rng, 1e9, 5e11);
            node->intra_latency_ms = check_rng_double(rng, 0, 0.1);
            node->nic_bytes_per_s = check_rng_double(rng, 1e8, 5e10);
            node->nic_latency_ms = check_rng_double(rng, 0, 1);
            for (int g = 0; g < node->n_devices; g++) {
                const int type = (int)check_rng_int(rng, 0, 4);
                node->devices[g] = (zs_device){.type = types[type],
                                               .memory_bytes = check_rng_int(rng, 1, 1 << 30) * 128,
                                               .compute_capability = capabilities[type]};
            }
        }
        node->name = check_rng_int(rng, 0, 2)
                         ? zs_arena_printf(arena, &err, "node%d", i)
                         : zs_arena_printf(arena, &err, "host \"%c\"", 'a' + i);
        for (int g = 0; g < node->n_devices; g++) {
            zs_device *d = &node->devices[g];
            d->uuid =
                check_rng_int(rng, 0, 3) ? NULL : zs_arena_printf(arena, &err, "GPU-%d-%d", i, g);
            d->pci_bus_id =
                check_rng_int(rng, 0, 3) ? NULL : zs_arena_printf(arena, &err, "0000:%02x:00.0", g);
        }
    }
    return c;
}

static zs_profile random_profile(check_rng *rng, zs_arena *arena)
{
    zs_error err;
    zs_profile p = {.model = "random",
                    .estimated = check_rng_int(rng, 0, 1) != 0,
                    .source = "random numbers",
                    .n_entries = (int)check_rng_int(rng, 1, 5)};
    p.entries = ZS_NEW(arena, zs_profile_entry, p.n_entries, &err);
    for (int i = 0; i < p.n_entries; i++) {
        zs_profile_entry *e = &p.entries[i];
        *e = (zs_profile_entry){.device_type = types[i],
                                .kind = (zs_layer_kind)check_rng_int(rng, 0, 2),
                                .precision = (zs_precision)check_rng_int(rng, 0, 1),
                                .seq_len = (int)check_rng_int(rng, 1, 4096),
                                .n_points = (int)check_rng_int(rng, 1, 4)};
        e->points = ZS_NEW(arena, zs_profile_point, e->n_points, &err);
        for (int k = 0; k < e->n_points; k++)
            e->points[k] = (zs_profile_point){.samples = 1 << k,
                                              .forward_ms = check_rng_double(rng, 1e-6, 1e3),
                                              .backward_ms = check_rng_double(rng, 1e-6, 1e3)};
        if (check_rng_int(rng, 0, 1))
            e->points[e->n_points - 1] =
                (zs_profile_point){.samples = 1 << (e->n_points - 1), .out_of_memory = true};
    }
    return p;
}

/* Divides n_samples among the ranks at random; ranks without any are frequent. */
static void random_samples(check_rng *rng, zs_plan_stage *stage, int n_samples)
{
    for (int j = 0; j < n_samples; j++)
        stage->ranks[check_rng_int(rng, 0, stage->n_ranks - 1)].samples++;
}

static void random_stages(check_rng *rng, zs_arena *arena, zs_plan *p)
{
    zs_error err;
    const int n_devices = zs_cluster_n_devices(&p->cluster);
    const int most = n_devices < p->n_blocks ? n_devices : p->n_blocks;
    p->n_stages = (int)check_rng_int(rng, 1, most);
    p->stages = ZS_NEW(arena, zs_plan_stage, p->n_stages, &err);
    p->unused = ZS_NEW(arena, zs_plan_unused, n_devices, &err);
    for (int s = 0; s < p->n_stages; s++) {
        const int first = s ? p->stages[s - 1].forward.end : 0;
        const int left = p->n_stages - s - 1;
        const int end = left ? (int)check_rng_int(rng, first + 1, p->n_blocks - left) : p->n_blocks;
        p->stages[s] = (zs_plan_stage){.forward = {first, end},
                                       .backward = {first, end},
                                       .zero_stage = (int)check_rng_int(rng, 1, 3),
                                       .recompute = check_rng_int(rng, 0, 1) != 0,
                                       .n_params = check_rng_int(rng, 1, INT64_C(100000000000)),
                                       .ranks = ZS_NEW(arena, zs_plan_rank, n_devices, &err),
                                       .micro_batch_ms = check_rng_double(rng, 0, 1e4),
                                       .sync_ms = check_rng_double(rng, 0, 1e4)};
    }
    /* the first n_stages devices make sure that no stage is empty */
    int device = 0;
    for (int node = 0; node < p->cluster.n_nodes; node++)
        for (int gpu = 0; gpu < p->cluster.nodes[node].n_devices; gpu++, device++) {
            int s = device < p->n_stages ? device : (int)check_rng_int(rng, -1, p->n_stages - 1);
            if (s < 0) {
                p->unused[p->n_unused++] = (zs_plan_unused){node, gpu, "slower with it"};
                continue;
            }
            zs_plan_rank *rank = &p->stages[s].ranks[p->stages[s].n_ranks++];
            *rank = (zs_plan_rank){.node = node, .gpu = gpu};
#define TERM(name) rank->memory.name##_bytes = check_rng_int(rng, 0, INT64_C(100000000000));
            ZS_MEMORY_TERMS(TERM)
#undef TERM
        }
    for (int s = 0; s < p->n_stages; s++) {
        zs_plan_stage *stage = &p->stages[s];
        double weights[32];
        zs_shard shards[32];
        random_samples(rng, stage, zs_plan_micro_batch(p));
        check_rng_weights(rng, weights, stage->n_ranks);
        CHECK(zs_shards_divide(shards, weights, stage->n_ranks, stage->n_params, &err), "%s",
              err.message);
        for (int i = 0; i < stage->n_ranks; i++)
            stage->ranks[i].shard = shards[i];
    }
}

static zs_plan random_plan(check_rng *rng, zs_arena *arena)
{
    zs_error err;
    zs_plan p = {.model_name = "random \\ \"model\"", .n_blocks = (int)check_rng_int(rng, 1, 40)};
    p.cluster = random_cluster(rng, arena);
    p.profile = random_profile(rng, arena);
    const char *model = zs_arena_printf(arena, &err, "{\"n_blocks\": %d, \"eps\": %.17g}",
                                        p.n_blocks, check_rng_double(rng, 0, 1));
    CHECK(zs_json_parse(&p.model, arena, model, strlen(model), "model", &err), "%s", err.message);

    p.schedule = (zs_schedule_kind)check_rng_int(rng, 0, ZS_N_SCHEDULES - 1);
    p.n_micro_batches = (int)check_rng_int(rng, 1, 8);
    p.micro_batches = ZS_NEW(arena, int, p.n_micro_batches, &err);
    zs_job_set_defaults(&p.job);
    for (int j = 0; j < p.n_micro_batches; j++) {
        p.micro_batches[j] = (int)check_rng_int(rng, 1, 9);
        p.job.global_batch += p.micro_batches[j];
    }
    p.job.seq_len = (int)check_rng_int(rng, 1, 1 << 20);
    p.job.precision = (zs_precision)check_rng_int(rng, 0, 1);
    p.job.zero_stages[check_rng_int(rng, 1, 3)] = false;
    p.job.overlap_zero = check_rng_double(rng, 0, 1);
    random_stages(rng, arena, &p);

    p.step_ms = check_rng_double(rng, 0, 1e6);
    p.bubble_share = check_rng_double(rng, 0, 1);
    p.certificate = (zs_certificate){.status = zs_plan_status_names[check_rng_int(rng, 0, 2)],
                                     .objective_ms = check_rng_double(rng, 1, 1e6),
                                     .gap = 1,
                                     .searched = "everything",
                                     .solver = "none",
                                     .n_solves = check_rng_int(rng, 0, 1000),
                                     .n_nodes = check_rng_int(rng, 0, INT64_C(1) << 52)};
    if (check_rng_int(rng, 0, 1)) {
        zs_certificate *c = &p.certificate;
        c->lower_bound_ms = c->objective_ms * check_rng_double(rng, 0.1, 1);
        c->gap = (c->objective_ms - c->lower_bound_ms) / c->objective_ms;
    }
    return p;
}

static const char *write(zs_arena *arena, const zs_plan *plan, uint64_t seed)
{
    zs_json_writer *w = NULL;
    const char *text = NULL;
    char *copy = NULL;
    size_t size = 0;
    zs_error err;
    if (CHECK(zs_json_writer_open(&w, &err) && zs_plan_write(w, plan, &err) &&
                  zs_json_writer_text(w, &text, &size, &err),
              "seed %" PRIu64 ": %s", seed, err.message))
        copy = zs_arena_strndup(arena, text, size, &err);
    zs_json_writer_close(&w);
    return copy;
}

static bool same_ranks(const zs_plan_stage *a, const zs_plan_stage *b)
{
    if (a->n_ranks != b->n_ranks)
        return false;
    for (int i = 0; i < a->n_ranks; i++) {
        const zs_plan_rank *x = &a->ranks[i], *y = &b->ranks[i];
        if (x->node != y->node || x->gpu != y->gpu || x->samples != y->samples ||
            x->shard.first != y->shard.first || x->shard.count != y->shard.count ||
            zs_memory_total(&x->memory) != zs_memory_total(&y->memory))
            return false;
    }
    return true;
}

/* What is written reads back to the same plan, and writes to the same bytes. */
static void check_round_trip(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    zs_arena *arena = NULL;
    zs_error err;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    zs_plan p = random_plan(&rng, arena), q;
    const zs_json *root = NULL;
    CHECK(zs_plan_check(&p, &err), "seed %" PRIu64 ": %s", seed, err.message);
    const char *text = write(arena, &p, seed);
    if (text && CHECK(zs_json_parse(&root, arena, text, strlen(text), "plan", &err) &&
                          zs_plan_parse(&q, arena, root, &err),
                      "seed %" PRIu64 ": %s", seed, err.message)) {
        const char *again = write(arena, &q, seed);
        CHECK(again && strcmp(text, again) == 0, "seed %" PRIu64 ": bytes differ", seed);
        CHECK(p.n_stages == q.n_stages && p.n_unused == q.n_unused && p.step_ms == q.step_ms &&
                  p.cluster.n_nodes == q.cluster.n_nodes &&
                  p.certificate.lower_bound_ms == q.certificate.lower_bound_ms,
              "seed %" PRIu64 ": plan differs", seed);
        for (int s = 0; s < p.n_stages && s < q.n_stages; s++)
            CHECK(same_ranks(&p.stages[s], &q.stages[s]), "seed %" PRIu64 ": stage %d", seed, s);
    }
    zs_arena_close(&arena);
}

/* One number of a good plan changed: the check finds it, whatever the plan. */
static void check_one_fault(uint64_t seed)
{
    check_rng rng = check_rng_from(seed);
    zs_arena *arena = NULL;
    zs_error err;
    if (!CHECK(zs_arena_open(&arena, &err), "%s", err.message))
        return;
    zs_plan p = random_plan(&rng, arena);
    zs_plan_stage *stage = &p.stages[check_rng_int(&rng, 0, p.n_stages - 1)];
    zs_plan_rank *rank = &stage->ranks[check_rng_int(&rng, 0, stage->n_ranks - 1)];
    const int fault = (int)check_rng_int(&rng, 0, 8);
    const int sign = check_rng_int(&rng, 0, 1) ? 1 : -1;
    switch (fault) {
    case 0:
        stage->forward.first += sign;
        break;
    case 1:
        stage->forward.end += sign;
        break;
    case 2:
        stage->backward.end += sign;
        break;
    case 3:
        p.n_blocks += sign;
        break;
    case 4:
        rank->samples += sign;
        break;
    case 5:
        rank->shard.count += sign;
        break;
    case 6:
        stage->n_params += sign;
        break;
    case 7:
        p.micro_batches[check_rng_int(&rng, 0, p.n_micro_batches - 1)] += sign;
        break;
    default:
        rank->gpu += sign;
        break;
    }
    CHECK(!zs_plan_check(&p, &err) && err.code == ZS_ERR_INPUT && err.message[0] == '$',
          "seed %" PRIu64 ": fault %d is not found", seed, fault);
    zs_arena_close(&arena);
}

int main(void)
{
    check_seeds(check_round_trip, 1, 500);
    check_seeds(check_one_fault, 1, 2000);
    return check_done();
}
