/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Several TCP connections between two ranks, to use the whole rate of a network that limits each connection to a part
 * of it (EC2: 5 Gbit/s). Internal to collectives/.
 *
 * Open MPI's own parameter for this, btl_tcp_links, gains nothing without further settings and can hang (4.1.4; 5.0.6
 * has the same code):
 *
 * - mca_btl_tcp_create() gives every connection but the first twice the latency, and bml/r2 sends messages up to the
 *   eager limit, which all of ours are, only over those of the least latency. The parameters `btl_tcp_latency_IF:N` and
 *   `btl_tcp_bandwidth_IF:N`, which exist for each connection of an interface, make them equal.
 * - Each MPI_Isend takes two turns of the connections: mca_pml_ob1_send_inline() takes one before it finds that TCP
 *   cannot send inline. So only half of an even number of connections are used, but all of an odd number.
 * - If both ends connect at once, mca_btl_tcp_proc_accept() finds no endpoint closed and gives every connection to the
 *   last one, which has room for one: the others are forgotten, and messages queued for them never leave. So one end of
 *   a pair opens all its connections, before anything else is sent.
 *
 * Because of the last point only a process whose MPI was initialised here may have several connections;
 * pl_bootstrap_new_mpi() fails in other processes. And mca_btl_tcp_proc_create() makes room for one more connection
 * than the peer offers: all ranks need the same number before MPI_Init(), or memory is overwritten.
 */
#ifndef PL_COLLECTIVES_BOOTSTRAP_TCP_LINKS_H
#define PL_COLLECTIVES_BOOTSTRAP_TCP_LINKS_H

#include "base/environment.h"
#include "base/status.h"

/**
 * The number of connections between two ranks of the job that `environment` describes, and the interface that they use.
 * 1: Open MPI keeps its defaults. The result depends only on variables that mpirun gives to all ranks alike:
 *
 * - there are several only if the ranks are on several hosts, one interface was named (btl_tcp_if_include) and ob1
 *   sends the messages
 * - btl_tcp_links gives the number, 1 if it is not set: see docs/collectives.md
 */
unsigned pl_tcp_links_count(const struct pl_environment *environment, const char **ret_interface);

/**
 * Call before MPI_Init(): makes Open MPI treat the `*ret_links` connections as equal, by variables of this process's
 * environment. If there are more than one, every pair of ranks opens its own right after MPI_Init(), all from one end.
 *
 * Test  tests/unit/collectives/bootstrap/test_tcp_links.c, tests/integration/tcp_links.sh
 */
enum pl_status pl_tcp_links_request(unsigned *ret_links, struct pl_error *reterr) PL_MUST_CHECK;

#endif
