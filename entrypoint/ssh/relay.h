/* SPDX-License-Identifier: Apache-2.0 */
/** `paceline relay`: what sshd and mpirun start, to reach a host's process 1. */
#ifndef PL_ENTRYPOINT_SSH_RELAY_H
#define PL_ENTRYPOINT_SSH_RELAY_H

#include "base/environment.h"
#include "entrypoint/job/strv.h"

/** Do what the words after `relay` say; the result is the exit code. */
int pl_relay_run(const struct pl_strv *words, const struct pl_environment *environment);

#endif
