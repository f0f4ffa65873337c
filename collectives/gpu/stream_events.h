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
#include "device/device.h"

struct pl_stream_events {
    struct pl_device *device;
    void *stream;
    void **spare; /* events */
    size_t spare_count;
    size_t spare_capacity;
    size_t events; /* number of events, spare or in use */
};

enum pl_status pl_stream_events_init(struct pl_stream_events *stream, struct pl_device *device,
                                     struct pl_error *reterr) PL_MUST_CHECK;
void pl_stream_events_done(struct pl_stream_events *stream);

/**
 * Record an event after all work given to `on` so far (the stream itself or another one). The caller gives the event
 * back. Allocates if more events are in use than ever before.
 */
enum pl_status pl_stream_events_mark(struct pl_stream_events *stream, void *on, void **ret_event,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Take an event that is recorded later. The caller gives it back. Allocates as pl_stream_events_mark() does. */
enum pl_status pl_stream_events_take(struct pl_stream_events *stream, void **ret_event,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * What a post does: mark the work that precedes the request, in its event, or only take that event if the caller gives
 * an event of its own.
 */
enum pl_status pl_stream_events_post(struct pl_stream_events *stream, struct pl_request *request,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Let `other` wait for the work that precedes the request: before the request's event is recorded again at its end. */
enum pl_status pl_stream_events_begin(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Whether the event has been reached; if so it is given back and `*event` is set to NULL. NULL counts as reached. */
enum pl_status pl_stream_events_reached(struct pl_stream_events *stream, void **event, bool *ret_reached,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/** Give the event back, if there is one, without waiting for it, and set `*event` to NULL. */
void pl_stream_events_give_back(struct pl_stream_events *stream, void **event);

/** The event that marks the end of a launched request of a streamed backend: the first word of its scratch memory. */
static inline void **pl_stream_events_event_of(struct pl_request *request)
{
    return (void **)(void *)&request->scratch[0];
}

/** Let `other` wait for the event of `request` from now on: pl_backend.stream_wait. */
enum pl_status pl_stream_events_order(const struct pl_stream_events *stream, struct pl_request *request, void *other,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
