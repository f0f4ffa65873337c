/* SPDX-License-Identifier: Apache-2.0 */
/* Covers base/thread.c. */
#include "base/thread.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <signal.h>

static bool none_is_made;

/* Replaces pthread_create(3), whose calls the linker redirects: it fails on demand. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                          void *argument)
{
    return none_is_made ? EAGAIN : __real_pthread_create(thread, attributes, function, argument);
}

static void *look_at_mask(void *argument)
{
    pthread_sigmask(SIG_SETMASK, NULL, argument);
    return argument;
}

/* Check that the calling thread's mask is only SIGUSR1, as the tests set it. */
static void check_own_mask(void)
{
    sigset_t mask;

    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int signal = 1; signal <= SIGSYS; signal++) {
        ck_assert_int_eq(sigismember(&mask, signal), signal == SIGUSR1);
    }
}

static void set_own_mask(void)
{
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

TEST(a_thread_has_every_signal_blocked_and_its_starter_none_more)
{
    pthread_t thread;
    sigset_t mask;
    void *returned;

    set_own_mask();
    sigemptyset(&mask);
    ck_ok(pl_thread_start, &thread, look_at_mask, &mask, "a test's thread");
    ck_assert_int_eq(pthread_join(thread, &returned), 0);
    ck_assert_ptr_eq(returned, &mask);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        bool reserved = signal > SIGSYS && signal < SIGRTMIN; /* signals that the C library uses itself */

        if (signal != SIGKILL && signal != SIGSTOP && !reserved) {
            ck_assert_msg(sigismember(&mask, signal) == 1, "signal %d is not blocked", signal);
        }
    }
    check_own_mask();
}

TEST(a_thread_that_cannot_be_made_is_named)
{
    struct pl_error error = PL_ERROR_NONE;
    pthread_t thread;

    set_own_mask();
    none_is_made = true;
    ck_assert_int_eq(pl_thread_start(&thread, look_at_mask, NULL, "a test's thread", &error), PL_SYSTEM);
    ck_assert_int_eq(error.code, EAGAIN);
    ck_assert_str_eq(error.cause, "cannot start a test's thread: Resource temporarily unavailable");
    check_own_mask();
}

UNIT_MAIN("base/thread")
