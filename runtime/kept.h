/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory that outlives the ranks of a job, if the job may be started again after a failure (PACELINE_MAX_RESTARTS). It
 * is a memory file of process 1 (its path is in PACELINE_KEPT) that only rank 0 uses. A program stores a copy of its
 * state there, and the next attempt reads the newest complete copy. The file has two places, written in turn; it is
 * empty until the first copy. The mark of a copy is written last: if a rank is killed at any instruction, the previous
 * copy is complete.
 *
 * One handle of a job may be open at a time, and one thread may use it at a time. Other ranks need none: they have the
 * same state, or rank 0 sends it to them.
 *
 * Test  tests/unit/runtime/test_kept.c
 */
#ifndef PL_RUNTIME_KEPT_H
#define PL_RUNTIME_KEPT_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_kept;

/**
 * Opens the job's kept memory. `*ret_kept` is NULL if there is none, because the job is not started again after a
 * failure or this is not rank 0. Errors: PL_INVALID: it is open already, here or in another process; PL_SYSTEM: this
 * process may not open it, for example as another user; PL_MEMORY.
 */
enum pl_status pl_kept_open(struct pl_kept **ret_kept, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the newest complete copy: `*ret_data` has `*ret_bytes` bytes, valid until the next copy is begun; NULL: none
 * exists. Cost: a checksum over the copy.
 */
void pl_kept_read(struct pl_kept *kept, uint64_t *ret_step, const void **ret_data, size_t *ret_bytes);

/**
 * Stores a copy of `data` (at least 1 byte) with the step `step`. Errors: PL_LIMIT: two copies of this size have no
 * room below the container's memory limit or in the machine's memory; PL_SYSTEM. On an error the earlier copies stay.
 */
enum pl_status pl_kept_write(struct pl_kept *kept, uint64_t step, const void *data, size_t bytes,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * pl_kept_write() in two calls, for data that the caller writes in place: `*ret_place` is page-aligned memory for
 * `bytes` bytes, in the place of the older copy. pl_kept_end() computes the checksum and sets the mark; until then only
 * the other copy is valid. Any thread may call it.
 */
enum pl_status pl_kept_begin(struct pl_kept *kept, size_t bytes, void **ret_place,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_kept_end(struct pl_kept *kept, uint64_t step);

/** Notes that the program has finished step `step`: the line about a restart says how many steps are repeated. */
void pl_kept_note(struct pl_kept *kept, uint64_t step);

/** Closes the kept memory. The copies stay. NULL is fine. */
void pl_kept_close(struct pl_kept *kept);

#endif
