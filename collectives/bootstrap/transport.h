/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Messages between two ranks; the algorithms of p2p/ run on them. Internal to collectives/.
 *
 * Between one sender and one receiver, messages of equal tag are received in the order sent. A message longer than the
 * receiver's buffer fills it and fails with PL_MISMATCH; a shorter one is fine. Nothing here blocks.
 */
#ifndef PL_COLLECTIVES_BOOTSTRAP_TRANSPORT_H
#define PL_COLLECTIVES_BOOTSTRAP_TRANSPORT_H

#include "base/status.h"
#include "collectives/bootstrap.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PL_TRANSPORT_RESERVE_BYTES = 256,
    PL_TRANSPORT_REVOKE_BYTES = 1056,
    PL_TRANSPORT_LATE_BYTES = 16,
    PL_TRANSFER_SCRATCH_WORDS = 4,
    PL_TRANSPORT_MOST_BYTES = 1 << 30, /* limit for one message: MPI counts in an int */
    PL_TAG_BITS = 22, /* MPI promises 15; Open MPI and MPICH give 23 or more, which bootstrap_mpi.c checks */
};

/* Tags below PL_TAG_P2P are for making worlds and ending them. */
enum { PL_TAG_BOOTSTRAP = 1, PL_TAG_REVOKE = 3, PL_TAG_RENDEZVOUS = 4 /* to 7 */, PL_TAG_P2P = 256 };

/** Where a rank runs, as all ranks of its world know it. */
struct pl_locality {
    char host[64];   /* name of the host: for messages only, since two hosts may have equal names */
    char device[48]; /* "GPU-xxxxxxxx-..."; "" if the rank was given no device */
    int32_t ordinal; /* the device's number in its process */
};

/** A send or receive under way; `scratch` belongs to the transport. Zero-initialise. */
struct pl_transfer {
    bool active;
    uintptr_t scratch[PL_TRANSFER_SCRATCH_WORDS];
};

struct pl_transport {
    const char *name;
    void *context;
    size_t most_bytes; /* limit for one message: a caller with more sends parts */
    /* [size]: see pl_world_global_rank(); NULL: global ranks equal the ranks here */
    const int *global_ranks;
    const struct pl_locality *localities; /* [size]; NULL: not known yet */
    bool leaked;                          /* a cancel() has failed, here or in a sub-world of a backend */
    /* memory for the error that a rank sends when it has none left, and for what it receives meanwhile */
    _Alignas(8) char reserve[2][PL_TRANSPORT_RESERVE_BYTES];
    /* a world over it was revoked: messages may still arrive long after the world's end */
    bool revoked;
    _Alignas(8) char revoke_in[PL_TRANSPORT_REVOKE_BYTES]; /* see failure.h */
    _Alignas(8) char revoke_out[PL_TRANSPORT_REVOKE_BYTES];
    _Alignas(8) char late_out[2][PL_TRANSPORT_LATE_BYTES]; /* see failure.h */
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
    /** Whether a message with that tag has come for which no receive is posted; `*ret_peer` is its sender. */
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
 * Does the allgather of a bootstrap over `transport`, in ceil(log2 size) rounds; with `bytes` 0 it is a barrier.
 * PL_LIMIT if the blocks of all ranks are more than one message holds.
 */
enum pl_status pl_bootstrap_transport_allgather(struct pl_transport *transport, int rank, int size, const void *send,
                                                void *recv, size_t bytes, int64_t deadline_ns,
                                                struct pl_error *reterr) PL_MUST_CHECK;
/** The part of a rank that has failed in pl_bootstrap_transport_allgather() of the others: sends them `why`. */
void pl_bootstrap_transport_fail(struct pl_transport *transport, int rank, int size, const struct pl_error *why,
                                 int64_t deadline_ns);

#endif
