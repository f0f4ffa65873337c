/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Collects everything about one program in a separate process. That process may come to a file that libdw cannot
 * handle, or to a read of /proc that does not return: what it has found so far is reported in time.
 *
 * Test  tests/unit/programs/stacks/test_collect.c
 */
#ifndef PL_PROGRAMS_STACKS_COLLECT_H
#define PL_PROGRAMS_STACKS_COLLECT_H

#include "base/status.h"
#include "programs/stacks/stacks.h"

/** Fills in what it finds about the program `program->pid`, in shared memory. It runs in a separate process. */
typedef void pl_collect_run(struct pl_stacks_program *program, int64_t deadline_ns);

/** The usual function: first what /proc says, then the stacks. */
pl_collect_run pl_collect_describe;

/**
 * Collects with `run` about the process `pid`, until `deadline_ns`.
 *
 * Ownership  release `*ret_program` with pl_collect_free().
 * Errors     PL_MEMORY, PL_SYSTEM; what stands in the way of stacks is written to the program's `problem` instead.
 */
enum pl_status pl_collect_program(pid_t pid, pl_collect_run *run, int64_t deadline_ns,
                                  struct pl_stacks_program **ret_program, struct pl_error *reterr) PL_MUST_CHECK;

void pl_collect_free(struct pl_stacks_program *program);

#endif
