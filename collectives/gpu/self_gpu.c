/* SPDX-License-Identifier: Apache-2.0 */
/* The backend for one rank with device memory: every collective is a copy on the device, scaled if the caller asks
 * for it, and ordered with the caller's stream. */
#include "base/memory.h"
#include "base/text.h"
#include "collectives/core/backend.h"
#include "collectives/gpu/stream_events.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "device/kernel_private.h"

#include <stdlib.h>
#include <string.h>

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    strcpy(reason, "there is more than one rank");
    return pl_world_size(world) == 1;
}

static void free_self_gpu(void *state)
{
    pl_stream_events_done(state);
}

static enum pl_status init(struct pl_world *world, void *state, struct pl_error *reterr)
{
    return pl_stream_events_init(state, pl_world_device(world), reterr);
}

static enum pl_status launch(struct pl_stream_events *stream, const struct pl_collective *c, struct pl_error *reterr)
{
    uint64_t count = pl_counts_get(c->counts, c->count, 0);

    if (!count || !c->send) {
        return PL_OK;
    }
    if (pl_kind_reduces(c->kind) &&
        (c->prescale != 1.0 || c->postscale != 1.0 || c->divisor != 1 || c->dtype == PL_BOOL)) {
        return pl_device_reduce(stream->device, c->recv, &c->send, 1, count, c->dtype, c->op, c->divisor, c->prescale,
                                c->postscale, stream->stream, reterr);
    }
    if (c->send != c->recv) {
        return pl_device_copy(stream->device, c->recv, c->send, count * pl_dtype_bytes(c->dtype), stream->stream,
                              reterr);
    }
    return PL_OK;
}

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_stream_events *stream = state;
    struct pl_device_event **event = pl_stream_events_event_of(request);

    (void)ret_done;
    PL_TRY(pl_stream_events_post(stream, request, reterr));
    PL_TRY(pl_stream_events_begin(stream, request, stream->stream, reterr));
    PL_TRY(launch(stream, &request->collective, reterr));
    PL_TRY(pl_device_event_record(stream->device, (*event)->event, stream->stream, reterr));
    request->launched = true;
    return PL_OK;
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    return pl_stream_events_reached(state, pl_stream_events_event_of(request), ret_done, reterr);
}

static enum pl_status stream_wait(void *state, struct pl_request *request, void *stream, struct pl_error *reterr)
{
    return pl_stream_events_order(state, request, stream, reterr);
}

static void cancel(void *state, struct pl_request *request)
{
    (void)state;
    pl_device_event_release(PL_TAKE(*pl_stream_events_event_of(request)));
}

static void describe(void *state, struct pl_text *text)
{
    (void)state;
    pl_text_append(text, "  device memory of every size: a copy on the device, or no work if it is in place\n");
}

const struct pl_backend pl_backend_self_gpu = {.name = "self_gpu",
                                               .on_device = true,
                                               .always_on = true,
                                               .streamed = true,
                                               .probe = probe,
                                               .init = init,
                                               .state_bytes = sizeof(struct pl_stream_events),
                                               .post = post,
                                               .progress = progress,
                                               .stream_wait = stream_wait,
                                               .cancel = cancel,
                                               .describe = describe,
                                               .free = free_self_gpu};
