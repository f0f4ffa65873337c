/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Signs of life of a rank that the kernel does not count: collectives that have ended and records that were read. Where
 * the job watches for hangs (`PACELINE_HANG_S`), process 1 sees them in a small file that all processes of a host map;
 * elsewhere the counter is this process's own. Counting is one load and one store, and two threads that count at the
 * same time may count once: it matters only that the number changes.
 *
 * Test  tests/unit/base/test_activity.c
 */
#ifndef PL_BASE_ACTIVITY_H
#define PL_BASE_ACTIVITY_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdint.h>

/** Names the file. */
#define PL_ACTIVITY_VARIABLE "PACELINE_ACTIVITY"

enum {
    PL_ACTIVITY_SLOTS = 1024,    /* a process counts in one of them, by its number */
    PL_ACTIVITY_SLOT_BYTES = 64, /* a cache line */
};

/** A reader's and a writer's view of the file. */
struct pl_activity {
    _Atomic uint64_t *counters; /* one a slot; NULL without a file */
};

/** This process's counter: never NULL. */
extern _Atomic uint64_t *pl_activity_counter;

/** Count one collective or record. Any thread. */
static inline void pl_activity_note(void)
{
    _Atomic uint64_t *counter = pl_activity_counter;

    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

/** Count in the file that the environment names, if any, from here on; the first call does it, later ones nothing. */
void pl_activity_start(void);

/** Make the file, for pl_activity_sum(). Errors: PL_SYSTEM. */
enum pl_status pl_activity_new(const char *path, struct pl_activity *ret_activity,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Map the file that another process has made, and count in it from here on. Errors: PL_SYSTEM, PL_CORRUPT. */
enum pl_status pl_activity_use(const char *path, struct pl_error *reterr) PL_MUST_CHECK;

/** All that was counted so far; 0 without a file. */
uint64_t pl_activity_sum(const struct pl_activity *activity);

void pl_activity_done(struct pl_activity *activity);

#endif
