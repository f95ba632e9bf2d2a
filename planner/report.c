#include "planner/report.h"
#include "planner/link_time.h"
#include "shared/units.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BAR_WIDTH = 40, TEXT_SIZE = 32 };

/* Neighbouring ranks of a stage that are alike: GPU type, samples, shard. */
typedef struct rank_group {
    int first, end;   /* ranks of the stage */
    int first_global; /* rank number of the first */
} rank_group;

static const zs_device *device_of(const zs_plan *plan, const zs_plan_rank *rank)
{
    return &plan->cluster.nodes[rank->node].devices[rank->gpu];
}

static bool alike(const zs_plan *plan, const zs_plan_stage *stage, const zs_plan_rank *a,
                  const zs_plan_rank *b)
{
    /* Shards that print alike: whole parameters never divide exactly. */
    const int64_t slack = 1 + stage->n_params / 1000;
    const int64_t difference = a->shard.count - b->shard.count;
    return a->samples == b->samples && difference >= -slack && difference <= slack &&
           strcmp(device_of(plan, a)->type, device_of(plan, b)->type) == 0;
}

static rank_group next_group(const zs_plan *plan, int stage, int first)
{
    const zs_plan_stage *s = &plan->stages[stage];
    rank_group group = {first, first + 1, zs_plan_first_rank(plan, stage) + first};
    while (group.end < s->n_ranks && alike(plan, s, &s->ranks[first], &s->ranks[group.end]))
        group.end++;
    return group;
}

/* "node3", or "node3 +2" when the group reaches over two nodes more. */
static const char *print_nodes(char text[TEXT_SIZE], const zs_plan *plan, int stage,
                               rank_group group)
{
    const zs_plan_rank *ranks = plan->stages[stage].ranks;
    int n_more = 0;
    for (int i = group.first + 1; i < group.end; i++)
        n_more += ranks[i].node != ranks[i - 1].node;
    const char *name = plan->cluster.nodes[ranks[group.first].node].name;
    if (n_more == 0)
        snprintf(text, TEXT_SIZE, "%.13s", name);
    else
        snprintf(text, TEXT_SIZE, "%.8s +%d", name, n_more);
    return text;
}

static const char *print_ms(char text[TEXT_SIZE], double ms)
{
    return zs_units_print_ms(text, TEXT_SIZE, ms);
}

static const char *print_bytes(char text[TEXT_SIZE], int64_t bytes)
{
    return zs_units_print_bytes(text, TEXT_SIZE, bytes);
}

static int bottleneck_of(const zs_plan *plan, const zp_recheck *recheck)
{
    int bottleneck = 0;
    for (int s = 1; s < plan->n_stages; s++) {
        if (recheck->cost.stages[s].micro_batch_ms >
            recheck->cost.stages[bottleneck].micro_batch_ms)
            bottleneck = s;
    }
    return bottleneck;
}

static void print_micro_batches(FILE *out, const zs_plan *plan)
{
    const int largest = zs_plan_micro_batch(plan);
    int n_largest = 0, least = largest;
    for (int j = 0; j < plan->n_micro_batches; j++) {
        n_largest += plan->micro_batches[j] == largest;
        least = plan->micro_batches[j] < least ? plan->micro_batches[j] : least;
    }
    fprintf(out, "%d micro-batch%s: %d of %d", plan->n_micro_batches,
            plan->n_micro_batches == 1 ? "" : "es", n_largest, largest);
    if (n_largest < plan->n_micro_batches)
        fprintf(out, ", others down to %d", least);
    fprintf(out, " samples\n");
}

/* Wrapped at 78 columns behind a margin of two. */
static void print_wrapped(FILE *out, const char *text)
{
    int column = 0;
    for (const char *p = text; *p;) {
        const int length = (int)strcspn(p, " ");
        if (column > 0 && column + 1 + length > 76) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%s%.*s", column ? " " : "  ", length, p);
        p += length;
        p += strspn(p, " ");
    }
    fputc('\n', out);
}

static void print_certificate(FILE *out, const zs_plan *plan)
{
    const zs_certificate *c = &plan->certificate;
    char bound[TEXT_SIZE];
    if (strcmp(c->status, "optimal") == 0)
        fprintf(out, "Optimal: no plan of those searched is faster\n");
    else if (c->lower_bound_ms > 0)
        fprintf(out, "Within %.2f %% of the best: no plan is faster than %s%s\n", 100 * c->gap,
                print_ms(bound, c->lower_bound_ms),
                strcmp(c->status, "time_limit") == 0 ? " (time limit)" : "");
    else
        fprintf(out, "No bound is known: not from the solver\n");
    if (*c->searched) {
        fprintf(out, "Searched:\n");
        print_wrapped(out, c->searched);
    }
}

static void print_head(FILE *out, const zs_plan *plan, const zp_recheck *recheck)
{
    char step[TEXT_SIZE];
    fprintf(out, "%.40s: %d blocks, %s, %d tokens per sample\n", plan->model_name, plan->n_blocks,
            zs_precision_names[plan->job.precision], plan->job.seq_len);
    fprintf(out, "%d of %d GPUs in %d stage%s, schedule %s\n", zs_plan_n_ranks(plan),
            zs_cluster_n_devices(&plan->cluster), plan->n_stages, plan->n_stages == 1 ? "" : "s",
            zs_schedule_names[plan->schedule]);
    fprintf(out, "Global batch %" PRId64 " in ", plan->job.global_batch);
    print_micro_batches(out, plan);
    fprintf(out, "Predicted step %s, %.1f samples/s, bubble %.1f %%\n",
            print_ms(step, recheck->cost.step_ms),
            1000.0 * (double)plan->job.global_batch / recheck->cost.step_ms,
            100 * recheck->bubble_share);
    if (plan->simulated_step_ms > 0)
        fprintf(out, "Simulated step %s (every instruction and transfer; see zplan simulate)\n",
                print_ms(step, plan->simulated_step_ms));
    print_certificate(out, plan);
}

static void print_stages(FILE *out, const zs_plan *plan)
{
    fprintf(out, "\nWho does what (samples of the largest micro-batch; shard of the stage)\n");
    fprintf(out,
            "stage blocks     ZeRO recompute  node          GPUs             samples  shard\n");
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        for (int first = 0; first < stage->n_ranks;) {
            const rank_group group = next_group(plan, s, first);
            const zs_plan_rank *rank = &stage->ranks[first];
            char blocks[TEXT_SIZE] = "", gpus[TEXT_SIZE], nodes[TEXT_SIZE];
            if (first == 0)
                snprintf(blocks, sizeof blocks, "%d..%d", stage->forward.first,
                         stage->forward.end - 1);
            snprintf(gpus, sizeof gpus, "%dx %.11s", group.end - first,
                     device_of(plan, rank)->type);
            if (first == 0)
                fprintf(out, "%5d %-10s %-4d %-10s ", s, blocks, stage->zero_stage,
                        stage->recompute ? "full" : "none");
            else
                fprintf(out, "%5s %-10s %-4s %-10s ", "", "", "", "");
            fprintf(out, "%-13.13s %-16.16s %7d %5.1f%%\n", print_nodes(nodes, plan, s, group),
                    gpus, rank->samples,
                    stage->n_params > 0
                        ? 100.0 * (double)rank->shard.count / (double)stage->n_params
                        : 0.0);
            first = group.end;
        }
    }
}

/* Fills cells of the bar up to the running sum, so that rounding never shows more than there is. */
static void print_memory_bar(FILE *out, const zs_memory *memory, int64_t limit_bytes)
{
    static const char letters[] = "wgoalcxr";
    const int64_t terms[] = {
#define TERM(name) memory->name##_bytes,
        ZS_MEMORY_TERMS(TERM)
#undef TERM
    };
    char bar[BAR_WIDTH + 1];
    int filled = 0;
    double sum = 0;
    for (int i = 0; i < (int)(sizeof terms / sizeof terms[0]); i++) {
        sum += (double)terms[i];
        const int end = (int)floor(sum / (double)limit_bytes * BAR_WIDTH + 0.5);
        while (filled < end && filled < BAR_WIDTH)
            bar[filled++] = letters[i];
    }
    while (filled < BAR_WIDTH)
        bar[filled++] = '.';
    bar[BAR_WIDTH] = 0;
    fprintf(out, "[%s]", bar);
}

static void print_memory(FILE *out, const zs_plan *plan, const zp_recheck *recheck)
{
    fprintf(out, "\nMemory against the limit of each GPU\n");
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        for (int first = 0; first < stage->n_ranks;) {
            const rank_group group = next_group(plan, s, first);
            const zs_memory *memory = &recheck->memory[group.first_global];
            const zs_device *device = device_of(plan, &stage->ranks[first]);
            char need[TEXT_SIZE], have[TEXT_SIZE];
            fprintf(out, "%2d %-10.10s ", s, device->type);
            print_memory_bar(out, memory, device->memory_bytes);
            fprintf(out, " %s of %s\n", print_bytes(need, zs_memory_total(memory)),
                    print_bytes(have, device->memory_bytes));
            first = group.end;
        }
    }
    fprintf(out, "   w weights, g gradients, o optimizer, a activations, l logits and loss,\n"
                 "   c communication buffers, x context, r reserve, . free\n");
}

static void print_time(FILE *out, const zs_plan *plan, const zp_recheck *recheck)
{
    const int bottleneck = bottleneck_of(plan, recheck);
    const double largest_ms = recheck->cost.stages[bottleneck].micro_batch_ms;
    fprintf(out, "\nTime of a micro-batch (forward, backward, sends, exposed ZeRO traffic)\n");
    for (int s = 0; s < plan->n_stages; s++) {
        const zp_stage_cost *cost = &recheck->cost.stages[s];
        char bar[BAR_WIDTH + 1], ms[TEXT_SIZE], sync[TEXT_SIZE];
        const int filled =
            largest_ms > 0 ? (int)floor(cost->micro_batch_ms / largest_ms * BAR_WIDTH + 0.5) : 0;
        memset(bar, '.', BAR_WIDTH);
        memset(bar, '=', (size_t)filled);
        bar[BAR_WIDTH] = 0;
        fprintf(out, "%2d [%s] %s, sync %s%s\n", s, bar, print_ms(ms, cost->micro_batch_ms),
                print_ms(sync, cost->sync_ms), s == bottleneck ? "  <-" : "");
    }
    fprintf(out, "   <- bottleneck: sets the pace of all micro-batches but the first\n");
}

/* The slowest link between a rank of one stage and a rank of the next. */
static zp_link boundary_link(const zs_plan *plan, int stage)
{
    const zs_plan_stage *from = &plan->stages[stage], *to = &plan->stages[stage + 1];
    zp_link slowest = zp_link_between(&plan->cluster, from->ranks[0].node, to->ranks[0].node);
    for (int i = 0; i < from->n_ranks; i++) {
        for (int k = 0; k < to->n_ranks; k++) {
            const zp_link link =
                zp_link_between(&plan->cluster, from->ranks[i].node, to->ranks[k].node);
            if (link.bytes_per_s < slowest.bytes_per_s)
                slowest = link;
        }
    }
    return slowest;
}

static bool print_group_traffic(FILE *out, const zs_plan *plan, const zp_recheck *recheck, int s,
                                zs_arena *arena, zs_error *err)
{
    const zs_plan_stage *stage = &plan->stages[s];
    const zp_problem *p = &recheck->built.problem;
    const zp_kind kind = zp_problem_kind(s, plan->n_stages);
    const int n_blocks = stage->forward.end - stage->forward.first;
    const double gib =
        zp_problem_volume_gib(p, stage->zero_stage, kind, n_blocks) * plan->n_micro_batches +
        zp_problem_sync_volume_gib(p, stage->zero_stage, kind, n_blocks);
    int *nodes = ZS_NEW(arena, int, stage->n_ranks, err);
    if (!nodes)
        return false;
    for (int i = 0; i < stage->n_ranks; i++)
        nodes[i] = stage->ranks[i].node;
    const zp_link link = zp_link_of_group(&plan->cluster, nodes, stage->n_ranks);
    char size[TEXT_SIZE], speed[TEXT_SIZE], ms[TEXT_SIZE];
    fprintf(out, "%2d      ZeRO-%d among %d GPUs, a step %s over %s: %s\n", s, stage->zero_stage,
            stage->n_ranks, print_bytes(size, (int64_t)(gib * 1073741824.0)),
            zs_units_print_bandwidth(speed, sizeof speed, link.bytes_per_s),
            print_ms(ms, zp_link_collective_ms(link, gib * 1073741824.0, stage->n_ranks)));
    return true;
}

/* What travels over which links, before overlap with compute. */
static bool print_traffic(FILE *out, const zs_plan *plan, const zp_recheck *recheck,
                          zs_arena *arena, zs_error *err)
{
    bool any = plan->n_stages > 1;
    for (int s = 0; s < plan->n_stages; s++)
        any = any || plan->stages[s].n_ranks > 1;
    if (any)
        fprintf(out, "\nTraffic, before compute hides part of it\n");
    for (int s = 0; s < plan->n_stages; s++) {
        if (plan->stages[s].n_ranks > 1 && !print_group_traffic(out, plan, recheck, s, arena, err))
            return false;
        if (s + 1 == plan->n_stages)
            break;
        const zp_link link = boundary_link(plan, s);
        const int64_t bytes = zs_plan_micro_batch(plan) * recheck->built.memory.boundary_bytes;
        char size[TEXT_SIZE], speed[TEXT_SIZE], ms[TEXT_SIZE];
        fprintf(out, "%2d -> %-2d a micro-batch %s each way over %s: %s\n", s, s + 1,
                print_bytes(size, bytes),
                zs_units_print_bandwidth(speed, sizeof speed, link.bytes_per_s),
                print_ms(ms, zp_link_send_ms(link, (double)bytes)));
    }
    return true;
}

/* Compute of one micro-batch of b samples on a class, without sends. Infinite if not offered. */
static double compute_ms(const zp_class *class, const zp_stage *stage, zp_kind kind, int b)
{
    if (b < 1 || b > class->b_max)
        return INFINITY;
    return stage->n_blocks *
               (class->forward_ms[b] * (stage->recompute ? 2 : 1) + class->backward_ms[b]) +
           (kind == ZP_FIRST || kind == ZP_SINGLE ? class->embed_ms[b] : 0) +
           (kind == ZP_LAST || kind == ZP_SINGLE ? class->head_ms[b] : 0);
}

static void print_why(FILE *out, const zs_plan *plan, const zp_recheck *recheck)
{
    fprintf(out, "\nWhy these shares\n");
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        const zp_stage *members = &recheck->stages[s];
        const zp_kind kind = zp_problem_kind(s, plan->n_stages);
        for (int first = 0; first < stage->n_ranks;) {
            const rank_group group = next_group(plan, s, first);
            const int b = stage->ranks[first].samples;
            const zp_class *class = &recheck->built.problem.classes[members->members[first].class];
            const double now_ms = recheck->cost.stages[s].member_ms[first];
            const double more_ms = compute_ms(class, members, kind, b + 1) -
                                   (b > 0 ? compute_ms(class, members, kind, b) : 0) + now_ms;
            const int64_t free_bytes = device_of(plan, &stage->ranks[first])->memory_bytes -
                                       zs_memory_total(&recheck->memory[group.first_global]);
            char now[TEXT_SIZE], more[TEXT_SIZE], room[TEXT_SIZE];
            fprintf(out, "%2d %-10.10s %d sample%s in %s", s, class->gpu, b, b == 1 ? "" : "s",
                    print_ms(now, now_ms));
            if (isfinite(more_ms))
                fprintf(out, ", one more %s", print_ms(more, more_ms));
            fprintf(out, "; %s free\n", print_bytes(room, free_bytes));
            first = group.end;
        }
    }
    fprintf(out, "   Samples follow speed within memory; shards follow the memory that is left.\n");
}

static void print_unused(FILE *out, const zs_plan *plan)
{
    if (plan->n_unused == 0)
        return;
    fprintf(out, "\nUnused GPUs\n");
    for (int i = 0; i < plan->n_unused;) {
        const zs_plan_unused *first = &plan->unused[i];
        int n = 1;
        while (i + n < plan->n_unused && plan->unused[i + n].node == first->node &&
               strcmp(plan->unused[i + n].reason, first->reason) == 0)
            n++;
        const zs_node *node = &plan->cluster.nodes[first->node];
        fprintf(out, "   %dx %.11s of %.13s: %.48s\n", n, node->devices[first->gpu].type,
                node->name, first->reason);
        i += n;
    }
}

static void print_warnings(FILE *out, const zs_plan *plan, const zp_recheck *recheck)
{
    if (plan->profile.estimated)
        fprintf(out, "\nWarning: layer times are estimated from public GPU data, not measured.\n");
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        for (int first = 0; first < stage->n_ranks;) {
            const rank_group group = next_group(plan, s, first);
            const int b = stage->ranks[first].samples;
            const int class = recheck->stages[s].members[first].class;
            const zp_layer_times *times = &recheck->built.classes[class].times;
            if (b > 0 && b <= times->b_max && times->interpolated[b])
                fprintf(out,
                        "Note: stage %d, %.10s: times of %d samples are interpolated between "
                        "sizes.\n",
                        s, recheck->built.problem.classes[class].gpu, b);
            first = group.end;
        }
    }
}

bool zp_report_print(FILE *out, const zs_plan *plan, const zp_recheck *recheck, zs_arena *arena,
                     zs_error *err)
{
    print_head(out, plan, recheck);
    print_stages(out, plan);
    print_memory(out, plan, recheck);
    print_time(out, plan, recheck);
    if (!print_traffic(out, plan, recheck, arena, err))
        return false;
    print_why(out, plan, recheck);
    print_unused(out, plan);
    print_warnings(out, plan, recheck);
    return true;
}

void zp_report_print_summary(FILE *out, const zs_plan *plan)
{
    char step[TEXT_SIZE], gap[TEXT_SIZE] = "no bound";
    if (plan->certificate.lower_bound_ms > 0)
        snprintf(gap, sizeof gap, "gap %.2f %%", 100 * plan->certificate.gap);
    fprintf(out, "%d stage%s, %d of %d GPUs, %d micro-batch%s of %d, step %s, %s, %s\n",
            plan->n_stages, plan->n_stages == 1 ? "" : "s", zs_plan_n_ranks(plan),
            zs_cluster_n_devices(&plan->cluster), plan->n_micro_batches,
            plan->n_micro_batches == 1 ? "" : "es", zs_plan_micro_batch(plan),
            print_ms(step, plan->step_ms), plan->certificate.status, gap);
}

/* Neighbouring ranks of a stage on GPUs of one type share a row: mean shares of the step. */
static void print_usage_rows(FILE *out, const zs_plan *plan, const zp_simulation *simulation)
{
    fprintf(out, "\nWhere the time goes, in %% of the step (mean of the GPUs of a row)\n");
    fprintf(out, "stage GPUs              compute  exposed communication  waiting\n");
    int rank = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const zs_plan_stage *stage = &plan->stages[s];
        for (int first = 0; first < stage->n_ranks;) {
            const char *type = device_of(plan, &stage->ranks[first])->type;
            zs_timeline_usage sum = {0, 0, 0};
            int n = 0;
            for (; first + n < stage->n_ranks &&
                   strcmp(device_of(plan, &stage->ranks[first + n])->type, type) == 0;
                 n++, rank++) {
                sum.compute_ms += simulation->usage[rank].compute_ms;
                sum.exposed_ms += simulation->usage[rank].exposed_ms;
                sum.bubble_ms += simulation->usage[rank].bubble_ms;
            }
            const double percent = simulation->step_ms > 0 ? 100 / (n * simulation->step_ms) : 0;
            fprintf(out, "%5d %3dx %-12.12s %8.1f %22.1f %8.1f\n", s, n, type,
                    sum.compute_ms * percent, sum.exposed_ms * percent, sum.bubble_ms * percent);
            first += n;
        }
    }
}

bool zp_report_print_simulation(FILE *out, const zs_plan *plan, double step_ms,
                                const zp_simulation *simulation, const zp_simulation *as_planned,
                                zs_error *err)
{
    char text[TEXT_SIZE], other[TEXT_SIZE];
    fprintf(out, "Simulated step %s, closed form %s\n", print_ms(text, simulation->step_ms),
            print_ms(other, step_ms));
    if (as_planned)
        fprintf(out, "As planned %s: %+.2f %%\n", print_ms(text, as_planned->step_ms),
                as_planned->step_ms > 0 ? 100 * (simulation->step_ms / as_planned->step_ms - 1)
                                        : 0);
    fputc('\n', out);
    if (!zs_timeline_print(out, &simulation->timeline, err))
        return false;
    print_usage_rows(out, plan, simulation);
    return true;
}
