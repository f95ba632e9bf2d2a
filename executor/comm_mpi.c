#include "executor/comm.h"

#include "config.h"

#if HAVE_MPI

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef ZX_REAL_IS_DOUBLE
#define MPI_REAL_TYPE MPI_DOUBLE
#else
#define MPI_REAL_TYPE MPI_FLOAT
#endif

/* MPI counts are int; this many elements per call also keep byte counts of doubles inside int. */
#define MAX_COUNT (INT64_C(1) << 27)

/* Elements of one owner that a reduce-scatter moves at a time: its buffers stay at 1 MiB per rank.
 */
#define REDUCE_CHUNK (INT64_C(1) << 18)

enum { TAG_REDUCE = 1000 };

typedef struct mpi_comm {
    zx_comm base;
    MPI_Comm world;
    int64_t max_count;
} mpi_comm;

struct zx_group {
    MPI_Comm comm;
    int rank, n_ranks;
    double *sums;          /* of one chunk of a reduce-scatter */
    zx_real *parts;        /* the same chunk from each rank */
    MPI_Request *requests; /* 2 n_ranks */
};

struct zx_request {
    int n;
    MPI_Request parts[];
};

/* Fails with the library's own text; what: printf arguments naming the operation. */
#define ZX_MPI(c, call, ...)                                                                       \
    do {                                                                                           \
        int mpi_status = (call);                                                                   \
        if (mpi_status != MPI_SUCCESS)                                                             \
            return mpi_fail((c), mpi_status, __FILE__, __LINE__, err, __VA_ARGS__);                \
    } while (0)

static bool mpi_fail(const mpi_comm *c, int status, const char *file, int line, zs_error *err,
                     const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(status, text, &length);
    return zs_error_set(err, ZS_ERR_RUNTIME, file, line, "rank %d: %s: %s", c->base.rank, what,
                        text);
}

static mpi_comm *mpi_of(zx_comm *c)
{
    return (mpi_comm *)c;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Waits by polling: an MPI library spins inside its own wait, which starves the ranks and threads
 * that share the core with it. */
static bool finish(mpi_comm *c, MPI_Request *requests, int n, const char *what, zs_error *err)
{
    const struct timespec nap = {.tv_nsec = 50000};
    for (int64_t polls = 0;; polls++) {
        int done = 0;
        ZX_MPI(c, MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE), what);
        if (done)
            return true;
        if (polls > 2000)
            nanosleep(&nap, NULL);
        else if (polls > 50)
            sched_yield();
    }
}

static void mpi_close(zx_comm **comm)
{
    if (!*comm)
        return;
    mpi_comm *c = mpi_of(*comm);
    MPI_Comm_free(&c->world);
    MPI_Finalize();
    free(c);
    *comm = NULL;
}

static void mpi_group_close(zx_comm *base, zx_group **group)
{
    (void)base;
    zx_group *g = *group;
    if (!g)
        return;
    if (g->comm != MPI_COMM_NULL)
        MPI_Comm_free(&g->comm);
    free(g->sums);
    free(g->parts);
    free(g->requests);
    free(g);
    *group = NULL;
}

static bool create_group_comm(mpi_comm *c, zx_group *g, const int *ranks, int n_ranks,
                              zs_error *err)
{
    MPI_Group all, some;
    ZX_MPI(c, MPI_Comm_group(c->world, &all), "create group");
    ZX_MPI(c, MPI_Group_incl(all, n_ranks, ranks, &some), "create group");
    ZX_MPI(c, MPI_Comm_create_group(c->world, some, 0, &g->comm), "create group");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    ZX_MPI(c, MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN), "create group");
    ZX_MPI(c, MPI_Comm_rank(g->comm, &g->rank), "create group");
    return true;
}

static bool mpi_group_open(zx_comm *base, zx_group **out, const int *ranks, int n_ranks,
                           zs_error *err)
{
    mpi_comm *c = mpi_of(base);
    zx_group *g = calloc(1, sizeof *g);
    if (!g)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for a group");
    g->comm = MPI_COMM_NULL;
    g->n_ranks = n_ranks;
    g->sums = malloc((size_t)REDUCE_CHUNK * sizeof *g->sums);
    g->parts = malloc((size_t)REDUCE_CHUNK * (size_t)n_ranks * sizeof *g->parts);
    g->requests = malloc(2 * (size_t)n_ranks * sizeof *g->requests);
    zx_group *held = g;
    if (!g->sums || !g->parts || !g->requests) {
        mpi_group_close(base, &held);
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for the buffers of a group of %d ranks",
                       n_ranks);
    }
    if (!create_group_comm(c, g, ranks, n_ranks, err)) {
        mpi_group_close(base, &held);
        return false;
    }
    *out = g;
    return true;
}

/* A request for n elements, one part for each max_count of them (one empty part for n = 0). */
static zx_request *new_request(const mpi_comm *c, int64_t n, zs_error *err)
{
    int64_t n_parts = n > 0 ? (n + c->max_count - 1) / c->max_count : 1;
    zx_request *request = malloc(sizeof *request + (size_t)n_parts * sizeof request->parts[0]);
    if (!request) {
        ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for a transfer");
        return NULL;
    }
    request->n = (int)n_parts;
    for (int i = 0; i < request->n; i++)
        request->parts[i] = MPI_REQUEST_NULL;
    return request;
}

static int part_count(const mpi_comm *c, int64_t n, int part)
{
    return (int)min_i64(n - part * c->max_count, c->max_count);
}

static bool send_parts(mpi_comm *c, zx_request *r, const zx_real *data, int64_t n, int peer,
                       int tag, zs_error *err)
{
    for (int i = 0; i < r->n; i++)
        ZX_MPI(c,
               MPI_Isend(data + i * c->max_count, part_count(c, n, i), MPI_REAL_TYPE, peer, tag,
                         c->world, &r->parts[i]),
               "send");
    return true;
}

static bool recv_parts(mpi_comm *c, zx_request *r, zx_real *data, int64_t n, int peer, int tag,
                       zs_error *err)
{
    for (int i = 0; i < r->n; i++)
        ZX_MPI(c,
               MPI_Irecv(data + i * c->max_count, part_count(c, n, i), MPI_REAL_TYPE, peer, tag,
                         c->world, &r->parts[i]),
               "receive");
    return true;
}

static bool mpi_isend(zx_comm *base, zx_request **out, const zx_real *data, int64_t n, int peer,
                      int tag, zs_error *err)
{
    zx_request *request = new_request(mpi_of(base), n, err);
    if (!request)
        return false;
    if (!send_parts(mpi_of(base), request, data, n, peer, tag, err)) {
        free(request);
        return zs_error_prefix(err, "to rank %d", peer);
    }
    *out = request;
    return true;
}

static bool mpi_irecv(zx_comm *base, zx_request **out, zx_real *data, int64_t n, int peer, int tag,
                      zs_error *err)
{
    zx_request *request = new_request(mpi_of(base), n, err);
    if (!request)
        return false;
    if (!recv_parts(mpi_of(base), request, data, n, peer, tag, err)) {
        free(request);
        return zs_error_prefix(err, "from rank %d", peer);
    }
    *out = request;
    return true;
}

static bool mpi_wait(zx_comm *base, zx_request **request, zs_error *err)
{
    if (!*request)
        return true;
    bool ok = finish(mpi_of(base), (*request)->parts, (*request)->n, "wait for a transfer", err);
    free(*request);
    *request = NULL;
    return ok;
}

/* Exchanges elements [first, first + REDUCE_CHUNK) of every owner's part. */
static bool exchange_chunk(mpi_comm *c, zx_group *g, const zx_real *data, const int64_t *counts,
                           int64_t first, zs_error *err)
{
    int n = 0;
    int64_t mine = min_i64(counts[g->rank] - first, REDUCE_CHUNK);
    for (int peer = 0; mine > 0 && peer < g->n_ranks; peer++) {
        if (peer == g->rank)
            continue;
        ZX_MPI(c,
               MPI_Irecv(g->parts + peer * REDUCE_CHUNK, (int)mine, MPI_REAL_TYPE, peer, TAG_REDUCE,
                         g->comm, &g->requests[n++]),
               "reduce-scatter");
    }
    int64_t displacement = 0;
    for (int peer = 0; peer < g->n_ranks; peer++) {
        int64_t theirs = min_i64(counts[peer] - first, REDUCE_CHUNK);
        const zx_real *part = data + displacement + first;
        displacement += counts[peer];
        if (theirs <= 0)
            continue;
        if (peer == g->rank)
            memcpy(g->parts + peer * REDUCE_CHUNK, part, (size_t)theirs * sizeof *part);
        else
            ZX_MPI(c,
                   MPI_Isend(part, (int)theirs, MPI_REAL_TYPE, peer, TAG_REDUCE, g->comm,
                             &g->requests[n++]),
                   "reduce-scatter");
    }
    return finish(c, g->requests, n, "reduce-scatter", err);
}

/* MPI_Reduce_scatter may sum in any order, which also may change with the message size. Here each
 * owner gets its part from every rank and adds them in rank order, in double, rounding once. */
static bool mpi_reduce_scatter(zx_comm *base, zx_group *g, zx_real *out, const zx_real *data,
                               const int64_t *counts, bool accumulate, zs_error *err)
{
    int64_t largest = 0;
    for (int rank = 0; rank < g->n_ranks; rank++)
        largest = counts[rank] > largest ? counts[rank] : largest;
    for (int64_t first = 0; first < largest; first += REDUCE_CHUNK) {
        if (!exchange_chunk(mpi_of(base), g, data, counts, first, err))
            return false;
        int64_t n = min_i64(counts[g->rank] - first, REDUCE_CHUNK);
        for (int64_t i = 0; i < n; i++)
            g->sums[i] = (double)g->parts[i];
        for (int rank = 1; rank < g->n_ranks; rank++) {
            const zx_real *part = g->parts + rank * REDUCE_CHUNK;
            for (int64_t i = 0; i < n; i++)
                g->sums[i] += (double)part[i];
        }
        for (int64_t i = 0; accumulate && i < n; i++)
            g->sums[i] += (double)out[first + i];
        for (int64_t i = 0; i < n; i++)
            out[first + i] = (zx_real)g->sums[i];
    }
    return true;
}

static bool broadcast_bytes(mpi_comm *c, MPI_Comm comm, void *data, int64_t size_bytes, int root,
                            const char *what, zs_error *err)
{
    const int64_t step = c->max_count;
    for (int64_t done = 0; done < size_bytes; done += step) {
        MPI_Request request;
        int n = (int)min_i64(size_bytes - done, step);
        ZX_MPI(c, MPI_Ibcast((char *)data + done, n, MPI_BYTE, root, comm, &request), what);
        if (!finish(c, &request, 1, what, err))
            return false;
    }
    return true;
}

static bool mpi_all_gather(zx_comm *base, zx_group *g, zx_real *data, const int64_t *counts,
                           const int64_t *displacements, zs_error *err)
{
    /* One broadcast per owner: uneven and empty parts of any size, no int displacements. */
    for (int rank = 0; rank < g->n_ranks; rank++) {
        if (!broadcast_bytes(mpi_of(base), g->comm, data + displacements[rank],
                             counts[rank] * (int64_t)sizeof *data, rank, "all-gather", err))
            return false;
    }
    return true;
}

static bool mpi_all_reduce(zx_comm *base, zx_group *g, double *data, int n, zs_error *err)
{
    mpi_comm *c = mpi_of(base);
    const int n_ranks = g ? g->n_ranks : base->n_ranks;
    MPI_Comm comm = g ? g->comm : c->world;
    double *all = malloc((size_t)n_ranks * (size_t)n * sizeof *all);
    if (!all)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for an all-reduce");
    MPI_Request request;
    bool ok = false;
    int status = MPI_Iallgather(data, n, MPI_DOUBLE, all, n, MPI_DOUBLE, comm, &request);
    if (status != MPI_SUCCESS) {
        mpi_fail(c, status, __FILE__, __LINE__, err, "all-reduce");
        goto err_free_all;
    }
    if (!finish(c, &request, 1, "all-reduce", err))
        goto err_free_all;
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int rank = 0; rank < n_ranks; rank++)
            sum += all[rank * n + i];
        data[i] = sum;
    }
    ok = true;
err_free_all:
    free(all);
    return ok;
}

static bool mpi_broadcast(zx_comm *base, zx_group *g, void *data, int64_t size_bytes, zs_error *err)
{
    mpi_comm *c = mpi_of(base);
    return broadcast_bytes(c, g ? g->comm : c->world, data, size_bytes, 0, "broadcast", err);
}

static bool mpi_barrier(zx_comm *base, zs_error *err)
{
    mpi_comm *c = mpi_of(base);
    MPI_Request request;
    ZX_MPI(c, MPI_Ibarrier(c->world, &request), "barrier");
    return finish(c, &request, 1, "barrier", err);
}

static void mpi_abort(zx_comm *base, int status)
{
    MPI_Abort(mpi_of(base)->world, status);
}

static const zx_comm_ops mpi_ops = {
    .name = "mpi",
    .close = mpi_close,
    .group_open = mpi_group_open,
    .group_close = mpi_group_close,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .wait = mpi_wait,
    .reduce_scatter = mpi_reduce_scatter,
    .all_gather = mpi_all_gather,
    .all_reduce = mpi_all_reduce,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .abort = mpi_abort,
};

static bool join_job(mpi_comm *c, zs_error *err)
{
    int provided = 0;
    ZX_MPI(c, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "start of MPI");
    ZX_MPI(c, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "start of MPI");
    ZX_MPI(c, MPI_Comm_dup(MPI_COMM_WORLD, &c->world), "start of MPI");
    ZX_MPI(c, MPI_Comm_set_errhandler(c->world, MPI_ERRORS_RETURN), "start of MPI");
    ZX_MPI(c, MPI_Comm_rank(c->world, &c->base.rank), "start of MPI");
    ZX_MPI(c, MPI_Comm_size(c->world, &c->base.n_ranks), "start of MPI");
    return true;
}

bool zx_comm_mpi_open(zx_comm **out, zs_error *err)
{
    mpi_comm *c = calloc(1, sizeof *c);
    if (!c)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory for a communicator");
    c->base.ops = &mpi_ops;
    c->max_count = MAX_COUNT;
    if (!join_job(c, err)) {
        free(c);
        return false;
    }
    *out = &c->base;
    return true;
}

void zx_comm_mpi_set_max_count(zx_comm *comm, int64_t max_count)
{
    mpi_of(comm)->max_count = max_count;
}

#else

bool zx_comm_mpi_open(zx_comm **out, zs_error *err)
{
    (void)out;
    return ZS_FAIL(err, ZS_ERR_INPUT,
                   "this build has no MPI and runs plans of one rank only; build with "
                   "-Dmpi=enabled");
}

void zx_comm_mpi_set_max_count(zx_comm *comm, int64_t max_count)
{
    (void)comm, (void)max_count;
}

#endif
