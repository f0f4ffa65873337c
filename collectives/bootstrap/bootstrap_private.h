/* SPDX-License-Identifier: Apache-2.0 */
/** Helpers for bootstraps and for code that sets something up over one. Internal to collectives/. */
#ifndef PL_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_PRIVATE_H
#define PL_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_PRIVATE_H

#include "base/environment.h"
#include "base/status.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/transport.h"

/**
 * Call in place of an allgather or barrier that this rank cannot take part in because of `why` (NULL: no text). The
 * call fails on all ranks with `status`, and the others report this rank and its error. Returns `status`.
 */
enum pl_status pl_bootstrap_abort_collective(const struct pl_bootstrap *bootstrap, enum pl_status status,
                                             const struct pl_error *why, int64_t deadline_ns);

/**
 * A barrier that carries a status. It succeeds when every rank has called with PL_OK. If a rank has another status, the
 * call acts as pl_bootstrap_abort_collective() with `*reterr`, and the other ranks get the error of one that failed.
 * Collective.
 */
enum pl_status pl_bootstrap_vote(const struct pl_bootstrap *bootstrap, enum pl_status status, int64_t deadline_ns,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Gather the `bytes` of `own` of every rank, in rank order, in new memory at `*ret_all`, a pointer of any type; the
 * caller frees it. If one rank lacks memory for it, all ranks fail. Collective.
 */
enum pl_status pl_bootstrap_gather(const struct pl_bootstrap *bootstrap, const void *own, size_t bytes,
                                   int64_t deadline_ns, void *ret_all, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Whether ranks are desynchronised after `error`: messages left from this exchange would be received in the next one.
 */
static inline bool pl_bootstrap_is_desynchronised(const struct pl_error *error)
{
    return error->status == PL_TIMEOUT || error->domain == PL_DOMAIN_MPI;
}

/** pl_world_has_leaked(), for callers that hold the world's lock. */
static inline bool pl_bootstrap_has_leaked(const struct pl_bootstrap *bootstrap)
{
    return bootstrap->transport && bootstrap->transport->leaked;
}

/** pl_bootstrap.abort for a job that is this process. */
void pl_bootstrap_abort_process(void *context, int code);

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
