/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Signs of progress that the kernel does not count: finished collectives and records read. If the job watches for hangs
 * (`PACELINE_HANG_S`), all processes of a host map a small file with the counters, and process 1 reads it. Otherwise
 * only this process uses its counter. Counting is one load and one store. If two threads count at the same time, only
 * one may count: only a change of the number matters.
 *
 * Test  tests/unit/base/test_activity.c
 */
#ifndef PL_BASE_ACTIVITY_H
#define PL_BASE_ACTIVITY_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

/** Environment variable with the file's path. */
#define PL_ACTIVITY_VARIABLE "PACELINE_ACTIVITY"

enum {
    PL_ACTIVITY_SLOTS = 1024,    /* a process uses the slot of its process number modulo this */
    PL_ACTIVITY_SLOT_BYTES = 64, /* a cache line */
};

/** The mapped file, for the reader or a writer. */
struct pl_activity {
    _Atomic uint64_t *counters; /* one counter per slot; NULL if there is no file */
};

/** Points to this process's counter; never NULL. */
extern _Atomic uint64_t *pl_activity_counter;

/** Counts one collective or record. Any thread may call it. */
static inline void pl_activity_note(void)
{
    _Atomic uint64_t *counter = pl_activity_counter;

    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/** From now on counts in the file whose path the environment has, if any. Only the first call has an effect. */
void pl_activity_start(void);

/** Creates the file `path` with all counters 0. The caller reads it by pl_activity_sum(). Errors: PL_SYSTEM. */
enum pl_status pl_activity_new(const char *path, struct pl_activity *ret_activity,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Maps a file of pl_activity_new() in another process, and counts in it from now on. Errors: PL_SYSTEM, PL_CORRUPT. */
enum pl_status pl_activity_use(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the sum of all counters; 0 if there is no file. */
uint64_t pl_activity_sum(const struct pl_activity *activity);

void pl_activity_done(struct pl_activity *activity);

#endif
