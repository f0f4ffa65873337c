/* SPDX-License-Identifier: Apache-2.0 */
/** The state of the backend that moves device memory through the hosts; internal to gpu/. */
#ifndef PL_COLLECTIVES_GPU_SEGMENTS_H
#define PL_COLLECTIVES_GPU_SEGMENTS_H

#include "collectives/core/types.h"
#include "collectives/gpu/compare_calls.h"
#include "collectives/gpu/stream_events.h"

enum {
    PL_STAGED_SLOTS = 4,            /* segments under way: one down, one or two between hosts, one up */
    PL_STAGED_SLOT_BYTES = 2 << 20, /* long enough that launches and flags vanish, and four stay in a CPU's cache */
};

enum pl_staged_stage { PL_STAGED_READY, PL_STAGED_ROLL, PL_STAGED_SHARED, PL_STAGED_LEAVING, PL_STAGED_SEGMENTS };

enum pl_slot_stage { PL_SLOT_FREE, PL_SLOT_DOWN, PL_SLOT_HOSTS, PL_SLOT_UP };

/* Where a segment is. Segment k uses slot k mod PL_STAGED_SLOTS. */
struct pl_slot {
    enum pl_slot_stage stage;
    void *event; /* of a copy down or up */
    struct pl_request *request;
};

struct pl_staged {
    struct pl_world *world;
    struct pl_world *host; /* its host world */
    int rank;
    int size;
    struct pl_rolls rolls;
    struct pl_stream_events down; /* copies to the host, and kernels */
    struct pl_stream_events up;
    struct pl_span staging;
    bool pinned;
    uint64_t *counts; /* [2 * size] scratch */

    /* The collective under way: */
    struct pl_request *request;
    enum pl_staged_stage stage;
    void *event;
    struct pl_roll *roll;
    struct pl_request *leaving;
    struct pl_slot slots[PL_STAGED_SLOTS];
    uint64_t share_elems; /* of each block, in one segment */
    uint64_t segments;
    uint64_t taken_down; /* segments that have begun */
    uint64_t posted;     /* to the hosts */
    uint64_t ended;
};

/** Cut the request into segments. `most_elems`: for ALLTOALL, the longest block of any rank. */
void pl_staged_plan(struct pl_staged *staged, uint64_t most_elems);

enum pl_status pl_staged_progress(struct pl_staged *staged, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

/** Nothing is on its way between device and host. */
bool pl_staged_waits_for_hosts(const struct pl_staged *staged);

void pl_staged_cancel(struct pl_staged *staged);

/** Advance `*request`; when it has ended, well or not, it is released and NULL. */
enum pl_status pl_staged_step(struct pl_request **request, bool *ret_done, struct pl_error *reterr) PL_MUST_CHECK;

#endif
