/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What /proc says about the network of this host: the namespace that its processes share.
 *
 * Source  proc(5); RFC 4022, tcpPassiveOpens; Linux, Documentation/networking/proc_net_tcp.rst
 * Test    tests/unit/entrypoint/supervise/test_apart.c
 */
#ifndef PL_ENTRYPOINT_PROC_NETWORK_H
#define PL_ENTRYPOINT_PROC_NETWORK_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/** Returns the bytes that all processes have sent and received by IP so far, or 0 if /proc does not say. */
uint64_t pl_network_bytes(void);

/**
 * Get the number of TCP connections that have been accepted so far, including those within this host. PL_UNSUPPORTED if
 * /proc does not say.
 */
enum pl_status pl_network_accepted(uint64_t *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

/** Get the number of open TCP connections whose two ends are in processes of the same rank. */
enum pl_status pl_network_inside_ranks(const struct stat *paceline, size_t *ret_count,
                                       struct pl_error *reterr) PL_MUST_CHECK;

#endif
