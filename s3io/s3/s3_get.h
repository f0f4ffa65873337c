/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Objects as one ordered stream of bytes, fetched by parallel ranged requests into a buffer of fixed size.
 *
 * A request is only made when the buffer has room for all its bytes, so memory is bounded by construction and a slow
 * reader slows the requests, never a transfer in progress. Objects are cut into parts of `part_bytes`; parts of the
 * next objects are on their way while the current one is read. Every request for an object is pinned to its ETag: bytes
 * of two versions are never mixed. A broken transfer resumes after the last byte that arrived.
 *
 * Threads  one reader; pl_s3_stream_cancel() from any.
 * Cost     one copy from libcurl's buffer into the stream's, which the reader uses in place. What was read last is
 *          filled next: if the reader keeps up, only as much memory is touched as is in flight.
 * Test     tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_GET_H
#define PL_S3IO_S3_S3_GET_H

#include "s3io/s3/s3_client.h"
#include "s3io/source.h"

/** An object to read. Strings stay the caller's and must outlive the stream. */
struct pl_s3_object {
    const char *bucket;
    const char *key;
    const char *etag; /* NULL: unknown, then `size_bytes` is not used: the first request finds both */
    uint64_t size_bytes;
    uint64_t first_byte; /* begin here */
    /* of the whole object, if known: it, or what the server sends with the first bytes (unless it was uploaded in parts
     * and has several ranges), is checked when reading began at byte 0 */
    struct pl_checksum checksum;
};

/** Objects in their order. `at` is asked once for each, in turn, on the client's thread. */
struct pl_s3_order {
    const void *context;
    size_t count;
    struct pl_s3_object (*at)(const void *context, size_t position);
};

/** Zero-initialise, then set what differs. */
struct pl_s3_stream_options {
    uint64_t budget_bytes; /* 0: 64 MiB; size of the buffer, but at most two parts for each connection */
    uint64_t part_bytes;   /* 0: an eighth of the budget, at most 4 MiB; at most half of the budget */
};

/** A view into the buffer, valid until the next call. */
struct pl_s3_chunk {
    const void *data;
    size_t bytes;        /* 0 only for an object without bytes to read */
    size_t object;       /* which of the objects */
    uint64_t offset;     /* of `data` in the object */
    uint64_t size_bytes; /* of the object */
    bool last;           /* the object ends with this chunk */
};

struct pl_s3_stream;

enum pl_status pl_s3_stream_open(struct pl_s3_client *client, const struct pl_s3_object *objects, size_t count,
                                 const struct pl_s3_stream_options *options, struct pl_s3_stream **ret_stream,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** The same for objects that need no array; what `order` refers to must outlive the stream. */
enum pl_status pl_s3_stream_open_order(struct pl_s3_client *client, const struct pl_s3_order *order,
                                       const struct pl_s3_stream_options *options, struct pl_s3_stream **ret_stream,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The next bytes; PL_END (without a report) after the last.
 *
 * Errors  PL_TIMEOUT from the deadline: nothing was lost, call again. PL_NOT_FOUND, PL_FAILED, ... from a request whose
 *         retries failed, PL_CORRUPT for a checksum that does not match: the stream can only be closed.
 */
enum pl_status pl_s3_stream_next(struct pl_s3_stream *stream, int64_t deadline_ns, struct pl_s3_chunk *ret_chunk,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * PL_CORRUPT where `checksum`, of all bytes of the object, is not the `wanted` one; one of no kind fits everything. For
 * readers that begin at a later byte and know those before: a stream does it for those that begin at byte 0.
 */
enum pl_status pl_s3_check_whole(const struct pl_s3_object *object, const struct pl_checksum *checksum,
                                 const struct pl_checksum *wanted, struct pl_error *reterr) PL_MUST_CHECK;

/** Make the running call and all later ones return PL_CANCELLED. */
void pl_s3_stream_cancel(struct pl_s3_stream *stream);

/** End all transfers of the stream and release it. NULL is fine. */
void pl_s3_stream_close(struct pl_s3_stream *stream);

/**
 * The object "s3://BUCKET/KEY" as a byte source. The client must outlive it. No request is sent before the first read.
 */
enum pl_status pl_source_s3_open(struct pl_s3_client *client, const char *uri,
                                 const struct pl_s3_stream_options *options, struct pl_source **ret_source,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** The same for an object whose size or ETag may be known, as a byte source named `name`; strings are copied. */
enum pl_status pl_source_s3_open_object(struct pl_s3_client *client, const char *name,
                                        const struct pl_s3_object *object, const struct pl_s3_stream_options *options,
                                        struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The objects of a stream as byte sources, which are read one after the other while the stream fetches those that come
 * next. Of an object whose source is closed early the rest is passed over.
 */
struct pl_s3_reader;

enum pl_status pl_s3_reader_open(struct pl_s3_client *client, const struct pl_s3_order *order,
                                 const struct pl_s3_stream_options *options, struct pl_s3_reader **ret_reader,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** The object at `position`, after those before it; the reader must outlive it. `name` is copied. */
enum pl_status pl_s3_reader_source(struct pl_s3_reader *reader, size_t position, const char *name,
                                   struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

/** NULL is fine. */
void pl_s3_reader_close(struct pl_s3_reader *reader);

/** The whole object at `uri`, at most `max_bytes`, NUL-terminated; the caller frees it. */
enum pl_status pl_s3_fetch_text(struct pl_s3_client *client, const char *uri, size_t max_bytes, int64_t deadline_ns,
                                char **ret_text, size_t *ret_bytes, struct pl_error *reterr) PL_MUST_CHECK;

#endif
