/* SPDX-License-Identifier: Apache-2.0 */
/** Waits until the names of all hosts resolve, because containers start at different times. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PEERS_H
#define PL_ENTRYPOINT_SUPERVISE_PEERS_H

#include "entrypoint/supervise/supervise.h"

/**
 * If the plan needs it, resolve every name of the job's hosts, until the supervisor's join timeout is over or the job
 * is stopped. A child process does it, because the resolver blocks.
 *
 * Errors  PL_TIMEOUT names the host and the resolver's reason.
 */
enum pl_status pl_peers_resolve(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

#endif
