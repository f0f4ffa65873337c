/* SPDX-License-Identifier: Apache-2.0 */
/** The far side of `paceline shell`: on the other host, in place of the relay of an ssh session. */
#ifndef PL_PROGRAMS_SHELL_SERVE_H
#define PL_PROGRAMS_SHELL_SERVE_H

#include "base/environment.h"
#include "base/status.h"

/**
 * Run what SSH_ORIGINAL_COMMAND in `environment` asks for, in the environment that the job's program has on this host,
 * and end it when the client goes. The standard descriptors are the session's. `*ret_code` is the command's exit code,
 * 128 + the number of a signal, 126 or 127 where it does not start.
 *
 * Errors  PL_INVALID: another request. PL_SYSTEM, PL_MEMORY.
 * Test    tests/integration/shell.sh
 */
enum pl_status pl_serve_shell(const char *run_dir, const struct pl_environment *environment, int *ret_code,
                              struct pl_error *reterr) PL_MUST_CHECK;

#endif
