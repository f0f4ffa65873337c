/* SPDX-License-Identifier: Apache-2.0 */
/** Helpers that bootstraps, and those who set something up over one, share. Internal to collectives/. */
#ifndef PL_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_PRIVATE_H
#define PL_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_PRIVATE_H

#include "base/status.h"
#include "collectives/bootstrap.h"
#include "collectives/bootstrap/transport.h"

/**
 * In place of an allgather or barrier that this rank cannot come to because of `why` (NULL: nobody asked for the
 * words), a failure of its own: all ranks fail in it with `status`, and the others are told the rank and its words.
 * Returns `status`.
 */
enum pl_status pl_bootstrap_refuse(const struct pl_bootstrap *bootstrap, enum pl_status status,
                                   const struct pl_error *why, int64_t deadline_ns);

/**
 * Return when every rank has what it needs by itself, as `status` PL_OK says; else as pl_bootstrap_refuse() with
 * `*reterr`, on the others with the words of one that has not. Collective.
 */
enum pl_status pl_bootstrap_ready(const struct pl_bootstrap *bootstrap, enum pl_status status, int64_t deadline_ns,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Every rank's `bytes` of `own`, in rank order, in new memory at `*ret_all`, a pointer of any type; the caller frees
 * it. Where a rank has no memory for it all fail. Collective.
 */
enum pl_status pl_bootstrap_gather(const struct pl_bootstrap *bootstrap, const void *own, size_t bytes,
                                   int64_t deadline_ns, void *ret_all, struct pl_error *reterr) PL_MUST_CHECK;

/** Ranks have not met: what is left of this exchange would be met by the next one. */
static inline bool pl_bootstrap_is_out_of_step(const struct pl_error *error)
{
    return error->status == PL_TIMEOUT || error->domain == PL_DOMAIN_MPI;
}

/** pl_world_is_stranded(), for who holds the world's lock. */
static inline bool pl_bootstrap_is_stranded(const struct pl_bootstrap *bootstrap)
{
    return bootstrap->transport && bootstrap->transport->stranded;
}

/** pl_bootstrap's abort where the job is this process. */
void pl_bootstrap_abort_process(void *context, int code);

#endif
