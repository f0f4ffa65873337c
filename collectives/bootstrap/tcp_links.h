/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Several TCP connections between two ranks, so that a network that holds each of them to a part of the link's rate
 * (EC2: 5 Gbit/s) is used whole. Internal to collectives/.
 *
 * Open MPI's own parameter for this, btl_tcp_links, gains nothing as it comes and can hang (4.1.4; 5.0.6 has the same
 * code):
 *
 * - mca_btl_tcp_create() gives every connection but the first twice the latency, and bml/r2 lets only those of the
 *   least latency carry messages up to the eager limit, which all of ours are. Parameters that it registers for each
 *   connection of an interface, `btl_tcp_latency_IF:N` and `btl_tcp_bandwidth_IF:N`, make them equal.
 * - Each MPI_Isend takes two turns of the connections: mca_pml_ob1_send_inline() takes one before it finds that TCP
 *   cannot send in line. So of an even number of connections half are used, and of an odd number all.
 * - Where both ends connect at once, mca_btl_tcp_proc_accept() finds no endpoint closed and gives every connection to
 *   the last, which has room for one: the others are forgotten, and what was queued for them never leaves. So one end
 *   opens all of a pair's, before anything else is sent.
 *
 * The last is why only a process whose MPI was initialised here has them; pl_bootstrap_new_mpi() refuses others. And
 * mca_btl_tcp_proc_create() makes room for as many connections as the peer offers, one more: all ranks need the same
 * number before MPI_Init(), or memory is overwritten.
 */
#ifndef PL_COLLECTIVES_BOOTSTRAP_TCP_LINKS_H
#define PL_COLLECTIVES_BOOTSTRAP_TCP_LINKS_H

#include "base/environment.h"
#include "base/status.h"

/**
 * How many connections two ranks of the job have that `environment` describes, and the interface that they go over; 1:
 * Open MPI is left alone. Depends only on what mpirun gives to all ranks alike:
 *
 * - the ranks are on several hosts, one interface was named (btl_tcp_if_include) and messages are ob1's
 * - the job says how many, by btl_tcp_links; else there is one: see docs/collectives.md
 */
unsigned pl_tcp_links_count(const struct pl_environment *environment, const char **ret_interface);

/**
 * Before MPI_Init(): by this process's environment, let Open MPI take the `*ret_links` connections for equal. Where
 * they are more than one, all pairs of ranks open theirs right after MPI_Init(), from one end each.
 *
 * Test  tests/unit/collectives/bootstrap/test_tcp_links.c, tests/integration/tcp_links.sh
 */
enum pl_status pl_tcp_links_request(unsigned *ret_links, struct pl_error *reterr) PL_MUST_CHECK;

#endif
