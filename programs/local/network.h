/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The network of hosts in namespaces: a bridge in a network namespace of its own, which a process keeps, and for each
 * host a cable to the bridge. Host N has the address 10.78.0.N on eth0. The
 * machine's own network is not touched.
 *
 * Source  rtnetlink(7), linux/if_link.h (veth), linux/if_bridge.h.
 * Test    tests/integration/local.sh
 */
#ifndef PL_PROGRAMS_LOCAL_NETWORK_H
#define PL_PROGRAMS_LOCAL_NETWORK_H

#include "base/status.h"

#include <sys/types.h>

/**
 * Starts the process that has the bridge in a network namespace of its own. It ends, and with it the network, when
 * `*ret_fd` is closed, which is set after an error too.
 */
enum pl_status pl_local_network_new(int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes eth0 in the network namespace of process `pid`, and plugs its cable into the bridge. */
enum pl_status pl_local_network_plug(int network_fd, unsigned number, pid_t pid, struct pl_error *reterr) PL_MUST_CHECK;

/** Pulls the cable of host `number` out of the bridge, or plugs it in again: frames are lost, and nobody is told. */
enum pl_status pl_local_network_set_cable(int network_fd, unsigned number, bool is_in,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/** In the host: sets lo and eth0 up. */
enum pl_status pl_local_network_set_up(unsigned number, struct pl_error *reterr) PL_MUST_CHECK;

#endif
