/* SPDX-License-Identifier: Apache-2.0 */
/* A service's GPU if its world has none: opened for the first operation there, released before CUDA shuts down. */
#include "base/clock.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/named/device.h"
#include "runtime/named/service_private.h"

static const int64_t NAP_NS = 50 * PL_NS_PER_US;

/* Opens the device for the engines of all sets. */
static enum pl_status open_device(struct pl_service *service, int ordinal, struct pl_error *reterr)
{
    PL_TRY(pl_device_open(ordinal, &service->device, reterr));
    pthread_mutex_lock(&service->lock); /* submissions and changes of the sets read the engines' list */
    for (struct pl_named *named = service->all; named; named = named->next) {
        pl_named_use_device(named, service->device);
    }
    pthread_mutex_unlock(&service->lock);
    return PL_OK;
}

enum pl_status pl_service_use_device(struct pl_service *service, int ordinal, struct pl_error *reterr)
{
    const struct pl_device *device;
    enum pl_status status = PL_OK;

    pthread_mutex_lock(&service->opening);
    device = service->all->device.device;
    if (service->is_released) {
        status = pl_error_set(reterr, PL_CANCELLED, "the process ends: its GPU was released");
    } else if (!device) {
        status = open_device(service, ordinal, reterr);
    } else if (pl_device_info(device)->ordinal != ordinal) {
        status = pl_error_set(reterr, PL_INVALID,
                              "a tensor on GPU %d, but this rank's operations are on GPU %d: a rank uses one GPU",
                              ordinal, pl_device_info(device)->ordinal);
    }
    pthread_mutex_unlock(&service->opening);
    if (status != PL_OK) {
        pl_error_context(reterr, "for an operation on GPU %d", ordinal);
        pl_world_place_error(service->world, NULL, reterr);
    }
    return status;
}

static bool is_on_device(const struct pl_named_submission *submission)
{
    bool is = false;

    for (size_t i = 0; i < submission->count && !is; i++) {
        is = submission->operations[i].definition.memory == PL_MEMORY_DEVICE;
    }
    return is;
}

/* Returns whether operations in device memory are in flight. The caller leads, and holds the lock. */
static bool works_on_device(struct pl_service *service)
{
    bool works = false;

    for (const struct pl_named_submission *at = service->first_taken; at && !works; at = at->next_taken) {
        works = is_on_device(at);
    }
    for (const struct pl_named_submission *at = service->synced.first; at && !works; at = at->next) {
        works = is_on_device(at);
    }
    return works;
}

void pl_service_release_device(struct pl_service *service, int64_t deadline_ns, const struct pl_error *why)
{
    bool works;

    if (!pl_service_take_lead(service, false, pl_deadline_after_ns(PL_NS_PER_S))) {
        return;
    }
    pthread_mutex_lock(&service->lock);
    while ((works = works_on_device(service)) && !pl_deadline_passed(deadline_ns)) {
        if (!pl_service_step(service, false)) {
            pthread_mutex_unlock(&service->lock);
            pl_clock_nap(NAP_NS, deadline_ns);
            pthread_mutex_lock(&service->lock);
        }
    }
    pthread_mutex_unlock(&service->lock);
    if (works) {
        pl_service_revoke(service, why);
    }
    pthread_mutex_lock(&service->opening);
    for (struct pl_named *named = service->all; named; named = named->next) {
        if (!named->device.maker) {
            pl_named_device_done(named);
        }
    }
    service->is_released = true;
    pthread_mutex_unlock(&service->opening);
    pl_service_leave_lead(service);
}
