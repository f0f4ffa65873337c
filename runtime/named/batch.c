/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in flight for operations that ranks have agreed on: how they are started, and how they end. */
#include "runtime/named/batch.h"

#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/named/queue.h"

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

void pl_named_observe(struct pl_named_observer *observer, bool active)
{
    __atomic_store_n(&observer->active, active, __ATOMIC_RELAXED);
}

void pl_named_observed(const struct pl_named *named, enum pl_named_phase phase, const struct pl_named_entry *entry,
                       int rank, bool first)
{
    const struct pl_named_observer *observer = named->options.observer;
    struct pl_named_event event = {.phase = phase, .first = first};

    if (!observer || !__atomic_load_n(&observer->active, __ATOMIC_RELAXED)) {
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

struct pl_named_batch *pl_named_batch_new(struct pl_named *named, struct pl_named_entry **entries, size_t count,
                                          struct pl_error *reterr)
{
    size_t bytes = sizeof(struct pl_named_batch) + count * sizeof(struct pl_named_item);
    struct pl_named_batch *batch = count == 1 ? named->spare_batch : NULL;

    if (batch) {
        named->spare_batch = batch->next;
        memset(batch, 0, bytes);
    } else {
        batch = pl_memory_new(1, bytes, reterr);
    }
    if (batch) {
        batch->count = count;
        for (size_t i = 0; i < count; i++) {
            batch->items[i].entry = entries[i];
            batch->items[i].local = entries[i]->local;
            pl_named_observed(named, PL_NAMED_AGREED, entries[i], named->rank, false);
            pl_named_observed(named, PL_NAMED_STARTED, entries[i], named->rank, false);
        }
    }
    return batch;
}

enum pl_status pl_named_batch_posted(struct pl_named *named, struct pl_named_batch *batch, struct pl_error *reterr)
{
    struct pl_named_batch **first = batch->on_device ? &named->device.first : &named->first_batch;
    struct pl_named_batch **last = batch->on_device ? &named->device.last : &named->last_batch;

    /* from now on the engine cancels its request if the engine fails */
    *(*last ? &(*last)->next : first) = batch;
    *last = batch;
    for (size_t i = 0; i < batch->count; i++) {
        struct pl_named_item *item = &batch->items[i];

        if (item->local) {
            pl_named_operation_agree(named, item->local->operation);
            item->local->agreed = true;
        }
        PL_TRY(pl_named_table_retire(&named->table, item->entry, true, reterr));
        if (batch->on_device && !item->local) { /* rounds go on, and the others may use the name again before the end */
            pl_named_table_drop_idle(&named->table, item->entry);
            item->entry = NULL;
        }
    }
    return PL_OK;
}

void pl_named_batch_free(struct pl_named *named, struct pl_named_batch *batch)
{
    bool leaked = pl_world_has_leaked(named->world);

    for (size_t i = 0; i < batch->count; i++) {
        struct pl_named_item *item = &batch->items[i];

        if (item->local && item->local->is_detached) {
            pl_named_local_free(named, item->local);
        }
        free(leaked ? NULL : item->scratch);
        if (leaked) {
            item->result.data = NULL;
        }
        pl_named_result_done(&item->result);
    }
    if (batch->buffer) {
        batch->buffer->busy = false;
        named->device.fused -= batch->fused;
    }
    pl_device_event_release(batch->end);
    free(batch->counts);
    free(batch->name);
    if (batch->count == 1) {
        batch->next = named->spare_batch;
        named->spare_batch = batch;
    } else {
        free(batch);
    }
}

void pl_named_end_local(struct pl_named *named, struct pl_named_local *local, enum pl_status status,
                        const char *failure)
{
    struct pl_named_operation *operation = local->operation;
    struct pl_named_entry *entry = local->entry;

    operation->undone--;
    named->undone--;
    if (status != PL_OK && operation->status == PL_OK) {
        operation->status = status;
        operation->failure = failure ? strdup(failure) : NULL;
    }
    if (operation->undone == 0 && operation->is_listed) {
        operation->next_ended = named->first_ended;
        named->first_ended = operation;
    }
    if (local->is_detached) {
        pl_named_local_free(named, local);
        return;
    }
    entry->local = NULL;
    pl_named_local_free(named, local);
    pl_named_table_drop_idle(&named->table, entry);
}

void pl_named_detach_local(struct pl_named *named, struct pl_named_local *local)
{
    PL_BUG_IF(!local->entry->known || local->entry->local != local);
    pl_named_observed(named, PL_NAMED_ENDED, local->entry, named->rank, false); /* before the next one is announced */
    local->is_detached = true;
    local->entry->local = NULL;
}

void pl_named_batch_give(struct pl_named *named, struct pl_named_batch *batch, size_t at)
{
    struct pl_named_item *item = &batch->items[at];

    if (batch->buffer && pl_named_makes_memory(batch->collective.kind)) {
        pl_named_buffer_give(batch->buffer, named->world, item->entry->name, &item->result);
    }
    if (item->local->operation->results) {
        item->local->operation->results[item->local->member] = item->result;
        memset(&item->result, 0, sizeof(item->result));
    }
}

void pl_named_batch_end(struct pl_named *named, struct pl_named_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct pl_named_item *item = &batch->items[i];

        if (!item->entry) {
            continue;
        }
        if (!item->local || !item->local->is_detached) {
            pl_named_observed(named, PL_NAMED_ENDED, item->entry, named->rank, false);
        }
        if (item->local) {
            if (!item->local->is_detached) {
                pl_named_batch_give(named, batch, i);
            }
            pl_named_end_local(named, PL_TAKE(item->local), PL_OK, NULL);
        } else {
            pl_named_table_drop_idle(&named->table, item->entry);
        }
    }
    pl_named_batch_free(named, batch);
}

void pl_named_batch_fail(struct pl_named *named, struct pl_named_batch *batch, enum pl_status status,
                         const char *failure)
{
    for (size_t i = 0; i < batch->count; i++) {
        struct pl_named_local *local = PL_TAKE(batch->items[i].local);

        if (local) {
            pl_named_end_local(named, local, status, failure);
        }
    }
    pl_named_batch_free(named, batch);
}
