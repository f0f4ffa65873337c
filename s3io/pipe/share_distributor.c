/* SPDX-License-Identifier: Apache-2.0 */
/* The distributor: a thread of local rank 0 that reads a FIFO and gives each record to its rank through a ring. */

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/thread.h"
#include "s3io/pipe/share_link.h"
#include "s3io/pipe/share_ring.h"
#include "s3io/share.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* While the FIFO delivers nothing, the distributor checks after this time whether its clients are alive. It reports a
 * longer wait to them. */
#define CHECK_PEERS_NS (200 * PL_NS_PER_MS)

/* How long local rank 0 stays after its close for ranks that still read. */
#define LINGER_NS (30 * PL_NS_PER_S)

enum { NOBODY = -1 };

enum stopping { GO_ON, STOP_WHEN_SERVED, STOP_AT_ONCE };

struct client {
    bool here;
    int link_fd; /* -1 after the rank has left */
    struct pl_shard deal;
    struct pl_share_ring ring;
};

struct pl_share_distributor {
    struct pl_share_options options;
    struct pl_share_feed feed;
    pthread_t thread;
    int listen_fd;
    int event_fd; /* readable when a rank has something for the distributor */
    int stop_fd;
    atomic_int stopping; /* enum stopping */
    int64_t linger_ns;   /* deadline after a stop request; 0 before */
    struct client *clients;
    bool *shard_mask; /* [deal.size]: the shards of this host's ranks */
    int *client_of;   /* [deal.size]: the index of each shard's client */
    struct pollfd *polls;
    bool lost;                                             /* a rank has died, and no more records can be distributed */
    uint64_t done;                                         /* number of epochs that are over */
    struct pl_share_report reports[PL_SHARE_REPORT_SLOTS]; /* the reports that all ranks can read */
    /* why the thread ended early; read it after joining the thread */
    struct pl_error error;
    atomic_bool connected; /* all clients are connected, and their rings stay */
};

static uint64_t wanted(const struct client *client)
{
    return atomic_load(&client->ring.head->wanted);
}

/* Whether the client needs no more records of `epoch`. */
static bool has_left(const struct client *client, uint64_t epoch)
{
    return client->link_fd < 0 || wanted(client) > epoch + 1;
}

static bool is_cancelled(struct pl_share_distributor *distributor)
{
    int stopping = atomic_load(&distributor->stopping);

    if (stopping == GO_ON) {
        return distributor->lost;
    }
    if (distributor->linger_ns == 0) {
        distributor->linger_ns = pl_deadline_after_ns(LINGER_NS);
    }
    return distributor->lost || stopping == STOP_AT_ONCE || pl_deadline_passed(distributor->linger_ns);
}

/* Writes a report for all ranks. Local rank 0 gets it last: if its process then ends because of it, the others have
 * it. */
static void report(struct pl_share_distributor *distributor, enum pl_share_report_slot slot, uint64_t epoch, bool final,
                   const struct pl_error *error)
{
    struct pl_share_report *now = &distributor->reports[slot];

    if (now->epoch == epoch && now->final == final && now->error.status == error->status &&
        strcmp(now->error.cause, error->cause) == 0) {
        return; /* the report is there already: a rank may be reading it */
    }
    *now = (struct pl_share_report){.epoch = epoch, .final = final, .error = *error};
    for (uint32_t i = distributor->options.local_size; i-- > 0;) {
        pl_share_ring_report(&distributor->clients[i].ring, slot, now);
    }
}

/* Removes a report: the wait is over, or all ranks have left the epoch whose end it was. */
static void clear_report(struct pl_share_distributor *distributor, enum pl_share_report_slot slot)
{
    if (distributor->reports[slot].error.status != PL_OK) {
        report(distributor, slot, 0, false, &PL_ERROR_NONE);
    }
}

static bool reports_wait(const struct pl_share_distributor *distributor, enum pl_share_report_slot slot)
{
    return !distributor->reports[slot].final && distributor->reports[slot].error.status != PL_OK;
}

/*
 * Ends the channel because the process of local rank `i` has died. If that rank ended because the FIFO failed, or
 * because nothing came before its deadline, that is the cause, and not the death of the process.
 */
static void set_lost(struct pl_share_distributor *distributor, uint32_t i)
{
    const struct pl_share_report *end = &distributor->reports[PL_SHARE_REPORT_EPOCH];

    distributor->lost = true;
    if (end->final && end->error.status != PL_END) {
        distributor->error = end->error;
        return;
    }
    if (!atomic_load(&distributor->clients[i].ring.head->timed_out)) {
        pl_error_set(&distributor->error, PL_PEER, "the process of local rank %u, which shares this channel, has ended",
                     i);
        return;
    }
    pl_error_set(&distributor->error, PL_TIMEOUT,
                 "local rank %u, which shares this channel, has ended: no record came before its deadline", i);
    for (unsigned slot = 0; slot < PL_SHARE_REPORT_SLOTS; slot++) {
        if (reports_wait(distributor, (enum pl_share_report_slot)slot)) {
            distributor->error = distributor->reports[slot].error;
            return;
        }
    }
}

/* Checks whether sockets have ended: such a rank has left the channel before, or it has died. */
static void check_links(struct pl_share_distributor *distributor)
{
    for (uint32_t i = 0; i < distributor->options.local_size; i++) {
        struct client *client = &distributor->clients[i];
        char byte;

        if (client->link_fd < 0 || recv(client->link_fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0) {
            continue;
        }
        pl_file_close_at(&client->link_fd);
        if (wanted(client) != UINT64_MAX && !distributor->lost) {
            set_lost(distributor, i);
        }
    }
}

/*
 * Waits for an event, the end of a rank, a stop request, or the deadline after it. Returns false if the wait lasts so
 * long that the ranks should know the reason, and `slot` has no report of it yet.
 */
static bool wait_for_event(struct pl_share_distributor *distributor, enum pl_share_report_slot slot)
{
    bool reported = reports_wait(distributor, slot);
    int64_t deadline_ns = distributor->linger_ns ? distributor->linger_ns : PL_DEADLINE_NEVER;
    int64_t report_ns = reported ? PL_DEADLINE_NEVER : pl_deadline_after_ns(CHECK_PEERS_NS);
    uint32_t count = distributor->options.local_size;
    int ready;

    distributor->polls[0] = (struct pollfd){.fd = distributor->event_fd, .events = POLLIN};
    /* After the stop request was handled, it would make poll() return at once. */
    distributor->polls[1] = (struct pollfd){.fd = distributor->linger_ns ? -1 : distributor->stop_fd, .events = POLLIN};
    for (uint32_t i = 0; i < count; i++) {
        distributor->polls[2 + i] = (struct pollfd){.fd = distributor->clients[i].link_fd, .events = POLLIN};
    }
    ready = poll(distributor->polls, 2 + count, pl_deadline_poll_ms(report_ns < deadline_ns ? report_ns : deadline_ns));
    pl_share_ring_event_clear(distributor->event_fd);
    check_links(distributor);
    return ready != 0 || reported;
}

/* Reserves room for a frame in the rank's ring. Returns NULL if the rank has left the epoch or the distributor must
 * stop. */
static struct pl_share_frame *reserve(struct pl_share_distributor *distributor, struct client *client, uint64_t epoch,
                                      size_t data_bytes)
{
    for (;;) {
        struct pl_share_frame *frame;

        if (has_left(client, epoch)) {
            return NULL;
        }
        frame = pl_share_ring_reserve(&client->ring, data_bytes);
        if (frame) {
            return frame;
        }
        atomic_store(&client->ring.head->distributor_waits, 1);
        frame = pl_share_ring_reserve(&client->ring, data_bytes);
        if (frame || is_cancelled(distributor)) {
            return frame;
        }
        if (!wait_for_event(distributor, PL_SHARE_REPORT_EPOCH)) {
            struct pl_error error = PL_ERROR_NONE;

            pl_error_set(&error, PL_TIMEOUT,
                         "the shared channel waits for local rank %ld, which has not read its earlier records",
                         (long)(client - distributor->clients));
            report(distributor, PL_SHARE_REPORT_EPOCH, epoch, false, &error);
        }
    }
}

static void put_record(struct pl_share_distributor *distributor, struct client *client, uint64_t epoch,
                       const struct pl_record *record)
{
    size_t most = pl_share_ring_max_data(&client->ring), done = 0;

    do {
        size_t now = pl_number_min(record->bytes - done, most);
        struct pl_share_frame *frame = reserve(distributor, client, epoch, now);

        if (!frame) {
            return;
        }
        frame->kind = record->bytes <= most ? PL_SHARE_FRAME_RECORD : PL_SHARE_FRAME_PART;
        frame->epoch = epoch;
        frame->number = record->index;
        frame->offset_bytes = record->offset_bytes;
        frame->bytes = record->bytes;
        if (now) {
            memcpy(frame + 1, record->data + done, now);
        }
        pl_share_ring_publish(&client->ring, frame);
        done += now;
    } while (done < record->bytes);
}

static bool all_left(const struct pl_share_distributor *distributor, uint64_t epoch)
{
    for (uint32_t i = 0; i < distributor->options.local_size; i++) {
        if (!has_left(&distributor->clients[i], epoch)) {
            return false;
        }
    }
    return true;
}

static void distribute_epoch(struct pl_share_distributor *distributor, uint64_t epoch)
{
    int64_t deadline_ns = pl_deadline_after_ns(distributor->options.timeout_ns);
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = distributor->feed.start(distributor->feed.context, epoch, deadline_ns, &error);

    for (unsigned slot = 0; slot < PL_SHARE_REPORT_SLOTS; slot++) {
        clear_report(distributor, (enum pl_share_report_slot)slot);
    }
    while (status == PL_OK && !all_left(distributor, epoch) && !is_cancelled(distributor)) {
        int64_t look_ns = pl_deadline_after_ns(CHECK_PEERS_NS);
        struct pl_record record;

        status = distributor->feed.next(distributor->feed.context, distributor->shard_mask,
                                        look_ns < deadline_ns ? look_ns : deadline_ns, &record, &error);
        if (status == PL_OK) {
            clear_report(distributor, PL_SHARE_REPORT_EPOCH);
            put_record(distributor,
                       &distributor->clients[distributor->client_of[record.index % distributor->options.deal.size]],
                       epoch, &record);
            clear_report(distributor, PL_SHARE_REPORT_EPOCH);
            deadline_ns = pl_deadline_after_ns(distributor->options.timeout_ns);
        } else if (status == PL_TIMEOUT && !pl_deadline_passed(deadline_ns)) {
            report(distributor, PL_SHARE_REPORT_EPOCH, epoch, false, &error);
            status = PL_OK;
        }
        if (status == PL_OK && look_ns < pl_clock_now_ns()) {
            check_links(distributor);
        }
    }
    if (status != PL_OK) {
        error.status = status; /* PL_END has no error text */
        report(distributor, PL_SHARE_REPORT_EPOCH, epoch, true, &error);
    } else {
        clear_report(distributor, PL_SHARE_REPORT_EPOCH);
    }
    distributor->done = epoch + 1;
}

/* Waits until each rank wants an epoch that was not distributed yet, and returns the earliest of them. Returns false if
 * no rank will want another epoch. */
static bool next_epoch(struct pl_share_distributor *distributor, uint64_t *ret_epoch)
{
    for (;;) {
        uint64_t least = UINT64_MAX;
        uint32_t latest = 0; /* the local rank that wants the earliest epoch */
        bool unserved = false;

        for (uint32_t i = 0; i < distributor->options.local_size; i++) {
            const struct client *client = &distributor->clients[i];
            uint64_t epochs = client->link_fd < 0 ? UINT64_MAX : wanted(client);

            if (epochs < least) {
                least = epochs;
                latest = i;
            }
            unserved = unserved || (epochs != UINT64_MAX && epochs > distributor->done);
        }
        if (least == UINT64_MAX || is_cancelled(distributor) || (distributor->linger_ns && !unserved)) {
            return false;
        }
        if (least > distributor->done) {
            *ret_epoch = least - 1;
            return true;
        }
        if (!wait_for_event(distributor, PL_SHARE_REPORT_CHANNEL)) {
            struct pl_error error = PL_ERROR_NONE;

            pl_error_set(&error, PL_TIMEOUT,
                         "the shared channel waits for local rank %u, which has not asked for the next epoch", latest);
            report(distributor, PL_SHARE_REPORT_CHANNEL, distributor->done, false, &error);
        }
    }
}

static enum pl_status accept_client(struct pl_share_distributor *distributor, int *fd,
                                    const struct pl_share_hello *hello)
{
    struct pl_error *error = &distributor->error;
    struct client *client;

    if (hello->local_size != distributor->options.local_size || hello->local_rank >= hello->local_size ||
        hello->size != distributor->options.deal.size || hello->rank >= hello->size) {
        return pl_error_set(error, PL_INVALID,
                            "a rank that shares this channel is local rank %u of %u and rank %u of %u; expected %u "
                            "local ranks and %u ranks",
                            hello->local_rank, hello->local_size, hello->rank, hello->size,
                            distributor->options.local_size, distributor->options.deal.size);
    }
    client = &distributor->clients[hello->local_rank];
    if (client->here || distributor->shard_mask[hello->rank]) {
        return pl_error_set(error, PL_INVALID,
                            "two ranks that share this channel have the same number: local rank %u or rank %u",
                            hello->local_rank, hello->rank);
    }
    PL_TRY(pl_share_ring_create(distributor->options.ring_bytes, distributor->event_fd, &client->ring, error));
    client->here = true;
    client->deal = (struct pl_shard){.rank = hello->rank, .size = hello->size};
    client->link_fd = *fd;
    *fd = -1;
    distributor->shard_mask[hello->rank] = true;
    distributor->client_of[hello->rank] = (int)hello->local_rank;
    return PL_OK;
}

static enum pl_status connect_clients(struct pl_share_distributor *distributor)
{
    int64_t deadline_ns = pl_deadline_after_ns(distributor->options.timeout_ns);

    for (uint32_t i = 0; i < distributor->options.local_size; i++) {
        PL_AUTO_CLOSE int fd = -1;
        struct pl_share_hello hello;
        enum pl_status status = pl_share_link_accept(distributor->listen_fd, distributor->stop_fd, deadline_ns, &fd,
                                                     &hello, &distributor->error);

        if (status != PL_OK) {
            pl_error_context(&distributor->error,
                             "only %u of %u ranks of this host have connected to the shared channel", i,
                             distributor->options.local_size);
            return status;
        }
        PL_TRY(accept_client(distributor, &fd, &hello));
    }
    atomic_store(&distributor->connected, true);
    for (uint32_t i = 0; i < distributor->options.local_size; i++) {
        const struct pl_share_ring *ring = &distributor->clients[i].ring;

        PL_TRY(pl_share_link_send_fds(
            distributor->clients[i].link_fd,
            (const int[PL_SHARE_LINK_FDS]){ring->memory_fd, ring->rank_fd, ring->distributor_fd}, &distributor->error));
    }
    return PL_OK;
}

static void *run(void *argument)
{
    struct pl_share_distributor *distributor = argument;
    uint64_t epoch;

    if (connect_clients(distributor) == PL_OK) {
        while (next_epoch(distributor, &epoch)) {
            distribute_epoch(distributor, epoch);
        }
        if (distributor->lost) {
            report(distributor, PL_SHARE_REPORT_CHANNEL, UINT64_MAX, true, &distributor->error);
        }
    }
    /* Closing the sockets wakes ranks that still wait. */
    for (uint32_t i = 0; i < distributor->options.local_size; i++) {
        pl_file_close_at(&distributor->clients[i].link_fd);
    }
    return NULL;
}

static void release(struct pl_share_distributor *distributor)
{
    pl_file_close_at(&distributor->listen_fd);
    pl_file_close_at(&distributor->event_fd);
    pl_file_close_at(&distributor->stop_fd);
    for (uint32_t i = 0; distributor->clients && i < distributor->options.local_size; i++) {
        if (distributor->clients[i].here) {
            pl_share_ring_done(&distributor->clients[i].ring);
        }
    }
    free(distributor->clients);
    free(distributor->shard_mask);
    free(distributor->client_of);
    free(distributor->polls);
    free(distributor);
}

static enum pl_status set_up(struct pl_share_distributor *distributor, struct pl_error *reterr)
{
    uint32_t ranks = distributor->options.deal.size;

    distributor->clients = pl_memory_new(distributor->options.local_size, sizeof(*distributor->clients), reterr);
    distributor->shard_mask = pl_memory_new(ranks, sizeof(*distributor->shard_mask), reterr);
    distributor->client_of = pl_memory_new(ranks, sizeof(*distributor->client_of), reterr);
    distributor->polls =
        pl_memory_new(2 + (size_t)distributor->options.local_size, sizeof(*distributor->polls), reterr);
    if (!distributor->clients || !distributor->shard_mask || !distributor->client_of || !distributor->polls) {
        return PL_MEMORY;
    }
    for (uint32_t i = 0; i < distributor->options.local_size; i++) {
        distributor->clients[i].link_fd = -1;
    }
    for (uint32_t i = 0; i < ranks; i++) {
        distributor->client_of[i] = NOBODY;
    }
    distributor->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    distributor->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (distributor->event_fd < 0 || distributor->stop_fd < 0) {
        return pl_error_errno(reterr, "make an eventfd");
    }
    PL_TRY(pl_share_link_listen(distributor->options.socket_path, &distributor->listen_fd, reterr));
    return pl_thread_start(&distributor->thread, run, distributor, "the distributor's thread", reterr);
}

enum pl_status pl_share_distributor_start(const struct pl_share_options *options, const struct pl_share_feed *feed,
                                          struct pl_share_distributor **ret_distributor, struct pl_error *reterr)
{
    struct pl_share_distributor *distributor;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&distributor, 1, sizeof(*distributor), reterr));
    distributor->options = *options;
    distributor->feed = *feed;
    distributor->listen_fd = distributor->event_fd = distributor->stop_fd = -1;
    status = set_up(distributor, reterr);
    if (status != PL_OK) {
        release(distributor);
        return status;
    }
    *ret_distributor = distributor;
    return PL_OK;
}

void pl_share_distributor_set_timed_out(struct pl_share_distributor *distributor, bool timed_out)
{
    PL_BUG_IF(!atomic_load(&distributor->connected));
    for (uint32_t i = 0; i < distributor->options.local_size; i++) {
        atomic_store(&distributor->clients[i].ring.head->distributor_timed_out, timed_out);
    }
}

void pl_share_distributor_stop(struct pl_share_distributor *distributor, bool at_once, struct pl_error *error)
{
    atomic_store(&distributor->stopping, at_once ? STOP_AT_ONCE : STOP_WHEN_SERVED);
    pl_share_ring_event_set(distributor->stop_fd);
    pthread_join(distributor->thread, NULL);
    /* This call itself has cancelled a wait of the thread: that is not an error. */
    if (error && distributor->error.status != PL_OK && distributor->error.status != PL_CANCELLED) {
        *error = distributor->error;
    }
    release(distributor);
}
