/* One rank of a run, looked at from inside: what the command line cannot show.
 *   inside flat PLAN DATA    FLAT parameters (see set_flat), one step; prints loss and grad_norm
 *   inside tied PLAN DATA    5 steps; the copies of the embedding stay equal, moments exist once
 *   inside tied_sum PLAN DATA  gradients 1/2, 2/2, ... over ranks: their sum at each owner, at once
 * Run under mpirun for a plan of several ranks. Prints one line per rank, or fails. */
#include "executor/run.h"

#include "tests/support/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static zs_error err;
static zs_arena *arena;
static zs_plan plan;
static zm_model model;
static zx_comm *comm;
static zx_backend *backend;
static zx_data data;
static zx_run run;

static void must(bool ok)
{
    if (ok)
        return;
    zs_error_print(stderr, "inside", &err);
    if (comm)
        comm->ops->abort(comm, 1);
    exit(1);
}

static void open_run(const char *plan_path, const char *data_path)
{
    const zx_run_options options = {.lr = {.max = 1e-2, .n_steps = 5, .decay = ZX_LR_CONSTANT},
                                    .weight_decay = 0.1,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .seed = 3,
                                    .n_threads = 1};
    must(zs_arena_open(&arena, &err));
    must(zs_plan_load(&plan, arena, plan_path, &err));
    must(zm_model_parse(&model, arena, plan.model, plan.model_name, &err));
    must(zs_plan_n_ranks(&plan) == 1 ? zx_comm_self_open(&comm, &err)
                                     : zx_comm_mpi_open(&comm, &err));
    must(zx_backend_cpu.open(&backend, 0, 1, &err));
    must(zx_data_open(&data, data_path, ZX_DATA_AUTO, plan.job.seq_len, model.n_vocab, &err));
    must(zx_run_open(&run, comm, backend, &plan, &model, &options, &err));
}

static void fill(const zm_stage_tensor *t, zx_real value)
{
    zs_shard part;
    zx_real *stored = zx_stage_stored(&run.stage, &part, t);
    for (int64_t i = 0; i < part.count; i++)
        stored[i] = value;
}

/* Embedding and head 0, final norm weight 0 and bias 1; everything else keeps its random values.
 * Then the loss is ln V on any data, and the gradient of the head's row v is (1/V - c_v/N) in each
 * of its C elements, where c_v of N targets are v; all other gradients are 0. */
static void set_flat(void)
{
    for (int i = 0; i < run.stage.n_tensors; i++) {
        const zm_stage_tensor *t = &run.stage.tensors[i];
        if (t->tensor.role == ZM_WTE || t->tensor.role == ZM_NORMF_W)
            fill(t, 0);
        else if (t->tensor.role == ZM_NORMF_B)
            fill(t, 1);
    }
}

static void flat(void)
{
    zx_step_result result;
    set_flat();
    must(zx_run_step(&run, &result, &data, &err));
    printf("rank %d loss %.9f grad_norm %.9f\n", comm->rank, result.loss, result.grad_norm);
}

/* All ranks' values of this, added. */
static double sum_over_ranks(double value)
{
    must(comm->ops->all_reduce(comm, NULL, &value, 1, &err));
    return value;
}

static const zm_stage_tensor *embedding(void)
{
    for (int i = 0; i < run.stage.n_tensors; i++)
        if (run.stage.tensors[i].tensor.role == ZM_WTE)
            return &run.stage.tensors[i];
    return NULL;
}

/* Every rank that stores the embedding, or a part of it, has the bits of its owners. */
static void check_copies(int step)
{
    const int64_t n = (int64_t)model.n_vocab * model.n_channels;
    double *all = calloc((size_t)n, sizeof *all);
    const zm_stage_tensor *t = embedding();
    must(all != NULL);
    const bool is_owner = t && !t->tensor.shared;
    const zs_shard owned = zs_shards_intersect(run.zero.shard, 0, is_owner ? n : 0);
    for (int64_t i = 0; i < owned.count; i++)
        all[owned.first + i] = (double)run.zero.owned_params[i];
    must(comm->ops->all_reduce(comm, NULL, all, (int)n, &err));
    int64_t wrong = 0;
    if (t) {
        zs_shard part;
        const zx_real *stored = zx_stage_stored(&run.stage, &part, t);
        CHECK(part.count == n || run.stage.zero_stage == 3, "%" PRId64, part.count);
        for (int64_t i = 0; i < part.count; i++) {
            const zx_real expected = (zx_real)all[part.first + i];
            wrong += memcmp(&stored[i], &expected, sizeof expected) != 0;
        }
    }
    CHECK(wrong == 0, "rank %d: %" PRId64 " elements of its embedding differ after step %d",
          comm->rank, wrong, step);
    free(all);
}

static void tied(void)
{
    const double n_params = (double)zm_model_n_params(&model);
    CHECK(sum_over_ranks((double)run.zero.shard.count) == n_params,
          "moments of %g elements, expected %g", sum_over_ranks((double)run.zero.shard.count),
          n_params);
    for (int k = 1; k <= 5; k++) {
        zx_step_result result;
        must(zx_run_step(&run, &result, &data, &err));
        check_copies(k);
    }
    if (check_done() != 0)
        comm->ops->abort(comm, 1);
    printf("rank %d copies equal\n", comm->rank);
}

/* Rank r contributes (r + 1) / 2 to each element of the embedding's gradient: with ranks 0 and 1 in
 * the first stage and 2 and 3 in the last one, (1 + 2) / 2 + (3 + 4) / 2 = 5 at each owner. On a
 * first stage at levels 2 and 3 an owner has the sum of its stage already. */
static void tied_sum(void)
{
    const zm_stage_tensor *t = embedding();
    const zx_segment *s = &run.zero.segments[ZX_SEGMENT_TIED];
    zx_real *grads = run.stage.copy ? run.stage.copy_grads : run.stage.grads;
    double sum = 0;
    int64_t wrong = 0;
    for (int rank = 0; rank < comm->n_ranks; rank++)
        sum += (rank + 1) / 2.0;
    if (run.zero.owned_grads && run.stage.first) {
        double of_stage = 0;
        for (int rank = 0; rank < plan.stages[0].n_ranks; rank++)
            of_stage += (rank + 1) / 2.0;
        for (int64_t i = 0; i < s->owned.count; i++)
            s->owned_grads[i] = (zx_real)of_stage;
    } else {
        for (int64_t i = 0; t && i < t->tensor.count; i++)
            grads[i] = (zx_real)(comm->rank + 1) / 2;
    }
    must(zx_zero_reduce(&run.zero, ZX_SEGMENT_TIED, &err));
    for (int64_t i = 0; i < s->owned.count; i++)
        wrong += s->owned_grads[i] != (zx_real)sum;
    CHECK(comm->n_ranks != 4 || sum == 5, "%g", sum);
    CHECK(wrong == 0, "rank %d: %" PRId64 " of %" PRId64 " sums", comm->rank, wrong,
          s->owned.count);
    CHECK(sum_over_ranks((double)s->owned.count) == (double)model.n_vocab * model.n_channels,
          "the embedding's elements have not one owner each");
    if (check_done() != 0)
        comm->ops->abort(comm, 1);
    printf("rank %d owns %" PRId64 "\n", comm->rank, s->owned.count);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: inside flat|tied|tied_sum PLAN DATA\n");
        return 2;
    }
    open_run(argv[2], argv[3]);
    if (strcmp(argv[1], "flat") == 0)
        flat();
    else if (strcmp(argv[1], "tied") == 0)
        tied();
    else
        tied_sum();
    fflush(stdout);
    zx_run_close(&run);
    zx_data_close(&data);
    backend->ops->close(&backend);
    comm->ops->close(&comm);
    zs_arena_close(&arena);
    return 0;
}
