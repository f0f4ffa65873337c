/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock, and deadlines for every wait of the program. */
#include "base/clock.h"

#include "base/status.h"

#include <limits.h>
#include <time.h>

int64_t pl_clock_now_ns(void)
{
    struct timespec now;

    PL_BUG_IF(clock_gettime(CLOCK_MONOTONIC, &now) != 0);
    return (int64_t)now.tv_sec * PL_NS_PER_S + now.tv_nsec;
}

int64_t pl_deadline_after_ns(int64_t timeout_ns)
{
    int64_t deadline_ns;

    if (timeout_ns < 0 || __builtin_add_overflow(pl_clock_now_ns(), timeout_ns, &deadline_ns)) {
        return PL_DEADLINE_NEVER;
    }
    return deadline_ns;
}

bool pl_deadline_passed(int64_t deadline_ns)
{
    return deadline_ns != PL_DEADLINE_NEVER && pl_clock_now_ns() >= deadline_ns;
}

/* Returns the time left; 0 if the deadline has passed. The subtraction cannot overflow for any deadline. */
static int64_t left_ns(int64_t deadline_ns)
{
    int64_t now_ns = pl_clock_now_ns();

    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

int pl_deadline_poll_ms(int64_t deadline_ns)
{
    int64_t nanoseconds, left_ms;

    if (deadline_ns == PL_DEADLINE_NEVER) {
        return -1;
    }
    nanoseconds = left_ns(deadline_ns);
    left_ms = nanoseconds / PL_NS_PER_MS + (nanoseconds % PL_NS_PER_MS > 0);
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / PL_NS_PER_S), .tv_nsec = (long)(ns % PL_NS_PER_S)};
}

void pl_deadline_wait(int64_t deadline_ns, pthread_cond_t *cond, pthread_mutex_t *lock)
{
    const struct timespec until = timespec_of(deadline_ns);

    if (deadline_ns == PL_DEADLINE_NEVER) {
        pthread_cond_wait(cond, lock);
    } else {
        pthread_cond_clockwait(cond, lock, CLOCK_MONOTONIC, &until);
    }
}

int64_t pl_clock_backoff_ns(int64_t waited_ns, int64_t least_ns, int64_t most_ns)
{
    int64_t nap_ns = waited_ns / 64;

    nap_ns = nap_ns < most_ns ? nap_ns : most_ns;
    return nap_ns > least_ns ? nap_ns : least_ns;
}

void pl_clock_nap(int64_t nap_ns, int64_t deadline_ns)
{
    struct timespec nap;
    int64_t most_ns = deadline_ns == PL_DEADLINE_NEVER ? nap_ns : left_ns(deadline_ns);

    if (most_ns < nap_ns) {
        nap_ns = most_ns;
    }
    if (nap_ns <= 0) {
        return;
    }
    nap = timespec_of(nap_ns);
    nanosleep(&nap, NULL); /* an early wake-up only makes the caller poll again */
}
