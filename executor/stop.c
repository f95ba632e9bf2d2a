#include "executor/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t wanted;

static void take_note(int number)
{
    (void)number;
    wanted = 1;
}

static sigset_t signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    return set;
}

void zx_stop_hold(void)
{
    const sigset_t set = signals();
    sigprocmask(SIG_BLOCK, &set, NULL);
}

void zx_stop_open(void)
{
    const sigset_t set = signals();
    const struct sigaction action = {.sa_handler = take_note, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

bool zx_stop_wanted(void)
{
    return wanted != 0;
}
