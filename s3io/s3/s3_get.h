/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Objects as one ordered stream of bytes. Parallel ranged requests fetch it into a buffer of fixed size.
 *
 * A request is sent only when the buffer has room for all its bytes. So memory is bounded, and a slow reader delays new
 * requests, never a transfer in progress. Objects are divided into parts of `part_bytes`. Parts of the next objects are
 * fetched while the current one is read. Every request for an object is pinned to its ETag: bytes of two versions are
 * never mixed. A broken transfer resumes after the last byte that arrived.
 *
 * Threads  one reader; pl_s3_stream_cancel(): any thread.
 * Cost     one copy from libcurl's buffer into the stream's, which the reader uses in place. The block that was read
 *          last is filled next: if the reader keeps up, only as much memory is used as is in flight.
 * Test     tests/integration/s3_faults.py
 */
#ifndef PL_S3IO_S3_S3_GET_H
#define PL_S3IO_S3_S3_GET_H

#include "s3io/s3/s3_client.h"
#include "s3io/sampler.h"
#include "s3io/source.h"

/** An object to read. The strings stay the caller's and must outlive the stream. */
struct pl_s3_object {
    const char *bucket;
    const char *key;
    const char *etag; /* NULL if it is unknown; then `size_bytes` is not used, and the first request finds both */
    uint64_t size_bytes;
    uint64_t first_byte; /* where reading begins */
    /* checksum of the whole object, if it is known. If reading begins at byte 0, it is checked; without it, the
     * checksum that the server sends with the first bytes is checked, except for an object of several ranges that was
     * uploaded in parts */
    struct pl_checksum checksum;
};

/** Objects in their order. `at` is called once for each of them, in this order, on the client's thread. */
struct pl_s3_order {
    const void *context;
    size_t count;
    struct pl_s3_object (*at)(const void *context, size_t position);
};

/** Zero-initialise, then set the options that differ from the defaults. */
struct pl_s3_stream_options {
    uint64_t budget_bytes; /* size of the buffer, limited to two parts per connection; 0 means 64 MiB */
    uint64_t part_bytes;   /* at most half of the budget; 0 means an eighth of the budget, but at most 4 MiB */
};

/** A view into the buffer. Valid until the next call. */
struct pl_s3_chunk {
    const void *data;
    size_t bytes;        /* 0 only for an object without bytes to read */
    size_t object;       /* index of the object */
    uint64_t offset;     /* offset of `data` in the object */
    uint64_t size_bytes; /* size of the object */
    bool last;           /* the object ends with this chunk */
};

struct pl_s3_stream;

enum pl_status pl_s3_stream_open(struct pl_s3_client *client, const struct pl_s3_object *objects, size_t count,
                                 const struct pl_s3_stream_options *options, struct pl_s3_stream **ret_stream,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_s3_stream_open(), for objects that need no array. The context of `order` must outlive the stream. */
enum pl_status pl_s3_stream_open_order(struct pl_s3_client *client, const struct pl_s3_order *order,
                                       const struct pl_s3_stream_options *options, struct pl_s3_stream **ret_stream,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the next bytes, or PL_END (without an error text) after the last ones.
 *
 * Errors  PL_TIMEOUT at the deadline: nothing was lost, call again. PL_NOT_FOUND, PL_FAILED, ...: the retries of a
 *         request have failed. PL_CORRUPT: a checksum does not match. After any error except PL_TIMEOUT the stream can
 *         only be closed.
 */
enum pl_status pl_s3_stream_next(struct pl_s3_stream *stream, int64_t deadline_ns, struct pl_s3_chunk *ret_chunk,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns PL_CORRUPT if `checksum`, over all bytes of the object, differs from `wanted`. A checksum of kind NONE
 * matches everything. It is for readers that begin at a later byte and have the bytes before it. A stream that begins
 * at byte 0 checks this itself.
 */
enum pl_status pl_s3_check_whole(const struct pl_s3_object *object, const struct pl_checksum *checksum,
                                 const struct pl_checksum *wanted, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the running call and all later ones return PL_CANCELLED. */
void pl_s3_stream_cancel(struct pl_s3_stream *stream);

/** Ends all transfers of the stream and releases it. Does nothing for NULL. */
void pl_s3_stream_close(struct pl_s3_stream *stream);

/**
 * Opens an object as a byte source with the name `name`, which is copied. The client and the object's strings must
 * outlive it. No request is sent before the first read.
 */
enum pl_status pl_source_s3_open(struct pl_s3_client *client, const char *name, const struct pl_s3_object *object,
                                 const struct pl_s3_stream_options *options, struct pl_source **ret_source,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Opens the object at `position` of a stream as a byte source, after those before it. Objects are read one after the
 * other while the stream fetches the next ones. If a source is closed early, the bytes left of its object are skipped.
 * The stream must outlive the source. `name` is copied.
 */
enum pl_status pl_s3_stream_source(struct pl_s3_stream *stream, size_t position, const char *name,
                                   struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

/** Fetches the whole object at `uri`, at most `max_bytes`, with a NUL at its end. The caller frees it. */
enum pl_status pl_s3_fetch_text(struct pl_s3_client *client, const char *uri, size_t max_bytes, int64_t deadline_ns,
                                char **ret_text, size_t *ret_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/*
 * Downloads objects into files. A file is written under a temporary name next to its place and renamed when it is
 * complete. An interrupted download is resumed, and a file that exists already is skipped.
 *
 * Test  tests/unit/s3io/s3/test_s3_copy.c, tests/integration/s3_server.py, tests/integration/s3_faults.py
 */

/** An object and the path of its file. */
struct pl_s3_fetch {
    struct pl_s3_object object; /* its ETag and size must be set */
    const char *path;
    int64_t modified_s; /* becomes the file's time, by which a later run recognises it; -1 if it is unknown */
};

/** Progress callbacks. They are called on the caller's thread. */
struct pl_s3_progress {
    void *context;
    void (*moved)(void *context, const char *name, uint64_t bytes);
};

/**
 * Downloads `count` objects in order, in parallel ranges. Makes the directories. Skips a file that has the object's
 * size and time, unless `again`. Resumes an unfinished file of the same ETag ("PATH.XXXXXXXXXXXXXXXX.part"). If the
 * checksum of the whole object is known, the unfinished file is read first; a HEAD asks for the checksum if `object`
 * does not have it.
 *
 * Errors  those of pl_s3_stream_next(). PL_FAILED: another download writes the unfinished file. If the bytes do not
 *         match their checksum, they are removed and fetched once more from the beginning.
 */
enum pl_status pl_s3_download(struct pl_s3_client *client, struct pl_s3_fetch *fetches, size_t count,
                              const struct pl_s3_stream_options *options, bool again, int64_t read_timeout_ns,
                              const struct pl_s3_progress *progress, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends DIRECTORY/KEY to `path`. PL_INVALID for keys that would lead out of the directory ("..", empty parts) or
 * cannot be files.
 */
enum pl_status pl_s3_local_path(const char *directory, const char *key, struct pl_text *path,
                                struct pl_error *reterr) PL_MUST_CHECK;

/* The objects under an S3 prefix, or of a manifest, as a store. */

struct pl_augmented;
struct pl_store;

/**
 * Opens all objects whose URL begins with `uri`, "s3://BUCKET/PREFIX". A key in the store is the part after the
 * prefix's last '/', as if that were the directory. Markers of empty directories (no bytes, a '/' at the end) are left
 * out. An open object is pinned to the version that was listed. `client` must outlive the store and its sources.
 *
 * If it `is_manifest`, opens the objects in the ManifestFile at `uri`, each as often as it is there; a key is the part
 * after the manifest's prefix. The manifest is fetched until `deadline_ns`. Sizes and versions come from a listing of
 * the keys' common prefix.
 *
 * Cost    at most 64 MiB for the objects that are being read and fetched ahead, for any number of objects.
 * Errors  PL_INVALID: another kind of URL; those of pl_manifest_parse(). Other errors come from listing and reading:
 *         PL_NOT_FOUND if an object in the manifest does not exist.
 * Test    tests/integration/cifar10.py
 */
enum pl_status pl_store_s3_open(struct pl_s3_client *client, const char *uri, bool is_manifest, int64_t deadline_ns,
                                struct pl_store **ret_store, struct pl_error *reterr) PL_MUST_CHECK;

/*
 * An augmented manifest as the stream that Pipe Mode makes of it: one RecordIO record for each attribute of each line.
 * The record is the object that a "-ref" attribute refers to, or the attribute's value. Objects of later lines are
 * fetched ahead in parallel.
 *
 * Test  tests/unit/s3io/test_sampler.c (order and shares), tests/integration/s3_server.py
 */

/** Zero-initialise, then set the options that differ from the defaults. `deal` must be set. */
struct pl_augmented_options {
    struct pl_shard deal; /* line i of the epoch's order belongs to rank i mod size */
    bool shuffle;         /* a different order in every epoch */
    uint64_t seed;
    uint64_t epoch;
    struct pl_s3_stream_options stream;
};

/**
 * Opens this rank's records of one epoch. `augmented` and `client` must outlive the source.
 *
 * Errors  while reading: PL_LIMIT: an object has 512 MiB or more, which no RecordIO record can hold. Those of
 *         pl_s3_stream_next().
 */
enum pl_status pl_source_augmented_open(struct pl_s3_client *client, const struct pl_augmented *augmented,
                                        const struct pl_augmented_options *options, struct pl_source **ret_source,
                                        struct pl_error *reterr) PL_MUST_CHECK;

#endif
