/* SPDX-License-Identifier: Apache-2.0 */
/* Events that order a backend's stream with the callers' streams; they are kept for reuse. */
#include "collectives/gpu/stream_events.h"

#include "base/memory.h"
#include "device/device_private.h"

#include <stdlib.h>

enum pl_status pl_stream_events_init(struct pl_stream_events *stream, struct pl_device *device, struct pl_error *reterr)
{
    *stream = (struct pl_stream_events){.device = device};
    return pl_device_stream_new_urgent(device, &stream->stream, reterr);
}

void pl_stream_events_done(struct pl_stream_events *stream)
{
    if (!stream->device) {
        return;
    }
    PL_BUG_IF(stream->spare_count != stream->events);
    for (size_t i = 0; i < stream->spare_count; i++) {
        pl_device_event_free(stream->device, stream->spare[i]);
    }
    free(stream->spare);
    if (stream->stream) {
        pl_device_stream_free(stream->device, stream->stream);
    }
    *stream = (struct pl_stream_events){.device = NULL};
}

enum pl_status pl_stream_events_take(struct pl_stream_events *stream, void **ret_event, struct pl_error *reterr)
{
    if (stream->spare_count == 0) {
        PL_TRY(pl_memory_grow(&stream->spare, &stream->spare_capacity, stream->events + 1, sizeof(*stream->spare),
                              reterr));
        PL_TRY(pl_device_event_new(stream->device, false, &stream->spare[0], reterr));
        stream->events++;
        stream->spare_count = 1;
    }
    *ret_event = stream->spare[--stream->spare_count];
    return PL_OK;
}

enum pl_status pl_stream_events_mark(struct pl_stream_events *stream, void *on, void **ret_event,
                                     struct pl_error *reterr)
{
    void *event = NULL;
    enum pl_status status;

    PL_TRY(pl_stream_events_take(stream, &event, reterr));
    status = pl_device_event_record(stream->device, event, on, reterr);
    if (status != PL_OK) {
        pl_stream_events_give_back(stream, &event);
        return status;
    }
    *ret_event = event;
    return PL_OK;
}

enum pl_status pl_stream_events_post(struct pl_stream_events *stream, struct pl_request *request,
                                     struct pl_error *reterr)
{
    void **event = pl_stream_events_event_of(request);

    return request->collective.ready ? pl_stream_events_take(stream, event, reterr)
                                     : pl_stream_events_mark(stream, request->collective.stream, event, reterr);
}

enum pl_status pl_stream_events_begin(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr)
{
    void *ready = request->collective.ready;

    return ready ? pl_device_stream_wait(stream->device, other, ready, reterr)
                 : pl_stream_events_order(stream, request, other, reterr);
}

enum pl_status pl_stream_events_reached(struct pl_stream_events *stream, void **event, bool *ret_reached,
                                        struct pl_error *reterr)
{
    *ret_reached = true;
    if (*event) {
        PL_TRY(pl_device_event_done(stream->device, *event, ret_reached, reterr));
        if (*ret_reached) {
            pl_stream_events_give_back(stream, event);
        }
    }
    return PL_OK;
}

void pl_stream_events_give_back(struct pl_stream_events *stream, void **event)
{
    if (*event) {
        stream->spare[stream->spare_count++] = PL_TAKE(*event); /* there is room: the event came from this list */
    }
}

enum pl_status pl_stream_events_order(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr)
{
    void *event = *pl_stream_events_event_of(request);

    return event ? pl_device_stream_wait(stream->device, other, event, reterr) : PL_OK;
}
