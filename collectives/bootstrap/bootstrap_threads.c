/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process, and messages between them: a locked list of copies for each receiver. */
#include "collectives/bootstrap/bootstrap_private.h"

#include "base/memory.h"
#include "collectives/bootstrap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct message {
    struct message *next;
    size_t bytes;
    int from;
    uint32_t tag;
    char data[];
};

struct mailbox {
    pthread_mutex_t lock;
    struct {
        struct message *first;
        struct message **tail;
    } synced;
};

/* State that the ranks of one world share. */
struct hub {
    int size;
    struct mailbox *boxes; /* [size] */
    pthread_mutex_t lock;
    struct {
        int users;            /* number of endpoints, plus 1 while the parent's split that made the hub exists */
        struct split *splits; /* splits that some of their members have called for, but not yet all */
    } synced;
};

struct split {
    struct split *next;
    struct hub *hub;
    enum pl_split_purpose purpose;
    int count;
    int taken;
    bool *has; /* [count] */
    int *ranks;
};

/* One rank's endpoint at a hub: the context of its bootstrap and transport. */
struct endpoint {
    struct pl_bootstrap bootstrap;
    struct pl_transport transport;
    struct hub *hub;
    int rank;
};

static void hub_leave(struct hub *hub);

/* Frees a split to which no rank refers any more, only the hub that it was called on. */
static void split_free(struct split *split)
{
    if (split->hub) {
        hub_leave(split->hub);
    }
    free(split->has);
    free(split->ranks);
    free(split);
}

static void hub_free(struct hub *hub)
{
    for (int i = 0; hub->boxes && i < hub->size; i++) {
        while (hub->boxes[i].synced.first) {
            struct message *message = hub->boxes[i].synced.first;

            hub->boxes[i].synced.first = message->next;
            free(message);
        }
        pthread_mutex_destroy(&hub->boxes[i].lock);
    }
    while (hub->synced.splits) {
        struct split *split = hub->synced.splits;

        hub->synced.splits = split->next;
        split_free(split);
    }
    pthread_mutex_destroy(&hub->lock);
    free(hub->boxes);
    free(hub);
}

static void hub_join(struct hub *hub)
{
    pthread_mutex_lock(&hub->lock);
    hub->synced.users++;
    pthread_mutex_unlock(&hub->lock);
}

static void hub_leave(struct hub *hub)
{
    int users;

    pthread_mutex_lock(&hub->lock);
    users = --hub->synced.users;
    pthread_mutex_unlock(&hub->lock);
    if (users == 0) {
        hub_free(hub);
    }
}

/* Creates a hub; its reference count is 1. */
static struct hub *hub_new(int size, struct pl_error *reterr)
{
    struct hub *hub = pl_memory_new(1, sizeof(*hub), reterr);

    if (!hub) {
        return NULL;
    }
    pthread_mutex_init(&hub->lock, NULL);
    hub->boxes = pl_memory_new((size_t)size, sizeof(*hub->boxes), reterr);
    if (!hub->boxes) {
        hub_free(hub);
        return NULL;
    }
    hub->size = size;
    hub->synced.users = 1;
    for (int i = 0; i < size; i++) {
        pthread_mutex_init(&hub->boxes[i].lock, NULL);
        hub->boxes[i].synced.tail = &hub->boxes[i].synced.first;
    }
    return hub;
}

static enum pl_status post_message(void *context, const void *data, size_t bytes, int peer, uint32_t tag,
                                   struct pl_transfer *transfer, struct pl_error *reterr)
{
    struct endpoint *endpoint = context;
    struct mailbox *box = &endpoint->hub->boxes[peer];
    struct message *message = pl_memory_new(1, sizeof(*message) + bytes, reterr);

    PL_BUG_IF(bytes > endpoint->transport.most_bytes); /* the same limit as with MPI */
    if (!message) {
        return PL_MEMORY;
    }
    *message = (struct message){.bytes = bytes, .from = endpoint->rank, .tag = tag};
    if (bytes) {
        memcpy(message->data, data, bytes);
    }
    pthread_mutex_lock(&box->lock);
    *box->synced.tail = message;
    box->synced.tail = &message->next;
    pthread_mutex_unlock(&box->lock);
    /* The message is sent already; word 0 is NULL, which tells that to test(). */
    *transfer = (struct pl_transfer){.active = true};
    return PL_OK;
}

enum { WORD_DATA, WORD_BYTES, WORD_PEER, WORD_TAG };

static enum pl_status expect_message(void *context, void *data, size_t bytes, int peer, uint32_t tag,
                                     struct pl_transfer *transfer, struct pl_error *reterr)
{
    static char nowhere;

    (void)context;
    (void)reterr;
    *transfer = (struct pl_transfer){.active = true,
                                     .scratch = {(uintptr_t)(data ? data : &nowhere), bytes, (uintptr_t)peer, tag}};
    return PL_OK;
}

static struct message *take_message(struct mailbox *box, int from, uint32_t tag)
{
    struct message *found = NULL;

    pthread_mutex_lock(&box->lock);
    for (struct message **at = &box->synced.first; *at; at = &(*at)->next) {
        if ((*at)->from == from && (*at)->tag == tag) {
            found = *at;
            *at = found->next;
            if (!found->next) {
                box->synced.tail = at;
            }
            break;
        }
    }
    pthread_mutex_unlock(&box->lock);
    return found;
}

static enum pl_status test_transfer(void *context, struct pl_transfer *transfer, bool *ret_done, size_t *ret_bytes,
                                    struct pl_error *reterr)
{
    struct endpoint *endpoint = context;
    size_t room = transfer->scratch[WORD_BYTES];
    struct message *message;
    size_t bytes;

    *ret_done = false;
    *ret_bytes = 0;
    if (transfer->scratch[WORD_DATA]) {
        message = take_message(&endpoint->hub->boxes[endpoint->rank], (int)transfer->scratch[WORD_PEER],
                               (uint32_t)transfer->scratch[WORD_TAG]);
        if (!message) {
            return PL_OK;
        }
        bytes = message->bytes;
        if (bytes) {
            memcpy((void *)transfer->scratch[WORD_DATA], message->data, bytes < room ? bytes : room);
        }
        free(message);
        if (bytes > room) {
            transfer->active = false;
            return pl_error_set(reterr, PL_MISMATCH, "rank %d sent %zu bytes where rank %d expected at most %zu",
                                pl_transport_global_rank(&endpoint->transport, (int)transfer->scratch[WORD_PEER]),
                                bytes, pl_transport_global_rank(&endpoint->transport, endpoint->rank), room);
        }
        *ret_bytes = bytes;
    }
    transfer->active = false;
    *ret_done = true;
    return PL_OK;
}

static bool probe(void *context, uint32_t tag, int *ret_peer)
{
    struct endpoint *endpoint = context;
    struct mailbox *box = &endpoint->hub->boxes[endpoint->rank];
    struct message *message;

    pthread_mutex_lock(&box->lock);
    for (message = box->synced.first; message && message->tag != tag; message = message->next) {
    }
    *ret_peer = message ? message->from : -1;
    pthread_mutex_unlock(&box->lock);
    return message;
}

static bool cancel_transfer(void *context, struct pl_transfer *transfer)
{
    (void)context;
    transfer->active = false;
    return true;
}

static void endpoint_free(struct pl_bootstrap *bootstrap)
{
    struct endpoint *endpoint = bootstrap->context;

    hub_leave(endpoint->hub);
    free(endpoint);
}

static enum pl_status split(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                            int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr);

static enum pl_status endpoint_new(struct hub *hub, int rank, struct pl_bootstrap **ret_bootstrap,
                                   struct pl_error *reterr)
{
    struct endpoint *endpoint;

    PL_TRY(pl_memory_alloc(&endpoint, 1, sizeof(*endpoint), reterr));
    hub_join(hub);
    endpoint->hub = hub;
    endpoint->rank = rank;
    endpoint->transport = (struct pl_transport){.name = "threads",
                                                .context = endpoint,
                                                .most_bytes = PL_TRANSPORT_MOST_BYTES,
                                                .send = post_message,
                                                .recv = expect_message,
                                                .test = test_transfer,
                                                .probe = probe,
                                                .cancel = cancel_transfer};
    endpoint->bootstrap = (struct pl_bootstrap){.name = "threads",
                                                .context = endpoint,
                                                .rank = rank,
                                                .size = hub->size,
                                                .exchange = pl_bootstrap_exchange,
                                                .split = split,
                                                .any_thread = true,
                                                .transport = &endpoint->transport,
                                                .free = endpoint_free};
    *ret_bootstrap = &endpoint->bootstrap;
    return PL_OK;
}

/* Finds the split that this member has not joined yet; call it with the parent's lock held. A member that calls
 * twice with the same list means two sub-worlds. */
static struct split *find_split(struct hub *hub, enum pl_split_purpose purpose, const int *ranks, int count, int place)
{
    for (struct split *split = hub->synced.splits; split; split = split->next) {
        if (split->purpose == purpose && split->count == count && !split->has[place] &&
            memcmp(split->ranks, ranks, (size_t)count * sizeof(*ranks)) == 0) {
            return split;
        }
    }
    return NULL;
}

static struct split *add_split(struct hub *hub, enum pl_split_purpose purpose, const int *ranks, int count,
                               struct pl_error *reterr)
{
    struct split *split = pl_memory_new(1, sizeof(*split), reterr);
    struct split **tail = &hub->synced.splits;

    if (!split) {
        return NULL;
    }
    split->has = pl_memory_new((size_t)count, sizeof(*split->has), reterr);
    split->ranks = pl_memory_new((size_t)count, sizeof(*split->ranks), reterr);
    split->hub = split->has && split->ranks ? hub_new(count, reterr) : NULL;
    if (!split->hub) {
        split_free(split);
        return NULL;
    }
    memcpy(split->ranks, ranks, (size_t)count * sizeof(*ranks));
    split->purpose = purpose;
    split->count = count;
    while (*tail) {
        tail = &(*tail)->next;
    }
    *tail = split;
    return split;
}

static void remove_split(struct hub *hub, struct split *split)
{
    struct split **at = &hub->synced.splits;

    while (*at != split) {
        at = &(*at)->next;
    }
    *at = split->next;
    split_free(split);
}

static enum pl_status split(void *context, const int *ranks, int count, enum pl_split_purpose purpose,
                            int64_t deadline_ns, struct pl_bootstrap **ret_bootstrap, struct pl_error *reterr)
{
    struct endpoint *endpoint = context;
    enum pl_status status = PL_MEMORY;
    struct split *entry;
    int place = 0;

    (void)deadline_ns; /* it does not wait for other ranks */
    while (ranks[place] != endpoint->rank) {
        place++;
    }
    pthread_mutex_lock(&endpoint->hub->lock);
    entry = find_split(endpoint->hub, purpose, ranks, count, place);
    if (!entry) {
        entry = add_split(endpoint->hub, purpose, ranks, count, reterr);
    }
    if (entry) {
        status = endpoint_new(entry->hub, place, ret_bootstrap, reterr);
    }
    if (status == PL_OK) {
        entry->has[place] = true;
        if (++entry->taken == count) {
            remove_split(endpoint->hub, entry);
        }
    }
    pthread_mutex_unlock(&endpoint->hub->lock);
    return status;
}

enum pl_status pl_bootstrap_new_threads(int size, struct pl_bootstrap **ret_bootstraps, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;
    struct hub *hub;

    if (size < 1) {
        return pl_error_set(reterr, PL_INVALID, "expected at least 1 thread for a world, found %d", size);
    }
    hub = hub_new(size, reterr);
    if (!hub) {
        return PL_MEMORY;
    }
    for (int i = 0; i < size && status == PL_OK; i++) {
        status = endpoint_new(hub, i, &ret_bootstraps[i], reterr);
        while (status != PL_OK && i-- > 0) {
            endpoint_free(ret_bootstraps[i]);
        }
    }
    hub_leave(hub);
    return status;
}
