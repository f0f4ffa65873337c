/* SPDX-License-Identifier: Apache-2.0 */
/* Events of submissions in device memory. */
#include "runtime/named/ready.h"

#include "base/memory.h"
#include "device/device_private.h"

#include <stdlib.h>

static struct pl_named_ready *take_spare(struct pl_named_events *events)
{
    struct pl_named_ready *ready;

    pthread_mutex_lock(&events->lock);
    ready = events->synced.spare;
    if (ready) {
        events->synced.spare = ready->next;
    }
    pthread_mutex_unlock(&events->lock);
    return ready;
}

void pl_named_events_init(struct pl_named_events *events, struct pl_device *device)
{
    events->device = device;
    pthread_mutex_init(&events->order, NULL);
    pthread_mutex_init(&events->lock, NULL);
}

void pl_named_events_clear(struct pl_named_events *events)
{
    struct pl_named_ready *ready;

    while ((ready = take_spare(events))) {
        pl_device_event_free(events->device, ready->event);
        free(ready);
    }
}

void pl_named_events_done(struct pl_named_events *events)
{
    pl_named_events_clear(events);
    pthread_mutex_destroy(&events->lock);
    pthread_mutex_destroy(&events->order);
}

static void put_spare(struct pl_named_ready *ready)
{
    struct pl_named_events *events = ready->events;

    pthread_mutex_lock(&events->lock);
    ready->next = events->synced.spare;
    events->synced.spare = ready;
    pthread_mutex_unlock(&events->lock);
}

enum pl_status pl_named_ready_take(struct pl_named_events *events, struct pl_named_ready **ret_ready,
                                   struct pl_error *reterr)
{
    struct pl_named_ready *ready = take_spare(events);
    enum pl_status status;

    if (!ready) {
        ready = pl_memory_new(1, sizeof(*ready), reterr);
        if (!ready) {
            return PL_MEMORY;
        }
        ready->events = events;
        status = pl_device_event_new(events->device, false, &ready->event, reterr);
        if (status != PL_OK) {
            free(ready);
            return status;
        }
    }
    ready->users = 1;
    *ret_ready = ready;
    return PL_OK;
}

enum pl_status pl_named_ready_mark(struct pl_named_events *events, const struct pl_named_op *ops, size_t count,
                                   struct pl_named_ready **ret_ready, struct pl_error *reterr)
{
    const struct pl_named_op *first = NULL;
    struct pl_named_ready *ready;
    enum pl_status status;
    size_t users = 0;

    *ret_ready = NULL;
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
    if (users == 0 || !events->device) {
        return PL_OK;
    }
    PL_TRY(pl_named_ready_take(events, &ready, reterr));
    ready->stream = first->stream;
    ready->users = users;
    pthread_mutex_lock(&events->order); /* otherwise the later of two threads could get the lower number */
    ready->number = ++events->numbers;
    status = pl_device_stream_record(events->device, ready->event, ready->stream, reterr);
    pthread_mutex_unlock(&events->order);
    if (status != PL_OK) {
        put_spare(ready);
        return status;
    }
    *ret_ready = ready;
    return PL_OK;
}

void pl_named_ready_share(struct pl_named_ready *ready)
{
    pthread_mutex_lock(&ready->events->lock);
    ready->users++;
    pthread_mutex_unlock(&ready->events->lock);
}

void pl_named_ready_release(struct pl_named_ready *ready)
{
    size_t left;

    if (ready) {
        pthread_mutex_lock(&ready->events->lock);
        left = --ready->users;
        pthread_mutex_unlock(&ready->events->lock);
        if (left == 0) {
            put_spare(ready);
        }
    }
}

void pl_named_ready_drop(struct pl_named_ready *ready)
{
    if (ready) {
        put_spare(ready);
    }
}
