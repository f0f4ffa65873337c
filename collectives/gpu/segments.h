/* SPDX-License-Identifier: Apache-2.0 */
/** The state of the backend that moves device memory through the hosts. Internal to gpu/. */
#ifndef PL_COLLECTIVES_GPU_SEGMENTS_H
#define PL_COLLECTIVES_GPU_SEGMENTS_H

#include "collectives/core/types.h"
#include "collectives/gpu/compare_calls.h"
#include "collectives/gpu/stream_events.h"

enum {
    PL_SEGMENT_SLOTS = 4,            /* segments under way: one copied down, one or two between hosts, one copied up */
    PL_SEGMENT_SLOT_BYTES = 2 << 20, /* so long that the cost of launches and flags is negligible; four fit in a
                                      * CPU's cache */
};

enum pl_staged_stage { PL_STAGED_BEFORE, PL_STAGED_COMPARE, PL_STAGED_SHARED, PL_STAGED_LEAVING, PL_STAGED_SEGMENTS };

enum pl_slot_stage { PL_SLOT_FREE, PL_SLOT_DOWN, PL_SLOT_HOSTS, PL_SLOT_UP };

/* State of a segment. Segment k uses slot k mod PL_SEGMENT_SLOTS. */
struct pl_slot {
    enum pl_slot_stage stage;
    struct pl_device_event *event; /* event recorded after a copy to or from the host */
    struct pl_request *request;
};

struct pl_staged {
    struct pl_world *world;
    struct pl_world *host; /* host world of `world` */
    int rank;
    int size;
    struct pl_compare_calls comparisons;
    struct pl_stream_events down; /* stream for copies to the host and for kernels */
    struct pl_stream_events up;
    struct pl_span staging;
    bool pinned;
    uint64_t *counts; /* [2 * size]: scratch memory */

    /* The collective under way: */
    struct pl_request *request;
    enum pl_staged_stage stage;
    struct pl_device_event *event;
    struct pl_call_comparison *comparison;
    struct pl_request *leaving;
    struct pl_slot slots[PL_SEGMENT_SLOTS];
    uint64_t share_elems; /* elements of each block in one segment */
    uint64_t segments;
    uint64_t copied_down; /* number of segments whose copy to the host has begun */
    uint64_t posted;      /* number of segments posted to the hosts */
    uint64_t ended;
};

/** Cut the request into segments. `most_elems` is the longest block of any rank, for ALLTOALL only. */
void pl_segments_plan(struct pl_staged *staged, uint64_t most_elems);

enum pl_status pl_segments_progress(struct pl_staged *staged, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

/** Whether segments wait for the hosts and no copy is under way. */
bool pl_segments_wait_for_hosts(const struct pl_staged *staged);

void pl_segments_cancel(struct pl_staged *staged);

/** Advance `*request`. When it has ended, by success or failure, it is released and `*request` is NULL. */
enum pl_status pl_segments_step(struct pl_request **request, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

#endif
