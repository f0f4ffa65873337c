/* SPDX-License-Identifier: Apache-2.0 */
/* Reads IDX arrays, and pairs of images and labels. */
#include "s3io/idx.h"

#include "base/memory.h"
#include "base/number.h"
#include "s3io/bytes/window.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 1 << 20 };

static size_t element_bytes(unsigned type)
{
    switch (type) {
    case PL_IDX_UINT8:
    case PL_IDX_INT8:
        return 1;
    case PL_IDX_INT16:
        return 2;
    case PL_IDX_INT32:
    case PL_IDX_FLOAT32:
        return 4;
    case PL_IDX_FLOAT64:
        return 8;
    default:
        return 0;
    }
}

static enum pl_status corrupt(const struct pl_window *window, const char *what, struct pl_error *reterr)
{
    return pl_error_set(reterr, PL_CORRUPT, "'%s': byte %llu: %s", window->source->name,
                        (unsigned long long)window->offset_bytes, what);
}

/* Reads the head at the beginning of `window`, without consuming it. Sets type, dims, shape and item_bytes of
 * `ret_idx`, and the length of the head in bytes. PL_END if the window is at the end of its source. PL_CORRUPT and
 * PL_LIMIT have source and offset. */
static enum pl_status read_head(struct pl_window *window, int64_t deadline_ns, struct pl_idx *ret_idx,
                                size_t *ret_head_bytes, struct pl_error *reterr)
{
    struct pl_idx idx = {.dims = 0};
    size_t head_bytes;

    PL_TRY(pl_window_need(window, 4, deadline_ns, reterr));
    if (window->available == 0) {
        return PL_END;
    }
    if (window->available < 4) {
        return corrupt(window, "the input ends inside the head of an IDX array", reterr);
    }
    idx.type = (enum pl_idx_type)window->data[2];
    idx.dims = window->data[3];
    idx.item_bytes = element_bytes(window->data[2]);
    if (window->data[0] != 0 || window->data[1] != 0 || idx.item_bytes == 0) {
        return corrupt(window, "expected an IDX array (two zero bytes and a known type), found other data", reterr);
    }
    if (idx.dims == 0 || idx.dims > PL_IDX_MAX_DIMS) {
        return corrupt(window, "expected an IDX array with 1 to 8 dimensions, found another number", reterr);
    }
    head_bytes = 4 + 4 * (size_t)idx.dims;
    PL_TRY(pl_window_need(window, head_bytes, deadline_ns, reterr));
    if (window->available < head_bytes) {
        return corrupt(window, "the input ends inside the head of an IDX array", reterr);
    }
    for (unsigned dim = 0; dim < idx.dims; dim++) {
        idx.shape[dim] = pl_record_load_be32(window->data + 4 + 4 * dim);
        if (dim > 0 && __builtin_mul_overflow(idx.item_bytes, (size_t)idx.shape[dim], &idx.item_bytes)) {
            return corrupt(window, "the dimensions of an IDX array are too large", reterr);
        }
    }
    *ret_idx = idx;
    *ret_head_bytes = head_bytes;
    return PL_OK;
}

enum pl_status pl_record_find_idx(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                  struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    while (reader->items_left == 0) {
        struct pl_idx idx;
        size_t head_bytes;

        PL_TRY(read_head(window, deadline_ns, &idx, &head_bytes, reterr));
        pl_window_consume(window, head_bytes);
        /* Items without bytes have no data, and a damaged head could announce 2^32 - 1 of them. */
        reader->items_left = idx.item_bytes ? idx.shape[0] : 0;
        reader->item_bytes = idx.item_bytes;
        PL_TRY(pl_record_check_length(reader, idx.item_bytes, reterr));
    }
    if (check) {
        PL_TRY(pl_window_need(window, reader->item_bytes, deadline_ns, reterr));
        if (window->available < reader->item_bytes) {
            return pl_record_corrupt(reader, reterr, "the input ends inside an IDX array, %llu items before its end",
                                     (unsigned long long)reader->items_left);
        }
    }
    ret_record->data = check ? window->data : NULL;
    ret_record->bytes = reader->item_bytes;
    *ret_framed_bytes = reader->item_bytes;
    reader->items_left--;
    return PL_OK;
}

void pl_idx_done(struct pl_idx *idx)
{
    free(idx->data);
    memset(idx, 0, sizeof(*idx));
}

struct pl_idx_reader {
    struct pl_source *source;
    size_t max_array_bytes;
    struct pl_window outer; /* window of `source` */
    struct pl_source *member;
    struct pl_window inner; /* window of `member`, while one is open */
};

enum pl_status pl_idx_reader_open(struct pl_source *source, size_t max_array_bytes, struct pl_idx_reader **ret_reader,
                                  struct pl_error *reterr)
{
    struct pl_idx_reader *reader;

    PL_TRY(pl_memory_alloc(&reader, 1, sizeof(*reader), reterr));
    reader->max_array_bytes = max_array_bytes;
    if (pl_window_init(&reader->outer, source, WINDOW_BYTES, reterr) != PL_OK) {
        free(reader);
        return PL_MEMORY;
    }
    reader->source = source;
    *ret_reader = reader;
    return PL_OK;
}

static void close_member(struct pl_idx_reader *reader)
{
    pl_window_done(&reader->inner);
    pl_source_close(reader->member);
    reader->member = NULL;
}

/* Returns the window in which the next array begins: the stream itself or, inside compressed data, its decompressed
 * bytes. */
static enum pl_status next_window(struct pl_idx_reader *reader, int64_t deadline_ns, struct pl_window **ret_window,
                                  struct pl_error *reterr)
{
    for (;;) {
        bool zstd;

        if (reader->member) {
            PL_TRY(pl_window_need(&reader->inner, 1, deadline_ns, reterr));
            if (reader->inner.available > 0) {
                *ret_window = &reader->inner;
                return PL_OK;
            }
            close_member(reader);
        }
        PL_TRY(pl_window_need(&reader->outer, 4, deadline_ns, reterr));
        zstd = pl_inflate_is_zstd(&reader->outer);
        if (!zstd && !pl_inflate_is_gzip(&reader->outer)) {
            *ret_window = &reader->outer;
            return PL_OK;
        }
        PL_TRY(pl_inflate_open_member(&reader->outer, zstd ? PL_COMPRESSION_ZSTD : PL_COMPRESSION_GZIP, &reader->member,
                                      reterr));
        PL_TRY(pl_window_init(&reader->inner, reader->member, WINDOW_BYTES, reterr));
    }
}

enum pl_status pl_idx_reader_next(struct pl_idx_reader *reader, int64_t deadline_ns, struct pl_idx *ret_idx,
                                  struct pl_error *reterr)
{
    struct pl_window *window = NULL;
    PL_AUTO_FREE unsigned char *data = NULL;
    struct pl_idx idx;
    size_t head_bytes, bytes, used = 0;

    PL_TRY(next_window(reader, deadline_ns, &window, reterr));
    PL_TRY(read_head(window, deadline_ns, &idx, &head_bytes, reterr));
    if (__builtin_mul_overflow(idx.item_bytes, (size_t)idx.shape[0], &bytes) || bytes > reader->max_array_bytes) {
        return pl_error_set(reterr, PL_LIMIT,
                            "'%s': byte %llu: an IDX array of %u items of %zu bytes is larger than %zu bytes",
                            window->source->name, (unsigned long long)window->offset_bytes, idx.shape[0],
                            idx.item_bytes, reader->max_array_bytes);
    }
    pl_window_consume(window, head_bytes);
    PL_TRY(pl_memory_alloc(&data, bytes ? bytes : 1, 1, reterr));
    while (used < bytes) {
        size_t now;

        PL_TRY(pl_window_need(window, 1, deadline_ns, reterr));
        if (window->available == 0) {
            return corrupt(window, "the input ends inside an IDX array", reterr);
        }
        now = pl_number_min(bytes - used, window->available);
        memcpy(data + used, window->data, now);
        pl_window_consume(window, now);
        used += now;
    }
    idx.data = PL_TAKE(data);
    *ret_idx = idx;
    return PL_OK;
}

void pl_idx_reader_close(struct pl_idx_reader *reader)
{
    if (reader) {
        close_member(reader);
        pl_window_done(&reader->outer);
        pl_source_close(reader->source);
        free(reader);
    }
}
