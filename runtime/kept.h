/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory that outlives the ranks of a job which may be started again after a failure (PACELINE_MAX_RESTARTS): a memory
 * file of process 1, of which PACELINE_KEPT has the path, for rank 0 alone. A program keeps a copy of its state in it,
 * and the next attempt reads the newest whole one. The file is empty until it is used, and then has two places, which
 * are written in turn. Each ends with a mark, which is written last: if a rank is killed at any instruction, the copy
 * before is whole.
 *
 * One handle of a job may be open at a time, and one thread may use it at a time. Not for other ranks: what is kept is
 * what all ranks have, or rank 0 gives it to them.
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
 * Opens the job's kept memory. `*ret_kept` is NULL where there is none: the job is not started again after a failure,
 * or this is not rank 0. Errors: PL_INVALID: it is open already, here or in another process; PL_SYSTEM: this process
 * may not open it, for example as another user; PL_MEMORY.
 */
enum pl_status pl_kept_open(struct pl_kept **ret_kept, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads the newest whole copy: `*ret_data` of `*ret_bytes` bytes, which stay until the next copy is begun. It is NULL
 * if there is none. Cost: a checksum of its bytes.
 */
void pl_kept_read(struct pl_kept *kept, uint64_t *ret_step, const void **ret_data, size_t *ret_bytes);

/**
 * Keeps a copy of `data` (`bytes` above 0) of step `step`. Errors: PL_LIMIT: two copies of this size have no room below
 * the container's memory limit or in the machine's memory; PL_SYSTEM. What was kept before stays then.
 */
enum pl_status pl_kept_write(struct pl_kept *kept, uint64_t step, const void *data, size_t bytes,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The same in two halves, without a copy: `*ret_place` is page-aligned memory for `bytes` bytes, which the caller
 * fills. It replaces the older of the two copies. pl_kept_end() computes the checksum and sets the mark; if it is not
 * called, only the other copy is there. Any thread may call it.
 */
enum pl_status pl_kept_begin(struct pl_kept *kept, size_t bytes, void **ret_place,
                             struct pl_error *reterr) PL_MUST_CHECK;
void pl_kept_end(struct pl_kept *kept, uint64_t step);

/** What was kept stays. NULL is fine. */
void pl_kept_close(struct pl_kept *kept);

#endif
