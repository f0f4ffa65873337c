/* SPDX-License-Identifier: Apache-2.0 */
/** The state of the backend that moves device memory through the hosts; internal to gpu/. */
#ifndef PL_COLLECTIVES_GPU_SEGMENTS_H
#define PL_COLLECTIVES_GPU_SEGMENTS_H

#include "collectives/core/types.h"
#include "collectives/gpu/compare_calls.h"
#include "collectives/gpu/stream_events.h"

enum {
    PL_SEGMENT_SLOTS = 4,            /* segments under way: one down, one or two between hosts, one up */
    PL_SEGMENT_SLOT_BYTES = 2 << 20, /* long enough that launches and flags vanish, and four stay in a CPU's cache */
};

enum pl_host_staged_stage {
    PL_HOST_STAGED_READY,
    PL_HOST_STAGED_COMPARE,
    PL_HOST_STAGED_SHARED,
    PL_HOST_STAGED_LEAVING,
    PL_HOST_STAGED_SEGMENTS
};

enum pl_slot_stage { PL_SLOT_FREE, PL_SLOT_DOWN, PL_SLOT_HOSTS, PL_SLOT_UP };

/* Where a segment is. Segment k uses slot k mod PL_SEGMENT_SLOTS. */
struct pl_slot {
    enum pl_slot_stage stage;
    void *event; /* of a copy down or up */
    struct pl_request *request;
};

struct pl_host_staged {
    struct pl_world *world;
    struct pl_world *host; /* its host world */
    int rank;
    int size;
    struct pl_compare_calls comparisons;
    struct pl_stream_events down; /* copies to the host, and kernels */
    struct pl_stream_events up;
    struct pl_span staging;
    bool pinned;
    uint64_t *counts; /* [2 * size] scratch */

    /* The collective under way: */
    struct pl_request *request;
    enum pl_host_staged_stage stage;
    void *event;
    struct pl_call_comparison *comparison;
    struct pl_request *leaving;
    struct pl_slot slots[PL_SEGMENT_SLOTS];
    uint64_t share_elems; /* of each block, in one segment */
    uint64_t segments;
    uint64_t copied_down; /* segments that have begun */
    uint64_t posted;      /* to the hosts */
    uint64_t ended;
};

/** Cut the request into segments. `most_elems`: for ALLTOALL, the longest block of any rank. */
void pl_segments_plan(struct pl_host_staged *staged, uint64_t most_elems);

enum pl_status pl_segments_progress(struct pl_host_staged *staged, bool *ret_done,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Nothing is on its way between device and host. */
bool pl_segments_wait_for_hosts(const struct pl_host_staged *staged);

void pl_segments_cancel(struct pl_host_staged *staged);

/** Advance `*request`; when it has ended, well or not, it is released and NULL. */
enum pl_status pl_segments_step(struct pl_request **request, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

#endif
