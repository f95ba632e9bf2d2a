/* Communication between the ranks of a run, one table per engine: comm_self (one rank), comm_mpi,
 * later comm_nccl. Groups are made once, in one fixed order on all ranks. Buffers are host memory
 * for self and mpi. */
#ifndef EXECUTOR_COMM_H
#define EXECUTOR_COMM_H

#include "executor/backend.h"

typedef struct zx_comm zx_comm;   /* all ranks of the run */
typedef struct zx_group zx_group; /* some of them */
typedef struct zx_request zx_request;

typedef struct zx_comm_ops {
    const char *name; /* "self", "mpi" */
    void (*close)(zx_comm **comm);

    /* ranks: ascending global ranks, this one among them. Called by exactly these ranks, in one
     * order of groups everywhere. */
    bool (*group_open)(zx_comm *c, zx_group **out, const int *ranks, int n_ranks, zs_error *err);
    void (*group_close)(zx_comm *c, zx_group **group);

    /* Asynchronous point-to-point; messages of one (sender, receiver, tag) keep their order. The
     * buffer belongs to the transfer until wait returns. wait frees and NULLs the request. */
    bool (*isend)(zx_comm *c, zx_request **out, const zx_real *data, int64_t n, int peer, int tag,
                  zs_error *err);
    bool (*irecv)(zx_comm *c, zx_request **out, zx_real *data, int64_t n, int peer, int tag,
                  zs_error *err);
    bool (*wait)(zx_comm *c, zx_request **request, zs_error *err);

    /* data (in): sum(counts) elements on each rank; out: this rank's part of the sum over ranks,
     * counts[i] elements for the group's i-th rank (0 allowed), written or added to what is there.
     * out may not overlap data. */
    bool (*reduce_scatter)(zx_comm *c, zx_group *g, zx_real *out, const zx_real *data,
                           const int64_t *counts, bool accumulate, zs_error *err);
    /* In place: rank i's counts[i] elements at displacements[i] reach every rank. */
    bool (*all_gather)(zx_comm *c, zx_group *g, zx_real *data, const int64_t *counts,
                       const int64_t *displacements, zs_error *err);
    /* Sum over the ranks in rank order, in place; equal bits on all ranks. g NULL: all ranks. */
    bool (*all_reduce)(zx_comm *c, zx_group *g, double *data, int n, zs_error *err);
    /* Bytes from rank 0 of the group. g NULL: all ranks. */
    bool (*broadcast)(zx_comm *c, zx_group *g, void *data, int64_t size_bytes, zs_error *err);
    bool (*barrier)(zx_comm *c, zs_error *err);
    /* Ends all ranks with this status; does not return where there are others. */
    void (*abort)(zx_comm *c, int status);
} zx_comm_ops;

struct zx_comm {
    const zx_comm_ops *ops;
    int rank;
    int n_ranks;
};

ZS_MUST_CHECK bool zx_comm_self_open(zx_comm **out, zs_error *err);
/* Joins the MPI job that this process was started in. */
ZS_MUST_CHECK bool zx_comm_mpi_open(zx_comm **out, zs_error *err);
/* Longer messages are cut into pieces of max_count elements (MPI's counts are int); tests lower it.
 * The same on all ranks. */
void zx_comm_mpi_set_max_count(zx_comm *comm, int64_t max_count);

#endif
