#define _GNU_SOURCE
#include "executor/launch.h"

#include "config.h"
#include "executor/stop.h"
#include "shared/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The largest integer type that a double holds exactly, for hashes that are all-reduced. */
static const uint64_t exact_bits = (UINT64_C(1) << 52) - 1;

int zx_launch_job_size(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *text = getenv(sizes[i]);
        const long size = text ? strtol(text, NULL, 10) : 0;
        if (size > 0 && size <= INT32_MAX)
            return (int)size;
    }
    return getenv("PMIX_RANK") || getenv("PMI_RANK") ? ZX_LAUNCH_SIZE_UNKNOWN : ZX_LAUNCH_ALONE;
}

void zx_launch_with_passive_threads(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("OMP_WAIT_POLICY", "passive", 0) == 0)
        execv("/proc/self/exe", argv);
}

static void set_environment(void)
{
    /* clang-format off */
    static const char *const settings[][2] = {
        /* All ranks are on this machine: memory, no sockets, whatever its interfaces. */
        {"OMPI_MCA_btl",                             "^tcp"},
        /* Open MPI 4 */
        {"OMPI_ALLOW_RUN_AS_ROOT",                   "1"},
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",           "1"},
        {"OMPI_MCA_rmaps_base_oversubscribe",        "1"},
        {"OMPI_MCA_hwloc_base_binding_policy",       "none"},
        {"OMPI_MCA_orte_execute_quiet",              "1"},
        /* Containers often forbid one process to read another's memory. */
        {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
        /* Open MPI 5 */
        {"PRTE_ALLOW_RUN_AS_ROOT",                   "1"},
        {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",           "1"},
        {"PRTE_MCA_rmaps_default_mapping_policy",    ":oversubscribe"},
        {"PRTE_MCA_hwloc_default_binding_policy",    "none"},
        {"OMPI_MCA_smsc",                            "^cma,xpmem"},
        /* Intel MPI */
        {"I_MPI_PIN",                                "off"},
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        setenv(settings[i][0], settings[i][1], 0);
}

/* Of mpirun; 0 before it runs. */
static volatile sig_atomic_t launcher_pid;
static volatile sig_atomic_t stop_signal; /* that ends the ranks */
static volatile sig_atomic_t asked;       /* the ranks were asked to stop in order */

/* SIGTERM and SIGUSR1 ask the ranks to stop in order: mpirun passes SIGUSR1 on to them and would
 * kill them at SIGTERM. It is asked again each second, since it loses what comes before it has
 * started them. */
static void pass_on(int number)
{
    const bool ask = number != SIGINT;
    if (ask)
        asked = 1;
    else
        stop_signal = number;
    if (launcher_pid > 0)
        kill((pid_t)launcher_pid, ask ? SIGUSR1 : number);
    if (ask)
        alarm(1);
}

static void run_launcher(char **command)
{
    static char mpirun[] = "mpirun", mpiexec[] = "mpiexec";
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    /* What is sent to all processes of this group, as by a terminal, comes through pass_on. */
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
    command[0] = mpirun;
    execvp(mpirun, command);
    command[0] = mpiexec;
    execvp(mpiexec, command);
    _exit(127);
}

/* Waits for mpirun and exits with its status when the ranks ended by themselves. */
static bool wait_for_ranks(pid_t launcher, int n_ranks, zs_error *err)
{
    int status = 0;
    while (waitpid(launcher, &status, 0) < 0)
        if (errno != EINTR)
            return ZS_FAIL(err, ZS_ERR_RUNTIME, "mpirun: %s", strerror(errno));
    if (stop_signal)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "stopped by signal %d (%s), all %d ranks ended",
                       (int)stop_signal, strsignal((int)stop_signal), n_ranks);
    /* The signal ended mpirun, or a rank, before it could listen: no step was run. */
    if (asked && (WIFSIGNALED(status) ? WTERMSIG(status) == SIGUSR1
                                      : WEXITSTATUS(status) == 128 + SIGUSR1)) {
        printf("stopped by a signal before the first step: nothing was saved\n");
        exit(ZX_STOP_STATUS);
    }
    if (WIFSIGNALED(status))
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "mpirun was ended by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    const int code = WEXITSTATUS(status);
    if (code == 127)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "the plan has %d ranks, but neither mpirun nor mpiexec can be run", n_ranks);
    if (code > 128)
        return ZS_FAIL(err, ZS_ERR_RUNTIME,
                       "a rank was ended by signal %d (%s), all %d ranks ended%s", code - 128,
                       strsignal(code - 128), n_ranks,
                       code - 128 == SIGKILL ? "; was there enough memory?" : "");
    exit(code);
}

bool zx_launch_ranks(int n_ranks, char **argv, zs_error *err)
{
    if (!HAVE_MPI)
        return ZS_FAIL(
            err, ZS_ERR_INPUT,
            "the plan has %d ranks, but this build has no MPI and runs plans of one rank "
            "only; build with -Dmpi=enabled",
            n_ranks);
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "own program file: %s", strerror(errno));
    self[length] = 0;
    int argc = 0;
    while (argv[argc])
        argc++;
    char count[16];
    snprintf(count, sizeof count, "%d", n_ranks);
    char **command = calloc((size_t)argc + 4, sizeof *command);
    if (!command)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory to start %d ranks", n_ranks);
    command[1] = (char[]){"-n"};
    command[2] = count;
    command[3] = self;
    for (int i = 1; i < argc; i++)
        command[3 + i] = argv[i];
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        close(null);
    }
    set_environment();
    const struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    static const int passed_on[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM};
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++)
        sigaction(passed_on[i], &action, NULL);
    fflush(NULL);
    const pid_t launcher = fork();
    if (launcher == 0)
        run_launcher(command);
    free(command);
    if (launcher < 0)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "mpirun cannot be started: %s", strerror(errno));
    launcher_pid = launcher;
    if (stop_signal)
        kill(launcher, (int)stop_signal);
    else if (asked || zx_stop_wanted())
        pass_on(SIGUSR1);
    return wait_for_ranks(launcher, n_ranks, err);
}

int zx_launch_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    /* FNV-1a */
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Equal for processes on one machine that may use the same cores. */
static uint64_t place_hash(void)
{
    char host[256] = "";
    cpu_set_t set;
    CPU_ZERO(&set);
    gethostname(host, sizeof host - 1);
    (void)sched_getaffinity(0, sizeof set, &set);
    uint64_t hash = hash_bytes(UINT64_C(0xcbf29ce484222325), host, sizeof host);
    return hash_bytes(hash, &set, sizeof set) & exact_bits;
}

bool zx_launch_collect(double *values, zx_comm *comm, double value, zs_error *err)
{
    for (int rank = 0; rank < comm->n_ranks; rank++)
        values[rank] = rank == comm->rank ? value : 0;
    return comm->ops->all_reduce(comm, NULL, values, comm->n_ranks, err);
}

bool zx_launch_threads(int *n_threads, zx_comm *comm, int requested, zs_error *err)
{
    const int n_cores = zx_launch_cores();
    const double place = (double)place_hash();
    double *places = malloc((size_t)comm->n_ranks * sizeof *places);
    if (!places)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory");
    int n_sharing = 0;
    const bool ok = zx_launch_collect(places, comm, place, err);
    for (int rank = 0; ok && rank < comm->n_ranks; rank++)
        n_sharing += places[rank] == place;
    free(places);
    if (!ok)
        return false;
    const int share = n_cores / n_sharing;
    *n_threads = requested > 0 ? requested : share > 1 ? share : 1;
    if (requested > n_cores)
        zs_log_warn("%d threads on %d allowed cores will wait for each other; use --threads %d or "
                    "less, or start the ranks without binding (mpirun --bind-to none)",
                    requested, n_cores, n_cores);
    return true;
}

/* Which rank failed first and how; rank -1 when none did. */
static bool find_failure(int *rank, zs_code *code, zx_comm *comm, zs_code own, zs_error *err)
{
    double *codes = malloc((size_t)comm->n_ranks * sizeof *codes);
    if (!codes)
        return ZS_FAIL(err, ZS_ERR_RUNTIME, "out of memory");
    const bool ok = zx_launch_collect(codes, comm, own, err);
    *rank = -1;
    for (int i = comm->n_ranks - 1; ok && i >= 0; i--)
        if ((int)codes[i] != ZS_OK) {
            *rank = i;
            *code = (zs_code)(int)codes[i];
        }
    free(codes);
    return ok;
}

bool zx_launch_all_ok(zx_comm *comm, bool ok, zs_error *err)
{
    int first = -1;
    zs_code code = ZS_OK;
    zs_error lost = {0};
    if (!find_failure(&first, &code, comm, ok ? ZS_OK : err->code, &lost)) {
        if (ok)
            *err = lost;
        return false;
    }
    if (first < 0)
        return true;
    if (first == comm->rank)
        zs_error_print(stderr, "zexec", err);
    /* Nobody leaves before the message is out: some launchers end all when one does. */
    fflush(stderr);
    const bool told = comm->ops->barrier(comm, err);
    *err = (zs_error){.code = told ? code : ZS_ERR_RUNTIME};
    return false;
}

bool zx_launch_compare(zx_comm *comm, const zx_setting *settings, int n, zs_error *err)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        zx_setting of_first = settings[i];
        if (!comm->ops->broadcast(comm, NULL, of_first.value, sizeof of_first.value, err))
            return false;
        if (ok && strcmp(of_first.value, settings[i].value) != 0)
            ok = ZS_FAIL(err, ZS_ERR_INPUT, "rank %d has %s %s, rank 0 has %s", comm->rank,
                         settings[i].name, settings[i].value, of_first.value);
    }
    return zx_launch_all_ok(comm, ok, err);
}
