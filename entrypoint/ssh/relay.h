/* SPDX-License-Identifier: Apache-2.0 */
/** `paceline relay`: what sshd and mpirun start, to reach a host's process 1, and what hands a shell's session over. */
#ifndef PL_ENTRYPOINT_SSH_RELAY_H
#define PL_ENTRYPOINT_SSH_RELAY_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"

/** The first word of what the client asks for, and the space after it, where it wants a shell and no link. */
#define PL_RELAY_SHELL_PREFIX "shell "

/** The program beside the binary at `self_path` that such a session is handed over to: `paceline-shell --serve DIR`. */
#define PL_RELAY_SHELL_COMPANION "paceline-shell"
#define PL_RELAY_SHELL_OPTION "--serve"

/** sshd's name for what the client asks for. */
#define PL_RELAY_REQUEST_VARIABLE "SSH_ORIGINAL_COMMAND"

/** Do what the words after `relay` say; the result is the exit code. */
int pl_relay_run(const struct pl_strv *words, const struct pl_environment *environment, const char *self_path);

#endif
