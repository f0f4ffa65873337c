/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events, and waits with a deadline. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/device_private.h"
#include "device/load_cuda.h"

#include <sched.h>
#include <stdlib.h>

/* A wait first spins, then sleeps for an eighth of the time that it has waited. */
enum { SPIN_NS = 50 * 1000, SHORTEST_NAP_NS = 20 * 1000, LONGEST_NAP_NS = 500 * 1000, NAPS_OF_WAITED = 8 };

static enum pl_status new_stream(struct pl_device *device, int priority, void **ret_stream, struct pl_error *reterr)
{
    CUstream stream = NULL;

    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority), reterr,
                "cannot make a stream");
    *ret_stream = stream;
    return PL_OK;
}

enum pl_status pl_device_stream_new(struct pl_device *device, void **ret_stream, struct pl_error *reterr)
{
    return new_stream(device, 0, ret_stream, reterr);
}

enum pl_status pl_device_stream_new_urgent(struct pl_device *device, void **ret_stream, struct pl_error *reterr)
{
    return new_stream(device, device->urgent, ret_stream, reterr);
}

/* Refuses a stream that is captured into a CUDA graph. The device's context must be current. */
static enum pl_status check_capture(struct pl_device *device, void *stream, struct pl_error *reterr)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = device->cuda.cuStreamIsCapturing(stream, &capture);

    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
        (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE)) {
        return pl_error_set(reterr, PL_INVALID,
                            "the stream is captured into a CUDA graph, which cannot hold an exchange between ranks "
                            "or a step of training: end the capture before, or call this on another stream");
    }
    return PL_OK;
}

enum pl_status pl_device_refuse_captured(struct pl_device *device, void *stream, struct pl_error *reterr)
{
    return pl_device_enter(device, NULL) == PL_OK ? check_capture(device, stream, reterr) : PL_OK;
}

/* Makes the device's context current, and refuses a stream that is captured into a CUDA graph. */
static enum pl_status enter_uncaptured(struct pl_device *device, void *stream, struct pl_error *reterr)
{
    PL_TRY(pl_device_enter(device, reterr));
    return check_capture(device, stream, reterr);
}

static enum pl_status record(struct pl_device *device, void *event, void *stream, struct pl_error *reterr)
{
    PL_TRY(enter_uncaptured(device, stream, reterr));
    PL_CUDA_TRY(device, cuEventRecord(event, stream), reterr, "cannot record an event");
    return PL_OK;
}

enum pl_status pl_device_stream_wait_outside(struct pl_device *device, void *stream, void *event,
                                             struct pl_error *reterr)
{
    PL_TRY(enter_uncaptured(device, stream, reterr));
    PL_CUDA_TRY(device, cuStreamWaitEvent(stream, event, 0), reterr, "cannot let a stream wait for an event");
    return PL_OK;
}

int pl_device_pass_captures(struct pl_device *device)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    PL_CUDA_LET(device, cuThreadExchangeStreamCaptureMode(&mode), "passing beside captures");
    return (int)mode;
}

void pl_device_heed_captures(struct pl_device *device, int heeded)
{
    CUstreamCaptureMode mode = (CUstreamCaptureMode)heeded;

    PL_CUDA_LET(device, cuThreadExchangeStreamCaptureMode(&mode), "heeding captures");
}

void pl_device_stream_free(struct pl_device *device, void *stream)
{
    pl_device_release_object(device, stream, PL_DEVICE_STREAM);
}

enum pl_status pl_device_event_new(struct pl_device *device, bool timed, void **ret_event, struct pl_error *reterr)
{
    CUevent event = NULL;

    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuEventCreate(&event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING), reterr,
                "cannot make an event");
    *ret_event = event;
    return PL_OK;
}

void pl_device_event_free(struct pl_device *device, void *event)
{
    pl_device_release_object(device, event, PL_DEVICE_EVENT);
}

static struct pl_device_event *take_spare(struct pl_device *device)
{
    struct pl_device_event *event;

    pthread_mutex_lock(&device->lock);
    event = device->synced.spare_events;
    if (event) {
        device->synced.spare_events = event->next;
    }
    pthread_mutex_unlock(&device->lock);
    return event;
}

enum pl_status pl_device_event_take(struct pl_device *device, struct pl_device_event **ret_event,
                                    struct pl_error *reterr)
{
    struct pl_device_event *event = take_spare(device);
    enum pl_status status;

    if (!event) {
        PL_TRY(pl_memory_alloc(&event, 1, sizeof(*event), reterr));
        event->device = device;
        status = pl_device_event_new(device, false, &event->event, reterr);
        if (status != PL_OK) {
            free(event);
            return status;
        }
    }
    event->users = 1;
    *ret_event = event;
    return PL_OK;
}

enum pl_status pl_device_event_mark(struct pl_device *device, void *stream, struct pl_device_event **ret_event,
                                    struct pl_error *reterr)
{
    struct pl_device_event *event;
    enum pl_status status;

    PL_TRY(pl_device_event_take(device, &event, reterr));
    event->stream = stream;
    pthread_mutex_lock(&device->order); /* otherwise the later of two threads could get the lower number */
    event->number = ++device->numbers;
    status = record(device, event->event, stream, reterr);
    pthread_mutex_unlock(&device->order);
    if (status != PL_OK) {
        pl_device_event_release(event);
        return status;
    }
    *ret_event = event;
    return PL_OK;
}

void pl_device_event_share(struct pl_device_event *event)
{
    pthread_mutex_lock(&event->device->lock);
    event->users++;
    pthread_mutex_unlock(&event->device->lock);
}

static void end_uses(struct pl_device_event *event, bool all)
{
    struct pl_device *device = event ? event->device : NULL;

    if (!event) {
        return;
    }
    pthread_mutex_lock(&device->lock);
    event->users = all ? 0 : event->users - 1;
    if (event->users == 0) {
        event->next = device->synced.spare_events;
        device->synced.spare_events = event;
    }
    pthread_mutex_unlock(&device->lock);
}

void pl_device_event_release(struct pl_device_event *event)
{
    end_uses(event, false);
}

void pl_device_event_drop(struct pl_device_event *event)
{
    end_uses(event, true);
}

void pl_device_events_free(struct pl_device *device)
{
    struct pl_device_event *event;

    while ((event = take_spare(device))) {
        pl_device_event_free(device, event->event);
        free(event);
    }
}

enum pl_status pl_device_event_record(struct pl_device *device, void *event, void *stream, struct pl_error *reterr)
{
    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuEventRecord(event, stream), reterr, "cannot record an event");
    return PL_OK;
}

enum pl_status pl_device_stream_wait(struct pl_device *device, void *stream, void *event, struct pl_error *reterr)
{
    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuStreamWaitEvent(stream, event, 0), reterr, "cannot let a stream wait for an event");
    return PL_OK;
}

enum pl_status pl_device_stream_follow(struct pl_device *device, void *stream, void *other, void *event,
                                       struct pl_error *reterr)
{
    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuEventRecord(event, other), reterr, "cannot record an event");
    PL_CUDA_TRY(device, cuStreamWaitEvent(stream, event, 0), reterr, "cannot let a stream wait for an event");
    return PL_OK;
}

enum pl_status pl_device_event_done(struct pl_device *device, void *event, bool *ret_done, struct pl_error *reterr)
{
    CUresult result;

    PL_TRY(pl_device_enter(device, reterr));
    result = device->cuda.cuEventQuery(event);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
        return pl_device_cuda_raise(&device->cuda, device, result, reterr, "work before an event failed");
    }
    *ret_done = result == CUDA_SUCCESS;
    return PL_OK;
}

enum pl_status pl_device_event_ms(struct pl_device *device, void *from, void *to, double *ret_ms,
                                  struct pl_error *reterr)
{
    float ms = 0.0F;

    PL_TRY(pl_device_enter(device, reterr));
    PL_CUDA_TRY(device, cuEventElapsedTime(&ms, from, to), reterr, "cannot tell the time between two events");
    *ret_ms = (double)ms;
    return PL_OK;
}

/*
 * Waits until the event's work, or without an event all work of the stream, has ended. It polls because the driver's
 * own waits have no deadline. Short waits spin; long ones leave the CPU to the training program's other threads.
 */
static enum pl_status finish(struct pl_device *device, CUstream stream, CUevent event, int64_t deadline_ns,
                             struct pl_error *reterr)
{
    int64_t begin_ns = pl_clock_now_ns();

    PL_TRY(pl_device_enter(device, reterr));
    for (;;) {
        CUresult result = event ? device->cuda.cuEventQuery(event) : device->cuda.cuStreamQuery(stream);
        int64_t waited_ns;

        if (result == CUDA_SUCCESS) {
            return PL_OK;
        }
        if (result != CUDA_ERROR_NOT_READY) {
            return pl_device_cuda_raise(&device->cuda, device, result, reterr, "work on a stream failed");
        }
        waited_ns = pl_clock_now_ns() - begin_ns;
        if (pl_deadline_passed(deadline_ns)) {
            if (deadline_ns > begin_ns) { /* otherwise it was only a query */
                pthread_mutex_lock(&device->lock);
                device->synced.late = (struct pl_device_late){.is = true, .stream = stream, .event = event};
                pthread_mutex_unlock(&device->lock);
            }
            return pl_error_set(reterr, PL_TIMEOUT, "work on a stream has not ended after %.1f s (device %d, %s, %s)",
                                (double)waited_ns / 1e9, device->info.ordinal, device->info.name, device->info.pci);
        }
        if (waited_ns < SPIN_NS) {
            sched_yield();
        } else {
            int64_t nap_ns = waited_ns / NAPS_OF_WAITED;

            nap_ns = nap_ns < SHORTEST_NAP_NS ? SHORTEST_NAP_NS : nap_ns;
            pl_clock_nap(nap_ns < LONGEST_NAP_NS ? nap_ns : LONGEST_NAP_NS, deadline_ns);
        }
    }
}

enum pl_status pl_device_event_finish(struct pl_device *device, void *event, int64_t deadline_ns,
                                      struct pl_error *reterr)
{
    return finish(device, NULL, event, deadline_ns, reterr);
}

enum pl_status pl_device_stream_finish(struct pl_device *device, void *stream, int64_t deadline_ns,
                                       struct pl_error *reterr)
{
    return finish(device, stream, NULL, deadline_ns, reterr);
}
