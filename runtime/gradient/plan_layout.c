/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a plan's gradients: their places, the begin of a step, the release. */
#include "base/memory.h"
#include "device/device_private.h"
#include "runtime/gradient/plan_private.h"

#include <stdlib.h>

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
