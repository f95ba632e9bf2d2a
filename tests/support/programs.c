#define _GNU_SOURCE
#include "tests/support/programs.h"

#include "tests/support/check.h"
#include "tests/support/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void redirect(const char *path, int to, int flags)
{
    int fd = open(path, flags, 0666);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(126);
    close(fd);
}

static void run_child(const char *const *argv, const char *const *settings, const char *out,
                      const char *err)
{
    redirect("/dev/null", STDIN_FILENO, O_RDONLY);
    redirect(out, STDOUT_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
    redirect(err, STDERR_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
    for (int i = 0; settings && settings[i]; i++)
        putenv((char *)settings[i]);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

double check_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void check_sleep_ms(double ms)
{
    const struct timespec t = {.tv_sec = (time_t)(ms / 1000),
                               .tv_nsec = (long)((ms - 1000 * floor(ms / 1000)) * 1e6)};
    nanosleep(&t, NULL);
}

check_process check_program_start(const char *const *argv, const char *const *settings)
{
    static int n_started;
    char name[32];
    check_process p = {.start_s = check_now_s()};
    snprintf(name, sizeof name, "stdout%d", n_started);
    p.out = check_path(name);
    snprintf(name, sizeof name, "stderr%d", n_started++);
    p.err = check_path(name);
    fflush(NULL);
    p.pid = fork();
    if (p.pid == 0)
        run_child(argv, settings, p.out, p.err);
    if (p.pid < 0) {
        fprintf(stderr, "%s could not be started\n", argv[0]);
        exit(1);
    }
    return p;
}

static check_output collect(const check_process *p, int status)
{
    check_output result = {.status =
                               WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                           .wall_s = check_now_s() - p->start_s};
    result.out = check_read_file(p->out, NULL);
    result.err = check_read_file(p->err, NULL);
    return result;
}

check_output check_program(const char *const *argv, const char *const *settings)
{
    check_process p = check_program_start(argv, settings);
    int status = 0;
    if (waitpid(p.pid, &status, 0) != p.pid) {
        fprintf(stderr, "%s could not be waited for\n", argv[0]);
        exit(1);
    }
    const check_output result = collect(&p, status);
    unlink(p.out);
    unlink(p.err);
    return result;
}

check_output check_program_wait(check_process *p, double limit_s)
{
    int status = 0;
    const double end_s = check_now_s() + limit_s;
    while (waitpid(p->pid, &status, WNOHANG) == 0) {
        if (check_now_s() > end_s) {
            CHECK(false, "process %d still runs after %g s", p->pid, limit_s);
            check_kill_all(p);
            waitpid(p->pid, &status, 0);
            break;
        }
        check_sleep_ms(2);
    }
    return collect(p, status);
}

/* Parent of a process; 0 when it is gone. */
static int parent_of(int pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    char *text = check_read_file(path, NULL);
    const char *end = text ? strrchr(text, ')') : NULL;
    int parent = 0;
    if (!end || sscanf(end + 1, " %*c %d", &parent) != 1)
        parent = 0;
    free(text);
    return parent;
}

static bool is_descendant(int pid, int ancestor)
{
    for (int depth = 0; pid > 1 && depth < 16; depth++) {
        pid = parent_of(pid);
        if (pid == ancestor)
            return true;
    }
    return false;
}

/* Processes that p has started and they have, in no order. */
static int list_descendants(int *pids, int max, int ancestor)
{
    int n = 0;
    DIR *dir = opendir("/proc");
    for (struct dirent *e = dir ? readdir(dir) : NULL; e && n < max; e = readdir(dir)) {
        const int pid = atoi(e->d_name);
        if (pid > 1 && is_descendant(pid, ancestor))
            pids[n++] = pid;
    }
    if (dir)
        closedir(dir);
    return n;
}

int check_rank_pid(const check_process *p, int rank)
{
    int pids[64], found = 0;
    char setting[64], path[64];
    snprintf(setting, sizeof setting, "OMPI_COMM_WORLD_RANK=%d", rank);
    const int n = list_descendants(pids, 64, p->pid);
    for (int i = 0; i < n && !found; i++) {
        size_t size = 0;
        snprintf(path, sizeof path, "/proc/%d/environ", pids[i]);
        char *text = check_read_file(path, &size);
        for (size_t at = 0; text && at < size; at += strlen(text + at) + 1)
            if (strcmp(text + at, setting) == 0)
                found = pids[i];
        free(text);
    }
    return found;
}

int check_hold(int pid)
{
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

bool check_signal(int handle, int number)
{
    return syscall(SYS_pidfd_send_signal, handle, number, NULL, 0) == 0;
}

void check_kill_all(const check_process *p)
{
    int pids[64];
    const int n = list_descendants(pids, 64, p->pid);
    kill(p->pid, SIGKILL);
    for (int i = 0; i < n; i++)
        kill(pids[i], SIGKILL);
}

bool check_wait_for_text(const char *path, const char *text, double limit_s)
{
    const double end_s = check_now_s() + limit_s;
    do {
        char *all = check_read_file(path, NULL);
        const bool found = all && strstr(all, text);
        free(all);
        if (found)
            return true;
        check_sleep_ms(1);
    } while (check_now_s() < end_s);
    return false;
}

void check_output_free(check_output *output)
{
    free(output->out);
    free(output->err);
    *output = (check_output){0};
}
