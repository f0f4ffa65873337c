/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What /proc says about the network of this host: the namespace that its processes share.
 *
 * Source  proc(5); RFC 4022, tcpPassiveOpens; Linux, Documentation/networking/proc_net_tcp.rst
 * Test    tests/unit/entrypoint/stacks/test_network.c
 */
#ifndef PL_ENTRYPOINT_STACKS_NETWORK_H
#define PL_ENTRYPOINT_STACKS_NETWORK_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/** Bytes that all processes have sent and received by IP so far; 0 where that is not said. */
uint64_t pl_network_bytes(void);

/** How many TCP connections have been accepted so far, those within this host too. PL_UNSUPPORTED: that is not said. */
enum pl_status pl_network_accepted(uint64_t *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

/** How many TCP connections that are open now have both ends in the processes of one and the same rank. */
enum pl_status pl_network_inside_ranks(const struct stat *paceline, size_t *ret_count,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** The numbers of the file `text`, of /proc/net/netstat or snmp, added up: of the group `group` ("Tcp") those that
 * `names` names, up to a NULL. False where one is missing. */
bool pl_network_sum(const char *text, const char *group, const char *const *names, uint64_t *ret_sum);

struct pl_network_socket {
    uint64_t inode;
    pid_t shim; /* of the rank that has it */
};

/** The number of connections by the tables `tcp` and `tcp6`, files of /proc/net, both ends of which are among `sockets`
 * and of one rank. Sorts `sockets`. */
enum pl_status pl_network_count_inside(const char *tcp, const char *tcp6, struct pl_network_socket *sockets,
                                       size_t count, size_t *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

#endif
