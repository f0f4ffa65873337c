/* SPDX-License-Identifier: Apache-2.0 */
/* The collective of an operation that ranks have agreed on: its counts, its buffers, and the memory of its result. */
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/operation.h"

#include <stdlib.h>
#include <string.h>

const char *pl_named_collective_name(const struct pl_named_entry *entry)
{
    return entry->anonymous ? NULL : entry->name;
}

void pl_named_describe_sum(const struct pl_named *named, const struct pl_named_definition *definition, int contributors,
                           struct pl_collective *collective)
{
    collective->op = (enum pl_op)definition->op;
    collective->flags |= definition->flags;
    collective->scaled = definition->scaled && !definition->is_scaled_by_caller;
    collective->prescale = definition->prescale;
    collective->postscale = definition->postscale;
    if (contributors < named->ranks && collective->op == PL_AVERAGE &&
        named->options.join_divisor == PL_NAMED_DIVIDE_BY_CONTRIBUTORS) {
        collective->divisor = (uint32_t)contributors;
    }
}

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
    if (!operation->submission && collective->memory != PL_MEMORY_DEVICE) { /* device memory: a buffer is taken later */
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

/* Converts the counts from rows to elements. */
static void fill_counts(uint64_t *counts, uint64_t *recv_counts, uint64_t ranks, uint64_t row_elems)
{
    for (uint64_t i = 0; i < ranks; i++) {
        counts[i] *= row_elems;
        recv_counts[i] *= row_elems;
    }
}

/*
 * Fills the counts, in elements, for the kinds whose ranks may have different numbers of rows. `counts` and
 * `recv_counts` are [n].
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
    if (collective->memory == PL_MEMORY_DEVICE && collective->kind == PL_REDUCE_SCATTER) {
        /* A reduce-scatter in device memory writes directly into the caller's memory. */
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

enum pl_status pl_named_describe(struct pl_named *named, const struct pl_named_entry *entry,
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
