/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which program comes first: the odd one out.
 *
 * A program's key is a line with its kind of state, then a line for each function of its main thread from the outermost
 * inwards (Python's own first, where they are known), then its state and wait. Each program has a row of numbers: how
 * many programs have the same first line, then how many the same first two, and so on. The least row, compared number
 * by number, comes first: that of the program which departs first, with the fewest others. Comparing the innermost
 * functions alone would not do: ranks that poll in one and the same allreduce are seen in different ones.
 *
 *     rank 0   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 1   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 2   running  main  step  stuck_here             4 4 4 1 1     <- first
 *     rank 3   running  main  step  MPI_Allreduce  yield   4 4 4 3 1 1
 *
 * A program that is stopped is before all others whatever they do. Equal ones are ordered by rank, host and process.
 *
 * Test  tests/unit/programs/stacks/test_order.c
 */
#ifndef PL_PROGRAMS_STACKS_ORDER_H
#define PL_PROGRAMS_STACKS_ORDER_H

#include "base/status.h"
#include "base/text.h"
#include "programs/stacks/stacks.h"

/** A program of this host or of another one. */
struct pl_order_program {
    char *host;
    int rank; /* -1: none */
    pid_t pid;
    char *key;            /* lines, the last without a newline */
    char *report, *place; /* for the caller */
};

/** Append the key of `program`. */
void pl_order_key(const struct pl_stacks_program *program, struct pl_text *key);

/**
 * Sort the `count` programs.
 *
 * Cost    count^2 comparisons of keys, each line compared once.
 * Errors  PL_MEMORY.
 */
enum pl_status pl_order_programs(struct pl_order_program *programs, size_t count,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
