/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A byte source: a stream of bytes that is read forward once, with a deadline for every read. Files, FIFOs, memory and
 * S3 objects are sources. Decompression is a source that reads from another source.
 *
 * Threads  one at a time; only pl_source_cancel() may be called during a read.
 * Test     tests/unit/s3io/bytes/test_source.c, test_inflate.c
 */
#ifndef PL_S3IO_SOURCE_H
#define PL_S3IO_SOURCE_H

#include "base/status.h"
#include "s3io/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_source;

/** The functions of one kind of source. Code outside s3io's own sources uses the functions below. */
struct pl_source_ops {
    /* As pl_source_read(), which has checked that `bytes` is above 0 and that the source has not ended. */
    enum pl_status (*read)(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns, size_t *ret_bytes,
                           struct pl_error *reterr);
    /* Returns all remaining bytes in place, instead of a read; NULL for all kinds except memory. */
    size_t (*view)(struct pl_source *source, const unsigned char **ret_data);
    /* Wakes a running read from another thread. May be NULL if reads are short. pl_source_cancel() has set `cancelled`
     * before. */
    void (*cancel)(struct pl_source *source);
    /* Releases everything, also `source` itself, except `name`, which pl_source_close() releases. */
    void (*close)(struct pl_source *source);
};

/** The head of every source: the first member of each kind's struct. The kind calls pl_source_init(). */
struct pl_source {
    const struct pl_source_ops *ops;
    char *name;            /* path or URL, for messages */
    uint64_t offset_bytes; /* number of bytes that were read so far */
    bool ended;
    bool cancelled; /* set from any thread by __atomic calls, because C++ has no atomic_bool here */
};

/** Sets the head of a zeroed source. `name` is copied. */
enum pl_status pl_source_init(struct pl_source *source, const struct pl_source_ops *ops, const char *name,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Reads at least one and at most `bytes` bytes. `*ret_bytes` is 0 at the end of the source, also in later calls.
 *
 * Units   deadline_ns on CLOCK_MONOTONIC.
 * Errors  PL_TIMEOUT: nothing was lost, the read may be repeated. PL_CANCELLED after pl_source_cancel(). PL_CORRUPT,
 *         PL_SYSTEM and others have the source's name and the offset if there is one; then the source can only be
 *         closed.
 */
enum pl_status pl_source_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                              size_t *ret_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the running read and all later ones return PL_CANCELLED. Any thread may call it. */
void pl_source_cancel(struct pl_source *source);

/** Releases the source and, for a filter, the sources below it. Does nothing for NULL. */
void pl_source_close(struct pl_source *source);

PL_CLEANUP(pl_source_close_at, struct pl_source, pl_source_close)
#define PL_AUTO_SOURCE __attribute__((cleanup(pl_source_close_at)))

/** Opens a source over `data`, which stays the caller's and must outlive the source. */
enum pl_status pl_source_open_memory(const char *name, const void *data, size_t bytes, struct pl_source **ret_source,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Opens the regular file at `path` for sequential reading. PL_NOT_FOUND if there is no such file. */
enum pl_status pl_source_open_file(const char *path, struct pl_source **ret_source,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * As pl_source_open_file(), relative to the directory descriptor `dir_fd`; `name` is for messages. PL_CORRUPT if the
 * file's size, now or while it is read, is not `size_bytes` from the listing: ranks that saw different sizes would
 * divide its records differently. Reading begins at `first_byte`.
 */
enum pl_status pl_source_open_file_at(int dir_fd, const char *file, const char *name, uint64_t size_bytes,
                                      uint64_t first_byte, struct pl_source **ret_source,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Opens the FIFO at `path`, which need not exist yet: the first pl_source_read() waits for the path and then for a
 * writer. PL_TIMEOUT tells which of them was missing. An empty read counts as the end only after there was a writer.
 * The FIFO's size is raised to 1 MiB if the system allows it. PL_INVALID if the path is not a FIFO, or if another
 * source of this host has the FIFO open: each of the two would get only a part of the bytes (s3io/pipe/split.h).
 *
 * Source  AWS's developer guide on Pipe Mode; fifo(7), poll(2).
 */
enum pl_status pl_source_open_fifo(const char *path, struct pl_source **ret_source,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Ends the waits of a FIFO's source when `stop_fd`, which stays the caller's, becomes readable. The read returns
 * PL_CANCELLED: at once if there has been no writer, otherwise after two seconds without data. Bytes in the FIFO are
 * still read, because ranks may have to make one more step together.
 */
void pl_source_stop_fifo(struct pl_source *source, int stop_fd);

/**
 * Sets the path of the report in which the FIFO's writer tells why it waits, or which error has ended the data
 * (s3io/pipe/split.h). A read that finds no data returns that error; its PL_TIMEOUT has the report's text.
 */
enum pl_status pl_source_follow_report(struct pl_source *source, const char *path,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Before the FIFO's first byte is read, writes `number` to the file `path`. */
enum pl_status pl_source_count_fifo(struct pl_source *source, const char *path, uint64_t number,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Opens a source that decompresses `below`. On success the new source owns `below`.
 *
 * Errors  while reading: PL_CORRUPT with the compressed offset for damaged or truncated input or a wrong checksum.
 * Source  RFC 1952, RFC 8878.
 */
enum pl_status pl_source_open_inflate(struct pl_source *below, enum pl_compression compression,
                                      struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

#endif
