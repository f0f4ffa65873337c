/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A window on a source: its next bytes can be read in place before they are consumed. Internal to s3io/.
 *
 * For a source over memory the window is that memory. For all others it is a buffer that is filled with large reads.
 * When the buffer runs out, the bytes that are left move to the front, so that the next read begins on a page. The
 * buffer grows as bytes arrive, not because a header announces them. While somebody holds the buffer, its bytes stay
 * where they are, and the bytes that are left move to another buffer.
 *
 * Test  tests/unit/s3io/bytes/test_window.c
 */
#ifndef PL_S3IO_BYTES_WINDOW_H
#define PL_S3IO_BYTES_WINDOW_H

#include "s3io/source.h"

/** A buffer of a window. */
struct pl_window_buffer {
    struct pl_window_buffer *next; /* next in the list of spare buffers */
    size_t capacity;
    unsigned holders; /* number of holders: the window, and callers of pl_window_hold() */
    _Alignas(4096) unsigned char bytes[];
};

struct pl_window {
    struct pl_source *source;
    const unsigned char *data;       /* address of the next byte */
    size_t available;                /* number of bytes at `data` */
    uint64_t offset_bytes;           /* offset of `data` in the source */
    bool ended;                      /* the source has no bytes after the available ones */
    struct pl_window_buffer *buffer; /* the buffer that has `data`; NULL until a source needs one */
    struct pl_window_buffer *spare;
};

/**
 * Makes a window on `source`, which stays the caller's. `window` is zeroed, or a window on another source, whose
 * buffers it takes over.
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

/**
 * Holds the buffer that has `data`: its bytes stay where they are until pl_window_let_go(). Sets `*held` to this
 * buffer, unless `*held` is held already. Returns whether `data` is in `*held`.
 */
bool pl_window_hold(const struct pl_window *window, const unsigned char *data, struct pl_window_buffer **held);

/** Ends holding a buffer; the window uses it again. Does nothing for NULL. */
void pl_window_let_go(struct pl_window *window, struct pl_window_buffer *held);

/** Releases the buffers, which nobody may hold. */
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
