#include "executor/comm.h"

#include <stdlib.h>

/* One rank: sums are what it has, and there is nobody to send to. */

struct zx_group {
    int n_ranks;
};

static void self_close(zx_comm **comm)
{
    free(*comm);
    *comm = NULL;
}

static bool self_group_open(zx_comm *c, zx_group **out, const int *ranks, int n_ranks,
                            zs_error *err)
{
    if (n_ranks != 1 || ranks[0] != c->rank)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "a group of %d ranks needs MPI", n_ranks);
    zx_group *group = malloc(sizeof *group);
    if (!group)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for a group");
    group->n_ranks = 1;
    *out = group;
    return true;
}

static void self_group_close(zx_comm *c, zx_group **group)
{
    (void)c;
    free(*group);
    *group = NULL;
}

static bool self_isend(zx_comm *c, zx_request **out, const zx_real *data, int64_t n, int peer,
                       int tag, zs_error *err)
{
    (void)c, (void)out, (void)data, (void)n, (void)tag;
    return ZS_FAIL(err, ZS_ERR_RUNTIME, "send to rank %d in a run of one rank", peer);
}

static bool self_irecv(zx_comm *c, zx_request **out, zx_real *data, int64_t n, int peer, int tag,
                       zs_error *err)
{
    (void)c, (void)out, (void)data, (void)n, (void)tag;
    return ZS_FAIL(err, ZS_ERR_RUNTIME, "receive from rank %d in a run of one rank", peer);
}

static bool self_wait(zx_comm *c, zx_request **request, zs_error *err)
{
    (void)c, (void)err;
    *request = NULL;
    return true;
}

static bool self_reduce_scatter(zx_comm *c, zx_group *g, zx_real *out, const zx_real *data,
                                const int64_t *counts, bool accumulate, zs_error *err)
{
    (void)c, (void)g, (void)err;
    for (int64_t i = 0; i < counts[0]; i++)
        out[i] = accumulate ? out[i] + data[i] : data[i];
    return true;
}

static bool self_all_gather(zx_comm *c, zx_group *g, zx_real *data, const int64_t *counts,
                            const int64_t *displacements, zs_error *err)
{
    (void)c, (void)g, (void)data, (void)counts, (void)displacements, (void)err;
    return true;
}

static bool self_all_reduce(zx_comm *c, zx_group *g, double *data, int n, zs_error *err)
{
    (void)c, (void)g, (void)data, (void)n, (void)err;
    return true;
}

static bool self_broadcast(zx_comm *c, zx_group *g, void *data, int64_t size_bytes, zs_error *err)
{
    (void)c, (void)g, (void)data, (void)size_bytes, (void)err;
    return true;
}

static bool self_barrier(zx_comm *c, zs_error *err)
{
    (void)c, (void)err;
    return true;
}

static void self_abort(zx_comm *c, int status)
{
    (void)c, (void)status;
}

static const zx_comm_ops self_ops = {
    .name = "self",
    .close = self_close,
    .group_open = self_group_open,
    .group_close = self_group_close,
    .isend = self_isend,
    .irecv = self_irecv,
    .wait = self_wait,
    .reduce_scatter = self_reduce_scatter,
    .all_gather = self_all_gather,
    .all_reduce = self_all_reduce,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
    .abort = self_abort,
};

bool zx_comm_self_open(zx_comm **out, zs_error *err)
{
    zx_comm *comm = malloc(sizeof *comm);
    if (!comm)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for a communicator");
    *comm = (zx_comm){.ops = &self_ops, .rank = 0, .n_ranks = 1};
    *out = comm;
    return true;
}
