/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a gradient plan: registering tensors, ready gradients, reducing buckets, waiting for them. */
#include "runtime/plan.h"

#include "base/clock.h"
#include "base/knob.h"
#include "base/log.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "device/kernel.h"
#include "runtime/gradient/plan_private.h"

#include <stdlib.h>
#include <string.h>

enum pl_status pl_plan_new(struct pl_world *world, const struct pl_plan_options *options, struct pl_plan **ret_plan,
                           struct pl_error *reterr)
{
    struct pl_plan *plan;

    if (options && options->local && (options->sum || options->wire_flags)) {
        return pl_error_set(reterr, PL_INVALID,
                            "a local plan reduces nothing: sum and wire_flags have no meaning in it");
    }
    PL_TRY(pl_memory_alloc(&plan, 1, sizeof(*plan), reterr));
    plan->world = world;
    plan->options = options ? *options : (struct pl_plan_options){0};
    plan->name = pl_memory_string(plan->options.name ? plan->options.name : "gradients", reterr);
    if (!plan->name) {
        free(plan);
        return PL_MEMORY;
    }
    plan->options.name = plan->name;
    if (plan->options.memory == PL_MEMORY_DEVICE) {
        plan->device = pl_world_device(world);
    }
    if (plan->options.bucket_bytes == 0) {
        plan->options.bucket_bytes = (uint64_t)pl_knob_int(pl_world_knobs(world), PL_KNOB_BUCKET_BYTES);
    }
    *ret_plan = plan;
    return PL_OK;
}

void pl_plan_free(struct pl_plan *plan)
{
    if (!plan) {
        return;
    }
    pl_plan_release_layout(plan);
    for (size_t i = 0; i < plan->tensor_count; i++) {
        free(plan->tensors[i].name);
    }
    free(plan->tensors);
    free(plan->buckets);
    free(plan->name);
    free(plan);
}

void pl_plan_set_exchange(struct pl_plan *plan, const struct pl_plan_exchange *exchange)
{
    PL_BUG_IF(plan->sealed || plan->device || pl_world_size(plan->world) > 1);
    plan->exchange = *exchange;
}

size_t pl_plan_find(const struct pl_plan *plan, const char *name)
{
    size_t index = 0;

    while (index < plan->tensor_count && strcmp(plan->tensors[index].name, name) != 0) {
        index++;
    }
    return index;
}

enum pl_status pl_plan_add(struct pl_plan *plan, const char *name, unsigned dims, const uint64_t *shape,
                           size_t *ret_index, struct pl_error *reterr)
{
    struct pl_plan_entry tensor = {.info = {.dims = dims, .count_elems = 1}};

    if (plan->sealed) {
        return pl_error_set(reterr, PL_INVALID, "%s: '%s' is added after pl_plan_seal()", plan->name, name);
    }
    if (pl_plan_find(plan, name) < plan->tensor_count) {
        return pl_error_set(reterr, PL_INVALID, "%s: two tensors are called '%s'", plan->name, name);
    }
    if (dims > PL_PLAN_MAX_DIMS) {
        return pl_error_set(reterr, PL_INVALID, "%s: '%s' has %u dimensions, at most %d are possible", plan->name, name,
                            dims, PL_PLAN_MAX_DIMS);
    }
    for (unsigned d = 0; d < dims; d++) {
        tensor.info.shape[d] = shape[d];
        if (__builtin_mul_overflow(tensor.info.count_elems, shape[d], &tensor.info.count_elems)) {
            tensor.info.count_elems = 0;
        }
    }
    if (tensor.info.count_elems == 0 || tensor.info.count_elems > UINT64_MAX / 16) {
        return pl_error_set(reterr, PL_INVALID, "%s: '%s' has no elements or too many", plan->name, name);
    }
    PL_TRY(pl_memory_grow(&plan->tensors, &plan->tensor_capacity, plan->tensor_count + 1, sizeof(tensor), reterr));
    tensor.name = pl_memory_string(name, reterr);
    if (!tensor.name) {
        return PL_MEMORY;
    }
    tensor.info.name = tensor.name;
    *ret_index = plan->tensor_count;
    plan->tensors[plan->tensor_count++] = tensor;
    return PL_OK;
}

size_t pl_plan_tensor_count(const struct pl_plan *plan)
{
    return plan->tensor_count;
}

const struct pl_plan_tensor *pl_plan_tensor(const struct pl_plan *plan, size_t index)
{
    PL_BUG_IF(index >= plan->tensor_count);
    return &plan->tensors[index].info;
}

size_t pl_plan_bucket_count(const struct pl_plan *plan)
{
    return plan->bucket_count;
}

float *pl_plan_values(const struct pl_plan *plan)
{
    return plan->values;
}

float *pl_plan_gradients(const struct pl_plan *plan)
{
    return plan->gradients.data;
}

uint64_t pl_plan_elems(const struct pl_plan *plan)
{
    return plan->elems;
}

void pl_plan_bucket(const struct pl_plan *plan, size_t bucket, uint64_t *ret_first, uint64_t *ret_count)
{
    PL_BUG_IF(bucket >= plan->bucket_count);
    *ret_first = plan->buckets[bucket].first_elem;
    *ret_count = plan->buckets[bucket].count_elems;
}

struct pl_world *pl_plan_world(const struct pl_plan *plan)
{
    return plan->world;
}

struct pl_device *pl_plan_device(const struct pl_plan *plan)
{
    return plan->device;
}

struct pl_plan_counts pl_plan_counts(const struct pl_plan *plan)
{
    return plan->counts;
}

/* Waits on the host for the request of bucket `b`, if there is one. */
static enum pl_status end_request(struct pl_plan *plan, size_t b, uint64_t step, struct pl_error *reterr)
{
    struct pl_request *request = PL_TAKE(plan->buckets[b].request);
    enum pl_status status = request ? pl_request_wait(request, reterr) : PL_OK;

    if (status != PL_OK) {
        pl_error_context(reterr, "bucket %zu of %zu of %s, step %llu", b + 1, plan->bucket_count, plan->name,
                         (unsigned long long)step);
    }
    return status;
}

static enum pl_status start_bucket(struct pl_plan *plan, size_t b, struct pl_error *reterr)
{
    const struct pl_plan_options *options = &plan->options;
    void *data = pl_plan_gradient_at(plan, plan->buckets[b].first_elem);

    if (plan->exchange.start) {
        return plan->exchange.start(plan->exchange.context, b, reterr);
    }
    PL_TRY(end_request(plan, b, plan->counts.steps - 1, reterr));
    return pl_collective_post(plan->world,
                              &(struct pl_collective){
                                  .kind = PL_ALLREDUCE,
                                  .dtype = options->gradient_dtype,
                                  .op = options->sum ? PL_SUM : PL_AVERAGE,
                                  .flags = options->wire_flags | PL_AGREED,
                                  .count = plan->buckets[b].count_elems,
                                  .send = data,
                                  .recv = data,
                                  .memory = options->memory,
                                  .stream = options->stream,
                                  .name = plan->buckets[b].name,
                              },
                              &plan->buckets[b].request, reterr);
}

static enum pl_status start_complete(struct pl_plan *plan, struct pl_error *reterr)
{
    while (plan->started < plan->bucket_count && plan->buckets[plan->started].pending == 0) {
        if (pl_plan_exchanges(plan)) {
            PL_TRY(start_bucket(plan, plan->started, reterr));
        }
        plan->started++;
    }
    return PL_OK;
}

static void complete_tensor(struct pl_plan *plan, struct pl_plan_entry *tensor)
{
    tensor->ready = true;
    for (size_t b = tensor->first_bucket; b <= tensor->last_bucket; b++) {
        plan->buckets[b].pending--;
    }
}

/* Checks that `index` is below `count`; `what` is "tensor" or "bucket", for the error. */
static enum pl_status check_index(const struct pl_plan *plan, const char *what, size_t index, size_t count,
                                  struct pl_error *reterr)
{
    PL_TRY(pl_plan_check_sealed(plan, reterr));
    return index < count ? PL_OK
                         : pl_error_set(reterr, PL_INVALID, "%s: no %s %zu, there are %zu, counted from 0", plan->name,
                                        what, index, count);
}

enum pl_status pl_plan_ready(struct pl_plan *plan, size_t index, struct pl_error *reterr)
{
    struct pl_plan_entry *tensor;

    PL_TRY(check_index(plan, "tensor", index, plan->tensor_count, reterr));
    tensor = &plan->tensors[index];
    if (tensor->ready) {
        return pl_error_set(
            reterr, PL_INVALID,
            "%s: '%s' is ready already in this step: by an earlier call, or as zero since its bucket was waited for",
            plan->name, tensor->name);
    }
    complete_tensor(plan, tensor);
    PL_TRY(start_complete(plan, reterr));
    return pl_plan_progress(plan, reterr);
}

enum pl_status pl_plan_progress(struct pl_plan *plan, struct pl_error *reterr)
{
    /*
     * Tests the newest request: testing a completed request would advance nothing, and requests on a device need no
     * tests to advance.
     */
    struct pl_request *newest = plan->ended < plan->started ? plan->buckets[plan->started - 1].request : NULL;
    bool done;

    return newest && !pl_request_launched(newest) ? pl_request_test(newest, &done, reterr) : PL_OK;
}

static enum pl_status zero_gradient(struct pl_plan *plan, const struct pl_plan_entry *tensor, struct pl_error *reterr)
{
    uint64_t bytes = tensor->info.count_elems * pl_dtype_bytes(plan->options.gradient_dtype);

    if (plan->device) {
        return pl_world_check_device(
            plan->world, pl_device_fill(plan->device, tensor->info.gradient, 0, bytes, plan->options.stream, reterr),
            reterr);
    }
    memset(tensor->info.gradient, 0, bytes);
    return PL_OK;
}

/* Marks missing gradients of buckets 0 to `bucket` as ready. They count as zero. */
static enum pl_status complete_missing(struct pl_plan *plan, size_t bucket, struct pl_error *reterr)
{
    for (size_t place = 0; place < plan->tensor_count; place++) {
        struct pl_plan_entry *tensor = &plan->tensors[pl_plan_tensor_at(plan, place)];

        if (tensor->first_bucket > bucket) {
            break;
        }
        if (!tensor->ready) {
            PL_TRY(zero_gradient(plan, tensor, reterr));
            plan->counts.zeroed++;
            complete_tensor(plan, tensor);
        }
    }
    return PL_OK;
}

/*
 * Refuses a captured stream if there is one rank: no collective refuses it then. A CUDA graph would repeat the kernels
 * with this step's rate and number.
 */
static enum pl_status refuse_captured(const struct pl_plan *plan, struct pl_error *reterr)
{
    return plan->device && !pl_plan_exchanges(plan)
               ? pl_device_refuse_captured(plan->device, plan->options.stream, reterr)
               : PL_OK;
}

/* Waits for all requests up to bucket `bucket`: with device memory the stream waits, with host memory the caller. */
static enum pl_status end_buckets(struct pl_plan *plan, size_t bucket, struct pl_error *reterr)
{
    /* requests complete in order: waiting for the last one is enough */
    struct pl_request *last = plan->buckets[bucket].request;

    while (!plan->device && plan->ended <= bucket) {
        PL_TRY(end_request(plan, plan->ended++, plan->counts.steps, reterr));
    }
    if (plan->ended > bucket) {
        return PL_OK;
    }
    if (pl_plan_exchanges(plan)) {
        PL_TRY(last ? pl_request_stream_wait(last, plan->options.stream, reterr) : PL_OK);
    }
    plan->ended = bucket + 1;
    return PL_OK;
}

enum pl_status pl_plan_wait_bucket(struct pl_plan *plan, size_t bucket, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns();

    PL_TRY(check_index(plan, "bucket", bucket, plan->bucket_count, reterr));
    PL_TRY(plan->ended <= bucket ? refuse_captured(plan, reterr) : PL_OK);
    if (plan->started <= bucket) {
        PL_TRY(complete_missing(plan, bucket, reterr));
        PL_TRY(start_complete(plan, reterr));
    }
    PL_TRY(end_buckets(plan, bucket, reterr));
    plan->counts.waited_ns += pl_clock_now_ns() - began_ns;
    return PL_OK;
}

enum pl_status pl_plan_wait_range(struct pl_plan *plan, size_t first, size_t *ret_end, struct pl_error *reterr)
{
    size_t left = plan->bucket_count - first;
    bool on_its_way = pl_plan_exchanges(plan) && plan->ended < plan->bucket_count;

    *ret_end = first + (!plan->device ? 1 : on_its_way ? (left + 1) / 2 : left);
    return pl_plan_wait_bucket(plan, *ret_end - 1, reterr);
}

/* Keeps the host at most one step ahead of the device. Called only if the previous step had no requests that do so. */
static enum pl_status mark_step(struct pl_plan *plan, struct pl_error *reterr)
{
    enum pl_status status =
        pl_device_event_finish(plan->device, plan->step_event, pl_world_deadline_ns(plan->world), reterr);

    if (status != PL_OK) {
        pl_error_context(reterr, "waiting for the end of step %llu of %s", (unsigned long long)plan->counts.steps,
                         plan->name);
        return status;
    }
    return pl_device_event_record(plan->device, plan->step_event, plan->options.stream, reterr);
}

enum pl_status pl_plan_wait(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_TRY(pl_plan_wait_bucket(plan, plan->bucket_count - 1, reterr));
    if (plan->step_event) {
        PL_TRY(pl_world_check_device(plan->world, mark_step(plan, reterr), reterr));
    }
    /* a step without any gradient is allowed, but usually a call was forgotten */
    if (plan->counts.steps == 0 && plan->counts.zeroed == plan->tensor_count) {
        pl_log(PL_LOG_WARNING,
               "%s: no gradient of this rank was ready in the first step, so all count as zero; pl_plan_ready() says "
               "that one is complete",
               plan->name);
    }
    plan->counts.steps++;
    pl_plan_begin_step(plan);
    return PL_OK;
}

enum pl_status pl_plan_finish(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_TRY(pl_plan_check_sealed(plan, reterr));
    if (!plan->device) {
        return PL_OK;
    }
    for (size_t b = 0; b < plan->bucket_count; b++) {
        PL_TRY(end_request(plan, b, plan->counts.steps, reterr));
    }
    return pl_world_check_device(
        plan->world,
        pl_device_stream_finish(plan->device, plan->options.stream, pl_world_deadline_ns(plan->world), reterr), reterr);
}

enum pl_status pl_plan_broadcast(struct pl_plan *plan, int root, struct pl_error *reterr)
{
    PL_TRY(pl_plan_check_sealed(plan, reterr));
    return pl_plan_broadcast_array(plan, plan->values, root, reterr);
}
