/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline stacks` says of a program besides its stacks: its name, its rank, and its threads.
 *
 * Source  proc(5)
 * Test    tests/unit/programs/stacks/test_describe.c
 */
#ifndef PL_PROGRAMS_STACKS_DESCRIBE_H
#define PL_PROGRAMS_STACKS_DESCRIBE_H

#include "programs/stacks/stacks.h"

/** "sleeping" for S; "ended" for 0. */
const char *pl_describe_state(char state);

/**
 * The name of a program from the `bytes` of its command line, in which NULs separate the words: the command's first
 * word, of an interpreter the script or module too. Other arguments may hold secrets and are left out.
 */
void pl_describe_name(const char *words, size_t bytes, char *ret_name, size_t name_bytes);

/** The rank that the `bytes` of an environment, in which NULs separate the variables, give to a process; or -1. */
int pl_describe_rank(const char *variables, size_t bytes);

/**
 * Fill in what /proc says of the program `program->pid`: all but its state, CPU time and stacks. What cannot be read
 * stays empty.
 */
void pl_describe_program(struct pl_stacks_program *program);

#endif
