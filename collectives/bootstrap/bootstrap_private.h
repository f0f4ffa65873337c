/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Messages between two ranks, on which the algorithms of p2p/ run, and helpers for bootstraps and their users. Internal
 * to collectives/.
 *
 * Between one sender and one receiver, messages of equal tag are received in the order sent. A message longer than the
 * receiver's buffer fills it and fails with PL_MISMATCH; a shorter one is fine. No function of a transport blocks.
 */
#ifndef PL_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_PRIVATE_H
#define PL_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_PRIVATE_H

#include "base/environment.h"
#include "base/status.h"
#include "collectives/bootstrap.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PL_PACKED_ERROR_TEXT_BYTES = 244,
    PL_TRANSPORT_RESERVE_BYTES = 256,
    PL_TRANSPORT_REVOKE_BYTES = 1056,
    PL_TRANSPORT_LATE_BYTES = 16,
    PL_TRANSFER_SCRATCH_WORDS = 4,
    PL_TRANSPORT_MOST_BYTES = 1 << 30, /* limit for one message: MPI counts in an int */
    PL_TAG_BITS = 22, /* MPI promises 15 bits; Open MPI and MPICH give 23 or more, which bootstrap_mpi.c checks */
};

/* Tags below PL_TAG_P2P are for messages that make or end worlds. */
enum { PL_TAG_BOOTSTRAP = 1, PL_TAG_REVOKE = 3, PL_TAG_RENDEZVOUS = 4 /* to 7 */, PL_TAG_P2P = 256 };

/** An error in the form in which ranks exchange it. */
struct pl_packed_error {
    int32_t status; /* enum pl_status */
    char text[PL_PACKED_ERROR_TEXT_BYTES];
};

struct pl_packed_error pl_bootstrap_pack_error(const struct pl_error *error);

/** Where a rank runs, as all ranks of its world know it. */
struct pl_locality {
    char host[64];   /* name of the host: for messages only, since two hosts may have equal names */
    char device[48]; /* "GPU-xxxxxxxx-..."; "" if the rank was given no device */
    int32_t ordinal; /* number of the device in the rank's process */
};

/** A send or receive under way; `scratch` belongs to the transport. Zero-initialise. */
struct pl_transfer {
    bool active;
    uintptr_t scratch[PL_TRANSFER_SCRATCH_WORDS];
};

struct pl_transport {
    const char *name;
    void *context;
    size_t most_bytes; /* limit for one message; callers split longer data */
    /* [size]: see pl_world_global_rank(); NULL: each rank is its own global rank */
    const int *global_ranks;
    const struct pl_locality *localities; /* [size]; NULL: not known yet */
    bool leaked;                          /* a cancel() has failed, here or in a sub-world of a backend */
    /* memory for a failing rank that cannot allocate: the error message that it sends, and messages that it receives */
    _Alignas(8) char reserve[2][PL_TRANSPORT_RESERVE_BYTES];
    /* a world of this transport was revoked: messages may still arrive long after the world's end */
    bool revoked;
    _Alignas(8) char revoke_in[PL_TRANSPORT_REVOKE_BYTES]; /* see core/types.h */
    _Alignas(8) char revoke_out[PL_TRANSPORT_REVOKE_BYTES];
    _Alignas(8) char late_out[2][PL_TRANSPORT_LATE_BYTES]; /* see core/types.h */
    enum pl_status (*send)(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                           struct pl_transfer *transfer, struct pl_error *reterr);
    enum pl_status (*recv)(void *context, void *data, size_t bytes, int peer, uint32_t tag,
                           struct pl_transfer *transfer, struct pl_error *reterr);
    /**
     * Advance. `*ret_done` is set to true when the transfer has ended; it is not active then. `*ret_bytes` is the size
     * of a received message.
     */
    enum pl_status (*test)(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                           struct pl_error *reterr);
    /** True if a message with this tag has arrived but no receive is posted for it; `*ret_peer` is the sender. */
    bool (*probe)(void *context, uint32_t tag, int *ret_peer);
    /** Cancel the transfer. False if that failed: the buffer may then be accessed until the process ends. */
    bool (*cancel)(void *context, struct pl_transfer *transfer);
};

/** The global number of `rank`, for messages to users. */
static inline int pl_transport_global_rank(const struct pl_transport *transport, int rank)
{
    return transport->global_ranks ? transport->global_ranks[rank] : rank;
}

/**
 * Write "rank 3 on host algo-2", with the global number of `rank`, for messages to users; "rank 3" while hosts are not
 * known. Returns `text`.
 */
const char *pl_transport_rank_name(const struct pl_transport *transport, int rank, char text[PL_RANK_NAME_BYTES]);

/** Wait for one transfer. `what` and `peer` go into the error message. */
enum pl_status pl_bootstrap_wait_transfer(const struct pl_transport *transport, struct pl_transfer *transfer,
                                          int64_t deadline_ns, const char *what, int peer,
                                          struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call instead of an allgather or barrier that this rank cannot take part in because of `why` (NULL: no text). The
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

/** As pl_world_has_leaked(), for callers that hold the world's lock. */
static inline bool pl_bootstrap_has_leaked(const struct pl_bootstrap *bootstrap)
{
    return bootstrap->transport && bootstrap->transport->leaked;
}

/**
 * Puts the `bytes` of every rank's `send`, in rank order, into `recv` [size * bytes] on every rank. Collective.
 */
static inline enum pl_status pl_bootstrap_allgather(const struct pl_bootstrap *bootstrap, const void *send, void *recv,
                                                    size_t bytes, int64_t deadline_ns, struct pl_error *reterr)
{
    return bootstrap->exchange(bootstrap->context, NULL, send, recv, bytes, deadline_ns, reterr);
}

/**
 * An implementation of pl_bootstrap.exchange by messages, in ceil(log2 size) rounds. The bootstrap must be its own
 * `context`. PL_LIMIT if the blocks of all ranks do not fit in one message.
 */
enum pl_status pl_bootstrap_exchange(void *bootstrap, const struct pl_error *failed, const void *send, void *recv,
                                     size_t bytes, int64_t deadline_ns, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The number of connections between two ranks of the job that `environment` describes, and the interface that they use.
 * 1: Open MPI keeps its defaults. The result depends only on variables that mpirun gives to all ranks alike:
 *
 * - there are several only if the ranks are on several hosts, one interface was named (btl_tcp_if_include) and ob1
 *   sends the messages
 * - btl_tcp_links gives the number, 1 if it is not set: see docs/internals/collectives.md
 */
unsigned pl_tcp_links_count(const struct pl_environment *environment, const char **ret_interface);

/**
 * Call before MPI_Init(): sets environment variables of this process that make Open MPI treat the `*ret_links`
 * connections as equal. If there are several, each pair of ranks opens its own after MPI_Init(), all from one end.
 *
 * Test  tests/unit/collectives/bootstrap/test_tcp_links.c, tests/integration/tcp_links.sh
 */
enum pl_status pl_tcp_links_request(unsigned *ret_links, struct pl_error *reterr) PL_MUST_CHECK;

#endif
