/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning and the end of an engine, and what is submitted to it: checks, definitions, groups. */
#include "base/hash.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/batch.h"
#include "runtime/named/device.h"
#include "runtime/named/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum pl_status pl_named_new(struct pl_world *world, const struct pl_named_options *options, struct pl_named **ret_named,
                            struct pl_error *reterr)
{
    struct pl_named *named;
    size_t ranks = (size_t)pl_world_size(world);

    PL_TRY(pl_memory_alloc(&named, 1, sizeof(*named), reterr));
    named->world = world;
    named->rank = pl_world_rank(world);
    named->ranks = pl_world_size(world);
    named->device.device = pl_world_device(world);
    if (options) {
        named->options = *options;
    }
    named->round.heads = pl_memory_new(ranks, sizeof(struct pl_named_head), reterr);
    named->round.payload_bytes = pl_memory_new(ranks, sizeof(uint64_t), reterr);
    if (!named->round.heads || !named->round.payload_bytes ||
        pl_named_table_init(&named->table, world, reterr) != PL_OK) {
        pl_named_free(named);
        return PL_MEMORY;
    }
    named->table.strict_join = named->options.strict_join;
    *ret_named = named;
    return PL_OK;
}

void pl_named_use_device(struct pl_named *named, struct pl_device *device)
{
    named->device.device = device;
}

void pl_named_free(struct pl_named *named)
{
    if (!named) {
        return;
    }
    if (named->round.request) {
        pl_request_cancel(named->round.request);
    }
    for (struct pl_named_batch *batch = named->first_batch, *next; batch; batch = next) {
        next = batch->next;
        pl_request_cancel(batch->request);
        pl_named_batch_free(named, batch);
    }
    pl_named_device_done(named);
    pl_named_queue_done(named);
    free(named->round.payload_bytes);
    pl_named_table_done(&named->table);
    if (pl_world_has_leaked(named->world)) {
        return; /* not freed, because messages of a round may still access it */
    }
    free(named->round.heads);
    free(named->round.received);
    pl_text_done(&named->round.payload);
    free(named);
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
    /* Checks now what the collective would refuse later, when all ranks have agreed on it. */
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

enum pl_status pl_named_check(const struct pl_named *named, const struct pl_named_op *op, const char *name,
                              struct pl_error *reterr)
{
    if (!*name || strlen(name) >= PL_NAMED_MAX_NAME_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "'%.40s...': a name has 1 to %d bytes", name,
                            PL_NAMED_MAX_NAME_BYTES - 1);
    }
    return check_op(named, op, name, reterr);
}

/* Fills the definition that must be equal on all ranks. */
static void define(const struct pl_named_op *op, struct pl_named_definition *definition)
{
    bool reduces = op->kind == PL_ALLREDUCE || op->kind == PL_REDUCE_SCATTER;

    memset(definition, 0, sizeof(*definition));
    definition->kind = (uint8_t)op->kind;
    if (op->kind == PL_BARRIER) {
        definition->flags = op->flags & NAMED_FENCE;
        return;
    }
    definition->dtype = (uint8_t)op->dtype;
    definition->memory = op->memory == PL_MEMORY_DEVICE ? PL_MEMORY_DEVICE : PL_MEMORY_HOST;
    definition->dims = op->dims;
    for (unsigned i = 0; i < op->dims; i++) {
        definition->shape[i] = op->shape[i];
    }
    if (op->kind == PL_ALLGATHER || op->kind == PL_ALLTOALL) {
        definition->shape[0] = 0;
    }
    if (op->kind == PL_BROADCAST) {
        definition->root = op->root;
    }
    if (reduces) {
        definition->op = (uint8_t)op->op;
        definition->flags = (uint16_t)op->flags;
        definition->scaled = op->scaled;
        definition->is_scaled_by_caller = op->is_scaled_by_caller;
        definition->prescale = op->scaled ? op->prescale : 1;
        definition->postscale = op->scaled ? op->postscale : 1;
    }
}

static enum pl_status take_row_counts(const struct pl_named *named, const struct pl_named_op *op,
                                      struct pl_named_local *local, struct pl_error *reterr)
{
    size_t count = pl_named_definition_row_counts(&local->definition, named->ranks);

    if (count == 0) {
        return PL_OK;
    }
    PL_TRY(pl_memory_alloc(&local->row_counts, count, sizeof(uint64_t), reterr));
    for (size_t i = 0; i < count; i++) {
        local->row_counts[i] = op->kind == PL_ALLGATHER ? op->shape[0]
                               : op->splits             ? op->splits[i]
                                                        : op->shape[0] / (uint64_t)named->ranks;
    }
    return PL_OK;
}

/*
 * Checks `op` and makes this rank's operation of the name. The caller queues it when all operations of the group are
 * made.
 */
static enum pl_status prepare(struct pl_named *named, const struct pl_named_op *op, const char *name, bool anonymous,
                              struct pl_named_operation *operation, size_t member, struct pl_named_local **ret_local,
                              struct pl_error *reterr)
{
    struct pl_named_entry *entry;
    struct pl_named_local *local;

    PL_TRY(pl_named_check(named, op, name, reterr));
    entry = pl_named_table_find(&named->table, name, reterr);
    if (!entry) {
        return PL_MEMORY;
    }
    if (entry->local) {
        return pl_error_set(reterr, PL_INVALID, "'%s' is still under way: wait for it before it is submitted again",
                            name);
    }
    local = named->spare_local;
    if (local) {
        named->spare_local = local->next;
        memset(local, 0, sizeof(*local));
    } else {
        local = pl_memory_new(1, sizeof(*local), reterr);
    }
    if (!local) {
        pl_named_table_drop_idle(&named->table, entry);
        return PL_MEMORY;
    }
    local->entry = entry;
    local->send = op->kind == PL_BROADCAST && !op->send ? op->recv : op->send;
    local->recv = op->recv;
    local->operation = operation;
    local->member = member;
    define(op, &local->definition);
    if (take_row_counts(named, op, local, reterr) != PL_OK) {
        pl_named_local_free(named, local);
        pl_named_table_drop_idle(&named->table, entry);
        return PL_MEMORY;
    }
    local->anonymous = anonymous;
    entry->local = local;
    *ret_local = local;
    return PL_OK;
}

/* From now on the engine has `operation`, whose members are to be queued. */
static void begin(struct pl_named *named, struct pl_named_operation *operation, size_t count)
{
    operation->is_entered = true;
    operation->members = operation->undone = operation->unagreed = operation->unlaunched = count;
    operation->status = PL_OK;
    named->undone += count;
    named->unagreed += count;
    if (operation->results) {
        memset(operation->results, 0, count * sizeof(*operation->results));
    }
    if (count == 0 && operation->is_listed) {
        operation->next_ended = named->first_ended;
        named->first_ended = operation;
    }
}

/* `number` counts the operations without a name, and is increased here. NULL: the program has named the operation. */
static enum pl_status submit(struct pl_named *named, const char *name, uint64_t *number, const struct pl_named_op *ops,
                             size_t count, bool grouped, struct pl_device_event **ready_at,
                             struct pl_named_operation *operation, struct pl_error *reterr)
{
    PL_AUTO_FREE struct pl_named_local **many = NULL;
    struct pl_named_local *one, **locals = &one;
    char member[PL_NAMED_MAX_NAME_BYTES + 64];
    enum pl_status status = PL_OK;
    size_t made;

    PL_TRY(pl_named_refuse_ended(named, reterr));
    if (count > 1) {
        PL_TRY(pl_memory_alloc(&many, count, sizeof(struct pl_named_local *), reterr));
        locals = many;
    }
    for (made = 0; made < count && status == PL_OK; made++) {
        snprintf(member, sizeof(member), grouped ? "%.*s.%zuof%zu" : "%.*s", PL_NAMED_MAX_NAME_BYTES, name, made,
                 count);
        status = prepare(named, &ops[made], member, number, operation, made, &locals[made], reterr);
        if (status == PL_OK && grouped) {
            locals[made]->definition.group = pl_hash(pl_hash(PL_HASH_START, name, strlen(name)), &count, sizeof(count));
            locals[made]->definition.group_members = (uint32_t)count;
            locals[made]->definition.group_index = (uint32_t)made;
        }
    }
    if (status != PL_OK) { /* no operation of the group is submitted */
        for (size_t i = 0; i + 1 < made; i++) {
            struct pl_named_entry *entry = locals[i]->entry;

            entry->local = NULL;
            pl_named_local_free(named, locals[i]);
            pl_named_table_drop_idle(&named->table, entry);
        }
        return status;
    }
    begin(named, operation, count);
    if (number) {
        ++*number;
    }
    for (size_t i = 0; i < count; i++) {
        if (locals[i]->definition.memory == PL_MEMORY_DEVICE) {
            locals[i]->ready = *ready_at;
        }
        pl_named_queue_push(named, locals[i]);
    }
    *ready_at = NULL;
    return PL_OK;
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

enum pl_status pl_named_enter(struct pl_named *named, const char *name, bool grouped, const struct pl_named_op *ops,
                              size_t count, struct pl_device_event **ready_at, struct pl_named_operation *operation,
                              struct pl_error *reterr)
{
    uint64_t *number = grouped ? &named->numbered_groups : &named->numbered[(unsigned)ops->kind % PL_KIND_COUNT];
    char numbered[NUMBERED_BYTES];

    if (name) {
        return submit(named, name, NULL, ops, count, grouped, ready_at, operation, reterr);
    }
    return submit(named, name_by_number(named, grouped ? "group" : pl_kind_text(ops->kind), *number, numbered), number,
                  ops, count, grouped, ready_at, operation, reterr);
}

enum pl_status pl_named_mark(struct pl_named *named, const struct pl_named_op *ops, size_t count,
                             struct pl_device_event **ret_event, struct pl_error *reterr)
{
    const struct pl_named_op *first = NULL;
    struct pl_device *device = named->device.device;
    size_t users = 0;

    *ret_event = NULL;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].kind == PL_BARRIER || ops[i].memory != PL_MEMORY_DEVICE) {
            continue;
        }
        first = first ? first : &ops[i];
        users++;
        if (ops[i].stream != first->stream) {
            return pl_error_set(reterr, PL_INVALID,
                                "the operations of a group have different streams: submit them on "
                                "one stream");
        }
    }
    if (users == 0 || !device) {
        return PL_OK;
    }
    PL_TRY(pl_device_event_mark(device, first->stream, ret_event, reterr));
    (*ret_event)->users = users;
    return PL_OK;
}
