/* SPDX-License-Identifier: Apache-2.0 */
/** Time and deadlines. Every wait takes an absolute deadline in nanoseconds on CLOCK_MONOTONIC. */
#ifndef PL_BASE_CLOCK_H
#define PL_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define PL_NS_PER_US INT64_C(1000)
#define PL_NS_PER_MS INT64_C(1000000)
#define PL_NS_PER_S INT64_C(1000000000)

/** A deadline that never passes. */
#define PL_DEADLINE_NEVER INT64_MAX

/** Returns the time now, in nanoseconds on CLOCK_MONOTONIC, which does not change when the wall clock is set. */
int64_t pl_clock_now_ns(void);

/** Returns the time now plus `timeout_ns`, at most PL_DEADLINE_NEVER. A negative timeout means never. */
int64_t pl_deadline_after_ns(int64_t timeout_ns);

/** True when `deadline_ns` lies in the past. */
bool pl_deadline_passed(int64_t deadline_ns);

/** Returns the time left, as poll(2) needs it: milliseconds rounded up, 0 if the deadline has passed, -1 for never. */
int pl_deadline_poll_ms(int64_t deadline_ns);

/** Waits for `cond`, under `lock`, until `deadline_ns` at most. It may return early, as pthread_cond_wait(3) may. */
void pl_deadline_wait(int64_t deadline_ns, pthread_cond_t *cond, pthread_mutex_t *lock);

/**
 * Returns how long to sleep between two polls of something that sends no event: 1/64 of `waited_ns`, the time waited so
 * far, but at least `least_ns` and at most `most_ns`.
 */
int64_t pl_clock_backoff_ns(int64_t waited_ns, int64_t least_ns, int64_t most_ns);

/** Sleeps until `deadline_ns` or for `nap_ns`, whichever is earlier. For polling something that sends no event. */
void pl_clock_nap(int64_t nap_ns, int64_t deadline_ns);

#endif
