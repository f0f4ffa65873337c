/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena memory on devices: each rank allocates on its own, and where all ranks are on one host they open each other's
 * blocks, so that a kernel of one rank can read and write all of them. Also keeps track of what is pinned.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "device/device.h"
#include "device/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t GOODBYE_NS = 2 * PL_NS_PER_S;

/* What a rank sends the others about its block: its export record. */
struct offer {
    int32_t made;    /* there is a block */
    int32_t offered; /* and `handle` opens it */
    uint64_t address;
    struct pl_device_handle handle;
    char text[PL_BACKEND_REASON_BYTES]; /* why not */
};

static void release_span(struct pl_world *world, struct pl_device_span *span)
{
    if (span->pinned) {
        pl_device_unpin(world->device, span->data);
    } else if (span->data) {
        pl_device_release(world->device, span->data);
    }
    free(span->windows);
    free(span);
}

static void close_windows(struct pl_world *world, struct pl_device_span *span)
{
    for (int r = 0; span->windows && r < world->size; r++) {
        if (span->windows[r].imported) {
            pl_device_unimport(world->device, span->windows[r].data);
        }
    }
}

/* Why ranks cannot map each other's device memory whatever the driver says; the same on all ranks. */
static bool can_share(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    const struct pl_topology *topology = &world->topology;

    if (topology->hosts > 1) {
        (void)snprintf(reason, PL_BACKEND_REASON_BYTES, "ranks on %d hosts", topology->hosts);
        return false;
    }
    if (world->size > PL_DEVICE_MAX_SOURCES) {
        (void)snprintf(reason, PL_BACKEND_REASON_BYTES, "more than %d ranks", (int)PL_DEVICE_MAX_SOURCES);
        return false;
    }
    for (int r = 0; r < world->size; r++) {
        for (int other = 0; other < r; other++) {
            if (topology->pid_of[r] == topology->pid_of[other] &&
                strcmp(topology->places[r].device, topology->places[other].device) != 0) {
                (void)snprintf(reason, PL_BACKEND_REASON_BYTES,
                               "ranks %d and %d are threads of one process on two devices", other, r);
                return false;
            }
        }
    }
    return true;
}

static enum pl_status open_windows(struct pl_world *world, struct pl_device_span *span, const struct offer *offers,
                                   struct pl_error *reterr)
{
    const struct pl_topology *topology = &world->topology;

    span->windows = pl_memory_new((size_t)world->size, sizeof(*span->windows), reterr);
    if (!span->windows) {
        return PL_MEMORY;
    }
    for (int r = 0; r < world->size; r++) {
        struct pl_device_window *window = &span->windows[r];
        void *data;

        if (topology->pid_of[r] == topology->pid_of[world->rank]) {
            window->data = (char *)(uintptr_t)offers[r].address;
            continue;
        }
        if (!offers[r].offered) {
            return pl_error_set(reterr, PL_UNSUPPORTED, "rank %d: %s", pl_world_label(world, r), offers[r].text);
        }
        PL_TRY(pl_device_import(world->device, &offers[r].handle, &data, reterr));
        *window = (struct pl_device_window){.data = data, .imported = true};
    }
    return PL_OK;
}

/* Map each other's blocks on all ranks, or on none, with the reason. */
static enum pl_status share(struct pl_world *world, struct pl_device_span *span, const struct offer *offers,
                            int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_error own = PL_ERROR_NONE;
    struct pl_vote vote;

    if (!can_share(world, world->device_spans_apart)) {
        return PL_OK;
    }
    own.status = open_windows(world, span, offers, &own);
    vote = pl_vote_from(&own);
    PL_TRY(pl_world_vote(world, &vote, deadline_ns, reterr));
    if (vote.status != PL_OK) {
        close_windows(world, span);
        free(span->windows);
        span->windows = NULL;
        memcpy(world->device_spans_apart, vote.text, sizeof(vote.text));
    }
    return PL_OK;
}

static enum pl_status build_span(struct pl_world *world, struct pl_device_span *span, uint64_t bytes,
                                 struct pl_error *reterr)
{
    PL_AUTO_FREE struct offer *offers = pl_memory_new((size_t)world->size, sizeof(*offers), reterr);
    int64_t deadline_ns = pl_deadline_after_ns(world->timeout_ns);
    struct pl_error own = PL_ERROR_NONE;
    struct offer offer;
    void *data = NULL;

    if (!offers) {
        return pl_bootstrap_refuse(world->bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    memset(&offer, 0, sizeof(offer));
    offer.made = pl_device_alloc(world->device, bytes, &data, &own) == PL_OK;
    span->data = data;
    span->bytes = bytes;
    offer.address = (uint64_t)(uintptr_t)data;
    offer.offered = offer.made && pl_device_export(world->device, data, &offer.handle, &own) == PL_OK;
    pl_error_text(&own, offer.text, sizeof(offer.text));
    PL_TRY(world->bootstrap->allgather(world->bootstrap->context, &offer, offers, sizeof(offer), deadline_ns, reterr));
    for (int r = 0; r < world->size; r++) {
        if (!offers[r].made) {
            return pl_error_set(reterr, PL_MEMORY, "device memory on rank %d, host %s, device %d, %s: %s",
                                pl_world_label(world, r), world->topology.places[r].host,
                                world->topology.places[r].ordinal, world->topology.places[r].device, offers[r].text);
        }
    }
    return world->size > 1 ? share(world, span, offers, deadline_ns, reterr) : PL_OK;
}

enum pl_status pl_device_span_new(struct pl_world *world, uint64_t bytes, struct pl_span *ret_span,
                                  struct pl_error *reterr)
{
    struct pl_device_span *span = pl_memory_new(1, sizeof(*span), reterr);
    enum pl_status status;

    if (!span) {
        return pl_bootstrap_refuse(world->bootstrap, PL_MEMORY, reterr, pl_world_deadline_ns(world));
    }
    status = build_span(world, span, bytes, reterr);
    if (status != PL_OK) {
        close_windows(world, span);
        release_span(world, span);
        return status;
    }
    span->number = ++world->device_span_number;
    span->next = world->device_spans;
    world->device_spans = span;
    *ret_span = (struct pl_span){.bytes = bytes, .memory = PL_MEMORY_DEVICE, .data = span->data};
    return PL_OK;
}

static void end_span(struct pl_world *world, struct pl_device_span *span, int64_t deadline_ns)
{
    bool elsewhere = false;
    struct pl_error error;

    close_windows(world, span);
    for (int r = 0; span->windows && r < world->size; r++) {
        elsewhere = elsewhere || span->windows[r].imported;
    }
    /* Releasing memory that another process has mapped is undefined; a rank that is gone has nothing mapped. */
    if (elsewhere && world->failure.status == PL_OK &&
        world->bootstrap->barrier(world->bootstrap->context, deadline_ns, &error) != PL_OK) {
        world->failure = error;
    }
    release_span(world, span);
}

void pl_device_span_free(struct pl_world *world, struct pl_span *span)
{
    for (struct pl_device_span **at = &world->device_spans; *at; at = &(*at)->next) {
        if ((*at)->data == span->data) {
            struct pl_device_span *found = *at;

            *at = found->next;
            end_span(world, found, pl_deadline_after_ns(world->timeout_ns));
            return;
        }
    }
}

void pl_device_span_drop_all(struct pl_world *world)
{
    while (world->device_spans) {
        struct pl_device_span *span = world->device_spans;

        world->device_spans = span->next;
        end_span(world, span, pl_deadline_after_ns(GOODBYE_NS));
    }
}

enum pl_status pl_device_span_pin(struct pl_world *world, const struct pl_span *host, struct pl_error *reterr)
{
    struct pl_device_span *span = pl_memory_new(1, sizeof(*span), reterr);
    enum pl_status status;

    if (!span) {
        return PL_MEMORY;
    }
    status = pl_device_pin(world->device, host->data, host->bytes, reterr);
    if (status != PL_OK) {
        free(span);
        return status;
    }
    *span =
        (struct pl_device_span){.next = world->device_spans, .data = host->data, .bytes = host->bytes, .pinned = true};
    world->device_spans = span;
    return PL_OK;
}

const struct pl_device_span *pl_device_span_find(const struct pl_world *world, const void *data, uint64_t bytes,
                                                 uint64_t *ret_offset)
{
    for (const struct pl_device_span *span = world->device_spans; span; span = span->next) {
        uintptr_t at = (uintptr_t)data;
        uintptr_t start = (uintptr_t)span->data;

        if (span->windows && at >= start && at - start <= span->bytes && bytes <= span->bytes - (at - start)) {
            *ret_offset = at - start;
            return span;
        }
    }
    return NULL;
}

const struct pl_device_span *pl_device_span_numbered(const struct pl_world *world, uint32_t number)
{
    const struct pl_device_span *span = world->device_spans;

    while (span && span->number != number) {
        span = span->next;
    }
    return span;
}
