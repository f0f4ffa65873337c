/* SPDX-License-Identifier: Apache-2.0 */
/**
 * paceline local shell [--folder DIR] [--name NAME] HOST [COMMAND [ARGUMENT...]]
 *
 * Runs a shell, or one command, in a host of a job that runs: in its namespaces, in its container, or on a plain host
 * beside it, with the environment and the folder of the job's program.
 *
 * Source  setns(2) on pidfds, user_namespaces(7) on who may enter one.
 * Test    tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_SHELL_H
#define PL_PROGRAMS_LOCAL_SHELL_H

#include "base/status.h"

/** `argv[0]` is "shell". Sets the command's exit code, or 128 + the number of a signal that ended it. */
enum pl_status pl_local_shell(int argc, char **argv, int *ret_code, struct pl_error *reterr) PL_MUST_CHECK;

#endif
