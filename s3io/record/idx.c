/* SPDX-License-Identifier: Apache-2.0 */
/* Reads IDX arrays, and pairs of images and labels. */
#include "s3io/idx.h"

#include "base/memory.h"
#include "s3io/bytes/inflate.h"
#include "s3io/record/idx_format.h"
#include "s3io/record/record_formats.h"

#include <stdlib.h>
#include <string.h>

/* One channel's arrays have to fit in memory anyway; this keeps a damaged head from allocating all of it. */
#define MAX_ARRAY_BYTES ((size_t)1 << 36)

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

enum pl_status pl_idx_read_head(struct pl_window *window, int64_t deadline_ns, struct pl_idx *ret_idx,
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
        return corrupt(window, "no IDX array begins here (expected two zero bytes and a known type)", reterr);
    }
    if (idx.dims == 0 || idx.dims > PL_IDX_MAX_DIMS) {
        return corrupt(window, "an IDX array needs 1 to 8 dimensions", reterr);
    }
    head_bytes = 4 + 4 * (size_t)idx.dims;
    PL_TRY(pl_window_need(window, head_bytes, deadline_ns, reterr));
    if (window->available < head_bytes) {
        return corrupt(window, "the input ends inside the head of an IDX array", reterr);
    }
    for (unsigned dim = 0; dim < idx.dims; dim++) {
        idx.shape[dim] = pl_load_be32(window->data + 4 + 4 * dim);
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

        PL_TRY(pl_idx_read_head(window, deadline_ns, &idx, &head_bytes, reterr));
        pl_window_consume(window, head_bytes);
        /* Items without bytes carry nothing, and a head could promise four thousand million of them. */
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
    struct pl_window outer; /* of `source` */
    struct pl_source *member;
    struct pl_window inner; /* of `member`, while one is open */
};

enum pl_status pl_idx_reader_open(struct pl_source *source, size_t max_array_bytes, struct pl_idx_reader **ret_reader,
                                  struct pl_error *reterr)
{
    struct pl_idx_reader *reader = pl_memory_new(1, sizeof(*reader), reterr);

    if (!reader) {
        return PL_MEMORY;
    }
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

/* The window in which the next array begins: the stream itself or, inside compressed data, what comes out of it. */
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
    PL_TRY(pl_idx_read_head(window, deadline_ns, &idx, &head_bytes, reterr));
    if (__builtin_mul_overflow(idx.item_bytes, (size_t)idx.shape[0], &bytes) || bytes > reader->max_array_bytes) {
        return pl_error_set(reterr, PL_LIMIT,
                            "'%s': byte %llu: an IDX array of %u items of %zu bytes is larger than %zu bytes",
                            window->source->name, (unsigned long long)window->offset_bytes, idx.shape[0],
                            idx.item_bytes, reader->max_array_bytes);
    }
    pl_window_consume(window, head_bytes);
    data = pl_memory_new(bytes ? bytes : 1, 1, reterr);
    if (!data) {
        return PL_MEMORY;
    }
    while (used < bytes) {
        size_t now;

        PL_TRY(pl_window_need(window, 1, deadline_ns, reterr));
        if (window->available == 0) {
            return corrupt(window, "the input ends inside an IDX array", reterr);
        }
        now = bytes - used < window->available ? bytes - used : window->available;
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

/* A concatenation of arrays of one kind, with the length of each. */
struct pile {
    struct pl_idx idx;
    size_t *counts;
    size_t arrays;
    size_t capacity;
};

struct piles {
    struct pile images;
    struct pile labels;
};

static void piles_done(struct piles *piles)
{
    pl_idx_done(&piles->images.idx);
    pl_idx_done(&piles->labels.idx);
    free(piles->images.counts);
    free(piles->labels.counts);
}

static enum pl_status put_on_pile(struct pile *pile, struct pl_idx *idx, const char *name, struct pl_error *reterr)
{
    size_t had = pile->idx.item_bytes * pile->idx.shape[0], more = idx->item_bytes * idx->shape[0];

    PL_TRY(pl_memory_grow(&pile->counts, &pile->capacity, pile->arrays + 1, sizeof(*pile->counts), reterr));
    pile->counts[pile->arrays] = idx->shape[0];
    if (pile->arrays++ == 0) {
        pile->idx = *idx;
        memset(idx, 0, sizeof(*idx));
        return PL_OK;
    }
    if (idx->dims != pile->idx.dims ||
        memcmp(idx->shape + 1, pile->idx.shape + 1, (idx->dims - 1) * sizeof(idx->shape[0])) != 0) {
        return pl_error_set(reterr, PL_INVALID, "'%s': its pictures have another size than those before", name);
    }
    if (idx->shape[0] > UINT32_MAX - pile->idx.shape[0]) {
        return pl_error_set(reterr, PL_LIMIT, "'%s': too many items together with those before", name);
    }
    if (more > 0) {
        unsigned char *larger = realloc(pile->idx.data, had + more);

        if (!larger) {
            return pl_error_set(reterr, PL_MEMORY, "no memory for %zu bytes of IDX arrays", had + more);
        }
        memcpy(larger + had, idx->data, more);
        pile->idx.data = larger;
    }
    pile->idx.shape[0] += idx->shape[0];
    return PL_OK;
}

/* All arrays of one source, which is closed in any case. */
static enum pl_status read_arrays(struct pl_source *source, int64_t deadline_ns, struct piles *piles,
                                  struct pl_error *reterr)
{
    struct pl_idx_reader *reader = NULL;
    enum pl_status status = pl_idx_reader_open(source, MAX_ARRAY_BYTES, &reader, reterr);

    if (status != PL_OK) {
        pl_source_close(source);
        return status;
    }
    while (status == PL_OK) {
        struct pl_idx idx = {.dims = 0};

        status = pl_idx_reader_next(reader, deadline_ns, &idx, reterr);
        if (status == PL_OK && idx.type != PL_IDX_UINT8) {
            status = pl_error_set(reterr, PL_INVALID,
                                  "'%s': its elements are of type 0x%02x, expected unsigned bytes (0x08)", source->name,
                                  (unsigned)idx.type);
        }
        if (status == PL_OK) {
            status = put_on_pile(idx.dims > 1 ? &piles->images : &piles->labels, &idx, source->name, reterr);
        }
        pl_idx_done(&idx);
    }
    pl_idx_reader_close(reader);
    return status == PL_END ? PL_OK : status;
}

static enum pl_status read_store(const struct pl_channel *channel, int64_t deadline_ns, struct piles *piles,
                                 struct pl_error *reterr)
{
    PL_AUTO_STORE struct pl_store *store = NULL;
    PL_AUTO_OBJECT_LIST struct pl_object_list list = {.items = NULL};

    PL_TRY(pl_channel_open_store(channel, &store, reterr));
    PL_TRY(pl_store_list(store, deadline_ns, &list, reterr));
    for (size_t i = 0; i < list.count; i++) {
        struct pl_source *source;

        PL_TRY(pl_store_open(store, &list.items[i], deadline_ns, &source, reterr));
        PL_TRY(read_arrays(source, deadline_ns, piles, reterr));
    }
    return PL_OK;
}

static enum pl_status load(const struct pl_channel *channel, uint64_t epoch, int64_t deadline_ns, struct piles *piles,
                           struct pl_error *reterr)
{
    if (channel->mode == PL_CHANNEL_PIPE) {
        struct pl_source *source;

        PL_TRY(pl_channel_open_epoch(channel, epoch, &source, reterr));
        PL_TRY(read_arrays(source, deadline_ns, piles, reterr));
    } else {
        PL_TRY(read_store(channel, deadline_ns, piles, reterr));
    }
    if (piles->images.arrays == 0 || piles->images.arrays != piles->labels.arrays) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected as many IDX arrays of images as of labels and at least one, found %zu and %zu",
                            piles->images.arrays, piles->labels.arrays);
    }
    for (size_t i = 0; i < piles->images.arrays; i++) {
        if (piles->images.counts[i] != piles->labels.counts[i]) {
            return pl_error_set(reterr, PL_INVALID, "IDX array %zu has %zu images but %zu labels", i,
                                piles->images.counts[i], piles->labels.counts[i]);
        }
    }
    return PL_OK;
}

enum pl_status pl_idx_pairs_load(const struct pl_channel *channel, uint64_t epoch, int64_t deadline_ns,
                                 struct pl_idx_pairs *ret_pairs, struct pl_error *reterr)
{
    struct piles piles = {.images = {.arrays = 0}};
    enum pl_status status = load(channel, epoch, deadline_ns, &piles, reterr);

    if (status == PL_OK) {
        *ret_pairs = (struct pl_idx_pairs){
            .images = piles.images.idx, .labels = piles.labels.idx, .count = piles.images.idx.shape[0]};
        memset(&piles.images.idx, 0, sizeof(piles.images.idx));
        memset(&piles.labels.idx, 0, sizeof(piles.labels.idx));
    } else {
        pl_error_context(reterr, "channel '%s'", channel->name);
    }
    piles_done(&piles);
    return status;
}

void pl_idx_pairs_done(struct pl_idx_pairs *pairs)
{
    pl_idx_done(&pairs->images);
    pl_idx_done(&pairs->labels);
    pairs->count = 0;
}
