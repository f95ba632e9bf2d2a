#include "executor/checkpoint.h"

#include "executor/launch.h"
#include "shared/log.h"

#include <inttypes.h>
#include <stdlib.h>

/* Elements that pass through host memory at a time. */
enum { CHUNK = 1 << 18 };

/* What this rank owns of each array, and where it is on the device. */
typedef struct own_part {
    zs_shard elements; /* of the whole model */
    zx_real *arrays[ZX_N_ARRAYS];
} own_part;

static own_part own_part_of(zx_run *run)
{
    const zx_stage *stage = &run->stage;
    const zs_shard shard = run->zero.shard;
    own_part own = {.elements = {.count = shard.count}};
    if (shard.count > 0)
        own.elements.first = stage->tensors[0].global_offset + shard.first;
    own.arrays[ZX_ARRAY_WEIGHTS] = run->zero.owned_params;
    own.arrays[ZX_ARRAY_FIRST_MOMENTS] = run->optimizer.m;
    own.arrays[ZX_ARRAY_SECOND_MOMENTS] = run->optimizer.v;
    return own;
}

/* What each rank wrote, collected on all: first element, number of elements, checksum. */
enum { FIRST, COUNT, CRC, N_FACTS };

static int compare_files(const void *a, const void *b)
{
    const zx_manifest_file *x = a, *y = b;
    return (x->elements.first > y->elements.first) - (x->elements.first < y->elements.first);
}

static bool write_manifest(const zx_run *run, zs_arena *arena, const double *facts,
                           const zx_data *data, const char *folder, zs_error *err)
{
    zx_manifest m = {.model = *run->model,
                     .n_params = zm_model_n_params(run->model),
                     .step = run->n_steps,
                     .n_updates = run->optimizer.n_updates,
                     .options = run->options,
                     .n_tokens = data->n_tokens,
                     .n_sequences = data->n_sequences,
                     .seq_len = data->seq_len,
                     .position = run->position};
    m.files = ZS_NEW(arena, zx_manifest_file, run->comm->n_ranks, err);
    if (!m.files)
        return false;
    for (int rank = 0; rank < run->comm->n_ranks; rank++) {
        const double *f = facts + rank * N_FACTS;
        const zs_shard elements = {.first = (int64_t)f[FIRST], .count = (int64_t)f[COUNT]};
        if (elements.count > 0 &&
            !zx_checkpoint_describe(&m.files[m.n_files++], arena, elements, (uint32_t)f[CRC], err))
            return false;
    }
    qsort(m.files, (size_t)m.n_files, sizeof *m.files, compare_files);
    return zx_manifest_save(&m, folder, err);
}

static bool write_own(zx_run *run, double *facts, const char *folder, zs_error *err)
{
    const own_part own = own_part_of(run);
    zx_checkpoint_values values = {.backend = run->backend, .elements = own.elements};
    uint32_t crc = 0;
    for (int i = 0; i < ZX_N_ARRAYS; i++)
        values.arrays[i] = own.arrays[i];
    if (own.elements.count > 0 && !zx_checkpoint_write(&crc, folder, &values, err))
        return false;
    double *f = facts + run->comm->rank * N_FACTS;
    f[FIRST] = (double)own.elements.first;
    f[COUNT] = (double)own.elements.count;
    f[CRC] = crc;
    return true;
}

static bool save(zx_run *run, zs_arena *arena, const zx_data *data, const char *dir, zs_error *err)
{
    zx_comm *comm = run->comm;
    char folder[ZX_CHECKPOINT_PATH_SIZE];
    double *facts = ZS_NEW(arena, double, (int64_t)comm->n_ranks *N_FACTS, err);
    bool ok = facts && zx_checkpoint_path(folder, dir, run->n_steps, true, err) &&
              (comm->rank != 0 || zx_checkpoint_begin(dir, run->n_steps, err));
    if (!zx_launch_all_ok(comm, ok, err))
        return false;
    ok = zx_launch_all_ok(comm, write_own(run, facts, folder, err), err) &&
         comm->ops->all_reduce(comm, NULL, facts, comm->n_ranks * N_FACTS, err);
    if (ok) {
        if (comm->rank == 0)
            ok = write_manifest(run, arena, facts, data, folder, err) &&
                 zx_checkpoint_publish(dir, run->n_steps, err);
        ok = zx_launch_all_ok(comm, ok, err);
    }
    if (!ok && comm->rank == 0)
        zx_checkpoint_discard(dir, run->n_steps);
    return ok;
}

bool zx_checkpoint_save(zx_run *run, const zx_data *data, const char *dir, int64_t keep_last,
                        zs_error *err)
{
    zs_arena *arena;
    if (!zs_arena_open(&arena, err))
        return false;
    const bool ok = save(run, arena, data, dir, err);
    if (ok && keep_last > 0 && run->comm->rank == 0)
        zx_checkpoint_keep_last(dir, run->n_steps, keep_last);
    zs_arena_close(&arena);
    return ok;
}

/* Resuming. */

/* A checkpoint that may be taken; the same on all ranks. */
typedef struct candidate {
    int64_t step; /* -1: DIR itself */
    int64_t n_left;
} candidate;

/* On rank 0: what DIR holds, newest first. */
static bool list_candidates(candidate **out, int *n, zs_arena *arena, const char *dir,
                            zs_error *err)
{
    int64_t *steps = NULL;
    const bool is_one = zx_checkpoint_is_one(dir);
    if (!is_one && !zx_checkpoint_list(&steps, n, arena, dir, err))
        return false;
    if (is_one)
        *n = 1;
    if (*n == 0)
        return ZS_FAIL(err, ZS_ERR_INPUT, "%s: holds no checkpoint (step-00000001/, ...)", dir);
    *out = ZS_NEW(arena, candidate, *n, err);
    if (!*out)
        return false;
    for (int i = 0; i < *n; i++)
        (*out)[i] = (candidate){.step = is_one ? -1 : steps[i], .n_left = *n - i - 1};
    return true;
}

/* Manifest, and this rank's share of the files. */
static bool check_candidate(zx_manifest *m, zs_arena *arena, const zx_comm *comm,
                            const candidate *c, const char *folder, zs_error *err)
{
    if (!zx_manifest_load(m, arena, folder, err))
        return false;
    if (c->step >= 0 && m->step != c->step)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "%s: $.step is %" PRId64 ", the folder's name says %" PRId64, m->place,
                       m->step, c->step);
    for (int i = comm->rank; i < m->n_files; i += comm->n_ranks)
        if (!zx_checkpoint_verify(m, folder, i, err))
            return false;
    return true;
}

/* True on all ranks when ok on all; *first: the lowest rank where not. */
static bool agree(bool *all, int *first, zx_comm *comm, bool ok, zs_error *err)
{
    double *failed = malloc((size_t)comm->n_ranks * sizeof *failed);
    if (!failed)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory");
    const bool told = zx_launch_collect(failed, comm, !ok, err);
    *all = true;
    for (int rank = comm->n_ranks - 1; told && rank >= 0; rank--)
        if (failed[rank] != 0) {
            *all = false;
            *first = rank;
        }
    free(failed);
    return told;
}

/* The newest that is complete: its manifest and folder. */
static bool choose(zx_manifest *m, const char **folder, zx_run *run, const char *dir, zs_error *err)
{
    zx_comm *comm = run->comm;
    candidate *list = NULL, c = {.n_left = 1};
    int n = 0;
    const bool listed = comm->rank != 0 || list_candidates(&list, &n, run->arena, dir, err);
    if (!zx_launch_all_ok(comm, listed, err))
        return false;
    for (int i = 0; c.n_left > 0; i++) {
        char path[ZX_CHECKPOINT_PATH_SIZE];
        if (comm->rank == 0)
            c = list[i];
        if (!comm->ops->broadcast(comm, NULL, &c, sizeof c, err))
            return false;
        bool ok = c.step < 0 ? snprintf(path, sizeof path, "%s", dir) < (int)sizeof path
                             : zx_checkpoint_path(path, dir, c.step, false, err);
        ok = ok && check_candidate(m, run->arena, comm, &c, path, err);
        bool all = false;
        int first = -1;
        zs_error lost;
        if (!agree(&all, &first, comm, ok, &lost)) {
            *err = lost;
            return false;
        }
        if (all) {
            *folder = zs_arena_strdup(run->arena, path, err);
            return *folder != NULL;
        }
        if (c.n_left == 0)
            return zx_launch_all_ok(
                comm, ok || zs_error_prefix(err, "%s: no complete checkpoint", dir), err);
        if (first == comm->rank)
            zs_log_warn("%s; damaged, falling back to the checkpoint before it", err->message);
    }
    return false;
}

/* Where the values of an array come from: a checkpoint, or weights alone. */
typedef struct source {
    const zx_manifest *manifest;
    const char *folder;
    const zx_weights *weights; /* NULL: the checkpoint */
} source;

static bool read_source(zx_real *values, const source *from, zx_array array, zs_shard elements,
                        zs_error *err)
{
    return from->weights
               ? zx_weights_read(values, from->weights, elements, err)
               : zx_checkpoint_read(values, from->manifest, from->folder, array, elements, err);
}

static bool read_own(zx_run *run, const source *from, int n_arrays, zs_error *err)
{
    const own_part own = own_part_of(run);
    zx_backend *b = run->backend;
    zx_real *buffer = malloc((size_t)CHUNK * sizeof *buffer);
    bool ok = buffer || ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for weights");
    for (int array = 0; ok && array < n_arrays; array++)
        for (int64_t done = 0; ok && done < own.elements.count; done += CHUNK) {
            const int64_t left = own.elements.count - done;
            const zs_shard part = {.first = own.elements.first + done,
                                   .count = left < CHUNK ? left : CHUNK};
            ok = read_source(buffer, from, (zx_array)array, part, err) &&
                 b->ops->to_device(b, own.arrays[array] + done, buffer,
                                   part.count * (int64_t)sizeof *buffer, err) &&
                 b->ops->sync(b, err);
        }
    free(buffer);
    return ok;
}

/* Every rank reads what it owns and gets the rest from the owners. */
static bool fill(zx_run *run, const source *from, int n_arrays, zs_error *err)
{
    return zx_launch_all_ok(run->comm, read_own(run, from, n_arrays, err), err) &&
           zx_zero_gather(&run->zero, ZX_SEGMENT_OWN, err) &&
           zx_zero_gather(&run->zero, ZX_SEGMENT_TIED, err);
}

bool zx_checkpoint_init(zx_run *run, const zx_weights *weights, zs_error *err)
{
    const source from = {.weights = weights};
    return fill(run, &from, 1, err);
}

bool zx_checkpoint_resume(zx_run *run, const char **folder, const zx_data *data, const char *dir,
                          zs_error *err)
{
    zx_manifest m;
    if (!choose(&m, folder, run, dir, err))
        return false;
    bool ok = zx_manifest_check_model(&m, run->model, err) &&
              zx_manifest_check_data(&m, &run->options, data, err);
    const source from = {.manifest = &m, .folder = *folder};
    if (!zx_launch_all_ok(run->comm, ok, err) || !fill(run, &from, ZX_N_ARRAYS, err))
        return false;
    run->n_steps = m.step;
    run->position = m.position;
    run->optimizer.n_updates = m.n_updates;
    char changes[512];
    zx_manifest_changes(changes, sizeof changes, &m, &run->options);
    if (changes[0] && run->comm->rank == 0)
        zs_log_warn("%s was made with %s", *folder, changes);
    return true;
}
