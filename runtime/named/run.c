/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the operations that ranks have agreed on: ready tensors become collectives; in device memory many tensors become
 * one.
 */

#include "base/memory.h"
#include "runtime/named/device.h"
#include "runtime/named/operation.h"

#include <stdlib.h>
#include <string.h>

enum { FUSED_BYTES = 64 << 20 }; /* bytes of the largest fusion of tensors in device memory */

/* Makes the contribution of a joined rank: `elems` neutral elements, or zeros if `op` is NULL. */
static enum pl_status make_scratch(struct pl_operation *operation, uint64_t elems, enum pl_dtype dtype,
                                   const enum pl_op *op, struct pl_error *reterr)
{
    PL_AUTO_FREE void *memory = NULL;

    PL_TRY(pl_memory_alloc(&memory, elems, pl_dtype_bytes(dtype), reterr));
    if (op) {
        pl_named_fill_neutral(memory, elems, dtype, *op);
    }
    operation->scratch = PL_TAKE(memory);
    return PL_OK;
}

static enum pl_status describe_allreduce(struct pl_named *named, const struct pl_named_entry *entry,
                                         struct pl_operation *operation, struct pl_collective *collective,
                                         struct pl_error *reterr)
{
    pl_named_describe_sum(named, &entry->definition, entry->announced, collective);
    collective->count = pl_named_definition_elems(&entry->definition);
    if (!operation->submission && collective->memory != PL_MEMORY_DEVICE) { /* there a buffer is taken later */
        PL_TRY(make_scratch(operation, collective->count, collective->dtype, &collective->op, reterr));
        collective->send = collective->recv = operation->scratch;
    }
    return PL_OK;
}

/*
 * Allocates memory for the result, and `rows_of_rank` if several ranks send rows. Device memory is taken later, from
 * the engine's buffers.
 */
static enum pl_status make_result(struct pl_named *named, struct pl_operation *operation, const uint64_t *rows_of_rank,
                                  uint64_t rows, uint64_t row_bytes, bool on_device, struct pl_error *reterr)
{
    if (__builtin_mul_overflow(rows, row_bytes, &operation->result.bytes)) {
        return pl_error_set(reterr, PL_LIMIT, "'%s': %llu rows of %llu bytes", operation->entry->name,
                            (unsigned long long)rows, (unsigned long long)row_bytes);
    }
    operation->result.rows = rows;
    if (!on_device) {
        PL_TRY(pl_memory_alloc(&operation->result.data, operation->result.bytes, 1, reterr));
    }
    if (rows_of_rank) {
        PL_TRY(pl_memory_alloc(&operation->result.rows_of_rank, (size_t)named->ranks, sizeof(uint64_t), reterr));
        memcpy(operation->result.rows_of_rank, rows_of_rank, (size_t)named->ranks * sizeof(uint64_t));
    }
    return PL_OK;
}

/* Turns rows into elements. */
static void fill_counts(uint64_t *counts, uint64_t *recv_counts, uint64_t ranks, uint64_t row_elems)
{
    for (uint64_t i = 0; i < ranks; i++) {
        counts[i] *= row_elems;
        recv_counts[i] *= row_elems;
    }
}

/*
 * Fills the counts, in elements, of the kinds whose ranks have different numbers of rows. `counts` and `recv_counts`
 * are [n].
 */
static enum pl_status describe_rows(struct pl_named *named, const struct pl_named_entry *entry,
                                    struct pl_operation *operation, uint64_t *counts, uint64_t *recv_counts,
                                    struct pl_collective *collective, struct pl_error *reterr)
{
    const struct pl_named_definition *definition = &entry->definition;
    uint64_t ranks = (uint64_t)named->ranks, own = (uint64_t)named->rank,
             row_elems = pl_named_definition_elems_from(definition, 1), rows = 0;

    for (uint64_t i = 0; i < ranks; i++) {
        switch (collective->kind) {
        case PL_ALLGATHER:
            counts[i] = entry->rows[i];
            rows += counts[i];
            break;
        case PL_ALLTOALL:
            counts[i] = entry->rows[own * ranks + i];
            recv_counts[i] = entry->rows[i * ranks + own];
            rows += recv_counts[i];
            break;
        case PL_REDUCE_SCATTER:
            counts[i] = definition->shape[0] / ranks + (i < definition->shape[0] % ranks);
            break;
        case PL_ALLREDUCE:
        case PL_BROADCAST:
        case PL_REDUCE:
        case PL_BARRIER:
            PL_BUG_IF(true);
        }
    }
    if (collective->kind == PL_REDUCE_SCATTER) {
        rows = counts[own];
        pl_named_describe_sum(named, definition, named->ranks, collective);
    }
    if (collective->memory == PL_MEMORY_DEVICE &&
        collective->kind == PL_REDUCE_SCATTER) { /* into the caller's memory */
        operation->result.rows = rows;
        collective->count = rows * row_elems;
        if (definition->shape[0] % ranks) {
            fill_counts(counts, recv_counts, ranks, row_elems);
            collective->counts = counts;
        }
        return PL_OK;
    }
    PL_TRY(make_result(named, operation,
                       collective->kind == PL_ALLGATHER  ? counts
                       : collective->kind == PL_ALLTOALL ? recv_counts
                                                         : NULL,
                       rows, row_elems * pl_dtype_bytes(collective->dtype), collective->memory == PL_MEMORY_DEVICE,
                       reterr));
    fill_counts(counts, recv_counts, ranks, row_elems);
    collective->counts = counts;
    collective->recv_counts = collective->kind == PL_ALLTOALL ? recv_counts : NULL;
    collective->recv = operation->result.data;
    return PL_OK;
}

static enum pl_status describe(struct pl_named *named, const struct pl_named_entry *entry,
                               struct pl_operation *operation, uint64_t *counts, uint64_t *recv_counts,
                               struct pl_collective *collective, struct pl_error *reterr)
{
    memset(collective, 0, sizeof(*collective));
    collective->kind = (enum pl_kind)entry->definition.kind;
    collective->dtype = (enum pl_dtype)entry->definition.dtype;
    collective->name = pl_named_collective_name(entry);
    collective->memory = (enum pl_memory)entry->definition.memory;
    collective->flags = PL_AGREED;
    if (operation->submission) {
        collective->send = operation->send;
        collective->recv = operation->recv;
        if (collective->memory == PL_MEMORY_DEVICE && operation->submission->ready) {
            collective->ready = operation->submission->ready->event;
        }
    }
    switch (collective->kind) {
    case PL_ALLREDUCE:
        return describe_allreduce(named, entry, operation, collective, reterr);
    case PL_BROADCAST:
        collective->root = entry->definition.root;
        collective->count = pl_named_definition_elems(&entry->definition);
        if (!operation->submission && collective->memory != PL_MEMORY_DEVICE) {
            PL_TRY(make_scratch(operation, collective->count, collective->dtype, NULL, reterr));
            collective->recv = operation->scratch;
        }
        return PL_OK;
    case PL_ALLGATHER:
    case PL_ALLTOALL:
    case PL_REDUCE_SCATTER:
        return describe_rows(named, entry, operation, counts, recv_counts, collective, reterr);
    case PL_REDUCE:
    case PL_BARRIER:
        break;
    }
    PL_BUG_IF(true);
    return PL_INVALID;
}

/* Posts the collective of an operation; in device memory queues it. */
static enum pl_status start(struct pl_named *named, struct pl_operation *operation, struct pl_error *reterr)
{
    const struct pl_named_entry *entry = operation->entry;
    size_t ranks = (size_t)named->ranks;
    PL_AUTO_FREE uint64_t *counts = NULL;
    struct pl_collective collective;

    if (entry->definition.kind != PL_ALLREDUCE && entry->definition.kind != PL_BROADCAST) {
        PL_TRY(pl_memory_alloc(&counts, 2 * ranks, sizeof(uint64_t), reterr));
    }
    PL_TRY(describe(named, entry, operation, counts, counts ? counts + ranks : NULL, &collective, reterr));
    if (collective.memory == PL_MEMORY_DEVICE) {
        return pl_named_device_queue(named, operation, &collective, &counts, reterr);
    }
    PL_TRY(pl_collective_post(named->world, &collective, &operation->request, reterr));
    return pl_operation_run(named, operation, reterr);
}

/* Starts the collective of one entry. */
static enum pl_status post(struct pl_named *named, struct pl_named_entry *entry, struct pl_error *reterr)
{
    struct pl_operation *operation = entry->local ? entry->local : pl_operation_stand_in(named, entry, reterr);
    enum pl_status status;

    if (!operation) {
        return PL_MEMORY;
    }
    pl_named_observed(named, PL_NAMED_AGREED, entry, named->rank, false);
    pl_named_observed(named, PL_NAMED_STARTED, entry, named->rank, false);
    status = start(named, operation, reterr);
    if (status != PL_OK && !operation->submission && operation->state != OPERATION_RUNNING) {
        pl_operation_end(named, operation, status, NULL);
    }
    return status;
}

/* Ends a ready entry that needs no collective: ranks disagree, or the round itself was the barrier. */
static enum pl_status end_at_once(struct pl_named *named, struct pl_named_entry *entry, struct pl_error *reterr)
{
    PL_AUTO_FREE char *conflict = PL_TAKE(entry->conflict);
    struct pl_operation *operation = entry->local;

    pl_named_observed(named, PL_NAMED_AGREED, entry, named->rank, false);
    PL_TRY(pl_named_table_retire(&named->table, entry, !conflict, reterr));
    if (!operation) {
        pl_named_table_drop_idle(&named->table, entry);
        return PL_OK;
    }
    named->held = named->held || (!conflict && entry->definition.flags & NAMED_FENCE);
    pl_operation_agree(named, operation);
    pl_operation_end(named, operation, conflict ? PL_MISMATCH : PL_OK, conflict);
    return PL_OK;
}

/* Returns 0 for entries that may be fused. */
static int compare_packing(const struct pl_named_definition *a, const struct pl_named_definition *b)
{
    int order = (int)a->dtype - (int)b->dtype;

    order = order ? order : (int)a->op - (int)b->op;
    order = order ? order : (int)a->scaled - (int)b->scaled;
    order = order ? order : (int)a->is_scaled_by_caller - (int)b->is_scaled_by_caller;
    order = order ? order : (a->flags > b->flags) - (a->flags < b->flags);
    order = order ? order : (a->prescale > b->prescale) - (a->prescale < b->prescale);
    return order ? order : (a->postscale > b->postscale) - (a->postscale < b->postscale);
}

/*
 * An insertion sort keeps the order of equal entries, which qsort(3) does not, and takes one pass for the usual list of
 * one kind.
 */
static void sort_for_packing(struct pl_named_entry **entries, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct pl_named_entry *entry = entries[i];
        size_t at = i;

        for (; at > 0 && compare_packing(&entries[at - 1]->definition, &entry->definition) > 0; at--) {
            entries[at] = entries[at - 1];
        }
        entries[at] = entry;
    }
}

/* Whether the same ranks had joined before both entries: what a rank packs, it packs of both. */
static bool may_be_one(const struct pl_named_table *table, const struct pl_named_entry *a,
                       const struct pl_named_entry *b)
{
    return pl_named_table_same_ranks(table, a, b) && compare_packing(&a->definition, &b->definition) == 0;
}

/* Starts the reductions in device memory: sorts them, then fuses each sequence that may be fused. */
static enum pl_status post_packed(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                  struct pl_error *reterr)
{
    for (size_t first = 0, end; first < count; first = end) {
        uint64_t bytes = 0;

        for (end = first; end < count && may_be_one(&named->table, entries[first], entries[end]); end++) {
            bytes += pl_named_device_packed_bytes(entries[end]);
            if ((bytes > FUSED_BYTES && end > first) || end - first == PL_NAMED_MOST_PIECES) {
                break;
            }
        }
        PL_TRY(end - first == 1 ? post(named, entries[first], reterr)
                                : pl_named_device_fuse(named, &entries[first], end - first, reterr));
    }
    return PL_OK;
}

enum pl_status pl_named_run_ready(struct pl_named *named, struct pl_error *reterr)
{
    struct pl_named_table *table = &named->table;
    size_t count = table->ready_count, packed = 0, alone = 0;
    struct pl_named_entry **sorted;

    if (count == 0) {
        return PL_OK;
    }
    PL_TRY(pl_memory_grow(&named->sorted, &named->sorted_capacity, 2 * count, sizeof(struct pl_named_entry *), reterr));
    sorted = named->sorted;
    table->ready_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct pl_named_entry *entry = table->ready[i];

        if (entry->conflict || entry->definition.kind == PL_BARRIER) {
            PL_TRY(end_at_once(named, entry, reterr));
        } else if (pl_named_device_packs(entry)) {
            sorted[packed++] = entry;
        } else {
            /* host memory is not packed: two copies cost as much as a message */
            sorted[count + alone++] = entry;
        }
    }
    if (packed > 0) {
        sort_for_packing(sorted, packed);
        PL_TRY(post_packed(named, sorted, packed, reterr));
    }
    for (size_t i = 0; i < alone; i++) {
        PL_TRY(post(named, sorted[count + i], reterr));
    }
    return PL_OK;
}
