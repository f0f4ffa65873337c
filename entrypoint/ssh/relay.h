/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline relay`: sshd and mpirun start it to reach a host's process 1. It also hands over the session of a shell. */
#ifndef PL_ENTRYPOINT_SSH_RELAY_H
#define PL_ENTRYPOINT_SSH_RELAY_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"

/** The first word of a client's request for a shell instead of a link, and the space after it. */
#define PL_RELAY_SHELL_PREFIX "shell "

/** The program next to the binary at `self_path` that gets such a session: `paceline-shell --serve DIR`. */
#define PL_RELAY_SHELL_COMPANION "paceline-shell"
#define PL_RELAY_SHELL_OPTION "--serve"

/** The variable in which sshd passes the client's request. */
#define PL_RELAY_REQUEST_VARIABLE "SSH_ORIGINAL_COMMAND"

/** Do what the words after `relay` ask for. The result is the exit code. */
int pl_relay_run(const struct pl_strv *words, const struct pl_environment *environment, const char *self_path);

#endif
