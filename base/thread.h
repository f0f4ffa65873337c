/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Threads of the library's own, which leave all signals to the program's threads: a handler of the program runs where
 * the program expects it.
 *
 * Test  tests/unit/base/test_thread.c
 */
#ifndef PL_BASE_THREAD_H
#define PL_BASE_THREAD_H

#include "base/status.h"

#include <pthread.h>

/**
 * Start a thread with all signals blocked that runs `function(argument)`; the caller's own mask stays as it is. `what`
 * names the thread in the report: PL_SYSTEM, "start <what>: <reason>".
 */
enum pl_status pl_thread_start(pthread_t *ret_thread, void *(*function)(void *), void *argument, const char *what,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** End this process as the signal `number` ends one, but without a core file. Returns where the signal ends nothing. */
void pl_thread_end_process(int number);

#endif
