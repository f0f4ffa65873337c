/* SPDX-License-Identifier: Apache-2.0 */
/* Decompresses gzip and zstd: a source that reads from another source. */
#include "s3io/bytes/window.h"

#include "base/memory.h"
#include "base/number.h"
#include "s3io/source.h"

#include <isa-l/igzip_lib.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* The size of the buffer: large enough to read the source below in few calls, small enough for the second-level
 * cache. */
enum { INPUT_BYTES = 256 * 1024 };

struct inflate_source {
    struct pl_source head;
    struct pl_source *below; /* owned; NULL if the window belongs to the caller */
    struct pl_window own;
    struct pl_window *window;
    enum pl_compression compression; /* PL_COMPRESSION_AUTO until the first bytes are available */
    bool one_member;
    bool in_member;
    bool member_done;
    struct inflate_state *gzip;
    ZSTD_DStream *zstd;
};

bool pl_inflate_is_gzip(const struct pl_window *window)
{
    static const unsigned char magic[3] = {0x1f, 0x8b,
                                           /* deflate, the only method; it is compared too, because a record of 0x8b1f
                                            * bytes begins with the first two bytes */
                                           8};
    size_t bytes = pl_number_min(window->available, sizeof(magic));

    return bytes >= 2 && memcmp(window->data, magic, bytes) == 0;
}

bool pl_inflate_is_zstd(const struct pl_window *window)
{
    static const unsigned char magic[4] = {0x28, 0xb5, 0x2f, 0xfd};
    /* these follow a byte from 0x50 to 0x5f; pzstd's output begins with such a frame */
    static const unsigned char skippable[3] = {0x2a, 0x4d, 0x18};

    return window->available >= sizeof(magic) &&
           (memcmp(window->data, magic, sizeof(magic)) == 0 ||
            (window->data[0] >> 4 == 5 && memcmp(window->data + 1, skippable, sizeof(skippable)) == 0));
}

static enum pl_status corrupt(const struct inflate_source *inflate, int64_t code, const char *what,
                              struct pl_error *reterr)
{
    return pl_error_raise(reterr, PL_CORRUPT, PL_DOMAIN_ZLIB, code, "'%s': %s at compressed byte %llu",
                          inflate->head.name, what, (unsigned long long)inflate->window->offset_bytes);
}

static enum pl_status detect(struct inflate_source *inflate, int64_t deadline_ns, struct pl_error *reterr)
{
    PL_TRY(pl_window_need(inflate->window, 4, deadline_ns, reterr));
    if (pl_inflate_is_gzip(inflate->window)) {
        inflate->compression = PL_COMPRESSION_GZIP;
    } else if (pl_inflate_is_zstd(inflate->window)) {
        inflate->compression = PL_COMPRESSION_ZSTD;
    } else {
        inflate->compression = PL_COMPRESSION_NONE;
    }
    return PL_OK;
}

static enum pl_status plain_read(struct inflate_source *inflate, void *data, size_t bytes, int64_t deadline_ns,
                                 size_t *ret_bytes, struct pl_error *reterr)
{
    struct pl_window *window = inflate->window;
    size_t got;

    /* First return the bytes that the detection has read; read later ones directly into the caller's memory. */
    if (window->available == 0 && !window->ended && inflate->below) {
        return pl_source_read(inflate->below, data, bytes, deadline_ns, ret_bytes, reterr);
    }
    PL_TRY(pl_window_need(window, 1, deadline_ns, reterr));
    got = pl_number_min(bytes, window->available);
    if (got) {
        memcpy(data, window->data, got);
        pl_window_consume(window, got);
    }
    *ret_bytes = got;
    return PL_OK;
}

static const char *gzip_error_text(int code)
{
    switch (code) {
    case ISAL_INVALID_BLOCK:
        return "invalid deflate block";
    case ISAL_INVALID_SYMBOL:
        return "invalid deflate symbol";
    case ISAL_INVALID_LOOKBACK:
        return "deflate distance too far back";
    case ISAL_INVALID_WRAPPER:
        return "invalid gzip header";
    case ISAL_UNSUPPORTED_METHOD:
        return "unsupported gzip method";
    case ISAL_INCORRECT_CHECKSUM:
        return "gzip checksum or length does not match";
    default:
        return "gzip error";
    }
}

/* Begins the next member or frame. Sets *ret_end if there is none. */
static enum pl_status begin_member(struct inflate_source *inflate, int64_t deadline_ns, bool *ret_end,
                                   struct pl_error *reterr)
{
    struct pl_window *window = inflate->window;

    *ret_end = false;
    if (inflate->one_member && inflate->member_done) {
        *ret_end = true;
        return PL_OK;
    }
    PL_TRY(pl_window_need(window, 1, deadline_ns, reterr));
    if (inflate->member_done && inflate->compression == PL_COMPRESSION_GZIP) {
        /* Tape drives and some tools fill the end of a gzip file with zeros. */
        while (window->available > 0 && window->data[0] == 0) {
            pl_window_consume(window, 1);
            PL_TRY(pl_window_need(window, 1, deadline_ns, reterr));
        }
    }
    if (window->available == 0) {
        *ret_end = true;
        return PL_OK;
    }
    if (inflate->compression == PL_COMPRESSION_GZIP) {
        isal_inflate_init(inflate->gzip);
        inflate->gzip->crc_flag = ISAL_GZIP;
    } else {
        size_t code = ZSTD_initDStream(inflate->zstd);

        if (ZSTD_isError(code)) {
            return pl_error_set(reterr, PL_LIBRARY, "zstd: %s", ZSTD_getErrorName(code));
        }
    }
    inflate->in_member = true;
    return PL_OK;
}

/* Decodes the available bytes into `data`. `*ret_done` tells whether the member has ended. */
static enum pl_status gzip_step(struct inflate_source *inflate, void *data, size_t bytes, size_t *ret_bytes,
                                bool *ret_done, struct pl_error *reterr)
{
    struct pl_window *window = inflate->window;
    struct inflate_state *state = inflate->gzip;
    uint32_t in = (uint32_t)(window->available < INT_MAX ? window->available : INT_MAX);
    uint32_t out = (uint32_t)(bytes < INT_MAX ? bytes : INT_MAX);
    int code;

    state->next_in = (uint8_t *)(uintptr_t)window->data; /* the library only reads it, although its type is not const */
    state->avail_in = in;
    state->next_out = data;
    state->avail_out = out;
    code = isal_inflate(state);
    if (code < 0) {
        return corrupt(inflate, code, gzip_error_text(code), reterr);
    }
    pl_window_consume(window, in - state->avail_in);
    *ret_bytes = out - state->avail_out;
    *ret_done = state->block_state == ISAL_BLOCK_FINISH;
    return PL_OK;
}

static enum pl_status zstd_step(struct inflate_source *inflate, void *data, size_t bytes, size_t *ret_bytes,
                                bool *ret_done, struct pl_error *reterr)
{
    struct pl_window *window = inflate->window;
    ZSTD_inBuffer in = {.src = window->data, .size = window->available};
    ZSTD_outBuffer out = {.dst = data, .size = bytes};
    size_t code = ZSTD_decompressStream(inflate->zstd, &out, &in);

    if (ZSTD_isError(code)) {
        return corrupt(inflate, (int64_t)code, ZSTD_getErrorName(code), reterr);
    }
    pl_window_consume(window, in.pos);
    *ret_bytes = out.pos;
    *ret_done = code == 0;
    return PL_OK;
}

static enum pl_status inflate_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                   size_t *ret_bytes, struct pl_error *reterr)
{
    struct inflate_source *inflate = (struct inflate_source *)source;

    if (inflate->compression == PL_COMPRESSION_AUTO) {
        PL_TRY(detect(inflate, deadline_ns, reterr));
    }
    if (inflate->compression == PL_COMPRESSION_NONE) {
        return plain_read(inflate, data, bytes, deadline_ns, ret_bytes, reterr);
    }
    for (;;) {
        size_t before = inflate->window->available, got = 0;
        bool done = false;

        if (!inflate->in_member) {
            bool end;

            PL_TRY(begin_member(inflate, deadline_ns, &end, reterr));
            if (end) {
                *ret_bytes = 0;
                return PL_OK;
            }
            before = inflate->window->available;
        }
        PL_TRY(inflate->compression == PL_COMPRESSION_GZIP ? gzip_step(inflate, data, bytes, &got, &done, reterr)
                                                           : zstd_step(inflate, data, bytes, &got, &done, reterr));
        inflate->in_member = !done;
        inflate->member_done = done;
        if (got > 0) {
            *ret_bytes = got;
            return PL_OK;
        }
        if (done) {
            continue;
        }
        /* The library holds no more output, so it needs more input. If there is none, the member is truncated. */
        if (inflate->window->available == 0 && inflate->window->ended) {
            return corrupt(inflate, 0, "the compressed data ends inside a member", reterr);
        }
        if (inflate->window->available > 0 && inflate->window->available == before) {
            return corrupt(inflate, 0, "compressed data makes no progress", reterr);
        }
        PL_TRY(pl_window_need(inflate->window, 1, deadline_ns, reterr));
    }
}

static void inflate_cancel(struct pl_source *source)
{
    struct inflate_source *inflate = (struct inflate_source *)source;

    if (inflate->below) {
        pl_source_cancel(inflate->below);
    }
}

static void inflate_close(struct pl_source *source)
{
    struct inflate_source *inflate = (struct inflate_source *)source;

    pl_window_done(&inflate->own);
    pl_source_close(inflate->below);
    free(inflate->gzip);
    ZSTD_freeDStream(inflate->zstd);
    free(inflate);
}

static const struct pl_source_ops inflate_ops = {
    .read = inflate_read, .cancel = inflate_cancel, .close = inflate_close};

/* Makes a source with the decoders for `compression`; AUTO needs both, which are small next to their windows. */
static enum pl_status make(const char *name, enum pl_compression compression, struct inflate_source **ret_inflate,
                           struct pl_error *reterr)
{
    struct inflate_source *inflate;
    enum pl_status status = PL_OK;

    PL_TRY(pl_memory_alloc(&inflate, 1, sizeof(*inflate), reterr));
    inflate->compression = compression;
    if (compression == PL_COMPRESSION_GZIP || compression == PL_COMPRESSION_AUTO) {
        inflate->gzip = pl_memory_new(1, sizeof(*inflate->gzip), reterr);
        status = inflate->gzip ? PL_OK : PL_MEMORY;
    }
    if (status == PL_OK && (compression == PL_COMPRESSION_ZSTD || compression == PL_COMPRESSION_AUTO)) {
        inflate->zstd = ZSTD_createDStream();
        status = inflate->zstd ? PL_OK : pl_error_set(reterr, PL_MEMORY, "no memory for a zstd decoder");
    }
    if (status == PL_OK) {
        status = pl_source_init(&inflate->head, &inflate_ops, name, reterr);
    }
    if (status != PL_OK) {
        inflate_close(&inflate->head);
        return status;
    }
    *ret_inflate = inflate;
    return PL_OK;
}

enum pl_status pl_source_open_inflate(struct pl_source *below, enum pl_compression compression,
                                      struct pl_source **ret_source, struct pl_error *reterr)
{
    struct inflate_source *inflate;

    PL_TRY(make(below->name, compression, &inflate, reterr));
    inflate->window = &inflate->own;
    if (pl_window_init(&inflate->own, below, INPUT_BYTES, reterr) != PL_OK) {
        pl_source_close(&inflate->head);
        return PL_MEMORY;
    }
    inflate->below = below;
    *ret_source = &inflate->head;
    return PL_OK;
}

enum pl_status pl_inflate_open_member(struct pl_window *window, enum pl_compression compression,
                                      struct pl_source **ret_source, struct pl_error *reterr)
{
    struct inflate_source *inflate;

    PL_TRY(make(window->source->name, compression, &inflate, reterr));
    inflate->window = window;
    inflate->one_member = true;
    *ret_source = &inflate->head;
    return PL_OK;
}
