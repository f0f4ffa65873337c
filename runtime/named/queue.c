/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that this rank has submitted, and the queue of operations that are not announced yet. */
#include "runtime/named/queue.h"

#include "base/memory.h"
#include "collectives/world_private.h"

#include <stdlib.h>
#include <string.h>

void pl_named_result_done(struct pl_named_result *result)
{
    if (result->buffer) {
        pl_named_buffer_return(result->buffer);
    } else {
        free(result->data);
    }
    free(result->rows_of_rank);
    memset(result, 0, sizeof(*result));
}

void pl_named_local_free(struct pl_named *named, struct pl_named_local *local)
{
    pl_device_event_release(local->ready);
    free(local->row_counts);
    local->next = named->spare_local;
    named->spare_local = local;
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

static void forget_one(struct pl_named_local *local, const struct pl_named_operation *operation)
{
    if (local && local->operation == operation) {
        local->operation = NULL;
    }
}

/* After a failure of the engine: what is left of `operation` there does not know it any more. */
static void forget(struct pl_named *named, const struct pl_named_operation *operation)
{
    for (size_t i = 0; i < named->table.slot_count; i++) {
        for (struct pl_named_entry *entry = named->table.slots[i]; entry; entry = entry->next_in_slot) {
            forget_one(entry->local, operation);
        }
    }
    for (struct pl_named_batch *batch = named->device.first; batch; batch = batch->next) {
        for (size_t i = 0; i < batch->count; i++) { /* the entry may not have it any more */
            forget_one(batch->items[i].local, operation);
        }
    }
}

enum pl_status pl_named_operation_end(struct pl_named *named, struct pl_named_operation *operation,
                                      struct pl_error *reterr)
{
    enum pl_status status = operation->status;
    bool fails = operation->undone > 0;

    if (fails) {
        status = pl_named_refuse_ended(named, reterr);
        forget(named, operation);
    } else if (status != PL_OK) {
        pl_error_set(reterr, status, "%s", operation->failure ? operation->failure : "failed");
    }
    fails = fails || status != PL_OK;
    for (size_t i = 0; fails && operation->results && operation->unlaunched > 0 && i < operation->members; i++) {
        pl_named_result_done(&operation->results[i]);
    }
    free(PL_TAKE(operation->failure));
    pl_device_event_release(PL_TAKE(operation->end));
    return status;
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
    const struct pl_named_batch *batch = named->device.first ? named->device.first : named->first_batch;

    if (!batch || named->failure.status != PL_OK) {
        return NULL;
    }
    return batch->items[0].entry ? batch->items[0].entry->name : "an operation";
}

void pl_named_queue_push(struct pl_named *named, struct pl_named_local *local)
{
    local->next = NULL;
    *(named->last_unannounced ? &named->last_unannounced->next : &named->first_unannounced) = local;
    named->last_unannounced = local;
}

void pl_named_queue_remove(struct pl_named *named, const struct pl_named_local *local)
{
    struct pl_named_local **at = &named->first_unannounced, *last = NULL;

    while (*at && *at != local) {
        last = *at;
        at = &last->next;
    }
    if (*at) {
        *at = local->next;
        named->last_unannounced = local->next ? named->last_unannounced : last;
    }
}

void pl_named_queue_done(struct pl_named *named)
{
    for (size_t i = 0; i < named->table.slot_count && named->table.slots; i++) {
        for (struct pl_named_entry *entry = named->table.slots[i]; entry; entry = entry->next_in_slot) {
            if (entry->local) {
                pl_named_local_free(named, entry->local);
            }
        }
    }
    for (struct pl_named_local *local = named->spare_local, *next; local; local = next) {
        next = local->next;
        free(local);
    }
    for (struct pl_named_batch *batch = named->spare_batch, *next; batch; batch = next) {
        next = batch->next;
        free(batch);
    }
    free(named->sorted);
}
