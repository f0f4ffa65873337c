/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A source over memory that returns at most `piece` bytes per read, so that reads end at every boundary; and gzip data
 * for tests.
 */
#ifndef PL_TESTS_S3IO_DRIP_H
#define PL_TESTS_S3IO_DRIP_H

#include "base/memory.h"
#include "s3io/source.h"

#include <check.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>

struct drip {
    struct pl_source head;
    const unsigned char *next;
    size_t left;
    size_t piece;
    unsigned timeouts; /* every other read times out when not 0 */
};

static inline enum pl_status drip_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                       size_t *ret_bytes, struct pl_error *reterr)
{
    struct drip *drip = (struct drip *)source;
    size_t got = bytes < drip->left ? bytes : drip->left;

    (void)deadline_ns;
    if (drip->timeouts && drip->timeouts++ % 2) {
        return pl_error_set(reterr, PL_TIMEOUT, "drip");
    }
    if (got > drip->piece) {
        got = drip->piece;
    }
    if (got) {
        memcpy(data, drip->next, got);
    }
    drip->next += got;
    drip->left -= got;
    *ret_bytes = got;
    return PL_OK;
}

static inline void drip_close(struct pl_source *source)
{
    free(source);
}

static const struct pl_source_ops drip_ops = {.read = drip_read, .close = drip_close};

static inline struct pl_source *drip_new(const void *data, size_t bytes, size_t piece)
{
    struct drip *drip = calloc(1, sizeof(*drip));

    ck_assert_ptr_nonnull(drip);
    ck_assert_int_eq(pl_source_init(&drip->head, &drip_ops, "drip", NULL), PL_OK);
    drip->next = data;
    drip->left = bytes;
    drip->piece = piece;
    return &drip->head;
}

/** Writes one gzip member of `bytes` of `data` to `out`, which has room for it. Returns its size. */
static inline size_t drip_gzip(const void *data, size_t bytes, unsigned char *out, size_t room)
{
    struct isal_zstream stream;

    isal_deflate_stateless_init(&stream);
    stream.end_of_stream = 1;
    stream.gzip_flag = IGZIP_GZIP;
    stream.next_in = (uint8_t *)(uintptr_t)data;
    stream.avail_in = (uint32_t)bytes;
    stream.next_out = out;
    stream.avail_out = (uint32_t)room;
    ck_assert_int_eq(isal_deflate_stateless(&stream), COMP_OK);
    return room - stream.avail_out;
}

#endif
