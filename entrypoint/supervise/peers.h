/* SPDX-License-Identifier: Apache-2.0 */
/** The names of the job's hosts: this host's own, and those of others, whose containers start at different times. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PEERS_H
#define PL_ENTRYPOINT_SUPERVISE_PEERS_H

#include "entrypoint/supervise/supervise.h"

/**
 * If the plan needs names, make this host's own known to its programs: where it does not resolve, the host's address
 * and name become a line of /etc/hosts. With `others`, then wait for the names of the job's other hosts, until the
 * supervisor's join timeout is over or the job is stopped. A child process does it, because the resolver blocks.
 *
 * Errors  PL_TIMEOUT names the host, the resolver's reason and the file to change; PL_INVALID, at once, a name of
 *         another host that leads to this one.
 * Test    tests/integration/host_names.sh
 */
enum pl_status pl_peers_resolve(struct pl_supervisor *supervisor, bool others, struct pl_error *reterr) PL_MUST_CHECK;

#endif
