/* SPDX-License-Identifier: Apache-2.0 */
/** The far side of `paceline shell` on the other host, in place of the relay of an ssh session. */
#ifndef PL_PROGRAMS_SHELL_SERVE_H
#define PL_PROGRAMS_SHELL_SERVE_H

#include "base/environment.h"
#include "base/status.h"

/**
 * Runs the command that SSH_ORIGINAL_COMMAND in `environment` requests, in the environment of the job's program on this
 * host, and ends it when the client is gone. It uses the session's standard descriptors. `*ret_code` is the command's
 * exit code, 128 + the number of a signal, or 126 or 127 if it does not start.
 *
 * Errors  PL_INVALID: another request. PL_SYSTEM, PL_MEMORY.
 * Test    tests/integration/shell.sh
 */
enum pl_status pl_serve_shell(const char *run_dir, const struct pl_environment *environment, int *ret_code,
                              struct pl_error *reterr) PL_MUST_CHECK;

#endif
