/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend for device memory through the hosts. It serves ranks that share a GPU, builds or hosts without NCCL, and
 * collectives for which NCCL's result would differ from what collective.h promises. Stages of a request:
 *
 *     before     the caller's stream has reached the post
 *     compare    all ranks are there, have called the same collective, and have sent the arena positions of their
 *                buffers
 *     shared     allreduce between arena buffers that the ranks of one host map: each rank reduces its share of all
 *                buffers and writes it into all buffers
 *     leaving    a barrier after that, since ranks write to each other's buffers
 *     staged     everything else: each segment is copied to pinned memory, goes through the host world, and is copied
 *                back; the copies of one segment overlap with the host collectives of others
 *
 * The host's reductions and the device's give the same bits, so results are equal to those of host memory.
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/backend.h"
#include "collectives/gpu/segments.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "device/kernel_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t NAP_NS = 50 * PL_NS_PER_US;
static const int64_t STOP_NS = 2 * PL_NS_PER_S;

enum { LINE_BYTES = 256 };

/* Payload of a call's record: positions of send and recv in the arena, and the largest block for staging. */
enum { RECORD_SEND, RECORD_RECV, RECORD_MOST };

static const uint64_t NOT_SHARED = UINT64_MAX;

/* ---- shared ---- */

/* The number of the arena block that holds the buffer, and the offset in it, as one word; valid on all ranks. */
static uint64_t block_address(const struct pl_staged *d, const void *data, uint64_t bytes)
{
    uint64_t offset;
    const struct pl_arena_block *block = data ? pl_arena_gpu_find(d->world, data, bytes, &offset) : NULL;

    return block ? (uint64_t)block->number << PL_ARENA_GPU_OFFSET_BITS | offset : NOT_SHARED;
}

static char *address_of(const struct pl_staged *d, uint64_t place, int rank)
{
    const struct pl_arena_block *block = pl_arena_gpu_numbered(d->world, (uint32_t)(place >> PL_ARENA_GPU_OFFSET_BITS));

    return block->mappings[rank].data + (place & ((UINT64_C(1) << PL_ARENA_GPU_OFFSET_BITS) - 1));
}

static bool all_shared(const struct pl_staged *d)
{
    for (int r = 0; r < d->size; r++) {
        if (d->comparison->records[r].payload[RECORD_SEND] == NOT_SHARED ||
            d->comparison->records[r].payload[RECORD_RECV] == NOT_SHARED) {
            return false;
        }
    }
    return d->request->collective.kind == PL_ALLREDUCE && d->request->collective.count > 0;
}

/* This rank's share of the elements: whole cache lines, except at the end. */
static void share_of(const struct pl_staged *d, const struct pl_collective *c, uint64_t *ret_at, uint64_t *ret_count)
{
    uint64_t line = LINE_BYTES / pl_dtype_bytes(c->dtype);
    uint64_t each = (c->count / (uint64_t)d->size + line - 1) / line * line;
    uint64_t at = each * (uint64_t)d->rank;

    *ret_at = at < c->count ? at : c->count;
    *ret_count = d->rank == d->size - 1 || c->count - *ret_at < each ? c->count - *ret_at : each;
}

static enum pl_status start_shared(struct pl_staged *d, struct pl_error *reterr)
{
    const struct pl_collective *c = &d->request->collective;
    const void *sources[PL_DEVICE_MAX_SOURCES];
    uint64_t item = pl_dtype_bytes(c->dtype);
    char *own = NULL;
    uint64_t at;
    uint64_t count;

    share_of(d, c, &at, &count);
    for (int r = 0; r < d->size; r++) {
        sources[r] = address_of(d, d->comparison->records[r].payload[RECORD_SEND], r) + at * item;
    }
    own = address_of(d, d->comparison->records[d->rank].payload[RECORD_RECV], d->rank) + at * item;
    if (count) {
        PL_TRY(pl_device_reduce(pl_world_device(d->world), own, sources, d->size, count, c->dtype, c->op, c->divisor,
                                c->prescale, c->postscale, d->down.stream, reterr));
    }
    for (int step = 1; step < d->size && count; step++) {
        int r = (d->rank + step) % d->size;

        PL_TRY(pl_device_copy(pl_world_device(d->world),
                              address_of(d, d->comparison->records[r].payload[RECORD_RECV], r) + at * item, own,
                              count * item, d->down.stream, reterr));
    }
    d->stage = PL_STAGED_SHARED;
    return pl_stream_events_mark(&d->down, d->down.stream, &d->event, reterr);
}

/* ---- stages of a request ---- */

static enum pl_status start_comparison(struct pl_staged *d, struct pl_error *reterr)
{
    const struct pl_collective *c = &d->request->collective;
    uint64_t bytes = c->kind == PL_ALLREDUCE ? c->count * pl_dtype_bytes(c->dtype) : 0;
    uint64_t payload[PL_CALL_PAYLOAD_WORDS] = {NOT_SHARED, NOT_SHARED, 0, 0};

    if (bytes) {
        payload[RECORD_SEND] = block_address(d, c->send, bytes);
        payload[RECORD_RECV] = block_address(d, c->recv, bytes);
    }
    if (c->kind == PL_ALLTOALL) {
        payload[RECORD_MOST] = pl_counts_max(c->counts, c->count, d->size);
    }
    return pl_compare_calls_start(&d->comparisons, &d->request->signature, payload, &d->comparison, reterr);
}

static enum pl_status after_comparison(struct pl_staged *d, struct pl_error *reterr)
{
    uint64_t most = 0;
    bool shared = all_shared(d);
    enum pl_status status = shared ? start_shared(d, reterr) : PL_OK;

    for (int r = 0; r < d->size; r++) {
        most = d->comparison->records[r].payload[RECORD_MOST] > most ? d->comparison->records[r].payload[RECORD_MOST]
                                                                     : most;
    }
    pl_compare_calls_release(&d->comparisons, PL_TAKE(d->comparison));
    if (!shared) {
        d->stage = PL_STAGED_SEGMENTS;
        pl_segments_plan(d, most);
    }
    return status;
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_staged *d = state;
    bool done = true;

    while (done) {
        switch (d->stage) {
        case PL_STAGED_BEFORE:
            if (request->collective.ready) {
                PL_TRY(pl_device_event_done(pl_world_device(d->world), request->collective.ready, &done, reterr));
            } else {
                PL_TRY(pl_stream_events_reached(&d->down, &d->event, &done, reterr));
            }
            if (done) {
                PL_TRY(start_comparison(d, reterr));
                d->stage = PL_STAGED_COMPARE;
            }
            break;
        case PL_STAGED_COMPARE:
            PL_TRY(pl_compare_calls_progress(&d->comparisons, d->comparison, &done, reterr));
            if (done) {
                PL_TRY(after_comparison(d, reterr));
            }
            break;
        case PL_STAGED_SHARED:
            PL_TRY(pl_stream_events_reached(&d->down, &d->event, &done, reterr));
            if (done) {
                PL_TRY(pl_request_post(d->host, &(struct pl_collective){.kind = PL_BARRIER, .deadline_ns = INT64_MAX},
                                       &d->leaving, reterr));
                d->stage = PL_STAGED_LEAVING;
            }
            break;
        case PL_STAGED_LEAVING:
            PL_TRY(pl_segments_step(&d->leaving, &done, reterr));
            *ret_done = done;
            return PL_OK;
        case PL_STAGED_SEGMENTS:
            return pl_segments_progress(d, ret_done, reterr);
        }
        request->progress_count += done;
    }
    return PL_OK;
}

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_staged *d = state;

    d->request = request;
    d->stage = PL_STAGED_BEFORE;
    if (!request->collective.ready) {
        PL_TRY(pl_stream_events_mark(&d->down, request->collective.stream, &d->event, reterr));
    }
    return progress(state, request, ret_done, reterr);
}

static enum pl_status block_until(void *state, struct pl_request *request, int64_t until_ns, struct pl_error *reterr)
{
    struct pl_staged *d = state;

    (void)request;
    /* While copies are under way too, it would be wrong to wait for the hosts alone. */
    if (d->stage == PL_STAGED_COMPARE || d->stage == PL_STAGED_LEAVING || pl_segments_wait_for_hosts(d)) {
        return pl_request_wait_until(d->host, until_ns, reterr);
    }
    pl_clock_nap(NAP_NS, until_ns);
    return PL_OK;
}

static void cancel(void *state, struct pl_request *request)
{
    struct pl_staged *d = state;
    int64_t deadline_ns = pl_deadline_after_ns(STOP_NS);

    (void)request;
    pl_request_revoke_world(d->host, &d->world->failure);
    if (d->leaving) {
        pl_request_cancel(PL_TAKE(d->leaving));
    }
    pl_compare_calls_release(&d->comparisons, PL_TAKE(d->comparison));
    pl_segments_cancel(d);
    /* Nothing may access the buffers afterwards; a device that does not finish has failed and writes nothing any
     * more. */
    if (pl_device_stream_finish(pl_world_device(d->world), d->down.stream, deadline_ns, NULL) != PL_OK ||
        pl_device_stream_finish(pl_world_device(d->world), d->up.stream, deadline_ns, NULL) != PL_OK) {
        pl_log(PL_LOG_DEBUG, "device: its last copies did not end before the deadline");
    }
    pl_device_event_release(PL_TAKE(d->event));
}

static int waits_for(void *state, const struct pl_request *request)
{
    const struct pl_staged *d = state;

    (void)request;
    return pl_late_waits_for(d->host);
}

/* ---- init and free ---- */

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    strcpy(reason, "one rank alone");
    return pl_world_size(world) > 1;
}

static void free_staged(void *state)
{
    struct pl_staged *d = state;

    if (d->pinned) {
        pl_device_unpin(pl_world_device(d->world), d->staging.data);
    }
    pl_arena_free(d->host, &d->staging);
    pl_compare_calls_done(&d->comparisons);
    pl_stream_events_done(&d->down);
    pl_stream_events_done(&d->up);
    free(d->counts);
}

static enum pl_status init(struct pl_world *world, void *state, struct pl_error *reterr)
{
    struct pl_staged *d = state;

    d->world = world;
    d->host = world->host_world;
    d->rank = pl_world_rank(world);
    d->size = pl_world_size(world);
    d->comparisons.world = world;
    /* This is collective, so it comes before calls that may fail on one rank only. */
    PL_TRY(pl_arena_alloc(d->host, (uint64_t)PL_SEGMENT_SLOTS * PL_SEGMENT_SLOT_BYTES, PL_MEMORY_HOST, &d->staging,
                          reterr));
    PL_TRY(pl_device_pin(pl_world_device(d->world), d->staging.data, d->staging.bytes, reterr));
    d->pinned = true;
    PL_TRY(pl_memory_alloc(&d->counts, 2 * (size_t)d->size, sizeof(*d->counts), reterr));
    PL_TRY(pl_stream_events_init(&d->down, pl_world_device(d->world), reterr));
    return pl_stream_events_init(&d->up, pl_world_device(d->world), reterr);
}

static void describe(void *state, struct pl_text *text)
{
    const struct pl_staged *d = state;
    const char *apart = d->world->gpu_not_mapped;

    pl_text_printf(text, "  allreduce between device arenas: %s%s\n",
                   apart[0] ? "staged, because ranks have not mapped each other's arenas: " : "by each rank's kernels",
                   apart);
    pl_text_printf(text,
                   "  else staged: through %d times %d KiB of pinned memory and the world's backends for host memory\n",
                   (int)PL_SEGMENT_SLOTS, (int)PL_SEGMENT_SLOT_BYTES >> 10);
}

const struct pl_backend pl_backend_device = {.name = "device",
                                             .on_device = true,
                                             .probe = probe,
                                             .init = init,
                                             .state_bytes = sizeof(struct pl_staged),
                                             .post = post,
                                             .progress = progress,
                                             .block_until = block_until,
                                             .cancel = cancel,
                                             .waits_for = waits_for,
                                             .describe = describe,
                                             .free = free_staged};
