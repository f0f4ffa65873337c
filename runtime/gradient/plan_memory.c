/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a plan, and arrays that have it, in host or device memory. */
#include "base/memory.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/gradient/plan_private.h"

#include <stdlib.h>
#include <string.h>

float *pl_plan_new_array(struct pl_plan *plan, struct pl_error *reterr)
{
    void *array = NULL;

    if (!plan->device) {
        return pl_memory_new_aligned(plan->elems, sizeof(float), 4096, reterr);
    }
    return pl_device_alloc(plan->device, plan->elems * sizeof(float), &array, reterr) == PL_OK ? array : NULL;
}

void pl_plan_free_array(struct pl_plan *plan, float *array)
{
    if (!plan->device) {
        free(pl_world_has_leaked(plan->world) ? NULL : array);
    } else if (array) {
        pl_device_release(plan->device, array);
    }
}

/* Copies, and waits for the end of the copy. */
static enum pl_status copy_now(const struct pl_plan *plan, void *to, const void *from, struct pl_error *reterr)
{
    uint64_t bytes = plan->elems * sizeof(float);

    if (!plan->device) {
        memcpy(to, from, bytes);
        return PL_OK;
    }
    return pl_device_copy_now(plan->device, to, from, bytes, plan->options.stream, pl_world_deadline_ns(plan->world),
                              reterr);
}

enum pl_status pl_plan_read_array(const struct pl_plan *plan, const float *array, float *to, struct pl_error *reterr)
{
    return copy_now(plan, to, array, reterr);
}

enum pl_status pl_plan_write_array(struct pl_plan *plan, float *array, const float *from, struct pl_error *reterr)
{
    PL_TRY(pl_plan_await_copy(plan, reterr));
    return copy_now(plan, array, from, reterr);
}

void pl_plan_set_copy_event(struct pl_plan *plan, void *event)
{
    plan->copy_event = event;
}

enum pl_status pl_plan_await_copy(struct pl_plan *plan, struct pl_error *reterr)
{
    void *copy_event = PL_TAKE(plan->copy_event);

    return copy_event ? pl_device_stream_wait(plan->device, plan->options.stream, copy_event, reterr) : PL_OK;
}

enum pl_status pl_plan_broadcast_array(struct pl_plan *plan, float *array, int root, struct pl_error *reterr)
{
    struct pl_collective collective = {
        .kind = PL_BROADCAST,
        .dtype = PL_FLOAT32,
        .root = root,
        .count = plan->elems,
        .recv = array,
        .memory = plan->options.memory,
        .stream = plan->options.stream,
        .name = plan->name,
    };

    PL_BUG_IF(!plan->sealed);
    PL_TRY(pl_plan_await_copy(plan, reterr));
    return pl_collective_run(plan->world, &collective, reterr);
}

bool pl_plan_exchanges(const struct pl_plan *plan)
{
    return !plan->options.local && (!plan->device || pl_world_size(plan->world) > 1);
}

void *pl_plan_gradient_at(const struct pl_plan *plan, uint64_t elem)
{
    return (char *)plan->gradients.data + elem * pl_dtype_bytes(plan->options.gradient_dtype);
}

enum pl_status pl_plan_check_sealed(const struct pl_plan *plan, struct pl_error *reterr)
{
    return plan->sealed ? PL_OK : pl_error_set(reterr, PL_INVALID, "%s: pl_plan_seal() comes first", plan->name);
}

void pl_plan_begin_step(struct pl_plan *plan)
{
    for (size_t i = 0; i < plan->tensor_count; i++) {
        plan->tensors[i].ready = false;
    }
    for (size_t b = 0; b < plan->bucket_count; b++) {
        plan->buckets[b].pending = plan->buckets[b].tensors;
    }
    plan->started = 0;
    plan->ended = 0;
}

void pl_plan_release_layout(struct pl_plan *plan)
{
    for (size_t b = 0; b < plan->bucket_count; b++) {
        if (plan->buckets[b].request) {
            pl_request_cancel(plan->buckets[b].request);
        }
        free(plan->buckets[b].name);
    }
    plan->bucket_count = 0;
    if (plan->exchange.allocate) {
        plan->gradients.data = NULL; /* the memory belongs to the exchange */
    } else if (plan->gradients.data) {
        pl_arena_free(plan->world, &plan->gradients);
    }
    pl_plan_free_array(plan, PL_TAKE(plan->values));
    if (plan->step_event) {
        pl_device_event_free(plan->device, PL_TAKE(plan->step_event));
    }
    plan->elems = 0;
}
