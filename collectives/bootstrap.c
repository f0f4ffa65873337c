/* SPDX-License-Identifier: Apache-2.0 */
#include "collectives/bootstrap.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum pl_status pl_transfer_wait(const struct pl_transport *transport, struct pl_transfer *transfer, int64_t deadline_ns, const char *what, int peer,
                                struct pl_error *reterr)
{
    int64_t nap_ns = 5 * PL_NS_PER_US;
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
            return pl_error_set(reterr, PL_TIMEOUT, "%s: rank %d did not answer before the deadline", what, pl_transport_label(transport, peer));
        }
        pl_clock_nap(nap_ns, deadline_ns);
        nap_ns = nap_ns < PL_NS_PER_MS ? nap_ns * 2 : nap_ns;
    }
}

/*
 * Distances 1, 2, 4, ...: after each round a rank holds the blocks of twice as many ranks below it. `held` keeps the block of rank
 * (rank - i) mod size at place i, so that what is sent and what comes in are each one contiguous piece.
 */
enum pl_status pl_transport_allgather(const struct pl_transport *transport, int rank, int size, const void *send, void *recv, size_t bytes,
                                      int64_t deadline_ns, struct pl_error *reterr)
{
    PL_AUTO_FREE char *held = pl_memory_new((size_t)size, bytes ? bytes : 1, reterr);

    if (!held) {
        return PL_MEMORY;
    }
    if (bytes) {
        memcpy(held, send, bytes);
    }
    for (int distance = 1; distance < size; distance *= 2) {
        int blocks = distance < size - distance ? distance : size - distance;
        int to = (rank + distance) % size;
        int from = (rank - distance + size) % size;
        struct pl_transfer out = {0};
        struct pl_transfer in = {0};

        enum pl_status status;

        status = transport->recv(transport->context, held + (size_t)distance * bytes, (size_t)blocks * bytes, from, PL_TAG_BOOTSTRAP, &in, reterr);
        if (status == PL_OK) {
            status = transport->send(transport->context, held, (size_t)blocks * bytes, to, PL_TAG_BOOTSTRAP, &out, reterr);
        }
        if (status == PL_OK) {
            status = pl_transfer_wait(transport, &in, deadline_ns, "meeting the other ranks", from, reterr);
        }
        if (status == PL_OK) {
            status = pl_transfer_wait(transport, &out, deadline_ns, "meeting the other ranks", to, reterr);
        }
        if (status != PL_OK) {
            bool idle = !in.active || transport->cancel(transport->context, &in);

            idle = (!out.active || transport->cancel(transport->context, &out)) && idle;
            if (!idle) {
                held = NULL; /* may still be written to: better lost than reused */
            }
            return status;
        }
    }
    for (int i = 0; i < size && bytes; i++) {
        memcpy((char *)recv + (size_t)((rank - i + size) % size) * bytes, held + (size_t)i * bytes, bytes);
    }
    return PL_OK;
}

static enum pl_status self_allgather(void *context, const void *send, void *recv, size_t bytes, int64_t deadline_ns, struct pl_error *reterr)
{
    (void)context;
    (void)deadline_ns;
    (void)reterr;
    memcpy(recv, send, bytes);
    return PL_OK;
}

static enum pl_status self_barrier(void *context, int64_t deadline_ns, struct pl_error *reterr)
{
    (void)context;
    (void)deadline_ns;
    (void)reterr;
    return PL_OK;
}

static enum pl_status self_split(void *context, const int *ranks, int count, int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap,
                                 struct pl_error *reterr)
{
    (void)context;
    (void)ranks;
    (void)count;
    (void)deadline_ns;
    return pl_bootstrap_new_self(ret_bootstrap, reterr);
}

void pl_bootstrap_abort_process(void *context, int code)
{
    (void)context;
    _exit(code);
}

static void self_free(struct pl_bootstrap *bootstrap)
{
    free(bootstrap);
}

enum pl_status pl_bootstrap_new_self(struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    struct pl_bootstrap *bootstrap = pl_memory_new(1, sizeof(*bootstrap), reterr);

    if (!bootstrap) {
        return PL_MEMORY;
    }
    *bootstrap = (struct pl_bootstrap){.name = "self",
                                       .size = 1,
                                       .allgather = self_allgather,
                                       .barrier = self_barrier,
                                       .abort = pl_bootstrap_abort_process,
                                       .split = self_split,
                                       .any_thread = true,
                                       .free = self_free};
    *ret_bootstrap = bootstrap;
    return PL_OK;
}

enum pl_status pl_bootstrap_leave(struct pl_bootstrap *bootstrap, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(bootstrap->barrier(bootstrap->context, deadline_ns, reterr));
    bootstrap->together = true;
    return PL_OK;
}

void pl_bootstrap_free(struct pl_bootstrap *bootstrap)
{
    if (bootstrap) {
        bootstrap->free(bootstrap);
    }
}
