/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's ranks and messages. The only file that includes mpi.h. No call here blocks, except those that make or end
 * MPI or a communicator. */
#include "collectives/bootstrap/bootstrap_private.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/knob.h"
#include "base/memory.h"
#include "collectives/bootstrap.h"

#include <mpi.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A process has one MPI: if it was initialised here, freeing the last bootstrap over it finalises it. */
static _Atomic bool owns_mpi;
static _Atomic int owners;

struct mpi_endpoint {
    struct pl_bootstrap bootstrap;
    struct pl_transport transport;
    MPI_Comm comm;
    int rank;
    int size;
    bool owner; /* whether it counts in `owners` */
    /* True after a message failed or was cancelled: a collective call of MPI could hang then. It stays false if every
     * rank got the failure report of the rank that failed. */
    _Atomic bool broken;
};

static enum pl_status raise_mpi(struct mpi_endpoint *endpoint, int code, const char *what, int peer,
                                struct pl_error *reterr)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    char name[PL_RANK_NAME_BYTES];
    int class = MPI_ERR_OTHER;
    int own = endpoint ? pl_transport_global_rank(&endpoint->transport, endpoint->rank) : -1;

    MPI_Error_string(code, text, &length);
    MPI_Error_class(code, &class);
    if (endpoint) {
        endpoint->broken = true;
    }
    if (endpoint && peer >= 0) {
        pl_transport_rank_name(&endpoint->transport, peer, name);
    } else if (peer >= 0) {
        snprintf(name, sizeof(name), "rank %d", peer);
    }
    if (class == MPI_ERR_TRUNCATE) {
        return pl_error_raise(reterr, PL_MISMATCH, PL_DOMAIN_MPI, class,
                              "rank %d sent more bytes than rank %d expected",
                              endpoint && peer >= 0 ? pl_transport_global_rank(&endpoint->transport, peer) : peer, own);
    }
    if (peer >= 0) {
        return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_MPI, class, "%s, %s: %s", what, name, text);
    }
    return pl_error_raise(reterr, PL_LIBRARY, PL_DOMAIN_MPI, class, "%s: %s", what, text);
}

enum { WORD_REQUEST, WORD_PEER };

static MPI_Request request_of(const struct pl_transfer *transfer)
{
    MPI_Request request;

    _Static_assert(sizeof(request) <= sizeof(transfer->scratch[0]), "a request fits in a word");
    memcpy(&request, &transfer->scratch[WORD_REQUEST], sizeof(request));
    return request;
}

static void keep_request(struct pl_transfer *transfer, MPI_Request request, int peer)
{
    transfer->active = true;
    memcpy(&transfer->scratch[WORD_REQUEST], &request, sizeof(request));
    transfer->scratch[WORD_PEER] = (uintptr_t)peer;
}

static enum pl_status send_bytes(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                 struct pl_transfer *transfer, struct pl_error *reterr)
{
    struct mpi_endpoint *endpoint = context;
    MPI_Request request;
    int code;

    PL_BUG_IF(bytes > endpoint->transport.most_bytes);
    code = MPI_Isend(data, (int)bytes, MPI_BYTE, peer, (int)tag, endpoint->comm, &request);
    if (code != MPI_SUCCESS) {
        return raise_mpi(endpoint, code, "MPI_Isend", peer, reterr);
    }
    keep_request(transfer, request, peer);
    return PL_OK;
}

static enum pl_status recv_bytes(void *context, void *data, size_t bytes, int peer, uint32_t tag,
                                 struct pl_transfer *transfer, struct pl_error *reterr)
{
    struct mpi_endpoint *endpoint = context;
    MPI_Request request;
    int code;

    PL_BUG_IF(bytes > endpoint->transport.most_bytes);
    code = MPI_Irecv(data, (int)bytes, MPI_BYTE, peer, (int)tag, endpoint->comm, &request);
    if (code != MPI_SUCCESS) {
        return raise_mpi(endpoint, code, "MPI_Irecv", peer, reterr);
    }
    keep_request(transfer, request, peer);
    return PL_OK;
}

static enum pl_status test_transfer(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                    struct pl_error *reterr)
{
    struct mpi_endpoint *endpoint = context;
    MPI_Request request = request_of(transfer);
    MPI_Status status;
    int done = 0;
    int bytes = 0;
    int code = MPI_Test(&request, &done, &status);

    if (code != MPI_SUCCESS) {
        transfer->active = false;
        return raise_mpi(endpoint, code, "MPI_Test", (int)transfer->scratch[WORD_PEER], reterr);
    }
    *ret_done = done;
    if (!done) {
        return PL_OK;
    }
    transfer->active = false;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    *ret_bytes = bytes > 0 ? (size_t)bytes : 0;
    return PL_OK;
}

static bool probe(void *context, uint32_t tag, int *ret_peer)
{
    struct mpi_endpoint *endpoint = context;
    MPI_Status status;
    int found = 0;

    if (MPI_Iprobe(MPI_ANY_SOURCE, (int)tag, endpoint->comm, &found, &status) != MPI_SUCCESS || !found) {
        return false;
    }
    *ret_peer = status.MPI_SOURCE;
    return true;
}

static bool cancel_transfer(void *context, struct pl_transfer *transfer)
{
    struct mpi_endpoint *endpoint = context;
    MPI_Request request = request_of(transfer);
    int64_t deadline_ns = pl_deadline_after_ns(20 * PL_NS_PER_MS);
    int done = 0;

    endpoint->broken = true;
    transfer->active = false;
    /* A receive without a matching send can be cancelled; a receive under way, or a send, may complete soon. */
    MPI_Cancel(&request);
    while (!done && !pl_deadline_passed(deadline_ns)) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            return true;
        }
    }
    endpoint->transport.leaked = endpoint->transport.leaked || !done;
    return done;
}

static void endpoint_free(struct pl_bootstrap *bootstrap)
{
    struct mpi_endpoint *endpoint = bootstrap->context;
    int finalized = 0;
    bool last = endpoint->owner && atomic_fetch_sub(&owners, 1) == 1;

    MPI_Finalized(&finalized);
    /* MPI_Finalize waits for all ranks without a deadline: call it only if all are known to be at their end. */
    if (!finalized && !endpoint->broken && (!last || bootstrap->finalized)) {
        /* A revoked communicator is not freed, on purpose: Open MPI reuses its number, and the communicator that
         * gets the number would receive a late revoke message. */
        if (!endpoint->transport.revoked) {
            MPI_Comm_free(&endpoint->comm);
        }
        if (last) {
            MPI_Finalize();
        }
    }
    free(endpoint->transport.leaked ? NULL : endpoint); /* MPI may still use the receive buffers in it */
}

static enum pl_status split(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                            int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr);

static enum pl_status endpoint_new(MPI_Comm comm, bool owner, struct pl_bootstrap **ret_bootstrap,
                                   struct pl_error *reterr)
{
    struct mpi_endpoint *endpoint;
    int *tag_limit = NULL;
    int found = 0;
    int level = MPI_THREAD_SINGLE;

    PL_TRY(pl_memory_alloc(&endpoint, 1, sizeof(*endpoint), reterr));
    endpoint->comm = comm;
    endpoint->owner = owner;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &endpoint->rank);
    MPI_Comm_size(comm, &endpoint->size);
    MPI_Query_thread(&level);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_limit, &found); /* not every communicator has the attribute */
    if (!found || *tag_limit < (1 << PL_TAG_BITS) - 1) {
        free(endpoint);
        return pl_error_set(reterr, PL_UNSUPPORTED, "this MPI's tags end at %d; at least %d bits are needed",
                            found ? *tag_limit : 0, PL_TAG_BITS);
    }
    endpoint->transport = (struct pl_transport){.name = "mpi",
                                                .context = endpoint,
                                                .most_bytes = PL_TRANSPORT_MOST_BYTES,
                                                .send = send_bytes,
                                                .recv = recv_bytes,
                                                .test = test_transfer,
                                                .probe = probe,
                                                .cancel = cancel_transfer};
    endpoint->bootstrap = (struct pl_bootstrap){.name = "mpi",
                                                .context = endpoint,
                                                .rank = endpoint->rank,
                                                .size = endpoint->size,
                                                .exchange = pl_bootstrap_exchange,
                                                .split = split,
                                                .any_thread = level == MPI_THREAD_MULTIPLE,
                                                .transport = &endpoint->transport,
                                                .free = endpoint_free};
    atomic_fetch_add(&owners, owner);
    *ret_bootstrap = &endpoint->bootstrap;
    return PL_OK;
}

/* Returns when all members have called. It is called twice with different tags: see split(). */
static enum pl_status rendezvous(struct mpi_endpoint *endpoint, const int *ranks, int count, uint32_t tag,
                                 int64_t deadline_ns, struct pl_error *reterr)
{
    int place = 0;

    while (ranks[place] != endpoint->rank) {
        place++;
    }
    for (int distance = 1; distance < count; distance *= 2) {
        int to = ranks[(place + distance) % count];
        int from = ranks[(place - distance + count) % count];
        struct pl_transfer out = {0};
        struct pl_transfer in = {0};

        PL_TRY(recv_bytes(endpoint, NULL, 0, from, tag, &in, reterr));
        PL_TRY(send_bytes(endpoint, NULL, 0, to, tag, &out, reterr));
        PL_TRY(pl_bootstrap_wait_transfer(&endpoint->transport, &in, deadline_ns, "making a sub-world", from, reterr));
        PL_TRY(pl_bootstrap_wait_transfer(&endpoint->transport, &out, deadline_ns, "making a sub-world", to, reterr));
    }
    return PL_OK;
}

static enum pl_status split(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                            int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    struct mpi_endpoint *endpoint = context;
    uint32_t tag = PL_TAG_RENDEZVOUS + 2 * (uint32_t)purpose;
    enum pl_status status;
    MPI_Group all;
    MPI_Group group;
    MPI_Comm comm;
    int code;

    /* MPI's own call has no deadline, so all members must be there before it. The rendezvous runs twice, because in
     * the first one a rank that came too late may receive messages of ranks whose deadline has passed since. */
    status = rendezvous(endpoint, ranks, count, tag, deadline_ns, reterr);
    if (status == PL_OK) {
        status = rendezvous(endpoint, ranks, count, tag + 1, deadline_ns, reterr);
    }
    if (status != PL_OK) {
        endpoint->broken = true;
        return status;
    }
    MPI_Comm_group(endpoint->comm, &all);
    MPI_Group_incl(all, count, ranks, &group);
    code = MPI_Comm_create_group(endpoint->comm, group, (int)tag, &comm); /* threads may call it with different tags */
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    if (code != MPI_SUCCESS) {
        return raise_mpi(endpoint, code, "MPI_Comm_create_group", -1, reterr);
    }
    status = endpoint_new(comm, false, ret_bootstrap, reterr);
    if (status != PL_OK) {
        MPI_Comm_free(&comm);
    }
    return status;
}

/* Ignores SIGPIPE. Open MPI also writes to a peer that has died. Such a write must fail with an error; the signal would
 * kill this rank without a message. */
static void ignore_broken_pipes(void)
{
    struct sigaction now;

    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        signal(SIGPIPE, SIG_IGN);
    }
}

/*
 * Opens all connections of all pairs of ranks, each from the lower rank: a message sent before they are open could
 * hang. Persistent requests are used, because only these use one connection per message, for any number of connections.
 */
static int open_connections(int rank, int size, unsigned links, MPI_Request *requests, int64_t deadline_ns,
                            int *ret_done)
{
    int count = 0;
    int code = MPI_SUCCESS;

    *ret_done = 0;
    for (int i = 0; i < size * (int)links && code == MPI_SUCCESS; i++) {
        int peer = i / (int)links;

        if (peer != rank) {
            code = rank < peer
                       ? MPI_Send_init(NULL, 0, MPI_BYTE, peer, PL_TAG_BOOTSTRAP, MPI_COMM_WORLD, &requests[count])
                       : MPI_Recv_init(NULL, 0, MPI_BYTE, peer, PL_TAG_BOOTSTRAP, MPI_COMM_WORLD, &requests[count]);
            count += code == MPI_SUCCESS;
        }
    }
    code = code == MPI_SUCCESS ? MPI_Startall(count, requests) : code;
    while (code == MPI_SUCCESS && !*ret_done && !pl_deadline_passed(deadline_ns)) {
        code = MPI_Testall(count, requests, ret_done, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < count && code == MPI_SUCCESS && *ret_done; i++) {
        code = MPI_Request_free(&requests[i]);
    }
    return code;
}

static enum pl_status connect_all(unsigned links, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    PL_AUTO_FREE MPI_Request *requests = NULL;
    struct pl_knobs knobs;
    int rank, size, code, done;
    int64_t timeout_ns;

    PL_TRY(pl_environment_new(&environment, reterr));
    PL_TRY(pl_knobs_resolve(environment, &knobs, reterr));
    timeout_ns = pl_knob_real(&knobs, PL_KNOB_TIMEOUT_S) > 0 ? pl_knob_ns(&knobs, PL_KNOB_TIMEOUT_S, PL_NS_PER_S) : -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    PL_TRY(pl_memory_alloc(&requests, (size_t)size * links, sizeof(MPI_Request), reterr));
    code = open_connections(rank, size, links, requests, pl_deadline_after_ns(timeout_ns), &done);
    if (code != MPI_SUCCESS) {
        return raise_mpi(NULL, code, "opening the connections", -1, reterr);
    }
    return done ? PL_OK
                : pl_error_set(reterr, PL_TIMEOUT,
                               "rank %d waited %.1f s for its %u connections to every other rank (btl_tcp_links): "
                               "expected all ranks to start Paceline before they initialise MPI",
                               rank, pl_knob_real(&knobs, PL_KNOB_TIMEOUT_S), links);
}

static enum pl_status initialize(struct pl_error *reterr)
{
    unsigned links = 1;
    int level, code;

    PL_TRY(pl_tcp_links_request(&links, reterr));
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) {
        return raise_mpi(NULL, code, "MPI_Init_thread", -1, reterr);
    }
    owns_mpi = true;
    return links == 1 ? PL_OK : connect_all(links, reterr);
}

/* Fails if several connections are wanted: the program has initialised MPI itself, so initialize() has not opened them.
 * Messages could hang, and a rank that is in initialize() waits for this one. */
static enum pl_status check_connections(struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    const char *interface;
    unsigned links;

    PL_TRY(pl_environment_new(&environment, reterr));
    links = pl_tcp_links_count(environment, &interface);
    return links == 1
               ? PL_OK
               : pl_error_set(reterr, PL_INVALID,
                              "btl_tcp_links is %u, but the program initialised MPI before Paceline: several "
                              "connections need Paceline to do that; start Paceline first, or do not set btl_tcp_links",
                              links);
}

enum pl_status pl_bootstrap_new_mpi(const void *communicator_at, struct pl_bootstrap **ret_bootstrap,
                                    struct pl_error *reterr)
{
    MPI_Comm parent = MPI_COMM_WORLD;
    MPI_Comm comm;
    int initialized = 0;
    int finalized = 0;
    int code;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized) {
        return pl_error_set(reterr, PL_INVALID,
                            "MPI was finalised already and cannot be started again in this process");
    }
    if (!owns_mpi) {
        PL_TRY(initialized ? check_connections(reterr) : initialize(reterr));
    }
    if (communicator_at) {
        memcpy(&parent, communicator_at, sizeof(parent));
    }
    code = MPI_Comm_dup(parent, &comm);
    if (code != MPI_SUCCESS) {
        return raise_mpi(NULL, code, "MPI_Comm_dup", -1, reterr);
    }
    ignore_broken_pipes();
    return endpoint_new(comm, owns_mpi, ret_bootstrap, reterr);
}

enum pl_status pl_bootstrap_mpi_members(const void *communicators, int index, int *ret_ranks, int room, int *ret_count,
                                        const void **ret_handle, struct pl_error *reterr)
{
    PL_AUTO_FREE int *numbers = NULL;
    MPI_Comm all, some;
    MPI_Group all_group, group;
    int count = 0, between = 0, code;

    PL_TRY(pl_memory_alloc(&numbers, (size_t)room, sizeof(int), reterr));
    memcpy(&all, communicators, sizeof(all));
    memcpy(&some, (const char *)communicators + (size_t)index * sizeof(some), sizeof(some));
    *ret_count = 0;
    *ret_handle = (const void *)(uintptr_t)some;
    if (some == MPI_COMM_NULL) {
        return PL_OK;
    }
    MPI_Comm_test_inter(some, &between);
    if (between) {
        return pl_error_set(reterr, PL_INVALID, "communicator %d is an intercommunicator; expected one group", index);
    }
    MPI_Comm_size(some, &count);
    if (count > room) {
        return pl_error_set(reterr, PL_INVALID, "communicator %d has %d members, more than the %d of communicator 0",
                            index, count, room);
    }
    for (int i = 0; i < count; i++) {
        numbers[i] = i;
    }
    MPI_Comm_group(all, &all_group);
    MPI_Comm_group(some, &group);
    code = MPI_Group_translate_ranks(group, count, numbers, all_group, ret_ranks);
    MPI_Group_free(&group);
    MPI_Group_free(&all_group);
    if (code != MPI_SUCCESS) {
        return raise_mpi(NULL, code, "MPI_Group_translate_ranks", -1, reterr);
    }
    for (int i = 0; i < count; i++) {
        if (ret_ranks[i] == MPI_UNDEFINED) {
            return pl_error_set(reterr, PL_INVALID, "rank %d of communicator %d is not a member of communicator 0", i,
                                index);
        }
    }
    *ret_count = count;
    return PL_OK;
}

bool pl_bootstrap_owns_mpi(void)
{
    return owns_mpi;
}

bool pl_bootstrap_under_mpi(void)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    int initialized = 0;

    MPI_Initialized(&initialized);
    if (initialized) {
        return true;
    }
    if (pl_environment_new(&environment, NULL) != PL_OK) {
        /* True, because MPI is likely: a rank that took itself for the only one would train, and write the model,
         * next to the others. */
        return true;
    }
    return pl_environment_get(environment, "OMPI_COMM_WORLD_SIZE") || pl_environment_get(environment, "PMIX_RANK") ||
           pl_environment_get(environment, "PMI_RANK");
}
