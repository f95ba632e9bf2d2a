/* Collectives and messages of one engine, on the ranks that mpirun started (or one rank without).
 * Values are small integers, so sums are exact and compared exactly. */
#include "executor/comm.h"

#include "tests/support/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 16 };

static zx_comm *comm;
static zs_error err;

static zx_group *open_group(const int *ranks, int n)
{
    zx_group *group = NULL;
    if (!CHECK(comm->ops->group_open(comm, &group, ranks, n, &err), "%s", err.message))
        comm->ops->abort(comm, 1);
    return group;
}

static zx_group *open_all(void)
{
    int ranks[MAX_RANKS];
    for (int i = 0; i < comm->n_ranks; i++)
        ranks[i] = i;
    return open_group(ranks, comm->n_ranks);
}

/* Value of element i on a rank. */
static zx_real value_of(int rank, int64_t i)
{
    return (zx_real)((i * 7 + rank * 13) % 101 - 50);
}

static void check_reduce_scatter(zx_group *group, const int64_t *counts, bool accumulate)
{
    int64_t total = 0, first = 0;
    for (int i = 0; i < comm->n_ranks; i++) {
        first += i < comm->rank ? counts[i] : 0;
        total += counts[i];
    }
    zx_real *data = calloc((size_t)total + 1, sizeof *data);
    zx_real *out = calloc((size_t)counts[comm->rank] + 1, sizeof *out);
    for (int64_t i = 0; i < total; i++)
        data[i] = value_of(comm->rank, i);
    for (int64_t i = 0; i < counts[comm->rank]; i++)
        out[i] = (zx_real)(i % 17);
    out[counts[comm->rank]] = 12345;
    CHECK(comm->ops->reduce_scatter(comm, group, out, data, counts, accumulate, &err), "%s",
          err.message);
    int64_t wrong = 0;
    for (int64_t i = 0; i < counts[comm->rank]; i++) {
        zx_real sum = accumulate ? (zx_real)(i % 17) : 0;
        for (int rank = 0; rank < comm->n_ranks; rank++)
            sum += value_of(rank, first + i);
        wrong += out[i] != sum;
    }
    CHECK(wrong == 0, "rank %d: %" PRId64 " of %" PRId64 " sums", comm->rank, wrong,
          counts[comm->rank]);
    CHECK(out[counts[comm->rank]] == 12345, "rank %d: wrote behind its part", comm->rank);
    free(data);
    free(out);
}

/* Parts lie in reverse order with gaps of 3. */
static void check_all_gather(zx_group *group, const int64_t *counts)
{
    int64_t displacements[MAX_RANKS], total = 0;
    for (int i = comm->n_ranks - 1; i >= 0; i--) {
        displacements[i] = total;
        total += counts[i] + 3;
    }
    zx_real *data = malloc(((size_t)total + 1) * sizeof *data);
    for (int64_t i = 0; i < total; i++)
        data[i] = -1;
    for (int64_t i = 0; i < counts[comm->rank]; i++)
        data[displacements[comm->rank] + i] = value_of(comm->rank, i);
    CHECK(comm->ops->all_gather(comm, group, data, counts, displacements, &err), "%s", err.message);
    int64_t wrong = 0;
    for (int rank = 0; rank < comm->n_ranks; rank++) {
        for (int64_t i = 0; i < counts[rank] + 3; i++) {
            zx_real expected = i < counts[rank] ? value_of(rank, i) : -1;
            wrong += data[displacements[rank] + i] != expected;
        }
    }
    CHECK(wrong == 0, "rank %d: %" PRId64 " elements", comm->rank, wrong);
    free(data);
}

static void test_collectives(zx_group *group)
{
    const int64_t tables[][4] = {
        {5, 5, 5, 5}, {7, 0, 1, 12}, {0, 0, 9, 0}, {0, 0, 0, 0}, {600001, 3, 300000, 0}};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        int64_t counts[MAX_RANKS];
        for (int i = 0; i < comm->n_ranks; i++)
            counts[i] = tables[t][i % 4];
        check_reduce_scatter(group, counts, false);
        check_reduce_scatter(group, counts, true);
        check_all_gather(group, counts);
    }
}

/* The sum in rank order, bit for bit: 1e16 + 1 + 1 ... depends on the order. */
static void test_all_reduce(zx_group *group)
{
    double expected = 0, data[3];
    for (int rank = 0; rank < comm->n_ranks; rank++)
        expected += rank == 0 ? 1e16 : 1.0;
    for (int round = 0; round < 2; round++) {
        data[0] = comm->rank == 0 ? 1e16 : 1.0;
        data[1] = comm->rank + 1;
        data[2] = 0;
        CHECK(comm->ops->all_reduce(comm, round ? group : NULL, data, 3, &err), "%s", err.message);
        CHECK(memcmp(&data[0], &expected, sizeof expected) == 0, "%.17g, expected %.17g", data[0],
              expected);
        CHECK(data[1] == comm->n_ranks * (comm->n_ranks + 1) / 2.0 && data[2] == 0, "%g", data[1]);
    }
}

static void test_broadcast(zx_group *group)
{
    for (int round = 0; round < 2; round++) {
        char text[300];
        memset(text, comm->rank == 0 ? 'a' + round : 'z', sizeof text);
        CHECK(comm->ops->broadcast(comm, round ? group : NULL, text, sizeof text, &err), "%s",
              err.message);
        CHECK(text[0] == 'a' + round && text[299] == 'a' + round, "%c %c", text[0], text[299]);
    }
    CHECK(comm->ops->barrier(comm, &err), "%s", err.message);
}

/* Each rank sends N messages to the next in a ring, all sends before all receives; sizes are large
 * enough to need a rendezvous. They arrive in order, and the two tags do not mix. */
static void test_order(int64_t n)
{
    enum { N = 6 };
    if (comm->n_ranks == 1)
        return;
    const int next = (comm->rank + 1) % comm->n_ranks;
    const int previous = (comm->rank + comm->n_ranks - 1) % comm->n_ranks;
    zx_request *sends[N], *recvs[N];
    zx_real *sent = malloc((size_t)(N * n + 1) * sizeof *sent);
    zx_real *received = calloc((size_t)(N * n + 1), sizeof *received);
    for (int i = 0; i < N; i++) {
        for (int64_t k = 0; k < n; k++)
            sent[i * n + k] = (zx_real)(comm->rank * 100 + i);
        CHECK(comm->ops->isend(comm, &sends[i], sent + i * n, n, next, i % 2, &err), "%s",
              err.message);
    }
    /* Receives of tag 1 are posted first, those of tag 0 behind them. */
    int order[N] = {1, 3, 5, 0, 2, 4};
    for (int i = 0; i < N; i++)
        CHECK(comm->ops->irecv(comm, &recvs[i], received + order[i] * n, n, previous, order[i] % 2,
                               &err),
              "%s", err.message);
    for (int i = 0; i < N; i++) {
        CHECK(comm->ops->wait(comm, &recvs[i], &err), "%s", err.message);
        CHECK(recvs[i] == NULL, "request %d is kept", i);
    }
    for (int i = 0; i < N; i++)
        CHECK(comm->ops->wait(comm, &sends[i], &err), "%s", err.message);
    int64_t wrong = 0;
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < n; k++)
            wrong += received[i * n + k] != (zx_real)(previous * 100 + i);
    CHECK(wrong == 0, "%" PRId64 " of %" PRId64 " elements", wrong, N * n);
    free(sent);
    free(received);
}

/* Groups of even and of odd ranks, and the first with the last rank. */
static void test_groups(void)
{
    int ranks[MAX_RANKS], n = 0, sum = 0;
    for (int rank = comm->rank % 2; rank < comm->n_ranks; rank += 2) {
        ranks[n++] = rank;
        sum += rank;
    }
    zx_group *parity = open_group(ranks, n), *ends = NULL;
    const int last = comm->n_ranks - 1;
    if (last > 0 && (comm->rank == 0 || comm->rank == last))
        ends = open_group((int[]){0, last}, 2);
    double data = comm->rank;
    CHECK(comm->ops->all_reduce(comm, parity, &data, 1, &err), "%s", err.message);
    CHECK(data == sum, "%g, expected %d", data, sum);
    if (ends) {
        /* The owner of all elements is the first; the last has none but contributes. */
        zx_real parts[2] = {(zx_real)comm->rank, 1}, out[2] = {0, 0};
        const int64_t counts[2] = {2, 0}, displacements[2] = {0, 2};
        CHECK(comm->ops->reduce_scatter(comm, ends, out, parts, counts, false, &err), "%s",
              err.message);
        if (comm->rank == 0)
            CHECK(out[0] == (zx_real)last && out[1] == 2, "%g %g", (double)out[0], (double)out[1]);
        CHECK(comm->ops->all_gather(comm, ends, out, counts, displacements, &err), "%s",
              err.message);
        CHECK(out[0] == (zx_real)last && out[1] == 2, "rank %d: %g %g", comm->rank, (double)out[0],
              (double)out[1]);
        comm->ops->group_close(comm, &ends);
    }
    comm->ops->group_close(comm, &parity);
    CHECK(parity == NULL && ends == NULL, "closed groups are kept");
}

int main(int argc, char **argv)
{
    const bool mpi = argc > 1 && strcmp(argv[1], "mpi") == 0;
    if (!(mpi ? zx_comm_mpi_open(&comm, &err) : zx_comm_self_open(&comm, &err))) {
        zs_error_print(stderr, "test_comm", &err);
        return 1;
    }
    const int expected_ranks = argc > 2 ? atoi(argv[2]) : 1;
    CHECK(comm->n_ranks == expected_ranks, "%d ranks, expected %d", comm->n_ranks, expected_ranks);
    zx_group *group = open_all();
    test_collectives(group);
    test_all_reduce(group);
    test_broadcast(group);
    test_groups();
    test_order(0);
    test_order(3);
    test_order(300000);
    if (mpi) {
        zx_comm_mpi_set_max_count(comm, 7);
        test_collectives(group);
        test_broadcast(group);
        test_order(20);
        test_order(21);
    }
    comm->ops->group_close(comm, &group);
    int status = check_done();
    double failed = status;
    if (!comm->ops->all_reduce(comm, NULL, &failed, 1, &err) || failed > 0)
        status = 1;
    comm->ops->close(&comm);
    return status;
}
