/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the FIFOs of a channel into records, and deals them into FIFOs of the host's ranks. */
#include "s3io/pipe/split.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "s3io/pipe/pipe_writer.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often to look for a new rank and for a rank that opens its FIFO, because there is no event for them. */
#define RANKS_NS (20 * PL_NS_PER_MS)
#define OPEN_NS (10 * PL_NS_PER_MS)
/* How long a wait for data or for a pipe lasts before ranks and signals are checked. */
#define LOOK_NS (200 * PL_NS_PER_MS)
/* The longest wait for one of the two when there is no new data and a rank's pipe is full. */
#define BOTH_NS (5 * PL_NS_PER_MS)
/* A wait for a rank that reaches this length is logged. */
#define SLOW_NS (60 * PL_NS_PER_S)
#define HOLD_NS (10 * PL_NS_PER_S)

enum { NOBODY = -1, MOST_RANKS = 4096, PEEKED_BYTES = 1024, TAR_END_BYTES = 1024, NUMBER_BYTES = 32 };

struct rank {
    struct pl_pipe_writer writer;
    uint32_t number; /* number among the ranks to which records are dealt */
    bool has_ended;
};

struct pl_split {
    const struct pl_split_options *options;
    struct rank *ranks;
    uint32_t count, size; /* number of ranks here, and of all ranks to which records are dealt */
    int32_t *local_of;    /* [size]: local rank of each rank, or NOBODY */
    struct pollfd *polls; /* [count + 1]: the ranks' FIFOs and the stop descriptor */
    uint64_t epoch;       /* epoch of the ranks */
    uint64_t opened;      /* number of the platform's FIFOs opened so far */
    struct pl_record_reader *reader;
    int64_t wait_ns; /* when the present wait began; 0: no wait */
    bool reported, logged;
    char told[PL_ERROR_CAUSE_BYTES]; /* text of the report */
};

enum step { PEEK, NEXT, SKIP };

static enum pl_status rank_path(const struct pl_split *split, uint32_t local_rank, uint64_t epoch, struct pl_text *path,
                                struct pl_error *reterr)
{
    return pl_text_set(path, reterr, "%s/%u/%s_%llu", split->options->directory, local_rank,
                       split->options->channel->name, (unsigned long long)epoch);
}

static enum pl_status cancelled(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CANCELLED, "dividing was stopped");
}

static bool wants_stop(const struct pl_split *split, int64_t wait_ns)
{
    struct pollfd poll_fd = {.fd = split->options->cancel_fd, .events = POLLIN};

    return poll(&poll_fd, 1, (int)(wait_ns / PL_NS_PER_MS)) > 0;
}

/* Writes the report for the ranks. Without it they would wait longer or know less; nothing else depends on it. */
static void report(const struct pl_split *split, const struct pl_error *error)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE, text = PL_TEXT_NONE;

    pl_text_printf(&text, "%s %s", pl_status_name(error->status), error->cause);
    if (pl_text_set(&path, NULL, "%s/%s.report", split->options->directory, split->options->channel->name) == PL_OK &&
        pl_text_check(&text, NULL) == PL_OK &&
        pl_file_write_atomic(path.data, text.data, text.length, 0600, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "cannot write '%s'", path.data);
    }
}

/* Notes that a wait goes on. `is_ranks`: it is a wait for a rank, so the log may tell it. */
static void note_wait(struct pl_split *split, bool is_ranks, const struct pl_error *error)
{
    const int64_t now_ns = pl_clock_now_ns();

    split->wait_ns = split->wait_ns ? split->wait_ns : now_ns;
    if (now_ns - split->wait_ns >= LOOK_NS && !(split->reported && strcmp(split->told, error->cause) == 0)) {
        report(split, error);
        snprintf(split->told, sizeof(split->told), "%s", error->cause);
        split->reported = true;
    }
    if (is_ranks && !split->logged && now_ns - split->wait_ns >= SLOW_NS) {
        pl_log(PL_LOG_WARNING, "channel '%s', epoch %llu: %s; each rank of a host reads its own share of the records",
               split->options->channel->name, (unsigned long long)split->epoch, error->cause);
        split->logged = true;
    }
}

static void end_wait(struct pl_split *split)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    split->wait_ns = 0;
    if (split->reported &&
        pl_text_set(&path, NULL, "%s/%s.report", split->options->directory, split->options->channel->name) == PL_OK) {
        unlink(path.data);
    }
    split->reported = split->logged = false;
}

/* --- the ranks --- */

static bool read_place(const struct pl_split *split, uint32_t local_rank, unsigned *ret_rank, unsigned *ret_size,
                       unsigned *ret_local_size)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    char place[64];
    ssize_t bytes;

    if (pl_text_set(&path, NULL, "%s/%u.place", split->options->directory, local_rank) != PL_OK) {
        return false;
    }
    bytes = readlink(path.data, place, sizeof(place) - 1);
    place[bytes < 0 ? 0 : bytes] = '\0';
    return sscanf(place, "%u/%u/%u", ret_rank, ret_size, ret_local_size) == 3;
}

static enum pl_status make_ranks(struct pl_split *split, unsigned size, unsigned local_size, struct pl_error *reterr)
{
    split->size = split->options->channel->distribution == PL_CHANNEL_SHARDED_BY_KEY ? local_size : size;
    if (local_size < 1 || local_size > MOST_RANKS || size < local_size) {
        return pl_error_set(reterr, PL_INVALID, "expected 1 to %d ranks on this host, found %u of %u", MOST_RANKS,
                            local_size, size);
    }
    PL_TRY(pl_memory_alloc(&split->ranks, local_size, sizeof(*split->ranks), reterr));
    PL_TRY(pl_memory_alloc(&split->local_of, split->size, sizeof(*split->local_of), reterr));
    PL_TRY(pl_memory_alloc(&split->polls, (size_t)local_size + 1, sizeof(*split->polls), reterr));
    for (uint32_t i = 0; i < split->size; i++) {
        split->local_of[i] = NOBODY;
    }
    for (; split->count < local_size; split->count++) {
        /* as copies, because a program may splice from its FIFO */
        PL_TRY(pl_pipe_writer_init(&split->ranks[split->count].writer, true, reterr));
    }
    return PL_OK;
}

/* Waits until the ranks of this host have told their places in the job. */
static enum pl_status await_ranks(struct pl_split *split, struct pl_error *reterr)
{
    unsigned rank, size, local_size;

    for (uint32_t i = 0; i == 0 || i < split->count; i++) {
        while (!read_place(split, i, &rank, &size, &local_size)) {
            if (wants_stop(split, RANKS_NS)) {
                return cancelled(reterr);
            }
        }
        if (i == 0) {
            PL_TRY(make_ranks(split, size, local_size, reterr));
        }
        rank = split->options->channel->distribution == PL_CHANNEL_SHARDED_BY_KEY ? i : rank;
        if (rank >= split->size || split->local_of[rank] != NOBODY) {
            return pl_error_set(reterr, PL_INVALID,
                                "local rank %u is rank %u of %u: expected another number than those of the host's "
                                "other ranks, below %u",
                                i, rank, size, split->size);
        }
        split->ranks[i].number = rank;
        split->local_of[rank] = (int32_t)i;
    }
    return PL_OK;
}

static bool is_reading(const struct rank *rank)
{
    return rank->writer.fd >= 0 && !rank->writer.closed;
}

static bool somebody_reads(const struct pl_split *split)
{
    for (uint32_t i = 0; i < split->count; i++) {
        if (is_reading(&split->ranks[i])) {
            return true;
        }
    }
    return false;
}

/* Makes the FIFOs of the epoch after this one in advance, as the platform does. */
static enum pl_status make_next(struct pl_split *split, struct pl_error *reterr)
{
    for (uint32_t i = 0; i < split->count; i++) {
        PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

        PL_TRY(rank_path(split, i, split->epoch + 1, &path, reterr));
        if (!split->ranks[i].has_ended && mkfifo(path.data, 0600) != 0 && errno != EEXIST) {
            if (errno != ENOENT) {
                return pl_error_errno(reterr, "make FIFO '%s'", path.data);
            }
            split->ranks[i].has_ended = true;
        }
    }
    return PL_OK;
}

/* Waits until all ranks that have not ended have opened the epoch. PL_END: all have ended. */
static enum pl_status await_readers(struct pl_split *split, struct pl_error *reterr)
{
    for (;;) {
        struct pl_error wait = PL_ERROR_NONE;
        uint32_t missing = 0, here = 0;

        for (uint32_t i = 0; i < split->count; i++) {
            PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
            struct rank *rank = &split->ranks[i];
            enum pl_status status = PL_OK;

            if (!rank->has_ended && rank->writer.fd < 0) {
                PL_TRY(rank_path(split, i, split->epoch, &path, reterr));
                status = pl_pipe_writer_open(&rank->writer, path.data, reterr);
                rank->has_ended = status == PL_NOT_FOUND;
            }
            if (status == PL_TIMEOUT && ++missing == 1) {
                pl_error_set(&wait, PL_TIMEOUT,
                             "the channel's data waits for local rank %u, which has not opened its FIFO '%s'", i,
                             path.data);
            } else if (status != PL_OK && status != PL_TIMEOUT && status != PL_NOT_FOUND) {
                return status;
            }
            here += rank->writer.fd >= 0;
        }
        if (missing == 0) {
            end_wait(split);
            return here > 0 ? PL_OK : PL_END;
        }
        if (here > 0) {
            note_wait(split, true, &wait);
        }
        if (wants_stop(split, OPEN_NS)) {
            return cancelled(reterr);
        }
    }
}

/* --- writing --- */

/* Gives each pipe what it takes. `*ret_left`: number of ranks with bytes that their pipes do not take now. */
static enum pl_status push_all(struct pl_split *split, uint32_t *ret_left, struct pl_error *reterr)
{
    *ret_left = 0;
    for (uint32_t i = 0; i < split->count; i++) {
        enum pl_status status = PL_OK;

        if (split->ranks[i].writer.fd >= 0) {
            status = pl_pipe_writer_push(&split->ranks[i].writer, reterr);
        }
        *ret_left += status == PL_TIMEOUT;
        if (status != PL_OK && status != PL_TIMEOUT) {
            return status;
        }
    }
    return PL_OK;
}

/* Waits until a pipe takes bytes that wait for it, a reader leaves or a stop is requested; at most `wait_ns`. Finds the
 * readers that have left. */
static enum pl_status wait_for_pipes(struct pl_split *split, int64_t wait_ns, struct pl_error *reterr)
{
    for (uint32_t i = 0; i < split->count; i++) {
        const struct pl_pipe_writer *writer = &split->ranks[i].writer;

        split->polls[i] = (struct pollfd){.fd = writer->closed ? -1 : writer->fd,
                                          .events = writer->sent < writer->filled ? POLLOUT : 0};
    }
    split->polls[split->count] = (struct pollfd){.fd = split->options->cancel_fd, .events = POLLIN};
    if (poll(split->polls, (nfds_t)split->count + 1, (int)(wait_ns / PL_NS_PER_MS)) < 0 && errno != EINTR) {
        return pl_error_errno(reterr, "poll FIFOs");
    }
    for (uint32_t i = 0; i < split->count; i++) {
        split->ranks[i].writer.closed |= (split->polls[i].revents & POLLERR) != 0;
    }
    return split->polls[split->count].revents ? cancelled(reterr) : PL_OK;
}

/* Notes that the wait for a rank to read goes on. */
static void note_unread(struct pl_split *split, uint32_t local_rank)
{
    struct pl_error wait = PL_ERROR_NONE;

    pl_error_set(&wait, PL_TIMEOUT,
                 "the channel's data waits for local rank %u, which has not read its earlier records", local_rank);
    note_wait(split, true, &wait);
}

/* Waits until the rank's pipe has taken its chunk. The other ranks get their bytes meanwhile, because this rank may
 * wait for them in a step of all ranks. */
static enum pl_status make_room(struct pl_split *split, uint32_t local_rank, struct pl_error *reterr)
{
    struct pl_pipe_writer *writer = &split->ranks[local_rank].writer;
    enum pl_status status;

    while ((status = pl_pipe_writer_push(writer, reterr)) == PL_TIMEOUT) {
        uint32_t left;

        PL_TRY(push_all(split, &left, reterr));
        note_unread(split, local_rank);
        PL_TRY(wait_for_pipes(split, LOOK_NS, reterr));
    }
    if (split->wait_ns) {
        end_wait(split);
    }
    return status;
}

static enum pl_status put(struct pl_split *split, uint32_t local_rank, const unsigned char *data, size_t bytes,
                          struct pl_error *reterr)
{
    struct pl_pipe_writer *writer = &split->ranks[local_rank].writer;

    while (bytes > 0 && is_reading(&split->ranks[local_rank])) {
        size_t room, now;
        unsigned char *to = pl_pipe_writer_room(writer, &room);

        now = pl_number_min(bytes, room);
        memcpy(to, data, now);
        writer->filled += now;
        data += now;
        bytes -= now;
        if (now == room) {
            PL_TRY(make_room(split, local_rank, reterr));
        }
    }
    return PL_OK;
}

/* --- reading --- */

static enum pl_status read_now(struct pl_split *split, enum step step, int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_record record;

    switch (step) {
    case PEEK:
        return pl_window_need(&split->reader->window, PEEKED_BYTES, deadline_ns, reterr);
    case NEXT:
        return pl_record_reader_next(split->reader, deadline_ns, &record, reterr);
    case SKIP:
        return pl_record_reader_skip(split->reader, deadline_ns, reterr);
    }
    return PL_INVALID;
}

/* Finds the next record. While no data comes, ranks get the bytes that are there. Also PL_END if all have closed. */
static enum pl_status read_on(struct pl_split *split, enum step step, struct pl_error *reterr)
{
    int64_t deadline_ns = 0; /* first only take data that is there */
    enum pl_status status;

    while ((status = read_now(split, step, deadline_ns, reterr)) == PL_TIMEOUT) {
        struct pl_error wait = reterr ? *reterr : PL_ERROR_NONE;
        uint32_t left;

        PL_TRY(push_all(split, &left, reterr));
        PL_TRY(wait_for_pipes(split, left > 0 ? BOTH_NS : 0, reterr));
        if (!somebody_reads(split)) {
            return PL_END;
        }
        if (deadline_ns) {
            note_wait(split, false, &wait);
        }
        deadline_ns = pl_deadline_after_ns(left > 0 ? BOTH_NS : LOOK_NS);
    }
    if (split->wait_ns) {
        end_wait(split);
    }
    return status;
}

/* Finds the format of the data that begins in the window. */
static enum pl_status find_format(struct pl_split *split, struct pl_error *reterr)
{
    static const unsigned char recordio[] = {0x0a, 0x23, 0xd7, 0xce};
    const unsigned char *data = split->reader->window.data;
    const size_t bytes = pl_number_min(split->reader->window.available, PEEKED_BYTES);
    enum pl_record_format *format = &split->reader->options.format;

    if (split->options->channel->wrapper == PL_CHANNEL_WRAPPER_RECORDIO ||
        (bytes >= sizeof(recordio) && memcmp(data, recordio, sizeof(recordio)) == 0)) {
        *format = PL_RECORD_RECORDIO;
    } else if (bytes >= 12 &&
               pl_record_load_le32(data + 8) == pl_checksum_mask(pl_checksum_crc32c(0, data, sizeof(uint64_t)))) {
        *format = PL_RECORD_TFRECORD;
    } else if (bytes >= 512 && memcmp(data + 257, "ustar", 5) == 0) {
        *format = PL_RECORD_TAR;
    } else if (bytes == 0 || !memchr(data, '\0', bytes)) {
        *format = split->options->is_csv ? PL_RECORD_CSV : PL_RECORD_LINES;
    } else {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "'%s' begins with neither RecordIO, TFRecord, tar nor text, so that it cannot be divided "
                            "among the %u ranks of this host: have its objects wrapped (RecordWrapperType RecordIO), "
                            "or run one process a host",
                            split->reader->source->name, split->count);
    }
    return PL_OK;
}

/* Opens the platform's next FIFO. */
static enum pl_status open_source(struct pl_split *split, struct pl_error *reterr)
{
    const struct pl_record_options options = {.leave_checksum = true, .keep_empty_lines = true};
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    PL_AUTO_SOURCE struct pl_source *source = NULL;

    PL_TRY(pl_text_set(&path, reterr, "%s_%llu", split->options->channel->path, (unsigned long long)split->opened));
    PL_TRY(pl_source_open_fifo(path.data, &source, reterr));
    PL_TRY(pl_source_open_inflate(source, PL_COMPRESSION_AUTO, &source, reterr));
    PL_TRY(pl_record_reader_open(source, &options, &split->reader, reterr));
    source = NULL; /* it belongs to the reader now */
    return PL_OK;
}

/* Notes that one more of the platform's FIFOs has been opened. */
static enum pl_status note_opened(struct pl_split *split, struct pl_error *reterr)
{
    char number[NUMBER_BYTES];
    const int length = snprintf(number, sizeof(number), "%llu\n", (unsigned long long)++split->opened);

    return split->options->opened_path
               ? pl_file_write_atomic(split->options->opened_path, number, (size_t)length, 0600, reterr)
               : PL_OK;
}

static enum pl_status deal(struct pl_split *split, struct pl_error *reterr)
{
    PL_TRY(read_on(split, PEEK, reterr));
    PL_TRY(note_opened(split, reterr));
    PL_TRY(find_format(split, reterr));
    for (uint64_t number = 0; somebody_reads(split); number++) {
        const int32_t to = split->local_of[number % split->size];
        const bool is_read = to != NOBODY && is_reading(&split->ranks[to]);

        PL_TRY(read_on(split, is_read ? NEXT : SKIP, reterr));
        if (is_read) { /* a good record is in the window until the next call, with its framing */
            PL_TRY(put(split, (uint32_t)to, split->reader->window.data, (size_t)split->reader->discard_bytes, reterr));
        }
    }
    return PL_END;
}

/* Gives the ranks their last bytes and the end of the epoch. */
static enum pl_status finish(struct pl_split *split, struct pl_error *reterr)
{
    static const unsigned char zeros[TAR_END_BYTES];
    uint32_t left = split->count, slow = 0;

    for (uint32_t i = 0; i < split->count && split->reader->options.format == PL_RECORD_TAR; i++) {
        PL_TRY(put(split, i, zeros, sizeof(zeros), reterr));
    }
    pl_record_reader_close(PL_TAKE(split->reader)); /* the platform may go on to its next epoch */
    for (;;) {
        PL_TRY(push_all(split, &left, reterr));
        for (uint32_t i = 0; i < split->count; i++) {
            PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
            struct pl_pipe_writer *writer = &split->ranks[i].writer;

            if (writer->fd >= 0 && (writer->closed || writer->sent == writer->filled)) {
                /* A reader must never find the FIFO of an epoch that has ended. */
                PL_TRY(rank_path(split, i, split->epoch, &path, reterr));
                unlink(path.data);
                pl_pipe_writer_close(writer);
            }
            slow = writer->fd >= 0 ? i : slow;
        }
        if (left == 0) {
            end_wait(split);
            return PL_OK;
        }
        note_unread(split, slow); /* other ranks may wait for the next epoch already */
        PL_TRY(wait_for_pipes(split, LOOK_NS, reterr));
    }
}

static enum pl_status run(struct pl_split *split, struct pl_error *reterr)
{
    enum pl_status status;

    PL_TRY(await_ranks(split, reterr));
    for (;; split->epoch++) {
        PL_TRY(make_next(split, reterr));
        status = await_readers(split, reterr);
        if (status != PL_OK) {
            return status == PL_END ? PL_OK : status;
        }
        PL_TRY(open_source(split, reterr));
        status = deal(split, reterr);
        PL_TRY(status == PL_END ? finish(split, reterr) : status);
    }
}

enum pl_status pl_split_run(struct pl_split *split, struct pl_error *reterr)
{
    enum pl_status status = run(split, reterr);

    if (status != PL_OK) {
        pl_error_context(reterr, "channel '%s', epoch %llu", split->options->channel->name,
                         (unsigned long long)split->epoch);
    }
    return status;
}

/* Whether a rank has not read all bytes of its pipe. */
static bool has_unread(const struct pl_pipe_writer *writer)
{
    int unread = 0;

    return !writer->closed && writer->fd >= 0 &&
           (writer->sent < writer->filled || (ioctl(writer->fd, FIONREAD, &unread) == 0 && unread > 0));
}

bool pl_split_hold(struct pl_split *split, const struct pl_error *error)
{
    const int64_t hold_ns = split->options->hold_ns ? split->options->hold_ns : HOLD_NS;
    int64_t deadline_ns = pl_deadline_after_ns(hold_ns);
    bool told = false;

    do {
        bool reads_on = true;
        uint32_t left;

        if (push_all(split, &left, NULL) != PL_OK) {
            return false;
        }
        if (left == 0 && !told) { /* all records from before the error are in the pipes */
            report(split, error);
            told = true;
        }
        if (wait_for_pipes(split, OPEN_NS, NULL) != PL_OK) {
            return false;
        }
        for (uint32_t i = 0; i < split->count; i++) {
            reads_on = reads_on && (!is_reading(&split->ranks[i]) || has_unread(&split->ranks[i].writer));
        }
        deadline_ns = reads_on ? pl_deadline_after_ns(hold_ns) : deadline_ns;
        if (pl_deadline_passed(deadline_ns)) {
            return false;
        }
    } while (somebody_reads(split));
    return true;
}

enum pl_status pl_split_new(const struct pl_split_options *options, struct pl_split **ret_split,
                            struct pl_error *reterr)
{
    PL_AUTO_FREE char *opened = NULL;

    PL_TRY(pl_memory_alloc(ret_split, 1, sizeof(**ret_split), reterr));
    (*ret_split)->options = options;
    if (options->opened_path && pl_file_read(options->opened_path, NUMBER_BYTES, &opened, NULL, NULL) == PL_OK) {
        (*ret_split)->opened = strtoull(opened, NULL, 10);
    }
    return PL_OK;
}

void pl_split_free(struct pl_split *split)
{
    if (!split) {
        return;
    }
    pl_record_reader_close(split->reader);
    for (uint32_t i = 0; i < split->count; i++) {
        pl_pipe_writer_done(&split->ranks[i].writer);
    }
    free(split->ranks);
    free(split->local_of);
    free(split->polls);
    free(split);
}
