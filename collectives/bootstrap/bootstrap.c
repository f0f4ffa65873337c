/* SPDX-License-Identifier: Apache-2.0 */
/* What bootstraps share: a wait for one message, an allgather made of messages, and gather, vote, abort and leave made
 * of the allgather. Also the bootstrap of one rank alone. */
#include "collectives/bootstrap/bootstrap_private.h"

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t NAP_SHORTEST_NS = 5 * PL_NS_PER_US;
static const int64_t NAP_LONGEST_NS = PL_NS_PER_MS;

const char *pl_transport_rank_name(const struct pl_transport *transport, int rank, char text[PL_RANK_NAME_BYTES])
{
    snprintf(text, PL_RANK_NAME_BYTES, transport->localities ? "rank %d on host %s" : "rank %d",
             pl_transport_global_rank(transport, rank), transport->localities ? transport->localities[rank].host : "");
    return text;
}

enum pl_status pl_bootstrap_wait_transfer(const struct pl_transport *transport, struct pl_transfer *transfer,
                                          int64_t deadline_ns, const char *what, int peer, struct pl_error *reterr)
{
    int64_t began_ns = 0;
    size_t bytes;

    for (unsigned polls = 0;; polls++) {
        bool done;

        PL_TRY(transport->test(transport->context, transfer, &done, &bytes, reterr));
        if (done) {
            return PL_OK;
        }
        if (polls < 200) {
            continue;
        }
        if (pl_deadline_passed(deadline_ns)) {
            char name[PL_RANK_NAME_BYTES];

            return pl_error_set(reterr, PL_TIMEOUT, "%s: %s did not answer before the deadline", what,
                                pl_transport_rank_name(transport, peer, name));
        }
        began_ns = began_ns ? began_ns : pl_clock_now_ns();
        pl_clock_nap(pl_clock_backoff_ns(pl_clock_now_ns() - began_ns, NAP_SHORTEST_NS, NAP_LONGEST_NS), deadline_ns);
    }
}

struct pl_packed_error pl_bootstrap_pack_error(const struct pl_error *error)
{
    struct pl_packed_error packed = {.status = (int32_t)error->status};

    pl_error_text(error, packed.text, sizeof(packed.text));
    return packed;
}

/* First bytes of a message: whether a rank is known to have failed. */
struct head {
    int64_t failing_rank; /* number of a failed rank + 1; 0: none is known, and blocks follow */
};

/* The whole message if a rank has failed. */
struct abort_message {
    struct head head;
    struct pl_packed_error why;
};

_Static_assert(sizeof(struct abort_message) <= PL_TRANSPORT_RESERVE_BYTES, "the message fits in the reserve");

/* One round: sends to one rank and receives from another. If `cut`, the message may be longer than `room`. */
static enum pl_status send_and_receive(struct pl_transport *transport, const void *data, size_t bytes, int to,
                                       void *room, size_t room_bytes, int from, bool cut, int64_t deadline_ns,
                                       bool *ret_idle, struct pl_error *reterr)
{
    static const char what[] = "exchanging data with the other ranks";
    struct pl_transfer out = {0};
    struct pl_transfer in = {0};
    enum pl_status status = transport->recv(transport->context, room, room_bytes, from, PL_TAG_BOOTSTRAP, &in, reterr);

    if (status == PL_OK) {
        status = transport->send(transport->context, data, bytes, to, PL_TAG_BOOTSTRAP, &out, reterr);
    }
    if (status == PL_OK) {
        status = pl_bootstrap_wait_transfer(transport, &in, deadline_ns, what, from, reterr);
    }
    if (status == PL_OK || (status == PL_MISMATCH && cut)) {
        status = pl_bootstrap_wait_transfer(transport, &out, deadline_ns, what, to, reterr);
    }
    *ret_idle = !in.active || transport->cancel(transport->context, &in);
    *ret_idle = (!out.active || transport->cancel(transport->context, &out)) && *ret_idle;
    return status;
}

/*
 * Rounds of distances 1, 2, 4, ...: after each a rank holds the blocks of twice as many ranks below it. `held` keeps
 * the block of rank (rank - i) mod size at position i, so that a message is one contiguous piece after its header. A
 * rank that knows of a failure relays it instead of blocks, so that in the end all ranks know a failed rank. That needs
 * no memory for blocks. `own` is the failure of this rank, or none.
 */
enum pl_status pl_bootstrap_exchange(void *context, const struct pl_error *failed, const void *send, void *recv,
                                     size_t bytes, int64_t deadline_ns, struct pl_error *reterr)
{
    const struct pl_bootstrap *bootstrap = context;
    struct pl_transport *transport = bootstrap->transport;
    int rank = bootstrap->rank, size = bootstrap->size;
    struct pl_error own = failed ? *failed : PL_ERROR_NONE;
    size_t room_bytes = PL_TRANSPORT_RESERVE_BYTES;
    PL_AUTO_FREE char *held = NULL; /* two buffers: for outgoing and for incoming messages */
    char *out, *in;

    if (size == 1 && bytes) {
        memcpy(recv, send, bytes);
    }
    if (size == 1) {
        return PL_OK;
    }
    out = transport->reserve[0];
    in = transport->reserve[1];
    if (own.status == PL_OK && (__builtin_mul_overflow((size_t)size, bytes, &room_bytes) ||
                                __builtin_add_overflow(room_bytes, (size_t)PL_TRANSPORT_RESERVE_BYTES, &room_bytes) ||
                                room_bytes > transport->most_bytes)) {
        own.status =
            pl_error_set(&own, PL_LIMIT, "%d blocks of %zu bytes do not fit in one message of at most %zu bytes", size,
                         bytes, transport->most_bytes);
    }
    if (own.status == PL_OK) {
        room_bytes -= room_bytes % _Alignof(struct head); /* takes less than PL_TRANSPORT_RESERVE_BYTES */
        held = pl_memory_new(2, room_bytes, &own);
    }
    if (held) {
        out = held;
        in = held + room_bytes;
        memcpy(out + sizeof(struct head), send ? send : "", bytes);
    } else {
        room_bytes = PL_TRANSPORT_RESERVE_BYTES;
        *(struct abort_message *)(void *)out = (struct abort_message){{rank + 1}, pl_bootstrap_pack_error(&own)};
    }
    for (int distance = 1; distance < size; distance *= 2) {
        struct head *mine = (void *)out, *theirs = (void *)in;
        size_t blocks = (size_t)(distance < size - distance ? distance : size - distance);
        size_t out_bytes = mine->failing_rank ? sizeof(struct abort_message) : sizeof(struct head) + blocks * bytes;
        bool idle;
        enum pl_status status = send_and_receive(transport, out, out_bytes, (rank + distance) % size, in, room_bytes,
                                                 (rank - distance + size) % size, !held, deadline_ns, &idle, reterr);

        if (!idle) {
            held = NULL; /* MPI may still write to it, so it is leaked and not reused */
        }
        PL_TRY(status);
        if (!mine->failing_rank && theirs->failing_rank) {
            memcpy(out, in, sizeof(struct abort_message));
        } else if (!mine->failing_rank) {
            memcpy(out + sizeof(struct head) + (size_t)distance * bytes, in + sizeof(struct head), blocks * bytes);
        }
    }
    if (own.status != PL_OK) {
        if (reterr) {
            *reterr = own;
        }
        return own.status;
    }
    if (((struct head *)(void *)out)->failing_rank) {
        const struct abort_message *received = (void *)out;
        int failing_rank = (int)received->head.failing_rank - 1;
        char name[PL_RANK_NAME_BYTES];

        return pl_error_raise(reterr, (enum pl_status)received->why.status, PL_DOMAIN_RANK,
                              pl_transport_global_rank(transport, failing_rank), "%s: %s",
                              pl_transport_rank_name(transport, failing_rank, name), received->why.text);
    }
    for (int i = 0; i < size && bytes; i++) {
        memcpy((char *)recv + (size_t)((rank - i + size) % size) * bytes, out + sizeof(struct head) + (size_t)i * bytes,
               bytes);
    }
    return PL_OK;
}

enum pl_status pl_bootstrap_abort_collective(const struct pl_bootstrap *bootstrap, enum pl_status status,
                                             const struct pl_error *why, int64_t deadline_ns)
{
    const struct pl_error unknown = {.status = status};

    (void)!bootstrap->exchange(bootstrap->context, why ? why : &unknown, NULL, NULL, 0, deadline_ns, NULL);
    return status;
}

enum pl_status pl_bootstrap_vote(const struct pl_bootstrap *bootstrap, enum pl_status status, int64_t deadline_ns,
                                 struct pl_error *reterr)
{
    if (status != PL_OK) {
        return pl_bootstrap_abort_collective(bootstrap, status, reterr, deadline_ns);
    }
    return pl_bootstrap_allgather(bootstrap, NULL, NULL, 0, deadline_ns, reterr);
}

enum pl_status pl_bootstrap_gather(const struct pl_bootstrap *bootstrap, const void *own, size_t bytes,
                                   int64_t deadline_ns, void *ret_all, struct pl_error *reterr)
{
    PL_AUTO_FREE void *all = pl_memory_new((size_t)bootstrap->size, bytes, reterr);

    if (!all) {
        return pl_bootstrap_abort_collective(bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    PL_TRY(pl_bootstrap_allgather(bootstrap, own, all, bytes, deadline_ns, reterr));
    memcpy(ret_all, &all, sizeof(all)); /* memcpy, because the caller's pointer may have any type (strict aliasing) */
    all = NULL;
    return PL_OK;
}

static enum pl_status self_split(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                                 int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    (void)context;
    (void)ranks;
    (void)count;
    (void)purpose;
    (void)deadline_ns;
    return pl_bootstrap_new_self(ret_bootstrap, reterr);
}

static void self_free(struct pl_bootstrap *bootstrap)
{
    free(bootstrap);
}

enum pl_status pl_bootstrap_new_self(struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    struct pl_bootstrap *bootstrap;

    PL_TRY(pl_memory_alloc(&bootstrap, 1, sizeof(*bootstrap), reterr));
    *bootstrap = (struct pl_bootstrap){.name = "self",
                                       .context = bootstrap,
                                       .size = 1,
                                       .exchange = pl_bootstrap_exchange,
                                       .split = self_split,
                                       .any_thread = true,
                                       .free = self_free};
    *ret_bootstrap = bootstrap;
    return PL_OK;
}

enum pl_status pl_bootstrap_leave(struct pl_bootstrap *bootstrap, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(pl_bootstrap_vote(bootstrap, PL_OK, deadline_ns, reterr));
    bootstrap->finalized = true;
    return PL_OK;
}

void pl_bootstrap_free(struct pl_bootstrap *bootstrap)
{
    if (bootstrap) {
        bootstrap->free(bootstrap);
    }
}
