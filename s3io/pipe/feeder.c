/* SPDX-License-Identifier: Apache-2.0 */
/* Writes objects into FIFOs as SageMaker's Pipe Mode does. */
#include "s3io/pipe/feeder.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "s3io/pipe/pipe_writer.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* When a reader opens a FIFO, a waiting writer gets no event. So the open is tried again after this time. */
#define TRY_AGAIN_NS (5 * PL_NS_PER_MS)

/* How often the feeder checks for a stop request while a source delivers nothing. */
#define CHECK_PEERS_NS (200 * PL_NS_PER_MS)

/* The longest part of a RecordIO record, a multiple of four below 2^29. */
#define MOST_PART_BYTES ((uint64_t)PL_RECORDIO_MOST_BYTES & ~UINT64_C(3))

struct pl_feeder {
    struct pl_store *store; /* NULL if `epochs` is used */
    struct pl_feeder_epochs epochs;
    char *path;
    struct pl_feeder_options options;
    struct pl_object_list list;
    struct pl_pipe_writer writer; /* writer of the present FIFO */
    uint64_t made_until;          /* FIFOs of epochs below this one were made */
    uint64_t made_from;           /* FIFOs of epochs below this one were removed */
};

static enum pl_status fifo_path(const struct pl_feeder *feeder, uint64_t epoch, struct pl_text *text,
                                struct pl_error *reterr)
{
    return pl_text_set(text, reterr, "%s_%llu", feeder->path, (unsigned long long)epoch);
}

static enum pl_status make_fifo(struct pl_feeder *feeder, uint64_t epoch, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    struct stat info;

    if (feeder->made_until != 0 && epoch < feeder->made_until) {
        return PL_OK;
    }
    PL_TRY(fifo_path(feeder, epoch, &path, reterr));
    if (mkfifo(pl_text_string(&path), 0666) != 0) {
        if (errno != EEXIST) {
            return pl_error_errno(reterr, "make FIFO '%s'", pl_text_string(&path));
        }
        /* The FIFO of an earlier feeder can be used; any other file must not be removed. */
        if (lstat(pl_text_string(&path), &info) != 0 || !S_ISFIFO(info.st_mode)) {
            return pl_error_set(reterr, PL_INVALID, "'%s' exists already and is not a FIFO", pl_text_string(&path));
        }
    }
    feeder->made_from = feeder->made_until == 0 ? epoch : feeder->made_from;
    feeder->made_until = epoch + 1;
    return PL_OK;
}

static void remove_fifo(struct pl_feeder *feeder, uint64_t epoch)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;

    if (fifo_path(feeder, epoch, &path, NULL) == PL_OK) {
        unlink(pl_text_string(&path));
    }
    feeder->made_from = epoch + 1;
}

static bool wants_stop(const struct pl_feeder *feeder, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = feeder->options.cancel_fd, .events = POLLIN};

    return poll(&poll_fd, 1, timeout_ms) > 0;
}

static enum pl_status cancelled(struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CANCELLED, "feeding was stopped");
}

/* Opens the FIFO for writing as soon as a reader has it open. */
static enum pl_status wait_for_reader(struct pl_feeder *feeder, const char *path, struct pl_error *reterr)
{
    int64_t deadline_ns = pl_deadline_after_ns(feeder->options.timeout_ns);

    for (;;) {
        enum pl_status status = pl_pipe_writer_open(&feeder->writer, path, reterr);

        if (status != PL_TIMEOUT) {
            return status;
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "no reader opened FIFO '%s' before the deadline", path);
        }
        if (wants_stop(feeder, (int)(TRY_AGAIN_NS / PL_NS_PER_MS))) {
            return cancelled(reterr);
        }
    }
}

/* Waits until the pipe has room. */
static enum pl_status wait_writable(struct pl_feeder *feeder, struct pl_error *reterr)
{
    int64_t deadline_ns = pl_deadline_after_ns(feeder->options.timeout_ns);
    struct pollfd fds[2] = {{.fd = feeder->writer.fd, .events = POLLOUT},
                            {.fd = feeder->options.cancel_fd, .events = POLLIN}};

    for (;;) {
        int ready = poll(fds, 2, pl_deadline_poll_ms(deadline_ns));

        if (ready < 0 && errno != EINTR) {
            return pl_error_errno(reterr, "poll FIFO '%s'", feeder->path);
        }
        if (ready > 0 && fds[1].revents) {
            return cancelled(reterr);
        }
        if (ready > 0) {
            return PL_OK;
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "the reader of FIFO '%s' read nothing more before the deadline",
                                feeder->path);
        }
    }
}

/* Writes the current chunk. Does nothing after the reader has left. */
static enum pl_status flush(struct pl_feeder *feeder, struct pl_error *reterr)
{
    struct pl_pipe_writer *writer = &feeder->writer;
    uint64_t cut_bytes = feeder->options.cut_bytes;
    enum pl_status status;

    if (cut_bytes && writer->bytes + (writer->filled - writer->sent) > cut_bytes) {
        writer->filled = writer->sent + (size_t)(cut_bytes - writer->bytes);
    }
    while ((status = pl_pipe_writer_push(writer, reterr)) == PL_TIMEOUT) {
        PL_TRY(wait_writable(feeder, reterr));
    }
    return status;
}

static bool is_over(const struct pl_feeder *feeder)
{
    const struct pl_pipe_writer *writer = &feeder->writer;

    return writer->closed ||
           (feeder->options.cut_bytes && writer->bytes + (writer->filled - writer->sent) >= feeder->options.cut_bytes);
}

/* Notes that the chunk has `bytes` bytes more. */
static enum pl_status add(struct pl_feeder *feeder, size_t bytes, struct pl_error *reterr)
{
    feeder->writer.filled += bytes;
    return feeder->writer.filled == PL_PIPE_CHUNK_BYTES ? flush(feeder, reterr) : PL_OK;
}

static enum pl_status put_bytes(struct pl_feeder *feeder, const void *data, size_t bytes, struct pl_error *reterr)
{
    const unsigned char *from = data;

    while (bytes > 0) {
        size_t room, now;
        unsigned char *to = pl_pipe_writer_room(&feeder->writer, &room);

        now = pl_number_min(bytes, room);
        memcpy(to, from, now);
        from += now;
        bytes -= now;
        PL_TRY(add(feeder, now, reterr));
    }
    return PL_OK;
}

/* Reads some bytes, and checks for a stop request while the source delivers nothing. */
static enum pl_status read_some(const struct pl_feeder *feeder, struct pl_source *source, void *data, size_t bytes,
                                size_t *ret_bytes, struct pl_error *reterr)
{
    int64_t deadline_ns = pl_deadline_after_ns(feeder->options.timeout_ns);
    enum pl_status status;

    do {
        int64_t look_ns = pl_deadline_after_ns(CHECK_PEERS_NS);

        if (wants_stop(feeder, 0)) {
            return cancelled(reterr);
        }
        status = pl_source_read(source, data, bytes, look_ns < deadline_ns ? look_ns : deadline_ns, ret_bytes, reterr);
    } while (status == PL_TIMEOUT && !pl_deadline_passed(deadline_ns));
    return status;
}

/* Reads `bytes` bytes of the source into the chunks; UINT64_MAX means all of it. It is an error if the source has
 * fewer. */
static enum pl_status put_source(struct pl_feeder *feeder, struct pl_source *source, uint64_t bytes,
                                 struct pl_error *reterr)
{
    bool all = bytes == UINT64_MAX;

    while (bytes > 0 && !is_over(feeder)) {
        size_t room, got;
        unsigned char *to = pl_pipe_writer_room(&feeder->writer, &room);

        PL_TRY(read_some(feeder, source, to, pl_number_min(bytes, room), &got, reterr));
        if (got == 0 && !all) {
            return pl_error_set(reterr, PL_CORRUPT, "'%s' is %llu bytes shorter than when it was listed", source->name,
                                (unsigned long long)bytes);
        }
        if (got == 0) {
            return PL_OK;
        }
        bytes -= all ? 0 : got;
        PL_TRY(add(feeder, got, reterr));
    }
    return PL_OK;
}

/* Writes one part of a RecordIO record: its head, its bytes, its padding. */
static enum pl_status put_part(struct pl_feeder *feeder, struct pl_source *source, unsigned flag, uint64_t bytes,
                               struct pl_error *reterr)
{
    unsigned char head[PL_RECORDIO_HEAD_BYTES];

    pl_record_recordio_head(flag, (uint32_t)bytes, head);
    PL_TRY(put_bytes(feeder, head, sizeof(head), reterr));
    PL_TRY(put_source(feeder, source, bytes, reterr));
    return put_bytes(feeder, "\0\0\0", (size_t)(-bytes & 3), reterr);
}

static enum pl_status put_wrapped(struct pl_feeder *feeder, struct pl_source *source, uint64_t bytes,
                                  struct pl_error *reterr)
{
    bool first = true;

    do {
        uint64_t now = bytes < MOST_PART_BYTES ? bytes : MOST_PART_BYTES;
        bool last = now == bytes;
        unsigned flag = first ? (last ? 0 : 1) : (last ? 3 : 2);

        PL_TRY(put_part(feeder, source, flag, now, reterr));
        bytes -= now;
        first = false;
    } while (bytes > 0 && !is_over(feeder));
    return PL_OK;
}

/* Writes a decompressed object as a record. The whole object is needed first, because the record begins with its
 * length. */
static enum pl_status put_inflated_record(struct pl_feeder *feeder, struct pl_source *source, struct pl_error *reterr)
{
    PL_AUTO_SOURCE struct pl_source *memory = NULL;
    PL_AUTO_FREE unsigned char *data = NULL;
    size_t capacity = 0, used = 0, got = 1;

    while (got > 0) {
        PL_TRY(pl_memory_grow(&data, &capacity, used + PL_PIPE_CHUNK_BYTES, 1, reterr));
        PL_TRY(read_some(feeder, source, data + used, capacity - used, &got, reterr));
        used += got;
    }
    PL_TRY(pl_source_open_memory(source->name, data, used, &memory, reterr));
    return put_wrapped(feeder, memory, used, reterr);
}

static enum pl_status put_object(struct pl_feeder *feeder, struct pl_store_reader *objects, struct pl_error *reterr)
{
    PL_AUTO_SOURCE struct pl_source *source = NULL;
    const struct pl_object *object;
    bool inflate = feeder->options.compression != PL_COMPRESSION_NONE;

    PL_TRY(pl_store_reader_next(objects, &source, &object, reterr));
    if (inflate) {
        PL_TRY(pl_source_open_inflate(source, feeder->options.compression, &source, reterr));
    }
    if (feeder->options.wrapper == PL_CHANNEL_WRAPPER_NONE) {
        return put_source(feeder, source, UINT64_MAX, reterr);
    }
    return inflate ? put_inflated_record(feeder, source, reterr)
                   : put_wrapped(feeder, source, object->size_bytes, reterr);
}

static enum pl_status put_epoch(struct pl_feeder *feeder, uint64_t epoch, struct pl_feeder_counts *counts,
                                struct pl_error *reterr)
{
    PL_AUTO_SOURCE struct pl_source *source = NULL;

    PL_TRY(feeder->epochs.open(feeder->epochs.context, epoch, &source, reterr));
    PL_TRY(put_source(feeder, source, UINT64_MAX, reterr));
    counts->objects += !is_over(feeder);
    return flush(feeder, reterr);
}

static enum pl_status put_objects(struct pl_feeder *feeder, uint64_t epoch, struct pl_feeder_counts *counts,
                                  struct pl_error *reterr)
{
    const struct pl_object_order order = {
        .list = &feeder->list, .shuffle = feeder->options.shuffle, .seed = feeder->options.seed, .epoch = epoch};
    PL_AUTO_STORE_READER struct pl_store_reader objects = {.store = NULL};

    PL_TRY(pl_store_reader_open(&objects, feeder->store, &order, reterr));
    for (uint64_t i = 0; i < feeder->list.count && !is_over(feeder); i++) {
        PL_TRY(put_object(feeder, &objects, reterr));
        counts->objects += !is_over(feeder);
    }
    return flush(feeder, reterr);
}

enum pl_status pl_feeder_run(struct pl_feeder *feeder, uint64_t epoch, struct pl_feeder_counts *ret_counts,
                             struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status;

    *ret_counts = (struct pl_feeder_counts){.objects = 0};
    pl_pipe_writer_close(&feeder->writer);
    PL_TRY(fifo_path(feeder, epoch, &path, reterr));
    PL_TRY(make_fifo(feeder, epoch, reterr));
    if (!feeder->options.late) {
        PL_TRY(make_fifo(feeder, epoch + 1, reterr));
    }
    PL_TRY(wait_for_reader(feeder, pl_text_string(&path), reterr));
    status =
        feeder->store ? put_objects(feeder, epoch, ret_counts, reterr) : put_epoch(feeder, epoch, ret_counts, reterr);
    /* Remove the name before the reader can see the end: a reader must never find the FIFO of an epoch that has
     * ended. */
    remove_fifo(feeder, epoch);
    if (status == PL_OK || status == PL_CANCELLED) { /* otherwise the reader would take this for the end of the data */
        pl_pipe_writer_close(&feeder->writer);
    }
    ret_counts->bytes = feeder->writer.bytes;
    ret_counts->closed_early = feeder->writer.closed;
    return status;
}

void pl_feeder_hold(struct pl_feeder *feeder)
{
    int64_t deadline_ns = pl_deadline_after_ns(feeder->options.timeout_ns);
    struct pollfd fds[2] = {{.fd = feeder->writer.fd}, {.fd = feeder->options.cancel_fd, .events = POLLIN}};
    int ready = 0;

    while (feeder->writer.fd >= 0 && !pl_deadline_passed(deadline_ns) &&
           (ready == 0 || (ready < 0 && errno == EINTR))) {
        ready = poll(fds, 2, pl_deadline_poll_ms(deadline_ns)); /* POLLERR: no reader is left */
    }
    pl_pipe_writer_close(&feeder->writer);
}

/* Keeps only the objects of this host, as ShardedByS3Key does. */
static void keep_shard(struct pl_object_list *list, struct pl_shard shard)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++) {
        if (i % shard.size == shard.rank) {
            struct pl_object mine = list->items[i];

            list->items[i] = list->items[kept];
            list->items[kept++] = mine;
        }
    }
    for (size_t i = kept; i < list->count; i++) {
        free(list->items[i].key);
    }
    list->count = kept;
}

static enum pl_status make(const char *path, const struct pl_feeder_options *options, struct pl_feeder **ret_feeder,
                           struct pl_error *reterr)
{
    struct pl_feeder *feeder;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&feeder, 1, sizeof(*feeder), reterr));
    feeder->options = *options;
    /* pl_deadline_after_ns() takes -1 as no deadline */
    feeder->options.timeout_ns = options->timeout_ns ? options->timeout_ns : -1;
    feeder->path = pl_memory_string(path, reterr);
    status = pl_pipe_writer_init(&feeder->writer, options->copy, reterr);
    if (!feeder->path) {
        status = PL_MEMORY;
    }
    if (status != PL_OK) {
        pl_feeder_close(feeder);
        return status;
    }
    *ret_feeder = feeder;
    return PL_OK;
}

enum pl_status pl_feeder_open(struct pl_store *store, const char *path, const struct pl_feeder_options *options,
                              int64_t deadline_ns, struct pl_feeder **ret_feeder, struct pl_error *reterr)
{
    struct pl_feeder *feeder;
    enum pl_status status;

    PL_TRY(make(path, options, &feeder, reterr));
    feeder->store = store;
    status = pl_store_list(store, deadline_ns, &feeder->list, reterr);
    if (status == PL_OK && feeder->list.count == 0) {
        status = pl_error_set(reterr, PL_NOT_FOUND, "there are no objects in '%s'", store->name);
    }
    if (status != PL_OK) {
        pl_feeder_close(feeder);
        return status;
    }
    if (options->shard.size) {
        keep_shard(&feeder->list, options->shard);
    }
    *ret_feeder = feeder;
    return PL_OK;
}

enum pl_status pl_feeder_open_epochs(const struct pl_feeder_epochs *epochs, const char *path,
                                     const struct pl_feeder_options *options, struct pl_feeder **ret_feeder,
                                     struct pl_error *reterr)
{
    PL_TRY(make(path, options, ret_feeder, reterr));
    (*ret_feeder)->epochs = *epochs;
    return PL_OK;
}

void pl_feeder_close(struct pl_feeder *feeder)
{
    if (!feeder) {
        return;
    }
    for (uint64_t epoch = feeder->made_from; epoch < feeder->made_until; epoch++) {
        remove_fifo(feeder, epoch);
    }
    pl_object_list_done(&feeder->list);
    pl_pipe_writer_done(&feeder->writer);
    free(feeder->path);
    free(feeder);
}
