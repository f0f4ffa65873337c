/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A window on a source: the next bytes, looked at in place before they are consumed. Inside s3io only.
 *
 * Over memory the window is the memory itself; over anything else it is a buffer that is filled with large reads and
 * moves its rest to the front when it runs out, so that what follows begins on a page. It grows as bytes arrive, not
 * because a header announces them.
 *
 * Test  tests/unit/s3io/bytes/test_window.c
 */
#ifndef PL_S3IO_BYTES_WINDOW_H
#define PL_S3IO_BYTES_WINDOW_H

#include "s3io/source.h"

struct pl_window {
    struct pl_source *source;
    const unsigned char *data; /* the next byte */
    size_t available;          /* bytes at `data` */
    uint64_t offset_bytes;     /* of `data` in the source */
    bool ended;                /* nothing comes after `available` */
    unsigned char *buffer;
    size_t capacity;
};

/** Look at `source`, which stays the caller's; `window` was zeroed. */
enum pl_status pl_window_init(struct pl_window *window, struct pl_source *source, size_t capacity,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait until `want` bytes are available or the source ended with fewer; check `available`. May move `data`. After
 * PL_TIMEOUT the call may be repeated.
 */
enum pl_status pl_window_wait(struct pl_window *window, size_t want, int64_t deadline_ns,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_window_wait() when the bytes are not there yet; inline because it is called for every record. */
static inline enum pl_status pl_window_need(struct pl_window *window, size_t want, int64_t deadline_ns,
                                            struct pl_error *reterr)
{
    return window->available >= want ? PL_OK : pl_window_wait(window, want, deadline_ns, reterr);
}

/** Step over `bytes` available bytes. */
static inline void pl_window_consume(struct pl_window *window, size_t bytes)
{
    PL_BUG_IF(bytes > window->available);
    window->data += bytes;
    window->available -= bytes;
    window->offset_bytes += bytes;
}

void pl_window_done(struct pl_window *window);

#endif
