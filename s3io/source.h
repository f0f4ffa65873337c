/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A byte source: a stream of bytes that is read forward once, with a deadline on every read. Files, FIFOs, memory and
 * S3 objects are sources; decompression is a source over a source.
 *
 * A source belongs to one thread at a time; only pl_source_cancel() may be called during a read.
 *
 * Test  tests/unit/s3io/bytes/test_source.c, test_inflate.c
 */
#ifndef PL_S3IO_SOURCE_H
#define PL_S3IO_SOURCE_H

#include "base/status.h"
#include "s3io/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_source;

/** What a kind of source has to provide. Outside s3io's own source files use the functions below. */
struct pl_source_ops {
    /* As pl_source_read(), which already checked `bytes` > 0 and the end. */
    enum pl_status (*read)(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns, size_t *ret_bytes,
                           struct pl_error *reterr);
    /* Hand out all that is left in place instead of reading; NULL for all but memory. */
    size_t (*view)(struct pl_source *source, const unsigned char **ret_data);
    /* Wake a running read from another thread; may be NULL when reads are short. pl_source_cancel() has set
     * `cancelled`. */
    void (*cancel)(struct pl_source *source);
    /* Release everything including `source` itself; `name` is released by pl_source_close(). */
    void (*close)(struct pl_source *source);
};

/** The head of every source; a kind embeds it as its first member and calls pl_source_init(). */
struct pl_source {
    const struct pl_source_ops *ops;
    char *name;            /* for messages: a path, a URL */
    uint64_t offset_bytes; /* bytes handed out so far */
    bool ended;
    bool cancelled; /* from any thread, with __atomic calls: C++ has no atomic_bool here */
};

/** Fill the head of a source that a kind has zeroed; copies `name`. */
enum pl_status pl_source_init(struct pl_source *source, const struct pl_source_ops *ops, const char *name,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Read at least one and at most `bytes` bytes; `*ret_bytes` 0 means the end, and stays so.
 *
 * Units   deadline_ns on CLOCK_MONOTONIC.
 * Errors  PL_TIMEOUT: nothing was lost, the read may be repeated. PL_CANCELLED after pl_source_cancel(). PL_CORRUPT,
 *         PL_SYSTEM and others name the source and, if there is one, the offset; the source can only be closed then.
 */
enum pl_status pl_source_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                              size_t *ret_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/** Make the running read and all later ones return PL_CANCELLED. Any thread. */
void pl_source_cancel(struct pl_source *source);

/** Release the source and, for a filter, the sources below it. NULL is fine. */
void pl_source_close(struct pl_source *source);
void pl_source_close_at(struct pl_source **source_at);

#define PL_AUTO_SOURCE __attribute__((cleanup(pl_source_close_at)))

/** `bytes` of `data`, which stay the caller's and must outlive the source. */
enum pl_status pl_source_open_memory(const char *name, const void *data, size_t bytes, struct pl_source **ret_source,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** The regular file at `path`, read ahead sequentially. A missing one is PL_NOT_FOUND. */
enum pl_status pl_source_open_file(const char *path, struct pl_source **ret_source,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * As pl_source_open_file(), relative to the directory descriptor `dir_fd`; `name` is for messages. A file that does not
 * have the `size_bytes` with which it was listed, now or while it is read, is PL_CORRUPT: ranks that saw other sizes
 * would shard it differently.
 */
enum pl_status pl_source_open_file_at(int dir_fd, const char *file, const char *name, uint64_t size_bytes,
                                      struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The FIFO at `path`, which need not be there yet: the first pl_source_read() waits for the path and then for a writer
 * (PL_TIMEOUT says which of them was missing). An empty read counts as the end only after a writer was there, and
 * the size is raised to 1 MiB where the system allows it. A path that turns out not to be a FIFO is PL_INVALID, and so
 * is a FIFO that another source has open, in this process or another of the host: each would get pieces that the other
 * lacks (s3io/share.h).
 *
 * Source  AWS's developer guide on Pipe Mode; fifo(7), poll(2).
 */
enum pl_status pl_source_open_fifo(const char *path, struct pl_source **ret_source,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Let `stop_fd`, which stays the caller's, end the waits of a FIFO's source once it is readable: PL_CANCELLED at once
 * while there has been no writer, and later when nothing comes for two seconds. Bytes that are there are still read:
 * ranks may have to make one more step together.
 */
void pl_source_stop_fifo(struct pl_source *source, int stop_fd);

/**
 * Decompress `below`, whose ownership passes to the new source on success.
 *
 * Errors  while reading: PL_CORRUPT with the compressed offset for damaged or truncated input or a wrong checksum.
 * Source  RFC 1952, RFC 8878.
 */
enum pl_status pl_source_open_inflate(struct pl_source *below, enum pl_compression compression,
                                      struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

#endif
