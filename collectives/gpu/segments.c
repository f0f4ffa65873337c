/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of a collective: copied from the device to pinned memory, used in a collective of the hosts, and copied
 * back. A segment takes the same number of elements of every block. Allreduce, reduce and broadcast have one block, the
 * others one per rank.
 */
#include "collectives/gpu/segments.h"

#include "base/memory.h"
#include "collectives/core/backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_whole(enum pl_kind kind)
{
    return kind == PL_ALLREDUCE || kind == PL_REDUCE || kind == PL_BROADCAST;
}

static char *slot_data(const struct pl_staged *d, uint64_t segment)
{
    return (char *)d->staging.data + segment % PL_SEGMENT_SLOTS * PL_SEGMENT_SLOT_BYTES;
}

/* Returns how many elements of a block of `block` elements belong to `segment`. */
static uint64_t taken(const struct pl_staged *d, uint64_t block, uint64_t segment)
{
    uint64_t at = segment * d->share_elems;

    return block <= at ? 0 : block - at < d->share_elems ? block - at : d->share_elems;
}

/* In ALLTOALL the results follow the sent data in the slot; other kinds work in place. */
static char *results_of(const struct pl_staged *d, uint64_t segment)
{
    return slot_data(d, segment) + (d->request->collective.kind == PL_ALLTOALL ? PL_SEGMENT_SLOT_BYTES / 2 : 0);
}

void pl_segments_plan(struct pl_staged *d, uint64_t most_elems)
{
    const struct pl_collective *c = &d->request->collective;
    uint64_t room = PL_SEGMENT_SLOT_BYTES / pl_dtype_bytes(c->dtype);
    uint64_t most = c->kind == PL_ALLTOALL ? most_elems : pl_counts_max(c->counts, c->count, d->size);

    d->share_elems = is_whole(c->kind)        ? room
                     : c->kind == PL_ALLTOALL ? room / 2 / (uint64_t)d->size
                                              : room / (uint64_t)d->size;
    PL_BUG_IF(d->share_elems == 0);
    d->segments = c->kind == PL_BARRIER ? 0 : (most + d->share_elems - 1) / d->share_elems;
    d->copied_down = 0;
    d->posted = 0;
    d->ended = 0;
    memset(d->slots, 0, sizeof(d->slots));
}

/*
 * Copies the segment's part of each block between device memory and the slot. In device memory the blocks follow each
 * other; in the slot the parts do.
 */
static enum pl_status copy_parts(const struct pl_staged *d, uint64_t segment, const char *device_data, char *host_data,
                                 const uint64_t *counts, const struct pl_stream_events *stream, struct pl_error *reterr)
{
    const struct pl_collective *c = &d->request->collective;
    uint64_t item = pl_dtype_bytes(c->dtype);
    int blocks = is_whole(c->kind) ? 1 : d->size;
    uint64_t at = 0;

    for (int b = 0; b < blocks; b++) {
        uint64_t block = pl_counts_get(counts, c->count, b);
        uint64_t part = taken(d, block, segment);
        char *there = (char *)(uintptr_t)device_data + (at + segment * d->share_elems) * item;
        bool up = stream == &d->up;

        if (part) {
            PL_TRY(pl_device_copy(stream->device, up ? there : host_data, up ? host_data : there, part * item,
                                  stream->stream, reterr));
        }
        host_data += part * item;
        at += block;
    }
    return PL_OK;
}

/* The start of this rank's own part among the parts in a slot, in elements. */
static uint64_t own_part_at(const struct pl_staged *d, uint64_t segment)
{
    const struct pl_collective *c = &d->request->collective;
    uint64_t at = 0;

    for (int r = 0; r < d->rank; r++) {
        at += taken(d, pl_counts_get(c->counts, c->count, r), segment);
    }
    return at;
}

static enum pl_status begin(struct pl_staged *d, uint64_t segment, struct pl_error *reterr)
{
    const struct pl_collective *c = &d->request->collective;
    struct pl_slot *slot = &d->slots[segment % PL_SEGMENT_SLOTS];
    char *data = slot_data(d, segment);
    uint64_t item = pl_dtype_bytes(c->dtype);
    uint64_t own = taken(d, pl_counts_get(c->counts, c->count, d->rank), segment);

    slot->stage = PL_SLOT_DOWN;
    slot->event = NULL;
    if (c->kind == PL_ALLGATHER) {
        if (own) {
            PL_TRY(pl_device_copy(d->down.device, data + own_part_at(d, segment) * item,
                                  (const char *)c->send + segment * d->share_elems * item, own * item, d->down.stream,
                                  reterr));
        }
    } else if (c->kind == PL_BROADCAST) {
        if (d->rank != c->root) {
            return PL_OK;
        }
        PL_TRY(copy_parts(d, segment, c->send ? c->send : c->recv, data, NULL, &d->down, reterr));
    } else {
        PL_TRY(copy_parts(d, segment, c->send, data, c->counts, &d->down, reterr));
    }
    return pl_stream_events_mark(&d->down, d->down.stream, &slot->event, reterr);
}

/* Posts the same collective for the segment to the host world. */
static enum pl_status post_to_hosts(struct pl_staged *d, uint64_t segment, struct pl_error *reterr)
{
    const struct pl_collective *c = &d->request->collective;
    struct pl_slot *slot = &d->slots[segment % PL_SEGMENT_SLOTS];
    struct pl_collective part = *c;
    uint64_t item = pl_dtype_bytes(c->dtype);
    char name[48];

    part.memory = PL_MEMORY_HOST;
    part.stream = NULL;
    part.deadline_ns = INT64_MAX;
    part.send = slot_data(d, segment);
    part.recv = results_of(d, segment);
    /* The error of a compressed sum is kept by name: here the hash of the collective's name, and the segment. */
    if (d->request->signature.name_hash) {
        snprintf(name, sizeof(name), "%016" PRIx64 "@%" PRIu64, d->request->signature.name_hash, segment);
        part.name = name;
    }
    if (is_whole(c->kind)) {
        part.count = taken(d, c->count, segment);
    } else {
        for (int r = 0; r < d->size; r++) {
            d->counts[r] = taken(d, pl_counts_get(c->counts, c->count, r), segment);
            d->counts[d->size + r] = taken(d, pl_counts_get(c->recv_counts, c->count, r), segment);
        }
        part.counts = d->counts;
        part.recv_counts = c->kind == PL_ALLTOALL ? d->counts + d->size : NULL;
        if (c->kind == PL_ALLGATHER) {
            part.send = slot_data(d, segment) + own_part_at(d, segment) * item;
        } else if (c->kind == PL_REDUCE_SCATTER) {
            part.recv = slot_data(d, segment) + own_part_at(d, segment) * item;
        }
    }
    slot->stage = PL_SLOT_HOSTS;
    return pl_request_post(d->host, &part, &slot->request, reterr);
}

static enum pl_status copy_up(struct pl_staged *d, uint64_t segment, struct pl_error *reterr)
{
    const struct pl_collective *c = &d->request->collective;
    struct pl_slot *slot = &d->slots[segment % PL_SEGMENT_SLOTS];
    uint64_t item = pl_dtype_bytes(c->dtype);
    uint64_t own = taken(d, pl_counts_get(c->counts, c->count, d->rank), segment);

    slot->stage = PL_SLOT_UP;
    if (c->kind == PL_REDUCE_SCATTER) {
        if (own) {
            PL_TRY(pl_device_copy(d->up.device, (char *)c->recv + segment * d->share_elems * item,
                                  slot_data(d, segment) + own_part_at(d, segment) * item, own * item, d->up.stream,
                                  reterr));
        }
    } else if (c->kind == PL_REDUCE && d->rank != c->root) {
        return PL_OK;
    } else {
        PL_TRY(copy_parts(d, segment, c->recv, results_of(d, segment),
                          c->kind == PL_ALLTOALL ? c->recv_counts : c->counts, &d->up, reterr));
    }
    return pl_stream_events_mark(&d->up, d->up.stream, &slot->event, reterr);
}

enum pl_status pl_segments_step(struct pl_request **request, bool *ret_done, struct pl_error *reterr)
{
    struct pl_request *step = *request;
    enum pl_status status = pl_request_test(step, ret_done, reterr);

    if (*ret_done) {
        *request = NULL;
        status = pl_request_wait(step, reterr);
    }
    return status;
}

/* Advances one segment as far as possible; sets `*moved` if it has advanced. */
static enum pl_status move(struct pl_staged *d, uint64_t segment, bool *moved, struct pl_error *reterr)
{
    struct pl_slot *slot = &d->slots[segment % PL_SEGMENT_SLOTS];
    bool done = false;

    if (slot->stage == PL_SLOT_DOWN && segment == d->posted) {
        PL_TRY(pl_stream_events_reached(&d->down, &slot->event, &done, reterr));
        if (done) {
            PL_TRY(post_to_hosts(d, segment, reterr));
            d->posted++;
        }
    } else if (slot->stage == PL_SLOT_HOSTS) {
        PL_TRY(pl_segments_step(&slot->request, &done, reterr));
        if (done) {
            PL_TRY(copy_up(d, segment, reterr));
        }
    } else if (slot->stage == PL_SLOT_UP) {
        PL_TRY(pl_stream_events_reached(&d->up, &slot->event, &done, reterr));
        if (done) {
            slot->stage = PL_SLOT_FREE;
            d->ended++;
        }
    }
    *moved = *moved || done;
    return PL_OK;
}

enum pl_status pl_segments_progress(struct pl_staged *d, bool *ret_done, struct pl_error *reterr)
{
    bool moved = true;

    while (moved) {
        moved = false;
        if (d->copied_down < d->segments && d->slots[d->copied_down % PL_SEGMENT_SLOTS].stage == PL_SLOT_FREE) {
            PL_TRY(begin(d, d->copied_down, reterr));
            d->copied_down++;
            moved = true;
        }
        for (uint64_t k = d->copied_down > PL_SEGMENT_SLOTS ? d->copied_down - PL_SEGMENT_SLOTS : 0; k < d->copied_down;
             k++) {
            PL_TRY(move(d, k, &moved, reterr));
        }
        d->request->progress_count += moved;
    }
    *ret_done = d->ended == d->segments;
    return PL_OK;
}

bool pl_segments_wait_for_hosts(const struct pl_staged *d)
{
    bool hosts = false;

    for (int i = 0; i < PL_SEGMENT_SLOTS; i++) {
        if (d->slots[i].stage == PL_SLOT_DOWN || d->slots[i].stage == PL_SLOT_UP) {
            return false;
        }
        hosts = hosts || d->slots[i].stage == PL_SLOT_HOSTS;
    }
    return d->stage == PL_STAGED_SEGMENTS && hosts;
}

void pl_segments_cancel(struct pl_staged *d)
{
    for (int i = 0; i < PL_SEGMENT_SLOTS; i++) {
        struct pl_slot *slot = &d->slots[i];

        if (slot->request) {
            pl_request_cancel(slot->request);
            slot->request = NULL;
        }
        pl_device_event_release(PL_TAKE(slot->event));
        *slot = (struct pl_slot){.stage = PL_SLOT_FREE};
    }
}
