/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Threads of the library. They block all signals, so that the program's handlers run in the program's own threads.
 *
 * Test  tests/unit/base/test_thread.c
 */
#ifndef PL_BASE_THREAD_H
#define PL_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>

/**
 * Starts a thread that runs `function(argument)` with all signals blocked; the caller's mask does not change. `what`
 * names the thread in the error: PL_SYSTEM, "cannot start <what>: <reason>".
 */
enum pl_status pl_thread_start(pthread_t *ret_thread, void *(*function)(void *), void *argument, const char *what,
                               struct pl_error *reterr) PL_MUST_CHECK;

#endif
