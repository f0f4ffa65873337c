/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's side of a shared Pipe Mode channel. */
#include "s3io/share.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "s3io/pipe/share_link.h"
#include "s3io/pipe/share_ring.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define DEFAULT_TIMEOUT_NS (300 * PL_NS_PER_S)
#define DEFAULT_RING_BYTES ((size_t)8 << 20)

struct pl_share {
    struct pl_share_distributor *distributor; /* on local rank 0, else NULL */
    int link_fd;
    struct pl_share_ring ring;
    struct pl_share_frame *held; /* frame of the record that the caller uses */
    uint64_t epoch;
    uint64_t finished; /* this rank has read all epochs below this one */
    bool over;         /* the rank has seen the end of the epoch */
    bool repeated;     /* the caller has asked for an epoch that ended before */
    bool orphaned;
    bool timed_out; /* the last call ended at its deadline */
    atomic_bool cancelled;
    int cancel_fd;
    unsigned char *joined; /* buffer for a record that consists of several parts */
    size_t joined_capacity;
    size_t joined_bytes;
};

static enum pl_status connect_ring(struct pl_share *share, const struct pl_share_options *options,
                                   struct pl_error *reterr)
{
    int64_t deadline_ns = pl_deadline_after_ns(options->timeout_ns);
    struct pl_share_hello hello = {
        .magic = PL_SHARE_HELLO_MAGIC,
        .local_rank = options->local_rank,
        .local_size = options->local_size,
        .rank = options->deal.rank,
        .size = options->deal.size,
    };
    int fds[PL_SHARE_LINK_FDS];

    share->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (share->cancel_fd < 0) {
        return pl_error_errno(reterr, "make an eventfd");
    }
    PL_TRY(pl_share_link_connect(options->socket_path, &hello, deadline_ns, &share->link_fd, reterr));
    /* The distributor waits for the other ranks until about the same deadline, and its error names the rank that did
     * not connect. The 5 s let that error arrive on a slow machine. */
    PL_TRY(pl_share_link_receive_fds(
        share->link_fd, deadline_ns == PL_DEADLINE_NEVER ? deadline_ns : deadline_ns + 5 * PL_NS_PER_S, fds, reterr));
    return pl_share_ring_attach(fds[0], fds[1], fds[2], &share->ring, reterr);
}

static void release(struct pl_share *share)
{
    pl_file_close_at(&share->link_fd);
    pl_file_close_at(&share->cancel_fd);
    pl_share_ring_done(&share->ring);
    free(share->joined);
    free(share);
}

enum pl_status pl_share_open(const struct pl_share_options *options, const struct pl_share_feed *feed,
                             struct pl_share **ret_share, struct pl_error *reterr)
{
    struct pl_share_options full = *options;
    struct pl_share *share;
    enum pl_status status = PL_OK;

    pl_activity_start();
    if (full.local_rank >= full.local_size || full.deal.rank >= full.deal.size) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected ranks below the number of ranks, found local rank %u of %u and rank %u of %u",
                            full.local_rank, full.local_size, full.deal.rank, full.deal.size);
    }
    full.timeout_ns = full.timeout_ns ? full.timeout_ns : DEFAULT_TIMEOUT_NS;
    full.ring_bytes = full.ring_bytes ? full.ring_bytes : DEFAULT_RING_BYTES;
    PL_TRY(pl_memory_alloc(&share, 1, sizeof(*share), reterr));
    share->link_fd = share->cancel_fd = -1;
    share->ring = (struct pl_share_ring){.memory_fd = -1, .rank_fd = -1, .distributor_fd = -1};
    share->over = true;
    if (full.local_rank == 0) {
        status = pl_share_distributor_start(&full, feed, &share->distributor, reterr);
    }
    if (status == PL_OK) {
        status = connect_ring(share, &full, reterr);
    }
    if (status != PL_OK) {
        if (share->distributor) {
            pl_share_distributor_stop(share->distributor, true, reterr);
            status = reterr ? reterr->status : status;
        }
        release(share);
        return status;
    }
    *ret_share = share;
    return PL_OK;
}

static void release_frame(struct pl_share *share)
{
    if (share->held) {
        pl_share_ring_release(&share->ring, share->held);
        share->held = NULL;
    }
}

void pl_share_start(struct pl_share *share, uint64_t epoch)
{
    release_frame(share);
    share->epoch = epoch;
    share->over = false;
    share->repeated = epoch < share->finished;
    share->joined_bytes = 0;
    atomic_store(&share->ring.head->wanted, epoch + 1);
    pl_share_ring_event_set(share->ring.distributor_fd);
}

/* Lets the other ranks see that this rank's call ended at its deadline. If the rank ends now, its timeout is the cause
 * that they report, not the end of its process. */
static void set_timed_out(struct pl_share *share, bool timed_out)
{
    if (share->timed_out != timed_out) {
        share->timed_out = timed_out;
        atomic_store(&share->ring.head->timed_out, timed_out);
        if (share->distributor) {
            pl_share_distributor_set_timed_out(share->distributor, timed_out);
        }
    }
}

/* Finds how the epoch ended, if the distributor has reported that. */
static bool find_end(const struct pl_share *share, struct pl_share_report *ret_report)
{
    return (pl_share_ring_read_report(&share->ring, PL_SHARE_REPORT_EPOCH, ret_report) && ret_report->final &&
            ret_report->epoch == share->epoch) ||
           (pl_share_ring_read_report(&share->ring, PL_SHARE_REPORT_CHANNEL, ret_report) && ret_report->final);
}

static enum pl_status take_report(const struct pl_share_report *report, struct pl_error *reterr)
{
    if (reterr && report->error.status != PL_END) {
        *reterr = report->error;
    }
    return report->error.status;
}

static enum pl_status take_end(struct pl_share *share, const struct pl_share_report *report, struct pl_error *reterr)
{
    if (report->epoch == share->epoch) {
        share->finished = share->epoch + 1;
    }
    share->over = report->error.status == PL_END;
    return take_report(report, reterr);
}

/* Finds what the distributor waits for, and so what this rank waits for. */
static bool find_wait(const struct pl_share *share, struct pl_share_report *ret_report)
{
    for (unsigned slot = 0; slot < PL_SHARE_REPORT_SLOTS; slot++) {
        if (pl_share_ring_read_report(&share->ring, (enum pl_share_report_slot)slot, ret_report) &&
            !ret_report->final && ret_report->error.status != PL_OK) {
            return true;
        }
    }
    return false;
}

static enum pl_status time_out(struct pl_share *share, struct pl_error *reterr)
{
    struct pl_share_report report;

    set_timed_out(share, true);
    return find_wait(share, &report)
               ? take_report(&report, reterr)
               : pl_error_set(reterr, PL_TIMEOUT, "no record of the shared channel came before the deadline");
}

/* Returns the error after local rank 0 has ended without a report on this epoch. If the reason for its end is known,
 * that is the error. */
static enum pl_status lose_distributor(const struct pl_share *share, struct pl_error *reterr)
{
    struct pl_share_report report;

    if ((pl_share_ring_read_report(&share->ring, PL_SHARE_REPORT_EPOCH, &report) && report.final &&
         report.error.status != PL_END) ||
        (atomic_load(&share->ring.head->distributor_timed_out) && find_wait(share, &report))) {
        return take_report(&report, reterr);
    }
    return pl_error_set(reterr, PL_PEER, "the process of local rank 0, which reads the shared channel, has ended");
}

/* Waits until there may be a frame or the end of the epoch. */
static enum pl_status wait_for_frame(struct pl_share *share, int64_t deadline_ns, struct pl_error *reterr)
{
    struct pollfd fds[3] = {{.fd = share->ring.rank_fd, .events = POLLIN},
                            {.fd = share->link_fd, .events = POLLIN},
                            {.fd = share->cancel_fd, .events = POLLIN}};
    struct pl_share_report report;
    enum pl_status status;
    int ready;

    atomic_store(&share->ring.head->rank_waits, 1);
    if (pl_share_ring_peek(&share->ring, &status) || status != PL_OK || find_end(share, &report)) {
        return PL_OK;
    }
    if (share->orphaned) {
        return lose_distributor(share, reterr);
    }
    ready = poll(fds, 3, pl_deadline_poll_ms(deadline_ns));
    if (ready < 0 && errno != EINTR) {
        return pl_error_errno(reterr, "poll a shared channel");
    }
    if (ready > 0 && fds[2].revents) {
        return pl_error_set(reterr, PL_CANCELLED, "reading the shared channel was cancelled");
    }
    /* Frames that the distributor put into the ring before its end are still read. */
    share->orphaned = ready > 0 && fds[1].revents;
    pl_share_ring_event_clear(share->ring.rank_fd);
    return ready == 0 && pl_deadline_passed(deadline_ns) ? time_out(share, reterr) : PL_OK;
}

/* Appends a part of a large record. `*ret_whole` tells whether the record is complete. */
static enum pl_status take_part(struct pl_share *share, const struct pl_share_frame *frame, bool *ret_whole,
                                struct pl_error *reterr)
{
    PL_TRY(pl_memory_grow(&share->joined, &share->joined_capacity, share->joined_bytes + frame->data_bytes, 1, reterr));
    memcpy(share->joined + share->joined_bytes, frame + 1, frame->data_bytes);
    share->joined_bytes += frame->data_bytes;
    *ret_whole = share->joined_bytes >= frame->bytes;
    return PL_OK;
}

/* Handles a frame: returns PL_OK with a record, or an error; or sets `*ret_again` if the record needs more frames. */
static enum pl_status take_frame(struct pl_share *share, struct pl_share_frame *frame, struct pl_record *ret_record,
                                 bool *ret_again, struct pl_error *reterr)
{
    bool whole = false;

    *ret_again = false;
    *ret_record = (struct pl_record){.data = (const unsigned char *)(frame + 1),
                                     .bytes = frame->data_bytes,
                                     .index = frame->number,
                                     .offset_bytes = frame->offset_bytes};
    if (frame->epoch < share->epoch) {
        pl_share_ring_release(&share->ring, frame);
        *ret_again = true;
        return PL_OK;
    }
    switch (frame->kind) {
    case PL_SHARE_FRAME_RECORD:
        share->held = frame;
        return PL_OK;
    case PL_SHARE_FRAME_PART:
        PL_TRY(take_part(share, frame, &whole, reterr));
        pl_share_ring_release(&share->ring, frame);
        ret_record->data = share->joined;
        ret_record->bytes = share->joined_bytes;
        if (whole) {
            share->joined_bytes = 0;
        }
        *ret_again = !whole;
        return PL_OK;
    default:
        return pl_error_set(reterr, PL_CORRUPT, "a ring of the shared channel has a frame of unknown kind %u",
                            frame->kind);
    }
}

enum pl_status pl_share_next(struct pl_share *share, int64_t deadline_ns, struct pl_record *ret_record,
                             struct pl_error *reterr)
{
    release_frame(share);
    set_timed_out(share, false);
    if (share->over) {
        return PL_END;
    }
    if (share->repeated) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected an epoch that was not read before, found epoch %llu, which has ended",
                            (unsigned long long)share->epoch);
    }
    for (;;) {
        struct pl_share_report report;
        enum pl_status status;
        struct pl_share_frame *frame;
        bool again;

        if (atomic_load(&share->cancelled)) {
            return pl_error_set(reterr, PL_CANCELLED, "reading the shared channel was cancelled");
        }
        frame = pl_share_ring_peek(&share->ring, &status);
        if (!frame && status == PL_OK && find_end(share, &report)) {
            /* there may be frames from before the end */
            frame = pl_share_ring_peek(&share->ring, &status);
            if (!frame && status == PL_OK) {
                return take_end(share, &report, reterr);
            }
        }
        if (status != PL_OK) {
            return pl_error_set(reterr, status, "a ring of the shared channel is damaged");
        }
        if (!frame) {
            PL_TRY(wait_for_frame(share, deadline_ns, reterr));
            continue;
        }
        status = take_frame(share, frame, ret_record, &again, reterr);
        if (!again) {
            pl_activity_note();
            return status;
        }
    }
}

void pl_share_cancel(struct pl_share *share, bool cancelled)
{
    atomic_store(&share->cancelled, cancelled);
    if (cancelled) {
        pl_share_ring_event_set(share->cancel_fd);
    } else {
        pl_share_ring_event_clear(share->cancel_fd);
    }
}

void pl_share_close(struct pl_share *share)
{
    if (!share) {
        return;
    }
    release_frame(share);
    atomic_store(&share->ring.head->wanted, UINT64_MAX);
    pl_share_ring_event_set(share->ring.distributor_fd);
    if (share->distributor) {
        pl_share_distributor_stop(share->distributor, false, NULL);
    }
    release(share);
}
