/* SPDX-License-Identifier: Apache-2.0 */
/* Writes objects into FIFOs as SageMaker's Pipe Mode does. */
#include "s3io/pipe/feeder.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/text.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * Pages that vmsplice() lends to the pipe must not change until the reader has copied them. A chunk is used again after
 * CHUNKS - 1 others, which are more bytes than the pipe holds. But a reader may have enlarged the pipe, or may still
 * have the pipe of an earlier epoch. Then the chunk gets new pages, and the lent pages stay with the pipe.
 */
enum { PIPE_BYTES = 1 << 20, CHUNK_BYTES = 256 << 10, CHUNKS = 16 };

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
    unsigned char *chunks;
    uint64_t lent_until[CHUNKS]; /* `epoch_bytes` at the end of the chunk's write in this epoch; 0 if it was not lent */
    unsigned chunk;              /* the chunk that is being filled */
    size_t filled;               /* bytes in that chunk */
    int fd;                      /* the FIFO that is being written */
    bool closed_early;           /* the reader has closed it */
    uint64_t epoch_bytes;
    uint64_t made_until; /* FIFOs of epochs below this one were made */
    uint64_t made_from;  /* FIFOs of epochs below this one were removed */
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
        PL_AUTO_CLOSE int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        struct stat info;

        if (fd >= 0) {
            if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) {
                return pl_error_set(reterr, PL_INVALID, "'%s' is not a FIFO", path);
            }
            fcntl(fd, F_SETPIPE_SZ, (int)PIPE_BYTES);
            feeder->fd = fd;
            fd = -1;
            return PL_OK;
        }
        if (errno != ENXIO && errno != EINTR) {
            return pl_error_errno(reterr, "open FIFO '%s' for writing", path);
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
    struct pollfd fds[2] = {{.fd = feeder->fd, .events = POLLOUT}, {.fd = feeder->options.cancel_fd, .events = POLLIN}};

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

static ssize_t put(const struct pl_feeder *feeder, unsigned char *data, size_t bytes)
{
    struct iovec part = {.iov_base = data, .iov_len = bytes};

    return feeder->options.copy ? write(feeder->fd, data, bytes) : vmsplice(feeder->fd, &part, 1, SPLICE_F_NONBLOCK);
}

static enum pl_status take_other_pages(unsigned char *chunks, size_t bytes, struct pl_error *reterr)
{
    return madvise(chunks, bytes, MADV_DONTNEED) == 0 ? PL_OK : pl_error_errno(reterr, "empty the feeder's buffers");
}

/* Goes to the next chunk, whose pages may be changed from then on. */
static enum pl_status next_chunk(struct pl_feeder *feeder, struct pl_error *reterr)
{
    uint64_t lent_until;
    int unread = 0;

    feeder->lent_until[feeder->chunk] = feeder->epoch_bytes;
    feeder->chunk = (feeder->chunk + 1) % CHUNKS;
    feeder->filled = 0;
    lent_until = feeder->lent_until[feeder->chunk];
    if (feeder->options.copy || lent_until == 0 ||
        (ioctl(feeder->fd, FIONREAD, &unread) == 0 && lent_until + (uint64_t)unread <= feeder->epoch_bytes)) {
        return PL_OK;
    }
    return take_other_pages(feeder->chunks + (size_t)feeder->chunk * CHUNK_BYTES, CHUNK_BYTES, reterr);
}

/* Writes the current chunk and goes to the next one. Does nothing after the reader has left. */
static enum pl_status flush(struct pl_feeder *feeder, struct pl_error *reterr)
{
    unsigned char *next = feeder->chunks + (size_t)feeder->chunk * CHUNK_BYTES;
    size_t left = feeder->filled;

    if (feeder->options.cut_bytes && feeder->epoch_bytes + left > feeder->options.cut_bytes) {
        left = (size_t)(feeder->options.cut_bytes - feeder->epoch_bytes);
    }
    while (left > 0 && !feeder->closed_early) {
        ssize_t put_bytes = put(feeder, next, left);

        if (put_bytes >= 0) {
            next += put_bytes;
            left -= (size_t)put_bytes;
            feeder->epoch_bytes += (uint64_t)put_bytes;
        } else if (errno == EAGAIN) {
            PL_TRY(wait_writable(feeder, reterr));
        } else if ((errno == EPERM || errno == ENOSYS) && !feeder->options.copy) {
            /* the seccomp profile of a container, for example podman's default, refuses vmsplice() */
            feeder->options.copy = true;
        } else if (errno == EPIPE) {
            feeder->closed_early = true;
        } else if (errno != EINTR) {
            return pl_error_errno(reterr, "write FIFO '%s'", feeder->path);
        }
    }
    return next_chunk(feeder, reterr);
}

static bool is_over(const struct pl_feeder *feeder)
{
    return feeder->closed_early ||
           (feeder->options.cut_bytes && feeder->epoch_bytes + feeder->filled >= feeder->options.cut_bytes);
}

static enum pl_status put_bytes(struct pl_feeder *feeder, const void *data, size_t bytes, struct pl_error *reterr)
{
    const unsigned char *from = data;

    while (bytes > 0) {
        size_t room = CHUNK_BYTES - feeder->filled, now = pl_number_min(bytes, room);

        memcpy(feeder->chunks + (size_t)feeder->chunk * CHUNK_BYTES + feeder->filled, from, now);
        feeder->filled += now;
        from += now;
        bytes -= now;
        if (feeder->filled == CHUNK_BYTES) {
            PL_TRY(flush(feeder, reterr));
        }
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
        size_t room = CHUNK_BYTES - feeder->filled, got;

        PL_TRY(read_some(feeder, source, feeder->chunks + (size_t)feeder->chunk * CHUNK_BYTES + feeder->filled,
                         pl_number_min(bytes, room), &got, reterr));
        if (got == 0 && !all) {
            return pl_error_set(reterr, PL_CORRUPT, "'%s' is %llu bytes shorter than when it was listed", source->name,
                                (unsigned long long)bytes);
        }
        if (got == 0) {
            return PL_OK;
        }
        feeder->filled += got;
        bytes -= all ? 0 : got;
        if (feeder->filled == CHUNK_BYTES) {
            PL_TRY(flush(feeder, reterr));
        }
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
        PL_TRY(pl_memory_grow(&data, &capacity, used + CHUNK_BYTES, 1, reterr));
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
    return feeder->filled ? flush(feeder, reterr) : PL_OK;
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
    return feeder->filled ? flush(feeder, reterr) : PL_OK;
}

enum pl_status pl_feeder_run(struct pl_feeder *feeder, uint64_t epoch, struct pl_feeder_counts *ret_counts,
                             struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text path = PL_TEXT_NONE;
    enum pl_status status;

    *ret_counts = (struct pl_feeder_counts){.objects = 0};
    pl_file_close_at(&feeder->fd);
    PL_TRY(fifo_path(feeder, epoch, &path, reterr));
    PL_TRY(make_fifo(feeder, epoch, reterr));
    if (!feeder->options.late) {
        PL_TRY(make_fifo(feeder, epoch + 1, reterr));
    }
    PL_TRY(wait_for_reader(feeder, pl_text_string(&path), reterr));
    feeder->closed_early = false;
    feeder->epoch_bytes = 0;
    feeder->filled = 0;
    memset(feeder->lent_until, 0, sizeof(feeder->lent_until));
    if (!feeder->options.copy) { /* a reader may still have the pipe of an earlier epoch */
        PL_TRY(take_other_pages(feeder->chunks, (size_t)CHUNKS * CHUNK_BYTES, reterr));
    }
    status =
        feeder->store ? put_objects(feeder, epoch, ret_counts, reterr) : put_epoch(feeder, epoch, ret_counts, reterr);
    /* Remove the name before the reader can see the end: a reader must never find the FIFO of an epoch that has
     * ended. */
    remove_fifo(feeder, epoch);
    if (status == PL_OK || status == PL_CANCELLED) { /* else the reader would take the end for that of the data */
        pl_file_close_at(&feeder->fd);
    }
    ret_counts->bytes = feeder->epoch_bytes;
    ret_counts->closed_early = feeder->closed_early;
    return status;
}

void pl_feeder_hold(struct pl_feeder *feeder)
{
    int64_t deadline_ns = pl_deadline_after_ns(feeder->options.timeout_ns);
    struct pollfd fds[2] = {{.fd = feeder->fd}, {.fd = feeder->options.cancel_fd, .events = POLLIN}};
    int ready = 0;

    while (feeder->fd >= 0 && !pl_deadline_passed(deadline_ns) && (ready == 0 || (ready < 0 && errno == EINTR))) {
        ready = poll(fds, 2, pl_deadline_poll_ms(deadline_ns)); /* POLLERR: no reader is left */
    }
    pl_file_close_at(&feeder->fd);
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
    enum pl_status status = PL_OK;

    PL_TRY(pl_memory_alloc(&feeder, 1, sizeof(*feeder), reterr));
    feeder->options = *options;
    /* pl_deadline_after_ns() takes -1 as no deadline */
    feeder->options.timeout_ns = options->timeout_ns ? options->timeout_ns : -1;
    feeder->fd = -1;
    feeder->path = pl_memory_string(path, reterr);
    /* The chunks are mapped, not from the heap: after munmap(), pages that a pipe still holds stay as they are. */
    feeder->chunks =
        mmap(NULL, (size_t)CHUNKS * CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!feeder->path) {
        status = PL_MEMORY;
    }
    if (feeder->chunks == MAP_FAILED) {
        feeder->chunks = NULL;
        status = pl_error_errno(reterr, "map the feeder's buffers");
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
    pl_file_close_at(&feeder->fd);
    for (uint64_t epoch = feeder->made_from; epoch < feeder->made_until; epoch++) {
        remove_fifo(feeder, epoch);
    }
    pl_object_list_done(&feeder->list);
    if (feeder->chunks) {
        munmap(feeder->chunks, (size_t)CHUNKS * CHUNK_BYTES);
    }
    free(feeder->path);
    free(feeder);
}
