/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the library's own threads. */
#include "base/thread.h"

#include <signal.h>

enum pl_status pl_thread_start(pthread_t *ret_thread, void *(*function)(void *), void *argument, const char *what,
                               struct pl_error *reterr)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits this mask */
    code = pthread_create(ret_thread, NULL, function, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code == 0 ? PL_OK : pl_error_raise(reterr, PL_SYSTEM, PL_DOMAIN_ERRNO, code, "cannot start %s", what);
}
