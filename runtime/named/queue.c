/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that this rank has submitted: handles, and the queue of operations that are not announced yet. */
#include "runtime/named/queue.h"

#include "base/memory.h"

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

void pl_named_local_free(struct pl_named_local *local)
{
    pl_device_event_release(local->ready);
    free(local->row_counts);
    free(local);
}

static void slot_clear(struct pl_named_slot *slot)
{
    for (size_t i = 0; slot->results && i < slot->members; i++) {
        pl_named_result_done(&slot->results[i]);
    }
    free(slot->results);
    free(slot->failure);
    pl_device_event_release(PL_TAKE(slot->end));
    slot->results = NULL;
    slot->failure = NULL;
    slot->used = false;
}

enum pl_status pl_named_queue_open(struct pl_named *named, size_t members, size_t *ret_slot, struct pl_error *reterr)
{
    size_t index = named->free_slot_hint;
    struct pl_named_slot *slot;

    while (index < named->slot_count && named->slots[index].used) {
        index++;
    }
    if (index == named->slot_count) {
        PL_TRY(pl_memory_grow(&named->slots, &named->slot_capacity, index + 1, sizeof(struct pl_named_slot), reterr));
        memset(&named->slots[index], 0, sizeof(struct pl_named_slot));
        named->slot_count++;
    }
    slot = &named->slots[index];
    PL_TRY(pl_memory_alloc(&slot->results, members, sizeof(struct pl_named_result), reterr));
    slot->used = true;
    slot->generation++;
    slot->members = members;
    slot->undone = slot->unagreed = slot->unlaunched = members;
    slot->lose = NULL;
    slot->status = PL_OK;
    slot->owner = NULL;
    named->free_slot_hint = index + 1;
    *ret_slot = index;
    return PL_OK;
}

void pl_named_queue_close(struct pl_named *named, size_t index)
{
    slot_clear(&named->slots[index]);
    if (index < named->free_slot_hint) {
        named->free_slot_hint = index;
    }
}

pl_named_handle pl_named_queue_handle(const struct pl_named *named, size_t index)
{
    return (uint64_t)named->slots[index].generation << 32 | (index + 1);
}

enum pl_status pl_named_queue_find(const struct pl_named *named, pl_named_handle handle, size_t *ret_index,
                                   struct pl_error *reterr)
{
    uint64_t index = (handle & UINT32_MAX) - 1;

    if ((handle & UINT32_MAX) == 0 || index >= named->slot_count || !named->slots[index].used ||
        named->slots[index].generation != handle >> 32) {
        return pl_error_set(reterr, PL_INVALID, "handle %llx is not under way: never submitted, or waited for already",
                            (unsigned long long)handle);
    }
    *ret_index = index;
    return PL_OK;
}

void pl_named_set_owner(struct pl_named *named, pl_named_handle handle, void *owner, pl_named_lose *lose)
{
    size_t index = 0;
    struct pl_named_slot *slot;

    PL_BUG_IF(pl_named_queue_find(named, handle, &index, NULL) != PL_OK);
    slot = &named->slots[index];
    slot->owner = owner;
    slot->lose = lose;
    if (slot->undone == 0) { /* it has ended during the submission */
        slot->next_ended = named->first_ended;
        named->first_ended = index + 1;
    }
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
    named->unannounced_bytes += local->bytes;
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
        named->unannounced_bytes -= local->bytes;
    }
}

void pl_named_queue_done(struct pl_named *named)
{
    for (size_t i = 0; i < named->table.slot_count && named->table.slots; i++) {
        for (struct pl_named_entry *entry = named->table.slots[i]; entry; entry = entry->next_in_slot) {
            if (entry->local) {
                pl_named_local_free(entry->local);
            }
        }
    }
    for (size_t i = 0; i < named->slot_count; i++) {
        slot_clear(&named->slots[i]);
    }
    free(named->slots);
}
