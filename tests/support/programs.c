#include "tests/support/programs.h"

#include "tests/support/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

check_output check_program(const char *const *argv, const char *const *settings)
{
    const char *out = check_path("stdout"), *err = check_path("stderr");
    const double start_s = now_s();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        run_child(argv, settings, out, err);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        fprintf(stderr, "%s could not be started\n", argv[0]);
        exit(1);
    }
    check_output result = {.status =
                               WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                           .wall_s = now_s() - start_s};
    result.out = check_read_file(out, NULL);
    result.err = check_read_file(err, NULL);
    return result;
}

void check_output_free(check_output *output)
{
    free(output->out);
    free(output->err);
    *output = (check_output){0};
}
