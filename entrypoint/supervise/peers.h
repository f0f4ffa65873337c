/* SPDX-License-Identifier: Apache-2.0 */
/** Waits until the names of all hosts resolve, since containers start at different times. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PEERS_H
#define PL_ENTRYPOINT_SUPERVISE_PEERS_H

#include "entrypoint/supervise/supervise.h"

/**
 * Resolve every name of the job's hosts where the plan needs that, in a child process because the resolver blocks,
 * until the supervisor's join timeout is over or the job is stopped.
 *
 * Errors  PL_TIMEOUT names the host and the resolver's reason.
 */
enum pl_status pl_peers_resolve(struct pl_supervisor *supervisor, struct pl_error *reterr) PL_MUST_CHECK;

#endif
