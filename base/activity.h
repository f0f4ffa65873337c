/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Signs of life of a rank that the kernel does not count: finished collectives and records read. If the job watches for
 * hangs (`PACELINE_HANG_S`), all processes of a host map a small file that holds the counters, and process 1 reads it.
 * Otherwise the counter belongs to this process alone. Counting is one load and one store. Two threads that count at
 * the same time may count once: only the change of the number matters.
 *
 * Test  tests/unit/base/test_activity.c
 */
#ifndef PL_BASE_ACTIVITY_H
#define PL_BASE_ACTIVITY_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

/** Environment variable that holds the file's path. */
#define PL_ACTIVITY_VARIABLE "PACELINE_ACTIVITY"

enum {
    PL_ACTIVITY_SLOTS = 1024,    /* a process counts in the slot that its process number selects */
    PL_ACTIVITY_SLOT_BYTES = 64, /* a cache line */
};

/** The mapped file, for a reader or a writer. */
struct pl_activity {
    _Atomic uint64_t *counters; /* one counter per slot; NULL without a file */
};

/** This process's counter. It is never NULL. */
extern _Atomic uint64_t *pl_activity_counter;

/** Counts one collective or record. Any thread may call it. */
static inline void pl_activity_note(void)
{
    _Atomic uint64_t *counter = pl_activity_counter;

    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/** Counts from now on in the file that the environment names, if it names one. Only the first call has an effect. */
void pl_activity_start(void);

/** Creates the file `path`, whose counters are 0. pl_activity_sum() reads it. Errors: PL_SYSTEM. */
enum pl_status pl_activity_new(const char *path, struct pl_activity *ret_activity,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Maps the file that another process has made, and counts in it from now on. Errors: PL_SYSTEM, PL_CORRUPT. */
enum pl_status pl_activity_use(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the sum of all counters; 0 without a file. */
uint64_t pl_activity_sum(const struct pl_activity *activity);

void pl_activity_done(struct pl_activity *activity);

#endif
