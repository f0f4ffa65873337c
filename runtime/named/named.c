/* SPDX-License-Identifier: Apache-2.0 */
/* Submissions to an engine: checks, definitions, names, groups; and requests for its state. */
#include "base/hash.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/operation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pl_named_use_device(struct pl_named *named, struct pl_device *device)
{
    named->device.device = device;
}

void pl_named_observe(struct pl_named_observer *observer, bool active)
{
    __atomic_store_n(&observer->active, active, __ATOMIC_RELAXED);
}

void pl_named_observed(const struct pl_named *named, enum pl_named_phase phase, const struct pl_named_entry *entry,
                       int rank, bool first)
{
    const struct pl_named_observer *observer = named->options.observer;
    struct pl_named_event event = {.phase = phase, .first = first};

    if (!named->is_observed) {
        return;
    }
    if (entry) {
        event.name = entry->name;
        event.kind = (enum pl_kind)entry->definition.kind;
        event.dtype = (enum pl_dtype)entry->definition.dtype;
        event.dims = entry->definition.dims;
        event.shape = entry->definition.shape;
        event.rank = pl_world_global_rank(named->world, rank);
    }
    observer->happened(observer->context, &event);
}

enum pl_status pl_named_refuse_ended(const struct pl_named *named, struct pl_error *reterr)
{
    if (named->failure.status != PL_OK) {
        if (reterr) {
            *reterr = named->failure;
        }
        return named->failure.status;
    }
    if (named->left) {
        char name[PL_RANK_NAME_BYTES];

        return pl_error_set(reterr, PL_CANCELLED, "%s shut the named tensors down",
                            pl_world_rank_name(named->world, named->left_rank, name));
    }
    return PL_OK;
}

const char *pl_named_name_under_way(const struct pl_named *named)
{
    for (size_t i = 0; i < named->table.slot_count && named->failure.status == PL_OK; i++) {
        for (const struct pl_named_entry *entry = named->table.slots[i]; entry; entry = entry->next_in_slot) {
            if (entry->local) {
                return entry->name;
            }
        }
    }
    return NULL;
}

const char *pl_named_name_agreed(const struct pl_named *named)
{
    const struct pl_named_batch *batch = named->device.first;
    const struct pl_operation *operation = batch ? batch->operations[0] : named->first_running;

    if ((!batch && !operation) || named->failure.status != PL_OK) {
        return NULL;
    }
    return operation && operation->entry ? operation->entry->name : "an operation";
}

static bool shape_elems(const struct pl_named_op *op, uint64_t *ret_elems)
{
    uint64_t elems = 1;

    for (unsigned i = 0; i < op->dims; i++) {
        if (__builtin_mul_overflow(elems, op->shape[i], &elems)) {
            return false;
        }
    }
    *ret_elems = elems;
    return elems <= UINT64_MAX / 64;
}

static enum pl_status check_splits(const struct pl_named *named, const struct pl_named_op *op, const char *name,
                                   struct pl_error *reterr)
{
    uint64_t sum = 0;

    if (!op->splits) {
        if (op->shape[0] % (uint64_t)named->ranks) {
            return pl_error_set(reterr, PL_INVALID, "'%s': %llu rows do not divide by %d ranks, give splits", name,
                                (unsigned long long)op->shape[0], named->ranks);
        }
        return PL_OK;
    }
    for (int i = 0; i < named->ranks; i++) {
        if (__builtin_add_overflow(sum, op->splits[i], &sum) || sum > op->shape[0]) {
            return pl_error_set(reterr, PL_INVALID,
                                "'%s': the splits of ranks 0 to %d add up to more than the tensor's %llu rows", name, i,
                                (unsigned long long)op->shape[0]);
        }
    }
    return PL_OK;
}

static enum pl_status check_op(const struct pl_named *named, const struct pl_named_op *op, const char *name,
                               struct pl_error *reterr)
{
    bool makes_memory = op->kind == PL_ALLGATHER || op->kind == PL_ALLTOALL || op->kind == PL_REDUCE_SCATTER;
    struct pl_collective collective = {
        .kind = op->kind,
        .dtype = op->dtype,
        .op = op->op,
        .flags = op->flags,
        .scaled = op->scaled,
        .prescale = op->prescale,
        .postscale = op->postscale,
        .root = op->root,
        .send = op->send,
        .recv = op->recv,
    };
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;
    uint64_t elems;

    if (op->kind == PL_BARRIER) {
        return PL_OK;
    }
    if ((unsigned)op->kind >= PL_KIND_COUNT || op->kind == PL_REDUCE) {
        return pl_error_set(reterr, PL_INVALID, "'%s': %s is not a named operation", name, pl_kind_text(op->kind));
    }
    if (op->dims > PL_NAMED_MAX_DIMS || !shape_elems(op, &elems)) {
        return pl_error_set(reterr, PL_INVALID, "'%s': a shape has at most %d dimensions and 2^58 elements", name,
                            PL_NAMED_MAX_DIMS);
    }
    if (makes_memory && op->dims == 0) {
        return pl_error_set(reterr, PL_INVALID, "'%s': %s needs rows, a tensor without dimensions has none", name,
                            pl_kind_text(op->kind));
    }
    if (makes_memory && elems > 0 && !op->send) {
        return pl_error_set(reterr, PL_INVALID, "'%s': %s needs send", name, pl_kind_text(op->kind));
    }
    /* Checks now what the collective would refuse later, after all ranks have agreed on the operation. */
    collective.count = makes_memory ? 0 : elems;
    status = pl_collective_check(named->world, &collective, &error);
    if (status != PL_OK) {
        return pl_error_set(reterr, status, "'%s': %s", name, error.cause);
    }
    if (op->memory == PL_MEMORY_DEVICE && !named->device.device) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "'%s': %s in device memory: this world has no device", name,
                            pl_kind_text(op->kind));
    }
    if (op->memory == PL_MEMORY_DEVICE && op->kind == PL_REDUCE_SCATTER && !op->recv) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "'%s': reduce_scatter in device memory needs recv", name);
    }
    return op->kind == PL_ALLTOALL ? check_splits(named, op, name, reterr) : PL_OK;
}

/* Whether the ranks have agreed on the same reduction before, which was checked then. */
static bool is_as_agreed(const struct pl_named_op *op, const struct pl_named_definition *agreed)
{
    bool is = op->kind == PL_ALLREDUCE && agreed->kind == PL_ALLREDUCE && op->dtype == (enum pl_dtype)agreed->dtype &&
              op->op == (enum pl_op)agreed->op && op->flags == agreed->flags &&
              op->memory == (enum pl_memory)agreed->memory && op->dims == agreed->dims && !op->scaled;
    uintptr_t send = (uintptr_t)op->send, recv = (uintptr_t)op->recv;
    uint64_t bytes = is ? pl_dtype_bytes(op->dtype) : 0;

    for (unsigned i = 0; is && i < op->dims; i++) {
        is = op->shape[i] == agreed->shape[i];
        bytes *= op->shape[i];
    }
    return is && send && recv && (send == recv || send + bytes <= recv || recv + bytes <= send);
}

enum pl_status pl_named_check(const struct pl_named *named, const struct pl_named_op *op, const char *name,
                              const struct pl_named_entry *known, struct pl_error *reterr)
{
    if (known && is_as_agreed(op, &known->agreed)) {
        return PL_OK;
    }
    if (!*name || strlen(name) >= PL_NAMED_MAX_NAME_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "'%.40s...': a name has 1 to %d bytes", name,
                            PL_NAMED_MAX_NAME_BYTES - 1);
    }
    return check_op(named, op, name, reterr);
}

size_t pl_named_define(const struct pl_named *named, const struct pl_named_op *op, struct pl_operation *operation,
                       uint64_t *row_counts)
{
    struct pl_named_definition *definition = &operation->definition;
    bool is_ragged = op->kind == PL_ALLGATHER || op->kind == PL_ALLTOALL;
    size_t count;

    operation->send = op->kind == PL_BROADCAST && !op->send ? op->recv : op->send;
    operation->recv = op->recv;
    definition->kind = (uint8_t)op->kind;
    if (op->kind == PL_BARRIER) {
        definition->flags = op->flags & NAMED_FENCE;
        return 0;
    }
    definition->dtype = (uint8_t)op->dtype;
    definition->memory = op->memory == PL_MEMORY_DEVICE ? PL_MEMORY_DEVICE : PL_MEMORY_HOST;
    definition->dims = op->dims;
    for (unsigned i = 0; i < op->dims; i++) {
        definition->shape[i] = op->shape[i];
    }
    if (op->kind == PL_BROADCAST) {
        definition->root = op->root;
    }
    if (op->kind == PL_ALLREDUCE || op->kind == PL_REDUCE_SCATTER) {
        definition->op = (uint8_t)op->op;
        definition->flags = (uint16_t)op->flags;
        definition->scaled = op->scaled;
        definition->is_scaled_by_caller = op->is_scaled_by_caller;
        definition->prescale = op->scaled ? op->prescale : 1;
        definition->postscale = op->scaled ? op->postscale : 1;
    }
    if (!is_ragged) {
        return 0;
    }
    definition->shape[0] = 0;
    operation->row_counts = row_counts;
    count = pl_named_definition_row_counts(definition, named->ranks);
    for (size_t i = 0; i < count; i++) {
        row_counts[i] = op->kind == PL_ALLGATHER ? op->shape[0]
                        : op->splits             ? op->splits[i]
                                                 : op->shape[0] / (uint64_t)named->ranks;
    }
    return count;
}

enum pl_status pl_named_mark(struct pl_named *named, const struct pl_named_op *ops, size_t count,
                             struct pl_device_event **ret_event, struct pl_error *reterr)
{
    const struct pl_named_op *first = NULL;
    struct pl_device *device = named->device.device;

    *ret_event = NULL;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind == PL_BARRIER || ops[i].memory != PL_MEMORY_DEVICE) {
            continue;
        }
        first = first ? first : &ops[i];
        if (ops[i].stream != first->stream) {
            return pl_error_set(reterr, PL_INVALID,
                                "the operations of a group have different streams: submit them on "
                                "one stream");
        }
    }
    return first && device ? pl_device_event_mark(device, first->stream, ret_event, reterr) : PL_OK;
}

enum { NUMBERED_BYTES = 64 };

/*
 * Returns the automatic name of the operation with this number since the last join. Operations from before the join may
 * still be in flight, so the name contains the number of joins, which is equal on all ranks.
 */
static const char *name_by_number(const struct pl_named *named, const char *what, uint64_t number,
                                  char text[NUMBERED_BYTES])
{
    if (named->joins > 0) {
        snprintf(text, NUMBERED_BYTES, "%s.%" PRIu64 ".%" PRIu64, what, named->joins, number);
    } else {
        snprintf(text, NUMBERED_BYTES, "%s.%" PRIu64, what, number);
    }
    return text;
}

/* Gives the operation to the entry called `name`, unless the entry has an operation already. */
static enum pl_status claim_entry(struct pl_named *named, const char *name, struct pl_named_entry *known,
                                  struct pl_operation *operation, struct pl_error *reterr)
{
    struct pl_named_entry *entry = known ? known : pl_named_table_find(&named->table, name, reterr);

    if (!entry) {
        return PL_MEMORY;
    }
    if (entry->local) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is still under way: wait for it before it is submitted again",
                            name);
    }
    operation->entry = entry;
    entry->local = operation;
    return PL_OK;
}

/* Does the same for each member of a group. */
static enum pl_status claim_entries(struct pl_named *named, const char *base, struct pl_named_submission *submission,
                                    struct pl_error *reterr)
{
    uint64_t hash = pl_hash(pl_hash(PL_HASH_START, base, strlen(base)), &submission->count, sizeof(submission->count));
    char name[PL_NAMED_MAX_NAME_BYTES + 64];

    for (size_t i = 0; i < submission->count; i++) {
        struct pl_named_definition *definition = &submission->operations[i].definition;

        definition->group = hash;
        definition->group_members = (uint32_t)submission->count;
        definition->group_index = (uint32_t)i;
        snprintf(name, sizeof(name), "%.*s.%zuof%zu", PL_NAMED_MAX_NAME_BYTES, base, i, submission->count);
        PL_TRY(claim_entry(named, name, NULL, &submission->operations[i], reterr));
    }
    return PL_OK;
}

/* Detaches the operations of a refused submission from their entries. */
static void release_entries(struct pl_named *named, struct pl_named_submission *submission)
{
    for (size_t i = 0; i < submission->count; i++) {
        struct pl_named_entry *entry = PL_TAKE(submission->operations[i].entry);

        if (entry) {
            entry->local = NULL;
            pl_named_table_drop_idle(&named->table, entry);
        }
    }
}

void pl_named_submission_list(struct pl_named *named, struct pl_named_submission *submission)
{
    if (submission->ready) {
        pl_device_event_release(PL_TAKE(submission->ready));
    }
    if (submission->kind != SUBMISSION_OPERATIONS) { /* the service handles these kinds */
        return;
    }
    submission->next = NULL;
    *(named->last_ended ? &named->last_ended->next : &named->first_ended) = submission;
    named->last_ended = submission;
}

enum pl_status pl_named_enter(struct pl_named *named, struct pl_named_submission *submission,
                              struct pl_named_entry *known, struct pl_error *reterr)
{
    enum pl_kind kind = submission->count > 0 ? (enum pl_kind)submission->operations[0].definition.kind : PL_BARRIER;
    uint64_t *number = submission->is_grouped ? &named->numbered_groups : &named->numbered[kind];
    const char *name = submission->name;
    char numbered[NUMBERED_BYTES];
    enum pl_status status;

    if (named->failure.status != PL_OK || named->left) {
        return pl_named_refuse_ended(named, reterr);
    }
    if (!name) {
        name = name_by_number(named, submission->is_grouped ? "group" : pl_kind_text(kind), *number, numbered);
    }
    status = submission->is_grouped ? claim_entries(named, name, submission, reterr)
                                    : claim_entry(named, name, known, &submission->operations[0], reterr);
    if (status != PL_OK) {
        release_entries(named, submission);
        return status;
    }
    *number += submission->name ? 0 : 1;
    submission->is_entered = true;
    submission->status = PL_OK;
    submission->undone = submission->unagreed = submission->unlaunched = submission->count;
    named->undone += submission->count;
    named->unagreed += submission->count;
    for (size_t i = 0; i < submission->count; i++) {
        submission->operations[i].submission = submission;
        submission->operations[i].is_anonymous = !submission->name;
        submission->operations[i].state = OPERATION_QUEUED;
        pl_operation_append(&named->first_queued, &named->last_queued, &submission->operations[i]);
    }
    if (submission->count == 0) {
        pl_named_submission_list(named, submission);
    }
    return PL_OK;
}
