/* SPDX-License-Identifier: Apache-2.0 */
/* The distributor: reads a FIFO on a thread of local rank 0 and gives each record to its rank through a ring. */
#include "s3io/pipe/share_dealer.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/thread.h"
#include "s3io/pipe/share_link.h"
#include "s3io/pipe/share_ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* While the FIFO delivers nothing, the distributor checks this often whether its clients are still there. */
#define LOOK_NS (200 * PL_NS_PER_MS)

/* How long local rank 0 stays for ranks that still read when it has closed. */
#define LINGER_NS (30 * PL_NS_PER_S)

enum { ERROR_TEXT_BYTES = 900, NOBODY = -1 };

enum stopping { GO_ON, STOP_WHEN_SERVED, STOP_AT_ONCE };

struct member {
    bool here;
    int link_fd; /* -1 once the rank has left */
    struct pl_deal deal;
    struct pl_ring ring;
};

struct pl_dealer {
    struct pl_share_options options;
    struct pl_share_feed feed;
    pthread_t thread;
    int listen_fd;
    int event_fd; /* a rank has something for the distributor */
    int stop_fd;
    atomic_int stopping; /* enum stopping */
    int64_t linger_ns;   /* deadline once `stopping` was seen; 0 before */
    struct member *members;
    bool *mine;     /* [deal.size]: shards of the ranks of this host */
    int *member_of; /* [deal.size]: which one */
    struct pollfd *polls;
    bool lost;             /* a rank died: no more records can be distributed */
    uint64_t done;         /* epochs up to here are over */
    struct pl_error error; /* why the thread ended early; read after joining it */
};

static uint64_t wanted(const struct member *member)
{
    return atomic_load(&member->ring.head->wanted);
}

/* True when the client gets no more records of `epoch`. */
static bool has_left(const struct member *member, uint64_t epoch)
{
    return member->link_fd < 0 || wanted(member) > epoch + 1;
}

static bool should_give_up(struct pl_dealer *dealer)
{
    int stopping = atomic_load(&dealer->stopping);

    if (stopping == GO_ON) {
        return dealer->lost;
    }
    if (dealer->linger_ns == 0) {
        dealer->linger_ns = pl_deadline_after_ns(LINGER_NS);
    }
    return dealer->lost || stopping == STOP_AT_ONCE || pl_deadline_passed(dealer->linger_ns);
}

/* A rank's socket has ended: it left properly before, or it died. */
static void look_at_links(struct pl_dealer *dealer)
{
    for (uint32_t i = 0; i < dealer->options.local_size; i++) {
        struct member *member = &dealer->members[i];
        char byte;

        if (member->link_fd < 0 || recv(member->link_fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0) {
            continue;
        }
        pl_file_close_at(&member->link_fd);
        if (wanted(member) != UINT64_MAX && !dealer->lost) {
            dealer->lost = true;
            (void)pl_error_set(&dealer->error, PL_PEER, "local rank %u, which shares this channel, is gone", i);
        }
    }
}

/* Wait for an event, a rank that ends, a stop request, or the deadline after it. */
static void wait_for_news(struct pl_dealer *dealer)
{
    uint32_t count = dealer->options.local_size;

    dealer->polls[0] = (struct pollfd){.fd = dealer->event_fd, .events = POLLIN};
    /* Once seen, the stop request would keep poll() from waiting. */
    dealer->polls[1] = (struct pollfd){.fd = dealer->linger_ns ? -1 : dealer->stop_fd, .events = POLLIN};
    for (uint32_t i = 0; i < count; i++) {
        dealer->polls[2 + i] = (struct pollfd){.fd = dealer->members[i].link_fd, .events = POLLIN};
    }
    (void)poll(dealer->polls, 2 + count,
               pl_deadline_poll_ms(dealer->linger_ns ? dealer->linger_ns : PL_DEADLINE_NEVER));
    pl_event_clear(dealer->event_fd);
    look_at_links(dealer);
}

/* Room for a frame in the rank's ring; NULL when the rank has left the epoch or the distributor has to give up. */
static struct pl_share_frame *reserve(struct pl_dealer *dealer, struct member *member, uint64_t epoch,
                                      size_t data_bytes)
{
    for (;;) {
        struct pl_share_frame *frame;

        if (has_left(member, epoch)) {
            return NULL;
        }
        frame = pl_ring_reserve(&member->ring, data_bytes);
        if (frame) {
            return frame;
        }
        atomic_store(&member->ring.head->dealer_waits, 1);
        frame = pl_ring_reserve(&member->ring, data_bytes);
        if (frame || should_give_up(dealer)) {
            return frame;
        }
        wait_for_news(dealer);
    }
}

static void put_record(struct pl_dealer *dealer, struct member *member, uint64_t epoch, const struct pl_record *record)
{
    size_t most = pl_ring_most_data(&member->ring), done = 0;

    do {
        size_t now = pl_number_min(record->bytes - done, most);
        struct pl_share_frame *frame = reserve(dealer, member, epoch, now);

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
        pl_ring_publish(&member->ring, frame);
        done += now;
    } while (done < record->bytes);
}

/* Send the end of the epoch, or the error that ended it, to all ranks that still read it. */
static void put_end(struct pl_dealer *dealer, uint64_t epoch, enum pl_status status, const struct pl_error *error)
{
    char text[ERROR_TEXT_BYTES] = "";
    size_t bytes = 0;

    if (status != PL_END) {
        bytes = strlen(pl_error_text(error, text, sizeof(text)));
    }
    for (uint32_t i = 0; i < dealer->options.local_size; i++) {
        struct member *member = &dealer->members[i];
        struct pl_share_frame *frame = reserve(dealer, member, epoch, bytes);

        if (frame) {
            frame->kind = status == PL_END ? PL_SHARE_FRAME_END : PL_SHARE_FRAME_ERROR;
            frame->epoch = epoch;
            frame->number = (uint64_t)status;
            memcpy(frame + 1, text, bytes);
            pl_ring_publish(&member->ring, frame);
        }
    }
}

static bool all_left(const struct pl_dealer *dealer, uint64_t epoch)
{
    for (uint32_t i = 0; i < dealer->options.local_size; i++) {
        if (!has_left(&dealer->members[i], epoch)) {
            return false;
        }
    }
    return true;
}

static void deal_epoch(struct pl_dealer *dealer, uint64_t epoch)
{
    int64_t deadline_ns = pl_deadline_after_ns(dealer->options.timeout_ns);
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = dealer->feed.start(dealer->feed.context, epoch, deadline_ns, &error);

    while (status == PL_OK && !all_left(dealer, epoch) && !should_give_up(dealer)) {
        int64_t look_ns = pl_deadline_after_ns(LOOK_NS);
        struct pl_record record;

        status = dealer->feed.next(dealer->feed.context, dealer->mine, look_ns < deadline_ns ? look_ns : deadline_ns,
                                   &record, &error);
        if (status == PL_OK) {
            put_record(dealer, &dealer->members[dealer->member_of[record.index % dealer->options.deal.size]], epoch,
                       &record);
            deadline_ns = pl_deadline_after_ns(dealer->options.timeout_ns);
        } else if (status == PL_TIMEOUT && !pl_deadline_passed(deadline_ns)) {
            status = PL_OK;
        }
        if (status == PL_OK && look_ns < pl_clock_now_ns()) {
            look_at_links(dealer);
        }
    }
    if (dealer->lost) {
        status = dealer->error.status;
        error = dealer->error;
        dealer->lost = false; /* so that it waits for the others while they are notified */
        put_end(dealer, epoch, status, &error);
        dealer->lost = true;
    } else if (status != PL_OK) {
        put_end(dealer, epoch, status, &error);
    }
    dealer->done = epoch + 1;
}

/* The epoch that every rank wants, or a later one; false when nothing more will be wanted. */
static bool next_epoch(struct pl_dealer *dealer, uint64_t *ret_epoch)
{
    for (;;) {
        uint64_t least = UINT64_MAX;
        bool unserved = false;

        for (uint32_t i = 0; i < dealer->options.local_size; i++) {
            const struct member *member = &dealer->members[i];
            uint64_t epochs = member->link_fd < 0 ? UINT64_MAX : wanted(member);

            least = epochs < least ? epochs : least;
            unserved = unserved || (epochs != UINT64_MAX && epochs > dealer->done);
        }
        if (least == UINT64_MAX || should_give_up(dealer) || (dealer->linger_ns && !unserved)) {
            return false;
        }
        if (least > dealer->done) {
            *ret_epoch = least - 1;
            return true;
        }
        wait_for_news(dealer);
    }
}

static enum pl_status admit(struct pl_dealer *dealer, int *fd, const struct pl_hello *hello)
{
    struct pl_error *error = &dealer->error;
    struct member *member;

    if (hello->local_size != dealer->options.local_size || hello->local_rank >= hello->local_size ||
        hello->size != dealer->options.deal.size || hello->rank >= hello->size) {
        return pl_error_set(
            error, PL_INVALID,
            "a rank that shares this channel is local rank %u of %u and rank %u of %u, here it is %u and %u ranks",
            hello->local_rank, hello->local_size, hello->rank, hello->size, dealer->options.local_size,
            dealer->options.deal.size);
    }
    member = &dealer->members[hello->local_rank];
    if (member->here || dealer->mine[hello->rank]) {
        return pl_error_set(error, PL_INVALID,
                            "two ranks that share this channel say they are local rank %u or rank %u",
                            hello->local_rank, hello->rank);
    }
    PL_TRY(pl_ring_create(dealer->options.ring_bytes, dealer->event_fd, &member->ring, error));
    member->here = true;
    member->deal = (struct pl_deal){.rank = hello->rank, .size = hello->size};
    member->link_fd = *fd;
    *fd = -1;
    dealer->mine[hello->rank] = true;
    dealer->member_of[hello->rank] = (int)hello->local_rank;
    return PL_OK;
}

static enum pl_status meet(struct pl_dealer *dealer)
{
    int64_t deadline_ns = pl_deadline_after_ns(dealer->options.timeout_ns);

    for (uint32_t i = 0; i < dealer->options.local_size; i++) {
        PL_AUTO_CLOSE int fd = -1;
        struct pl_hello hello;
        enum pl_status status =
            pl_share_link_accept(dealer->listen_fd, dealer->stop_fd, deadline_ns, &fd, &hello, &dealer->error);

        if (status != PL_OK) {
            pl_error_context(&dealer->error, "only %u of %u ranks of this host connected to share a channel", i,
                             dealer->options.local_size);
            return status;
        }
        PL_TRY(admit(dealer, &fd, &hello));
    }
    for (uint32_t i = 0; i < dealer->options.local_size; i++) {
        const struct pl_ring *ring = &dealer->members[i].ring;

        PL_TRY(pl_share_link_send_fds(dealer->members[i].link_fd,
                                      (const int[PL_SHARE_LINK_FDS]){ring->memory_fd, ring->rank_fd, ring->dealer_fd},
                                      &dealer->error));
    }
    return PL_OK;
}

static void *run(void *argument)
{
    struct pl_dealer *dealer = argument;
    uint64_t epoch;

    if (meet(dealer) == PL_OK) {
        while (next_epoch(dealer, &epoch)) {
            deal_epoch(dealer, epoch);
        }
        if (dealer->lost) {
            /* Ranks between two epochs read this when they ask for the next. */
            for (uint32_t i = 0; i < dealer->options.local_size; i++) {
                struct pl_share_frame *frame =
                    dealer->members[i].link_fd < 0 ? NULL : pl_ring_reserve(&dealer->members[i].ring, 0);

                if (frame) {
                    frame->kind = PL_SHARE_FRAME_ERROR;
                    frame->epoch = UINT64_MAX;
                    frame->number = PL_PEER;
                    pl_ring_publish(&dealer->members[i].ring, frame);
                }
            }
        }
    }
    /* The ends of the sockets wake ranks that still wait. */
    for (uint32_t i = 0; i < dealer->options.local_size; i++) {
        pl_file_close_at(&dealer->members[i].link_fd);
    }
    return NULL;
}

static void release(struct pl_dealer *dealer)
{
    pl_file_close_at(&dealer->listen_fd);
    pl_file_close_at(&dealer->event_fd);
    pl_file_close_at(&dealer->stop_fd);
    for (uint32_t i = 0; dealer->members && i < dealer->options.local_size; i++) {
        if (dealer->members[i].here) {
            pl_ring_done(&dealer->members[i].ring);
        }
    }
    free(dealer->members);
    free(dealer->mine);
    free(dealer->member_of);
    free(dealer->polls);
    free(dealer);
}

static enum pl_status set_up(struct pl_dealer *dealer, struct pl_error *reterr)
{
    uint32_t ranks = dealer->options.deal.size;

    dealer->members = pl_memory_new(dealer->options.local_size, sizeof(*dealer->members), reterr);
    dealer->mine = pl_memory_new(ranks, sizeof(*dealer->mine), reterr);
    dealer->member_of = pl_memory_new(ranks, sizeof(*dealer->member_of), reterr);
    dealer->polls = pl_memory_new(2 + (size_t)dealer->options.local_size, sizeof(*dealer->polls), reterr);
    if (!dealer->members || !dealer->mine || !dealer->member_of || !dealer->polls) {
        return PL_MEMORY;
    }
    for (uint32_t i = 0; i < dealer->options.local_size; i++) {
        dealer->members[i].link_fd = -1;
    }
    for (uint32_t i = 0; i < ranks; i++) {
        dealer->member_of[i] = NOBODY;
    }
    dealer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dealer->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (dealer->event_fd < 0 || dealer->stop_fd < 0) {
        return pl_error_errno(reterr, "create an eventfd");
    }
    PL_TRY(pl_share_link_listen(dealer->options.socket_path, &dealer->listen_fd, reterr));
    return pl_thread_start(&dealer->thread, run, dealer, "the dealer's thread", reterr);
}

enum pl_status pl_dealer_start(const struct pl_share_options *options, const struct pl_share_feed *feed,
                               struct pl_dealer **ret_dealer, struct pl_error *reterr)
{
    struct pl_dealer *dealer = pl_memory_new(1, sizeof(*dealer), reterr);
    enum pl_status status;

    if (!dealer) {
        return PL_MEMORY;
    }
    dealer->options = *options;
    dealer->feed = *feed;
    dealer->listen_fd = dealer->event_fd = dealer->stop_fd = -1;
    status = set_up(dealer, reterr);
    if (status != PL_OK) {
        release(dealer);
        return status;
    }
    *ret_dealer = dealer;
    return PL_OK;
}

void pl_dealer_stop(struct pl_dealer *dealer, bool at_once, struct pl_error *error)
{
    atomic_store(&dealer->stopping, at_once ? STOP_AT_ONCE : STOP_WHEN_SERVED);
    pl_event_set(dealer->stop_fd);
    (void)pthread_join(dealer->thread, NULL);
    /* A cancelled wait is the effect of this very call. */
    if (error && dealer->error.status != PL_OK && dealer->error.status != PL_CANCELLED) {
        *error = dealer->error;
    }
    release(dealer);
}
