/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Threads, locks and time of a simulation: all threads of all ranks take turns in one thread of the process, at places
 * that a seed draws, and the clock goes on only when they do. Nothing sleeps, and a seed always gives the same run.
 *
 * Link with the wraps that tests/unit/runtime/meson.build lists: of pthread_create(3) and its family, of the clock and
 * of calloc(3) and realloc(3). Outside virtual_run() they do what they always do.
 */
#ifndef PL_TESTS_FAKES_VIRTUAL_THREADS_H
#define PL_TESTS_FAKES_VIRTUAL_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VIRTUAL_TEXT_BYTES = 400 };

/** Forgets all threads, and draws from `seed` from now on. */
void virtual_begin(uint64_t seed);

/** Adds a thread of rank `rank`, which begins in virtual_run(). Another thread may add it, too. */
void virtual_spawn(int rank, void (*function)(void *argument), void *argument);

/** Runs all threads to their ends. Returns false if one fails, or if none can go on; see virtual_failure(). */
bool virtual_run(void);

/** What the simulation has found; "" if nothing. */
const char *virtual_failure(void);

/** The calling thread has found a fault. Only the first one is kept. It ends the simulation, and does not return. */
_Noreturn void virtual_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** The rank of the calling thread. */
int virtual_rank(void);

/** A number below `below`, drawn for the order of things: the same seed gives the same one. */
uint64_t virtual_draw(uint64_t below);

/** Another thread may go on, now and then. With `true` in `always` one does if any can. */
void virtual_yield(bool always);

/** No other thread goes on until this is called with false, unless the caller has to wait. */
void virtual_hold(bool held);

/** Waits until virtual_wake() is called for `address`, or until `until_ns` (PL_DEADLINE_NEVER: without an end). */
void virtual_wait(const void *address, int64_t until_ns);
void virtual_wake(const void *address);

/** Waits for a time below `below_ns`. */
void virtual_dawdle(int64_t below_ns);

/** Refuses memory once to this rank's threads: the request after `after` others. Negative: no more. */
void virtual_refuse_memory(int after);

/** Whether memory was refused. */
bool virtual_has_refused(void);

/** Memory of the simulation itself, which is never refused. */
void *virtual_new(size_t count, size_t bytes);

#endif
