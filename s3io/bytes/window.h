/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A window on a source: its next bytes can be read in place before they are consumed. Internal to s3io/.
 *
 * For a source over memory the window is that memory. For all others it is a buffer that is filled with large reads.
 * When the buffer runs out, its rest moves to the front, so that the next read begins on a page. The buffer grows as
 * bytes arrive, not because a header announces them.
 *
 * Test  tests/unit/s3io/bytes/test_window.c
 */
#ifndef PL_S3IO_BYTES_WINDOW_H
#define PL_S3IO_BYTES_WINDOW_H

#include "s3io/source.h"

struct pl_window {
    struct pl_source *source;
    const unsigned char *data; /* address of the next byte */
    size_t available;          /* number of bytes at `data` */
    uint64_t offset_bytes;     /* offset of `data` in the source */
    bool ended;                /* the source has no bytes after the available ones */
    unsigned char *buffer;
    size_t capacity;
};

/**
 * Makes a window on `source`, which stays the caller's. `window` is zeroed, or a window on another source, whose buffer
 * it takes over.
 */
enum pl_status pl_window_init(struct pl_window *window, struct pl_source *source, size_t capacity,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Waits until `want` bytes are available or the source has ended with fewer: check `available`. May move `data`. After
 * PL_TIMEOUT the call may be repeated.
 */
enum pl_status pl_window_wait(struct pl_window *window, size_t want, int64_t deadline_ns,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_window_wait(). Inline, because it is called for every record and the bytes are mostly available. */
static inline enum pl_status pl_window_need(struct pl_window *window, size_t want, int64_t deadline_ns,
                                            struct pl_error *reterr)
{
    return window->available >= want ? PL_OK : pl_window_wait(window, want, deadline_ns, reterr);
}

/** Consumes `bytes` available bytes. */
static inline void pl_window_consume(struct pl_window *window, size_t bytes)
{
    PL_BUG_IF(bytes > window->available);
    window->data += bytes;
    window->available -= bytes;
    window->offset_bytes += bytes;
}

void pl_window_done(struct pl_window *window);

/* inflate.c: decompression for readers that detect it in a stream themselves */

/** Returns whether gzip data begins here. At least two bytes must be available for true. */
bool pl_inflate_is_gzip(const struct pl_window *window);

/** Returns whether a zstd frame begins here. At least four bytes must be available for true. */
bool pl_inflate_is_zstd(const struct pl_window *window);

/**
 * Opens the gzip member or zstd frame at the beginning of `window`. The window stays the caller's; after the source's
 * end it is at the byte after the member.
 */
enum pl_status pl_inflate_open_member(struct pl_window *window, enum pl_compression compression,
                                      struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

#endif
