/* Starting the ranks of a run, and what they agree on before they begin. Under mpirun, or srun with
 * PMI, zexec takes its place in the job; started alone with a plan of several ranks it starts
 * `mpirun -n N zexec ...` and waits for it. */
#ifndef EXECUTOR_LAUNCH_H
#define EXECUTOR_LAUNCH_H

#include "executor/comm.h"

enum { ZX_LAUNCH_ALONE = 0, ZX_LAUNCH_SIZE_UNKNOWN = -1 };

/* OpenMP threads that spin while they wait take the cores of other ranks and programs; measured
 * with 2 threads on 2 shared cores, 2026-11: 780 ms a step against 13 ms. OpenMP reads its policy
 * before main, so this starts the program again with OMP_WAIT_POLICY=passive unless the user has
 * set that or GOMP_SPINCOUNT. Returns when nothing is to be done. */
void zx_launch_with_passive_threads(char **argv);

/* Ranks of the MPI job that this process was started in, from the launcher's environment. */
int zx_launch_job_size(void);

/* Starts mpirun with n_ranks ranks of the same command line and exits with its status; returns only
 * when that fails, a signal ended a rank, or this process got SIGINT, which ends them. SIGTERM and
 * SIGUSR1 reach the ranks as SIGUSR1 (executor/stop.h). The ranks end when this process does. Root,
 * more ranks than cores and unpinned ranks are allowed through environment variables of Open MPI 4
 * and 5 (MPICH's hydra allows them by itself) unless the user has set them. The ranks do not read
 * stdin. */
ZS_MUST_CHECK bool zx_launch_ranks(int n_ranks, char **argv, zs_error *err);

/* Cores that this process may run on. */
int zx_launch_cores(void);

/* Collective. Threads of this rank: requested, or with 0 its share of the cores that it and other
 * ranks may use, at least 1. Warns when requested exceeds the cores allowed. */
ZS_MUST_CHECK bool zx_launch_threads(int *n_threads, zx_comm *comm, int requested, zs_error *err);

/* Collective. True when ok on all ranks. Else the first rank that failed prints its message, once
 * for all, and all ranks return false with its code and an empty message: they know of each other
 * and may end in order. */
ZS_MUST_CHECK bool zx_launch_all_ok(zx_comm *comm, bool ok, zs_error *err);

/* A setting that must be equal on all ranks, as text. */
typedef struct zx_setting {
    const char *name;
    char value[192];
} zx_setting;

/* Collective. Fails on all ranks when one differs from rank 0's, naming setting and both values. */
ZS_MUST_CHECK bool zx_launch_compare(zx_comm *comm, const zx_setting *settings, int n,
                                     zs_error *err);

/* Collective. values[n_ranks]: each rank's value, on all ranks. */
ZS_MUST_CHECK bool zx_launch_collect(double *values, zx_comm *comm, double value, zs_error *err);

#endif
