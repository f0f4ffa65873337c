/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all IDX arrays of a channel as images and their labels, as in MNIST. */
#include "s3io/idx.h"

#include "base/memory.h"
#include "s3io/channel.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "s3io/store_private.h"

#include <stdlib.h>
#include <string.h>

/* The arrays of a channel must fit in memory. This limit keeps a damaged head from allocating all of it. */
#define MAX_ARRAY_BYTES ((size_t)1 << 36)

/* Concatenated arrays of one kind, with the length of each. */
struct concatenation {
    struct pl_idx idx;
    size_t *counts;
    size_t arrays;
    size_t capacity;
};

struct concatenations {
    struct concatenation images;
    struct concatenation labels;
};

static void concatenations_done(struct concatenations *concatenations)
{
    pl_idx_done(&concatenations->images.idx);
    pl_idx_done(&concatenations->labels.idx);
    free(concatenations->images.counts);
    free(concatenations->labels.counts);
}

static enum pl_status append_array(struct concatenation *concatenation, struct pl_idx *idx, const char *name,
                                   struct pl_error *reterr)
{
    size_t had = concatenation->idx.item_bytes * concatenation->idx.shape[0], more = idx->item_bytes * idx->shape[0];

    PL_TRY(pl_memory_grow(&concatenation->counts, &concatenation->capacity, concatenation->arrays + 1,
                          sizeof(*concatenation->counts), reterr));
    concatenation->counts[concatenation->arrays] = idx->shape[0];
    if (concatenation->arrays++ == 0) {
        concatenation->idx = *idx;
        memset(idx, 0, sizeof(*idx));
        return PL_OK;
    }
    if (idx->dims != concatenation->idx.dims ||
        memcmp(idx->shape + 1, concatenation->idx.shape + 1, (idx->dims - 1) * sizeof(idx->shape[0])) != 0) {
        return pl_error_set(reterr, PL_INVALID, "'%s' has images of a different size from the images before it", name);
    }
    if (idx->shape[0] > UINT32_MAX - concatenation->idx.shape[0]) {
        return pl_error_set(reterr, PL_LIMIT,
                            "'%s' has too many items: with the items before it there are more than 32 bits can count",
                            name);
    }
    if (more > 0) {
        unsigned char *larger = realloc(concatenation->idx.data, had + more);

        if (!larger) {
            return pl_error_set(reterr, PL_MEMORY, "out of memory for %zu bytes of IDX arrays", had + more);
        }
        memcpy(larger + had, idx->data, more);
        concatenation->idx.data = larger;
    }
    concatenation->idx.shape[0] += idx->shape[0];
    return PL_OK;
}

/* Reads all arrays of a source and closes it, also after an error. */
static enum pl_status read_arrays(struct pl_source *source, int64_t deadline_ns, struct concatenations *concatenations,
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
            status =
                pl_error_set(reterr, PL_INVALID, "'%s' has elements of type 0x%02x, expected unsigned bytes (0x08)",
                             source->name, (unsigned)idx.type);
        }
        if (status == PL_OK) {
            status = append_array(idx.dims > 1 ? &concatenations->images : &concatenations->labels, &idx, source->name,
                                  reterr);
        }
        pl_idx_done(&idx);
    }
    pl_idx_reader_close(reader);
    return status == PL_END ? PL_OK : status;
}

static enum pl_status read_store(const struct pl_channel *channel, int64_t deadline_ns,
                                 struct concatenations *concatenations, struct pl_error *reterr)
{
    PL_AUTO_STORE struct pl_store *store = NULL;
    PL_AUTO_OBJECT_LIST struct pl_object_list list = {.items = NULL};
    PL_AUTO_STORE_READER struct pl_store_reader reader = {.store = NULL};
    const struct pl_object_order order = {.list = &list};
    const struct pl_object *object;
    struct pl_source *source;
    enum pl_status status;

    PL_TRY(pl_channel_open_store(channel, &store, reterr));
    PL_TRY(pl_store_list(store, deadline_ns, &list, reterr));
    PL_TRY(pl_store_reader_open(&reader, store, &order, reterr));
    while ((status = pl_store_reader_next(&reader, &source, &object, reterr)) == PL_OK) {
        PL_TRY(read_arrays(source, deadline_ns, concatenations, reterr));
    }
    return status == PL_END ? PL_OK : status;
}

static enum pl_status load(const struct pl_channel *channel, uint64_t epoch, int64_t deadline_ns,
                           struct concatenations *concatenations, struct pl_error *reterr)
{
    if (channel->mode == PL_CHANNEL_PIPE) {
        struct pl_source *source;

        PL_TRY(pl_channel_open_epoch(channel, epoch, &source, reterr));
        PL_TRY(read_arrays(source, deadline_ns, concatenations, reterr));
    } else {
        PL_TRY(read_store(channel, deadline_ns, concatenations, reterr));
    }
    if (concatenations->images.arrays == 0 || concatenations->images.arrays != concatenations->labels.arrays) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected as many IDX arrays of images as of labels, and at least one; found %zu of images "
                            "and %zu of labels",
                            concatenations->images.arrays, concatenations->labels.arrays);
    }
    for (size_t i = 0; i < concatenations->images.arrays; i++) {
        if (concatenations->images.counts[i] != concatenations->labels.counts[i]) {
            return pl_error_set(reterr, PL_INVALID, "IDX array %zu has %zu images but %zu labels", i,
                                concatenations->images.counts[i], concatenations->labels.counts[i]);
        }
    }
    return PL_OK;
}

enum pl_status pl_idx_pairs_load(const struct pl_channel *channel, uint64_t epoch, int64_t deadline_ns,
                                 struct pl_idx_pairs *ret_pairs, struct pl_error *reterr)
{
    struct concatenations concatenations = {.images = {.arrays = 0}};
    enum pl_status status = load(channel, epoch, deadline_ns, &concatenations, reterr);

    if (status == PL_OK) {
        *ret_pairs = (struct pl_idx_pairs){.images = concatenations.images.idx,
                                           .labels = concatenations.labels.idx,
                                           .count = concatenations.images.idx.shape[0]};
        memset(&concatenations.images.idx, 0, sizeof(concatenations.images.idx));
        memset(&concatenations.labels.idx, 0, sizeof(concatenations.labels.idx));
    } else {
        pl_error_context(reterr, "channel '%s'", channel->name);
    }
    concatenations_done(&concatenations);
    return status;
}

void pl_idx_pairs_done(struct pl_idx_pairs *pairs)
{
    pl_idx_done(&pairs->images);
    pl_idx_done(&pairs->labels);
    pairs->count = 0;
}
