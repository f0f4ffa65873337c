/* SPDX-License-Identifier: Apache-2.0 */
/* Reads objects as one ordered stream, by parallel ranged requests into a buffer of fixed size. */
#include "s3io/s3/s3_get.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "s3io/s3/s3_operation.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    /* unit of the buffer: a part takes blocks as its bytes arrive, and the reader releases them */
    BLOCK_BYTES = 256 * 1024,
    WAKE_BYTES = 1024 * 1024, /* the reader is woken after this many bytes, or at the end of a part */
    SLICE_MS = 20,            /* the reader also polls after this time */
};

#define PART_NS (1800 * PL_NS_PER_S) /* limit for one part with all its retries */

static const uint64_t default_budget_bytes = UINT64_C(64) << 20;
/* so that each connection has a part within the default budget */
static const uint64_t most_part_bytes = UINT64_C(4) << 20;

struct part {
    struct pl_s3_operation operation;
    struct pl_s3_stream *stream;
    size_t object; /* position of the object in the order */
    struct pl_s3_object target;
    uint64_t offset, bytes; /* position and length in the object; `bytes` is an upper bound until the size is known */
    unsigned char **blocks; /* the part's bytes; valid up to `filled` */
    atomic_size_t filled;   /* number of valid bytes; only grows while the reader may use them */
    struct {
        size_t room;     /* number of blocks that are reserved for the part */
        bool unverified; /* the part must not be read before its checksum was verified */
        bool ended;      /* the operation has ended */
        enum pl_status status;
    } synced; /* under the stream's lock */
};

/* The properties of an object, from the responses, while it is read. */
struct object_info {
    bool found;
    uint64_t size_bytes;
    char etag[PL_HTTP_ETAG_BYTES];
};

struct pl_s3_stream {
    struct pl_s3_client *client;
    struct pl_s3_order order;
    struct pl_s3_stream_options options;
    unsigned char *buffer; /* memory of `block_count` blocks */
    size_t block_bytes, block_count;
    size_t part_blocks;          /* most blocks of one part */
    unsigned char **block_table; /* `part_blocks` pointers for each slot */
    struct part *parts;          /* part i is parts[i % part_slots] */
    size_t part_slots;
    struct pl_http_task plan_task, close_task;

    /* The state of planning; it belongs to the engine's thread. */
    size_t plan_object;
    struct pl_s3_object plan_target; /* the object with this index, after begin_object() */
    uint64_t plan_offset;
    bool plan_begun;                /* begin_object() has run for plan_object */
    bool plan_any;                  /* plan_object has a part */
    bool plan_waits;                /* planning waits for the size of plan_object */
    unsigned fetching;              /* number of parts in flight */
    struct object_info object_info; /* what is known about plan_object */

    /* The following belongs to the reader. */
    struct pl_s3_chunk chunk;    /* the chunk that the caller uses */
    uint64_t consumed;           /* bytes of the part `oldest` that were read */
    bool empty_returned;         /* the part `oldest` has no bytes, and its empty chunk was returned */
    struct pl_checksum checksum; /* checksum of the object's bytes so far */
    struct pl_checksum wanted;   /* the expected checksum */

    pthread_mutex_t lock;
    pthread_cond_t changed_cond;
    struct {
        uint64_t oldest, planned; /* parts numbered [oldest, planned) exist */
        size_t reserved;          /* number of blocks that are reserved for these parts; at most `block_count` */
        /* free blocks; the block that was read last is on top, because it is still in the caches */
        unsigned char **free;
        size_t free_count;
        bool all_planned, plan_posted, waiting, cancelled, closed;
    } synced; /* under `lock` */
};

static struct part *part_at(struct pl_s3_stream *stream, uint64_t number)
{
    return &stream->parts[number % stream->part_slots];
}

/* The functions from here on run on the engine's thread. */

/* Returns where to put the part's bytes from `at` on; there is room for `*ret_bytes`. A block that exists already was
 * filled before a rewind. */
static unsigned char *room_at(struct pl_s3_stream *stream, struct part *part, uint64_t at, size_t *ret_bytes)
{
    size_t in_block = at % stream->block_bytes;
    unsigned char **block = &part->blocks[at / stream->block_bytes];

    if (!*block) {
        pthread_mutex_lock(&stream->lock);
        *block = stream->synced.free[--stream->synced.free_count];
        pthread_mutex_unlock(&stream->lock);
    }
    *ret_bytes = stream->block_bytes - in_block;
    return *block + in_block;
}

static enum pl_status on_sink(struct pl_s3_operation *operation, uint64_t at, const void *data, size_t bytes,
                              struct pl_error *reterr)
{
    struct part *part = operation->context;
    struct pl_s3_stream *stream = part->stream;

    (void)reterr;
    PL_BUG_IF(at + bytes > part->bytes);
    for (size_t done = 0, room; done < bytes; done += room) {
        unsigned char *target = room_at(stream, part, at + done, &room);

        room = room < bytes - done ? room : bytes - done;
        memcpy(target, (const char *)data + done, room);
    }
    atomic_store_explicit(&part->filled, at + bytes, memory_order_release);
    /* A lock after every 16 KiB would wait for the stores of the copy each time. A reader that polls misses nothing. */
    if ((at + bytes) / WAKE_BYTES != at / WAKE_BYTES) {
        bool wake;

        pthread_mutex_lock(&stream->lock);
        wake = stream->synced.waiting && !part->synced.unverified && part == part_at(stream, stream->synced.oldest);
        pthread_mutex_unlock(&stream->lock);
        if (wake) {
            pthread_cond_signal(&stream->changed_cond); /* not under the lock, which the reader takes next */
        }
    }
    return PL_OK;
}

static void plan(struct pl_s3_stream *stream);

static void on_found(struct pl_s3_operation *operation)
{
    struct part *part = operation->context;
    struct pl_s3_stream *stream = part->stream;

    pthread_mutex_lock(&stream->lock);
    part->bytes = operation->expected_bytes;
    part->synced.unverified = operation->crc_checked;
    pthread_mutex_unlock(&stream->lock);
    if (stream->plan_waits && part->object == stream->plan_object) {
        stream->object_info.found = true;
        stream->object_info.size_bytes = operation->object_bytes;
        memcpy(stream->object_info.etag, operation->etag, sizeof(stream->object_info.etag));
        stream->plan_waits = false;
        stream->plan_offset = part->offset + part->bytes;
        plan(stream);
    }
}

static void on_rewind(struct pl_s3_operation *operation)
{
    struct part *part = operation->context;

    /* the part is still unverified, so the reader does not use it */
    atomic_store_explicit(&part->filled, 0, memory_order_release);
}

static void on_part_done(struct pl_s3_operation *operation, enum pl_status status)
{
    struct part *part = operation->context;
    struct pl_s3_stream *stream = part->stream;

    stream->fetching--;
    pthread_mutex_lock(&stream->lock);
    part->synced.ended = true;
    part->synced.unverified = false;
    part->synced.status = status;
    pthread_cond_signal(&stream->changed_cond);
    pthread_mutex_unlock(&stream->lock);
    plan(stream);
}

static void start_part(struct pl_s3_stream *stream, struct part *part, uint64_t bytes)
{
    static const struct pl_s3_operation_handler handler = {on_sink, on_found, on_rewind, on_part_done};
    const struct pl_s3_object *object = &stream->plan_target;
    struct pl_s3_operation *operation = &part->operation;

    pl_s3_operation_done(operation);
    *operation = (struct pl_s3_operation){.client = stream->client,
                                          .handler = &handler,
                                          .context = part,
                                          .method = "GET",
                                          .bucket = object->bucket,
                                          .key = object->key,
                                          .deadline_ns = pl_deadline_after_ns(PART_NS),
                                          .ranged = true,
                                          .range_first = stream->plan_offset,
                                          .range_bytes = bytes};
    operation->extra[operation->extra_count++] = (struct pl_sigv4_header){"x-amz-checksum-mode", "ENABLED"};
    memcpy(operation->etag, stream->object_info.etag, sizeof(operation->etag));
    part->object = stream->plan_object;
    part->target = *object;
    part->offset = stream->plan_offset;
    part->bytes = bytes;
}

/* Begins to plan plan_object. */
static void begin_object(struct pl_s3_stream *stream)
{
    const struct pl_s3_object *object = &stream->plan_target;

    stream->plan_target = stream->order.at(stream->order.context, stream->plan_object);
    stream->plan_offset = object->first_byte;
    stream->plan_begun = true;
    stream->plan_any = false;
    stream->object_info = (struct object_info){.found = object->etag, .size_bytes = object->size_bytes};
    if (object->etag) {
        snprintf(stream->object_info.etag, sizeof(stream->object_info.etag), "%s", object->etag);
    }
}

/* Plans the next part of plan_object. Returns false if there is no room for it. */
static bool plan_part(struct pl_s3_stream *stream)
{
    uint64_t bytes = stream->options.part_bytes;
    struct part *part;
    size_t blocks;
    bool room;

    if (stream->object_info.found) {
        uint64_t left = stream->object_info.size_bytes > stream->plan_offset
                            ? stream->object_info.size_bytes - stream->plan_offset
                            : 0;

        bytes = pl_number_min(left, bytes);
    }
    blocks = (bytes + stream->block_bytes - 1) / stream->block_bytes;
    pthread_mutex_lock(&stream->lock);
    part = part_at(stream, stream->synced.planned);
    /* There must be room for the whole part, so that no transfer ever waits for the reader. */
    room = stream->synced.planned - stream->synced.oldest < stream->part_slots &&
           blocks <= stream->block_count - stream->synced.reserved && !stream->synced.closed;
    pthread_mutex_unlock(&stream->lock);
    /* More parts than can be sent at once would only reserve empty room. */
    if (!room || stream->fetching >= stream->client->connections) {
        return false;
    }
    start_part(stream, part, bytes);
    part->operation.object_bytes = stream->object_info.size_bytes;
    part->operation.total_known = stream->object_info.found;
    stream->plan_any = true;
    stream->plan_waits = !stream->object_info.found;
    stream->plan_offset += stream->object_info.found ? bytes : 0;
    pthread_mutex_lock(&stream->lock);
    atomic_store_explicit(&part->filled, 0, memory_order_relaxed);
    memset(part->blocks, 0, blocks * sizeof(*part->blocks));
    part->synced.room = blocks;
    stream->synced.reserved += blocks;
    part->synced.unverified = false;
    part->synced.ended = bytes == 0; /* an empty part needs no request */
    part->synced.status = PL_OK;
    stream->synced.planned++;
    pthread_cond_signal(&stream->changed_cond);
    pthread_mutex_unlock(&stream->lock);
    if (bytes) {
        stream->fetching++;
        pl_s3_operation_start(&part->operation);
    }
    return true;
}

static void plan(struct pl_s3_stream *stream)
{
    while (stream->plan_object < stream->order.count) {
        if (!stream->plan_begun) {
            begin_object(stream);
        }
        if (stream->plan_waits) {
            return;
        }
        /* Every object has at least one part; the part of an empty object has no bytes. */
        if (stream->plan_any && stream->plan_offset >= stream->object_info.size_bytes) {
            stream->plan_object++;
            stream->plan_begun = false;
        } else if (!plan_part(stream)) {
            return;
        }
    }
    pthread_mutex_lock(&stream->lock);
    stream->synced.all_planned = true;
    pthread_cond_signal(&stream->changed_cond);
    pthread_mutex_unlock(&stream->lock);
}

static void plan_task(struct pl_http_task *task)
{
    struct pl_s3_stream *stream = PL_CONTAINER_OF(task, struct pl_s3_stream, plan_task);

    pthread_mutex_lock(&stream->lock);
    stream->synced.plan_posted = false;
    pthread_mutex_unlock(&stream->lock);
    plan(stream);
}

static void close_task(struct pl_http_task *task)
{
    struct pl_s3_stream *stream = PL_CONTAINER_OF(task, struct pl_s3_stream, close_task);

    for (size_t i = 0; i < stream->part_slots; i++) {
        pl_s3_operation_cancel(&stream->parts[i].operation);
    }
}

/* The functions from here on run on the reader's thread. */

static enum pl_status check_options(const struct pl_s3_client *client, const struct pl_s3_stream_options *given,
                                    struct pl_s3_stream_options *options, struct pl_error *reterr)
{
    static const struct pl_s3_stream_options none = {.budget_bytes = 0};
    const uint64_t least_bytes = 2 * PAGE;
    uint64_t most_bytes;

    *options = given ? *given : none;
    if (options->budget_bytes == 0) {
        options->budget_bytes = default_budget_bytes;
    }
    options->budget_bytes = options->budget_bytes / PAGE * PAGE;
    if (options->budget_bytes < least_bytes || options->budget_bytes > SIZE_MAX / 2) {
        return pl_error_set(reterr, PL_INVALID, "expected a stream's budget of at least two pages, found %llu bytes",
                            (unsigned long long)options->budget_bytes);
    }
    if (options->part_bytes == 0) {
        options->part_bytes = options->budget_bytes / 8 < most_part_bytes ? options->budget_bytes / 8 : most_part_bytes;
    }
    if (options->part_bytes > options->budget_bytes / 2) {
        options->part_bytes = options->budget_bytes / 2;
    }
    options->part_bytes = options->part_bytes < PAGE ? PAGE : options->part_bytes / PAGE * PAGE;
    /* With two parts per connection, no connection waits for a part that takes twice as long as others. More parts
     * would only use more memory. */
    most_bytes = 2 * client->connections * options->part_bytes;
    options->budget_bytes = pl_number_min(options->budget_bytes, most_bytes);
    return PL_OK;
}

static void release(struct pl_s3_stream *stream)
{
    for (size_t i = 0; stream->parts && i < stream->part_slots; i++) {
        pl_s3_operation_done(&stream->parts[i].operation);
    }
    if (stream->buffer) {
        munmap(stream->buffer, stream->options.budget_bytes);
    }
    free(stream->block_table);
    free(stream->synced.free);
    pthread_cond_destroy(&stream->changed_cond);
    pthread_mutex_destroy(&stream->lock);
    free(stream->parts);
    free(stream);
}

static enum pl_status allocate(struct pl_s3_stream *stream, struct pl_error *reterr)
{
    const struct pl_s3_stream_options *options = &stream->options;
    void *buffer = mmap(NULL, options->budget_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (buffer == MAP_FAILED) {
        return pl_error_raise(reterr, PL_MEMORY, PL_DOMAIN_ERRNO, errno, "cannot map a buffer of %llu bytes",
                              (unsigned long long)options->budget_bytes);
    }
    stream->buffer = buffer;
    madvise(buffer, options->budget_bytes, MADV_HUGEPAGE); /* needs a sixth of the cycles per page; optional */
    stream->block_bytes = options->part_bytes < BLOCK_BYTES ? options->part_bytes : BLOCK_BYTES;
    stream->block_count = options->budget_bytes / stream->block_bytes;
    stream->part_blocks = (options->part_bytes + stream->block_bytes - 1) / stream->block_bytes;
    stream->part_slots = (size_t)stream->client->connections * 4;
    PL_TRY(pl_memory_alloc(&stream->parts, stream->part_slots, sizeof(*stream->parts), reterr));
    PL_TRY(pl_memory_alloc(&stream->block_table, stream->part_slots * stream->part_blocks, sizeof(*stream->block_table),
                           reterr));
    PL_TRY(pl_memory_alloc(&stream->synced.free, stream->block_count, sizeof(*stream->synced.free), reterr));
    for (size_t i = 0; i < stream->part_slots; i++) {
        stream->parts[i].stream = stream;
        stream->parts[i].operation.client = stream->client;
        stream->parts[i].blocks = stream->block_table + i * stream->part_blocks;
    }
    stream->synced.free_count = stream->block_count;
    /* the lowest block on top: if the reader keeps up, the highest blocks are never used */
    for (size_t i = 0; i < stream->block_count; i++) {
        stream->synced.free[stream->block_count - 1 - i] = stream->buffer + i * stream->block_bytes;
    }
    return PL_OK;
}

enum pl_status pl_s3_stream_open_order(struct pl_s3_client *client, const struct pl_s3_order *order,
                                       const struct pl_s3_stream_options *options, struct pl_s3_stream **ret_stream,
                                       struct pl_error *reterr)
{
    struct pl_s3_stream *stream;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&stream, 1, sizeof(*stream), reterr));
    pthread_cond_init(&stream->changed_cond, NULL);
    pthread_mutex_init(&stream->lock, NULL);
    stream->client = client;
    stream->order = *order;
    stream->plan_task.run = plan_task;
    stream->close_task.run = close_task;
    status = check_options(client, options, &stream->options, reterr);
    if (status == PL_OK) {
        status = allocate(stream, reterr);
    }
    if (status != PL_OK) {
        release(stream);
        return status;
    }
    stream->synced.plan_posted = true;
    pl_http_post(client->http, &stream->plan_task);
    *ret_stream = stream;
    return PL_OK;
}

static struct pl_s3_object in_array(const void *context, size_t position)
{
    return ((const struct pl_s3_object *)context)[position];
}

enum pl_status pl_s3_stream_open(struct pl_s3_client *client, const struct pl_s3_object *objects, size_t count,
                                 const struct pl_s3_stream_options *options, struct pl_s3_stream **ret_stream,
                                 struct pl_error *reterr)
{
    struct pl_s3_order order = {.context = objects, .count = count, .at = in_array};

    return pl_s3_stream_open_order(client, &order, options, ret_stream, reterr);
}

void pl_s3_stream_close(struct pl_s3_stream *stream)
{
    if (!stream) {
        return;
    }
    pthread_mutex_lock(&stream->lock);
    stream->synced.closed = true;
    pthread_mutex_unlock(&stream->lock);
    pl_http_run(stream->client->http, &stream->close_task);
    release(stream);
}

void pl_s3_stream_cancel(struct pl_s3_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->synced.cancelled = true;
    pthread_cond_broadcast(&stream->changed_cond);
    pthread_mutex_unlock(&stream->lock);
}

/* Releases a block of the oldest part. */
static void release_block(struct pl_s3_stream *stream, size_t block)
{
    stream->synced.free[stream->synced.free_count++] = part_at(stream, stream->synced.oldest)->blocks[block];
}

/* Releases the chunk that the reader has used. After the end of a part its room is free. The caller holds the lock. */
static void release_chunk(struct pl_s3_stream *stream)
{
    stream->consumed += stream->chunk.bytes;
    if (stream->chunk.bytes && stream->consumed % stream->block_bytes == 0) {
        release_block(stream, stream->consumed / stream->block_bytes - 1);
    }
    stream->chunk = (struct pl_s3_chunk){.data = NULL};
}

static void drop_part(struct pl_s3_stream *stream)
{
    if (stream->consumed % stream->block_bytes) {
        release_block(stream, stream->consumed / stream->block_bytes);
    }
    stream->synced.reserved -= part_at(stream, stream->synced.oldest)->synced.room;
    stream->consumed = 0;
    stream->empty_returned = false;
    stream->synced.oldest++;
    if (!stream->synced.plan_posted && !stream->synced.all_planned) {
        stream->synced.plan_posted = true;
        pl_http_post(stream->client->http, &stream->plan_task);
    }
}

/* Takes the next chunk of `part`, if there is one. The caller holds the lock. */
static bool take_chunk(struct pl_s3_stream *stream, const struct part *part, struct pl_s3_chunk *ret_chunk)
{
    size_t visible = part->synced.unverified ? 0 : atomic_load_explicit(&part->filled, memory_order_acquire);
    size_t in_block = stream->consumed % stream->block_bytes;
    uint64_t block_end = stream->consumed - in_block + stream->block_bytes;
    bool empty = part->synced.ended && part->synced.status == PL_OK && part->bytes == 0 && !stream->empty_returned;

    if (visible <= stream->consumed && !empty) {
        return false;
    }
    visible = pl_number_min(visible, block_end);
    stream->empty_returned = empty;
    *ret_chunk = (struct pl_s3_chunk){.data = empty ? stream->buffer
                                                    : part->blocks[stream->consumed / stream->block_bytes] + in_block,
                                      .bytes = visible - stream->consumed,
                                      .object = part->object,
                                      .offset = part->offset + stream->consumed,
                                      .size_bytes = part->operation.object_bytes};
    ret_chunk->last = ret_chunk->offset + ret_chunk->bytes >= ret_chunk->size_bytes;
    return true;
}

/*
 * Returns the checksum of a whole object of several ranges, from the response with its first bytes. There is none if
 * the object was uploaded in parts (its ETag is "...-N"): if a range is exactly one part, its response has the checksum
 * of that part.
 */
static struct pl_checksum answer_checksum(const struct part *part)
{
    return strchr(part->operation.etag, '-') ? (struct pl_checksum){.kind = PL_CHECKSUM_NONE} : part->operation.wanted;
}

enum pl_status pl_s3_check_whole(const struct pl_s3_object *object, const struct pl_checksum *checksum,
                                 const struct pl_checksum *wanted, struct pl_error *reterr)
{
    if (checksum->kind == PL_CHECKSUM_NONE || checksum->value == wanted->value) {
        return PL_OK;
    }
    return pl_error_set(reterr, PL_CORRUPT, "s3://%s/%s: %s of the whole object is %llx, the server sent %llx",
                        object->bucket, object->key, pl_checksum_name(wanted), (unsigned long long)checksum->value,
                        (unsigned long long)wanted->value);
}

/* Checks the checksum of the whole object over all chunks. It comes from the caller or from the response with the first
 * bytes. */
static enum pl_status check_chunk(struct pl_s3_stream *stream, const struct part *part, const struct pl_s3_chunk *chunk,
                                  struct pl_error *reterr)
{
    const struct pl_s3_object *object = &part->target;

    if (object->first_byte || part->operation.crc_checked) {
        return PL_OK;
    }
    if (chunk->offset == 0) {
        stream->wanted = object->checksum.kind != PL_CHECKSUM_NONE ? object->checksum : answer_checksum(part);
        stream->checksum = (struct pl_checksum){.kind = stream->wanted.kind};
    }
    pl_checksum_add(&stream->checksum, chunk->data, chunk->bytes);
    return chunk->last ? pl_s3_check_whole(object, &stream->checksum, &stream->wanted, reterr) : PL_OK;
}

static void wait_slice(struct pl_s3_stream *stream, int64_t deadline_ns)
{
    int64_t until_ns = pl_deadline_after_ns(SLICE_MS * PL_NS_PER_MS);

    stream->synced.waiting = true;
    pl_deadline_wait(until_ns < deadline_ns ? until_ns : deadline_ns, &stream->changed_cond, &stream->lock);
    stream->synced.waiting = false;
}

/* Returns a chunk (PL_OK), the end or a failure, after waiting if necessary. The caller holds the lock. */
static enum pl_status find_chunk(struct pl_s3_stream *stream, int64_t deadline_ns, struct pl_s3_chunk *ret_chunk,
                                 struct part **ret_part, struct pl_error *reterr)
{
    for (;;) {
        struct part *part = part_at(stream, stream->synced.oldest);

        if (stream->synced.cancelled) {
            return pl_error_set(reterr, PL_CANCELLED, "reading from S3 was cancelled");
        }
        if (stream->synced.oldest < stream->synced.planned) {
            if (take_chunk(stream, part, ret_chunk)) {
                *ret_part = part;
                return PL_OK;
            }
            if (part->synced.ended && part->synced.status != PL_OK) {
                if (reterr) {
                    *reterr = part->operation.error;
                }
                return part->synced.status;
            }
            if (part->synced.ended) {
                drop_part(stream);
                continue;
            }
        } else if (stream->synced.all_planned) {
            return PL_END;
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "no bytes came from S3 before the deadline");
        }
        wait_slice(stream, deadline_ns);
    }
}

enum pl_status pl_s3_stream_next(struct pl_s3_stream *stream, int64_t deadline_ns, struct pl_s3_chunk *ret_chunk,
                                 struct pl_error *reterr)
{
    struct pl_s3_chunk chunk;
    struct part *part = NULL;
    enum pl_status status;

    pthread_mutex_lock(&stream->lock);
    release_chunk(stream);
    status = find_chunk(stream, deadline_ns, &chunk, &part, reterr);
    pthread_mutex_unlock(&stream->lock);
    PL_TRY(status);
    PL_TRY(check_chunk(stream, part, &chunk, reterr));
    stream->chunk = *ret_chunk = chunk;
    return PL_OK;
}
