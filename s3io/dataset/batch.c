/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of batches, and the elements of varying fields, which are joined when all rows of a batch are there. */
#include "base/memory.h"
#include "s3io/dataset/dataset_private.h"

#include <stdlib.h>
#include <string.h>

void pl_held_free(struct pl_held *held, size_t count)
{
    for (size_t i = 0; held && i < count; i++) {
        free(held[i].data);
    }
    free(held);
}

void pl_varying_free(struct pl_varying *varying, size_t count)
{
    for (size_t i = 0; varying && i < count; i++) {
        free(varying[i].data);
    }
    free(varying);
}

static size_t rows_bytes(const struct pl_dataset *dataset, size_t field)
{
    return dataset->options.batch_samples * dataset->row_bytes[field];
}

void pl_batch_memory_free(struct pl_batch_memory *memory)
{
    const struct pl_dataset *dataset = memory->dataset;

    for (size_t f = 0; memory->fields && f < dataset->fields; f++) {
        if (dataset->row_bytes[f] == 0) {
            free((void *)(uintptr_t)memory->fields[f].offsets);
        } else if (dataset->options.release && memory->fields[f].data) {
            dataset->options.release(dataset->options.allocator, memory->fields[f].data, rows_bytes(dataset, f));
        } else if (!dataset->options.release) {
            free(memory->fields[f].data);
        }
    }
    free(memory->fields);
    for (size_t i = 0; memory->pieces && i < dataset->options.batch_samples; i++) {
        pl_varying_free(memory->pieces[i].varying, dataset->fields);
    }
    free(memory->pieces);
    pl_varying_free(memory->varying, dataset->fields);
    free(memory->step.changes);
    free(memory);
}

static enum pl_status allocate_rows(struct pl_dataset *dataset, size_t field, void **ret_rows, struct pl_error *reterr)
{
    size_t bytes = rows_bytes(dataset, field);

    if (!dataset->options.allocate) {
        return pl_memory_alloc_aligned(ret_rows, bytes, 1, 64, reterr);
    }
    *ret_rows = dataset->options.allocate(dataset->options.allocator, bytes);
    return *ret_rows ? PL_OK : pl_error_set(reterr, PL_MEMORY, "no memory for %zu bytes of a batch", bytes);
}

static enum pl_status memory_set_up(struct pl_batch_memory *memory, struct pl_error *reterr)
{
    struct pl_dataset *dataset = memory->dataset;

    PL_TRY(pl_memory_alloc(&memory->fields, dataset->fields, sizeof(*memory->fields), reterr));
    if (dataset->is_varying) {
        PL_TRY(pl_memory_alloc(&memory->varying, dataset->fields, sizeof(*memory->varying), reterr));
        PL_TRY(pl_memory_alloc(&memory->pieces, dataset->options.batch_samples, sizeof(*memory->pieces), reterr));
    }
    for (size_t f = 0; f < dataset->fields; f++) {
        PL_TRY(dataset->row_bytes[f] == 0 ? pl_memory_alloc(&memory->fields[f].offsets,
                                                            dataset->options.batch_samples + 1, sizeof(int64_t), reterr)
                                          : allocate_rows(dataset, f, &memory->fields[f].data, reterr));
    }
    return PL_OK;
}

enum pl_status pl_batch_memory_new(struct pl_dataset *dataset, struct pl_batch_memory **ret_memory,
                                   struct pl_error *reterr)
{
    struct pl_batch_memory *memory;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&memory, 1, sizeof(*memory), reterr));
    memory->dataset = dataset;
    status = memory_set_up(memory, reterr);
    if (status != PL_OK) {
        pl_batch_memory_free(memory);
        return status;
    }
    *ret_memory = memory;
    return PL_OK;
}

/* Joins the elements of field `f` from all pieces, and turns the pieces' ends of rows into offsets. */
static enum pl_status join(struct pl_batch_memory *memory, size_t f, struct pl_error *reterr)
{
    size_t item_bytes = pl_decoder_row_bytes(memory->dataset->decoder, f), row = 0;
    int64_t *offsets = (int64_t *)(uintptr_t)memory->fields[f].offsets;
    struct pl_varying *whole = &memory->varying[f];

    whole->bytes = 0;
    for (size_t i = 0; i < memory->piece_count; i++) {
        struct pl_varying *piece = &memory->pieces[i].varying[f];

        for (size_t end = row + memory->pieces[i].rows; row < end; row++) {
            offsets[row + 1] = (int64_t)((whole->bytes + (size_t)offsets[row + 1]) / item_bytes);
        }
        if (i == 0) {
            struct pl_varying old = *whole;

            *whole = *piece;
            *piece = old;
            continue;
        }
        PL_TRY(pl_memory_grow(&whole->data, &whole->capacity, whole->bytes + piece->bytes, 1, reterr));
        if (piece->bytes) {
            memcpy(whole->data + whole->bytes, piece->data, piece->bytes);
        }
        whole->bytes += piece->bytes;
    }
    memory->fields[f].data = whole->data;
    return PL_OK;
}

enum pl_status pl_batch_join(struct pl_batch_memory *memory, struct pl_error *reterr)
{
    for (size_t f = 0; f < memory->dataset->fields; f++) {
        if (memory->fields[f].offsets) {
            PL_TRY(join(memory, f, reterr));
        }
    }
    return PL_OK;
}
