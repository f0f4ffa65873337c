/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Starts the hosts of a job. A plain host is a process with SAGEMAKER_BASE_DIR. A host in namespaces has its own
 * processes, host name, /opt/ml, /tmp, /run, /dev/shm and /etc/hosts, from two hosts on its own network, and ends
 * with its first process, which ends with this program.
 *
 * Test  tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_HOST_H
#define PL_PROGRAMS_LOCAL_HOST_H

#include "programs/local/local.h"

/**
 * Chooses the kind of the hosts unless an option has, and makes what they share. For a user other than root this
 * process enters a user namespace in which only this user exists.
 *
 * Errors  PL_UNSUPPORTED: several hosts, and this machine refuses namespaces; it names what refuses them.
 *         PL_INVALID: several hosts, and sshd accepts no login of this user.
 */
enum pl_status pl_local_hosts_choose(struct pl_local *local, struct pl_error *reterr) PL_MUST_CHECK;

/** "one plain host", "2 hosts in namespaces". Valid until the next call with the same `text`. */
const char *pl_local_hosts_describe(const struct pl_local *local, char text[static 64]);

/** Starts the host `index`; its output comes from `output_fd`. */
enum pl_status pl_local_host_start(struct pl_local *local, size_t index, const char *const *argv,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** In a new process: makes the namespaces' insides and becomes the program. Returns only an error. */
enum pl_status pl_local_host_become(const struct pl_local *local, size_t index, const char *const *argv,
                                    char *const *environment, struct pl_error *reterr);

#endif
