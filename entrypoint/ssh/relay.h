/* SPDX-License-Identifier: Apache-2.0 */
/* `paceline relay`: sshd and mpirun start it to reach a host's process 1. */
#ifndef PL_ENTRYPOINT_SSH_RELAY_H
#define PL_ENTRYPOINT_SSH_RELAY_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"

/** The variable in which sshd passes the client's request. */
#define PL_RELAY_REQUEST_VARIABLE "SSH_ORIGINAL_COMMAND"

/** Do what the words after `relay` ask for. The result is the exit code. */
int pl_relay_run(const struct pl_strv *words, const struct pl_environment *environment);

#endif
