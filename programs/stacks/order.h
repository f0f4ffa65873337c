/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Orders programs: the one that differs from the others comes first.
 *
 * A program's key is a line with its kind of state, then a line for each function of its main thread from the outermost
 * inwards (Python's own functions first, if they are known), then its state and wait. Each program has a row of
 * numbers: how many programs have the same first line, then how many have the same first two lines, and so on. Rows are
 * compared number by number, and the least row comes first: it belongs to the program that diverges first, with the
 * fewest others. It is not enough to compare the innermost functions: ranks that poll in one and the same allreduce are
 * seen in different functions.
 *
 *     rank 0   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 1   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 2   running  main  step  stuck_here             4 4 4 1 1     <- first
 *     rank 3   running  main  step  MPI_Allreduce  yield   4 4 4 3 1 1
 *
 * A stopped program comes before all others. Programs with equal rows are ordered by rank, host and process.
 *
 * Test  tests/unit/programs/stacks/test_order.c
 */
#ifndef PL_PROGRAMS_STACKS_ORDER_H
#define PL_PROGRAMS_STACKS_ORDER_H

#include "base/status.h"
#include "base/text.h"
#include "programs/stacks/stacks.h"

/** A program of this host or of another host. */
struct pl_order_program {
    char *host;
    int rank; /* -1 if it has no rank */
    pid_t pid;
    char *key;            /* lines of the key, the last without a newline */
    char *report, *place; /* texts that only the caller uses */
};

/** Appends the key of `program`. */
void pl_order_key(const struct pl_stacks_program *program, struct pl_text *key);

/**
 * Sorts the `count` programs.
 *
 * Cost    count^2 comparisons of keys, each line compared once.
 * Errors  PL_MEMORY.
 */
enum pl_status pl_order_programs(struct pl_order_program *programs, size_t count,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
