/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A stream of a backend, ordered with the callers' streams by events, without the host. Internal to collectives/.
 *
 * Errors   those of device.h.
 * Threads  one at a time.
 */
#ifndef PL_COLLECTIVES_GPU_STREAM_EVENTS_H
#define PL_COLLECTIVES_GPU_STREAM_EVENTS_H

#include "base/status.h"
#include "collectives/core/backend.h"
#include "device/device_private.h"

struct pl_stream_events {
    struct pl_device *device;
    void *stream;
};

enum pl_status pl_stream_events_init(struct pl_stream_events *stream, struct pl_device *device,
                                     struct pl_error *reterr) PL_MUST_CHECK;
void pl_stream_events_done(struct pl_stream_events *stream);

/** Take an event, and record it after all work queued so far on `on`: this stream or another one. */
enum pl_status pl_stream_events_mark(const struct pl_stream_events *stream, void *on,
                                     struct pl_device_event **ret_event, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Called at a post: takes an event and records it after the work that precedes the request. If the caller gave an event
 * of its own (`ready`), only takes the event.
 */
enum pl_status pl_stream_events_post(const struct pl_stream_events *stream, struct pl_request *request,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Let `other` wait for the work that precedes the request. Call before the request's event is recorded at its end. */
enum pl_status pl_stream_events_begin(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Whether the event has been reached; if so it is released and `*event` is set to NULL. NULL counts as reached. */
enum pl_status pl_stream_events_reached(const struct pl_stream_events *stream, struct pl_device_event **event,
                                        bool *ret_reached, struct pl_error *reterr) PL_MUST_CHECK;

/** The event that marks the end of a launched request of a streamed backend: the first word of its scratch memory. */
static inline struct pl_device_event **pl_stream_events_event_of(struct pl_request *request)
{
    return (struct pl_device_event **)(void *)&request->scratch[0];
}

/** Let `other` wait for the event of `request` from now on: implements pl_backend.stream_wait. */
enum pl_status pl_stream_events_order(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
