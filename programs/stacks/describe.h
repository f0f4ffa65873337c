/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The facts about a program that `paceline stacks` shows besides its stacks: its name, its rank, and its threads.
 *
 * Source  proc(5)
 * Test    tests/unit/programs/stacks/test_describe.c
 */
#ifndef PL_PROGRAMS_STACKS_DESCRIBE_H
#define PL_PROGRAMS_STACKS_DESCRIBE_H

#include "programs/stacks/stacks.h"

/** Returns "sleeping" for S and so on; "ended" for 0. */
const char *pl_describe_state(char state);

/**
 * Makes the name of a program from the `bytes` of its command line, in which NULs separate the arguments: the first
 * argument and, for an interpreter, the script or module. Other arguments may hold secrets and are left out.
 */
void pl_describe_name(const char *words, size_t bytes, char *ret_name, size_t name_bytes);

/** Returns the rank of a process from the `bytes` of its environment, in which NULs separate the variables; or -1. */
int pl_describe_rank(const char *variables, size_t bytes);

/**
 * Fills in what /proc shows of the program `program->pid`: all but its state, CPU time and stacks. Fields that cannot
 * be read stay empty.
 */
void pl_describe_program(struct pl_stacks_program *program);

#endif
