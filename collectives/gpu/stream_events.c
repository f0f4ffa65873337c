/* SPDX-License-Identifier: Apache-2.0 */
/* Events that order a backend's stream with the callers' streams. */
#include "collectives/gpu/stream_events.h"

#include "base/memory.h"

enum pl_status pl_stream_events_init(struct pl_stream_events *stream, struct pl_device *device, struct pl_error *reterr)
{
    *stream = (struct pl_stream_events){.device = device};
    return pl_device_stream_new_urgent(device, &stream->stream, reterr);
}

void pl_stream_events_done(struct pl_stream_events *stream)
{
    pl_device_stream_free(stream->device, stream->stream);
    *stream = (struct pl_stream_events){.device = NULL};
}

enum pl_status pl_stream_events_mark(const struct pl_stream_events *stream, void *on,
                                     struct pl_device_event **ret_event, struct pl_error *reterr)
{
    struct pl_device_event *event;
    enum pl_status status;

    PL_TRY(pl_device_event_take(stream->device, &event, reterr));
    status = pl_device_event_record(stream->device, event->event, on, reterr);
    if (status != PL_OK) {
        pl_device_event_release(event);
        return status;
    }
    *ret_event = event;
    return PL_OK;
}

enum pl_status pl_stream_events_post(const struct pl_stream_events *stream, struct pl_request *request,
                                     struct pl_error *reterr)
{
    struct pl_device_event **event = pl_stream_events_event_of(request);

    return request->collective.ready ? pl_device_event_take(stream->device, event, reterr)
                                     : pl_stream_events_mark(stream, request->collective.stream, event, reterr);
}

enum pl_status pl_stream_events_begin(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr)
{
    void *ready = request->collective.ready;

    return ready ? pl_device_stream_wait(stream->device, other, ready, reterr)
                 : pl_stream_events_order(stream, request, other, reterr);
}

enum pl_status pl_stream_events_reached(const struct pl_stream_events *stream, struct pl_device_event **event,
                                        bool *ret_reached, struct pl_error *reterr)
{
    *ret_reached = true;
    if (*event) {
        PL_TRY(pl_device_event_done(stream->device, (*event)->event, ret_reached, reterr));
        if (*ret_reached) {
            pl_device_event_release(PL_TAKE(*event));
        }
    }
    return PL_OK;
}

enum pl_status pl_stream_events_order(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr)
{
    const struct pl_device_event *event = *pl_stream_events_event_of(request);

    return event ? pl_device_stream_wait(stream->device, other, event->event, reterr) : PL_OK;
}
