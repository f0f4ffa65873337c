/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Which program comes first: the odd one out.
 *
 * The main threads' stacks are compared from the outermost call inwards. Each program has a row of numbers: how many
 * programs have the same kind of state, then how many of these the same outermost function, then the same two
 * outermost functions, and so on, at last the same state and wait. The least row, compared number by number, comes
 * first: that of the program which departs first, with the fewest others. Comparing the innermost functions alone would
 * not do: ranks that poll in one and the same allreduce are seen in different ones.
 *
 *     rank 0   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 1   running  main  step  MPI_Allreduce  poll    4 4 4 3 2 2
 *     rank 2   running  main  step  stuck_here             4 4 4 1 1     <- first
 *     rank 3   running  main  step  MPI_Allreduce  yield   4 4 4 3 1 1
 *
 * A program that is stopped is before all others whatever they do. Equal ones are ordered by rank and process.
 *
 * Test  tests/unit/entrypoint/stacks/test_order.c
 */
#ifndef PL_ENTRYPOINT_STACKS_ORDER_H
#define PL_ENTRYPOINT_STACKS_ORDER_H

#include "base/status.h"
#include "entrypoint/stacks/stacks.h"

/**
 * Sort the `count` programs.
 *
 * Cost    count^2 comparisons of stacks, each function compared once.
 * Errors  PL_MEMORY.
 */
enum pl_status pl_order_programs(const struct pl_stacks_program **programs, size_t count,
                                 struct pl_error *reterr) PL_MUST_CHECK;

#endif
