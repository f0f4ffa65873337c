/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the library's own threads, and ends a process from any thread. */
#include "base/thread.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum pl_status pl_thread_start(pthread_t *ret_thread, void *(*function)(void *), void *argument, const char *what,
                               struct pl_error *reterr)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it */
    code = pthread_create(ret_thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == 0 ? PL_OK : pl_error_raise(reterr, PL_SYSTEM, PL_DOMAIN_ERRNO, code, "start %s", what);
}

void pl_thread_end_process(int number)
{
    const struct rlimit no_core = {0, 0};
    sigset_t only;

    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
    signal(number, SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, number);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
    pthread_kill(pthread_self(), number);
}
