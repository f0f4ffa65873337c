/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/plan.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/kernel.h"
#include "runtime/agree.h"
#include "runtime/plan_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_ELEMS = 16 }; /* tensors begin at multiples of 64 bytes */

static enum pl_status check_options(const struct pl_plan_options *options, struct pl_error *reterr)
{
    if (options->local && (options->sum || options->predivide != 0.0 || options->average_passes || options->wire_flags)) {
        return pl_error_set(reterr, PL_INVALID, "a local plan reduces nothing: sum, predivide, average_passes and wire_flags have no meaning in it");
    }
    if (!isfinite(options->predivide) || options->predivide < 0.0) {
        return pl_error_set(reterr, PL_INVALID, "predivide is %g, expected a number above 0, or 0 for none", options->predivide);
    }
    return PL_OK;
}

enum pl_status pl_plan_new(struct pl_world *world, const struct pl_plan_options *options, struct pl_plan **ret_plan, struct pl_error *reterr)
{
    struct pl_plan *plan;

    if (options) {
        PL_TRY(check_options(options, reterr));
    }
    plan = pl_memory_new(1, sizeof(*plan), reterr);
    if (!plan) {
        return PL_MEMORY;
    }
    plan->world = world;
    plan->options = options ? *options : (struct pl_plan_options){0};
    plan->name = pl_memory_string(plan->options.name ? plan->options.name : "gradients", reterr);
    if (!plan->name) {
        free(plan);
        return PL_MEMORY;
    }
    plan->options.name = plan->name;
    if (plan->options.passes_per_step == 0) {
        plan->options.passes_per_step = 1;
    }
    if (plan->options.memory == PL_MEMORY_DEVICE) {
        plan->device = pl_world_device(world);
    }
    if (plan->options.bucket_bytes == 0) {
        plan->options.bucket_bytes = (uint64_t)pl_knob_int(pl_world_knobs(world), PL_KNOB_BUCKET_BYTES);
    }
    *ret_plan = plan;
    return PL_OK;
}

/* Back to before the seal, if it went as far as that. */
static void release_layout(struct pl_plan *plan)
{
    for (size_t b = 0; b < plan->bucket_count; b++) {
        if (plan->buckets[b].request) {
            pl_request_cancel(plan->buckets[b].request);
        }
        free(plan->buckets[b].name);
    }
    plan->bucket_count = 0;
    if (plan->gradients.data) {
        pl_arena_free(plan->world, &plan->gradients);
    }
    pl_plan_free_array(plan, PL_TAKE(plan->values));
    if (plan->step_end) {
        pl_device_event_free(plan->device, PL_TAKE(plan->step_end));
    }
    free(PL_TAKE(plan->order));
    plan->elems = 0;
}

void pl_plan_free(struct pl_plan *plan)
{
    if (!plan) {
        return;
    }
    release_layout(plan);
    for (size_t i = 0; i < plan->tensor_count; i++) {
        free(plan->tensors[i].name);
    }
    free(plan->tensors);
    free(plan->buckets);
    free(plan->name);
    free(plan);
}

size_t pl_plan_find(const struct pl_plan *plan, const char *name)
{
    size_t index = 0;

    while (index < plan->tensor_count && strcmp(plan->tensors[index].name, name) != 0) {
        index++;
    }
    return index;
}

enum pl_status pl_plan_add(struct pl_plan *plan, const char *name, unsigned dims, const uint64_t *shape, size_t *ret_index, struct pl_error *reterr)
{
    struct plan_tensor tensor = {.facts = {.dims = dims, .count_elems = 1}};

    if (plan->sealed) {
        return pl_error_set(reterr, PL_INVALID, "%s: '%s' comes behind the seal", plan->name, name);
    }
    if (pl_plan_find(plan, name) < plan->tensor_count) {
        return pl_error_set(reterr, PL_INVALID, "%s: two tensors are called '%s'", plan->name, name);
    }
    if (dims > PL_PLAN_MAX_DIMS) {
        return pl_error_set(reterr, PL_INVALID, "%s: '%s' has %u dimensions, at most %d are possible", plan->name, name, dims, PL_PLAN_MAX_DIMS);
    }
    for (unsigned d = 0; d < dims; d++) {
        tensor.facts.shape[d] = shape[d];
        if (__builtin_mul_overflow(tensor.facts.count_elems, shape[d], &tensor.facts.count_elems)) {
            tensor.facts.count_elems = 0;
        }
    }
    if (tensor.facts.count_elems == 0 || tensor.facts.count_elems > UINT64_MAX / 16) {
        return pl_error_set(reterr, PL_INVALID, "%s: '%s' has no elements or too many", plan->name, name);
    }
    PL_TRY(pl_memory_grow(&plan->tensors, &plan->tensor_capacity, plan->tensor_count + 1, sizeof(tensor), reterr));
    tensor.name = pl_memory_string(name, reterr);
    if (!tensor.name) {
        return PL_MEMORY;
    }
    tensor.facts.name = tensor.name;
    *ret_index = plan->tensor_count;
    plan->tensors[plan->tensor_count++] = tensor;
    return PL_OK;
}

/* Options and tensors as lines that pl_agree() can compare and show; they lie in `text`. */
static enum pl_status write_lines(const struct pl_plan *plan, struct pl_text *text, const char ***ret_lines, struct pl_error *reterr)
{
    const struct pl_plan_options *options = &plan->options;
    PL_AUTO_FREE const char **lines = pl_memory_new(plan->tensor_count + 1, sizeof(*lines), reterr);

    if (!lines) {
        return PL_MEMORY;
    }
    pl_text_printf(text,
                   "options bucket_bytes=%llu merge_tensors=%u order=%d sum=%d predivide=%g passes_per_step=%u average_passes=%d wire=%u local=%d "
                   "memory=%d gradient=%s",
                   (unsigned long long)options->bucket_bytes, options->merge_tensors, (int)options->order, (int)options->sum, options->predivide,
                   options->passes_per_step, (int)options->average_passes, options->wire_flags, (int)options->local, (int)options->memory,
                   pl_dtype_text(options->gradient_dtype));
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const struct pl_plan_tensor *facts = &plan->tensors[i].facts;

        pl_text_append_char(text, '\0');
        pl_text_printf(text, "'%s' [", facts->name);
        for (unsigned d = 0; d < facts->dims; d++) {
            pl_text_printf(text, "%s%llu", d > 0 ? ", " : "", (unsigned long long)facts->shape[d]);
        }
        pl_text_append(text, "]");
    }
    PL_TRY(pl_text_check(text, reterr));
    lines[0] = text->data;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        lines[i + 1] = lines[i] + strlen(lines[i]) + 1;
    }
    *ret_lines = PL_TAKE(lines);
    return PL_OK;
}

static enum pl_status add_bucket(struct pl_plan *plan, uint64_t first, uint64_t end, struct pl_error *reterr)
{
    struct plan_bucket bucket = {.first_elem = first, .count_elems = end - first};
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    PL_TRY(pl_memory_grow(&plan->buckets, &plan->bucket_capacity, plan->bucket_count + 1, sizeof(*plan->buckets), reterr));
    pl_text_printf(&name, "%s.%zu", plan->name, plan->bucket_count);
    PL_TRY(pl_text_take(&name, &bucket.name, reterr));
    plan->buckets[plan->bucket_count++] = bucket;
    return PL_OK;
}

/* Cut [first, end) into buckets of the wanted size; a rest below half of that goes to the one before it. */
static enum pl_status cut(struct pl_plan *plan, uint64_t first, uint64_t end, struct pl_error *reterr)
{
    uint64_t want = plan->options.bucket_bytes / pl_dtype_bytes(plan->options.gradient_dtype) / ALIGN_ELEMS * ALIGN_ELEMS;

    want = want < ALIGN_ELEMS ? ALIGN_ELEMS : want;
    while (end - first > want + want / 2) {
        PL_TRY(add_bucket(plan, first, first + want, reterr));
        first += want;
    }
    return add_bucket(plan, first, end, reterr);
}

static enum pl_status lay_out(struct pl_plan *plan, struct pl_error *reterr)
{
    unsigned merge = plan->options.merge_tensors;
    uint64_t cut_at = 0;

    plan->order = pl_memory_new(plan->tensor_count, sizeof(*plan->order), reterr);
    if (!plan->order) {
        return PL_MEMORY;
    }
    for (size_t place = 0; place < plan->tensor_count; place++) {
        size_t index = plan->options.order == PL_PLAN_FORWARD ? place : plan->tensor_count - 1 - place;
        struct pl_plan_tensor *facts = &plan->tensors[index].facts;

        plan->order[place] = index;
        facts->offset_elems = plan->elems;
        plan->elems += (facts->count_elems + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
        if (place + 1 == plan->tensor_count || (merge > 0 && (place + 1) % merge == 0)) {
            PL_TRY(cut(plan, cut_at, plan->elems, reterr));
            cut_at = plan->elems;
        }
    }
    for (size_t place = 0, b = 0; place < plan->tensor_count; place++) {
        struct plan_tensor *tensor = &plan->tensors[plan->order[place]];
        uint64_t end = tensor->facts.offset_elems + tensor->facts.count_elems;

        while (plan->buckets[b].first_elem + plan->buckets[b].count_elems <= tensor->facts.offset_elems) {
            b++;
        }
        tensor->first_bucket = b;
        while (plan->buckets[b].first_elem + plan->buckets[b].count_elems < end) {
            b++;
        }
        tensor->last_bucket = b;
        for (size_t i = tensor->first_bucket; i <= b; i++) {
            plan->buckets[i].tensors++;
        }
        b = tensor->last_bucket;
    }
    return PL_OK;
}

static void begin_step(struct pl_plan *plan)
{
    for (size_t i = 0; i < plan->tensor_count; i++) {
        plan->tensors[i].passes = 0;
    }
    for (size_t b = 0; b < plan->bucket_count; b++) {
        plan->buckets[b].pending = plan->buckets[b].tensors;
    }
    plan->started = 0;
    plan->ended = 0;
}

static enum pl_status check(const struct pl_plan *plan, struct pl_error *reterr)
{
    const struct pl_plan_options *options = &plan->options;

    if (plan->tensor_count == 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: pl_plan_seal() of a plan without tensors", plan->name);
    }
    if (options->memory != PL_MEMORY_HOST && options->memory != PL_MEMORY_DEVICE) {
        return pl_error_set(reterr, PL_INVALID, "%s: a plan lies in host or device memory", plan->name);
    }
    if (options->memory == PL_MEMORY_DEVICE && !plan->device) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s: device memory is asked for, but this world has no device", plan->name);
    }
    if (options->gradient_dtype != PL_FLOAT32 &&
        (!plan->device || pl_dtype_bytes(options->gradient_dtype) != sizeof(uint16_t) || !pl_dtype_is_float(options->gradient_dtype))) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s: gradients of %s: float32, and in device memory float16 and bfloat16, are possible",
                            plan->name, pl_dtype_text(options->gradient_dtype));
    }
    return PL_OK;
}

/* All ranks have the same options and tensors, and each can go on. */
static enum pl_status agree(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE const char **lines = NULL;
    struct pl_error own = PL_ERROR_NONE;

    own.status = check(plan, &own);
    if (own.status == PL_OK) {
        own.status = write_lines(plan, &text, &lines, &own);
    }
    return pl_agree(plan->world, plan->name, &own, lines, plan->tensor_count + 1, reterr);
}

/* Buckets travel, and so have requests. Of one rank's device memory nothing does: all that is left of a reduction is its factors. */
static bool exchanges(const struct pl_plan *plan)
{
    return !plan->options.local && (!plan->device || pl_world_size(plan->world) > 1);
}

/* What each rank takes for itself. */
static enum pl_status take_own(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_TRY(lay_out(plan, reterr));
    if (plan->device && !exchanges(plan)) {
        PL_TRY(pl_device_event_new(plan->device, false, &plan->step_end, reterr));
    }
    plan->values = pl_plan_new_array(plan, reterr);
    return plan->values ? PL_OK : PL_MEMORY;
}

/* On every rank or on none: one that found no room has the others hear of it before they wait for it in the arena. */
static enum pl_status allocate(struct pl_plan *plan, struct pl_error *reterr)
{
    struct pl_error own = PL_ERROR_NONE;

    own.status = take_own(plan, &own);
    PL_TRY(pl_agree(plan->world, plan->name, &own, NULL, 0, reterr));
    return pl_arena_alloc(plan->world, plan->elems * pl_dtype_bytes(plan->options.gradient_dtype), plan->options.memory, &plan->gradients, reterr);
}

/* Where the gradient of element `elem` of the layout lies. */
static void *gradient_at(const struct pl_plan *plan, uint64_t elem)
{
    return (char *)plan->gradients.data + elem * pl_dtype_bytes(plan->options.gradient_dtype);
}

enum pl_status pl_plan_seal(struct pl_plan *plan, struct pl_error *reterr)
{
    enum pl_status status;

    if (plan->sealed) {
        return pl_error_set(reterr, PL_INVALID, "%s: pl_plan_seal() of a plan that is sealed", plan->name);
    }
    PL_TRY(agree(plan, reterr));
    status = allocate(plan, reterr);
    if (status != PL_OK) {
        release_layout(plan); /* the program may make room and call again */
        return status;
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        struct pl_plan_tensor *facts = &plan->tensors[i].facts;

        facts->value = plan->values + facts->offset_elems;
        facts->gradient = gradient_at(plan, facts->offset_elems);
    }
    plan->sealed = true;
    begin_step(plan);
    return PL_OK;
}

enum pl_status pl_plan_check_sealed(const struct pl_plan *plan, struct pl_error *reterr)
{
    return plan->sealed ? PL_OK : pl_error_set(reterr, PL_INVALID, "%s: pl_plan_seal() comes first", plan->name);
}

size_t pl_plan_tensor_count(const struct pl_plan *plan)
{
    return plan->tensor_count;
}

const struct pl_plan_tensor *pl_plan_tensor(const struct pl_plan *plan, size_t index)
{
    PL_BUG_IF(index >= plan->tensor_count);
    return &plan->tensors[index].facts;
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

void *pl_plan_stream(const struct pl_plan *plan)
{
    return plan->options.stream;
}

enum pl_dtype pl_plan_gradient_dtype(const struct pl_plan *plan)
{
    return plan->options.gradient_dtype;
}

struct pl_plan_counts pl_plan_counts(const struct pl_plan *plan)
{
    return plan->counts;
}

/* Wait on the host for the request of bucket `b`, if it has one. */
static enum pl_status end_request(struct pl_plan *plan, size_t b, uint64_t step, struct pl_error *reterr)
{
    struct pl_request *request = PL_TAKE(plan->buckets[b].request);
    enum pl_status status = request ? pl_request_wait(request, reterr) : PL_OK;

    if (status != PL_OK) {
        pl_error_context(reterr, "bucket %zu of %zu of %s, step %llu", b + 1, plan->bucket_count, plan->name, (unsigned long long)step);
    }
    return status;
}

/* How buckets `first` to `end` - 1 are reduced. */
static struct pl_collective describe_reduction(const struct pl_plan *plan, size_t first, size_t end)
{
    const struct pl_plan_options *options = &plan->options;
    uint64_t first_elem = plan->buckets[first].first_elem;
    void *data = gradient_at(plan, first_elem);
    double passes = options->average_passes ? (double)options->passes_per_step : 1.0;
    struct pl_collective collective = {
        .kind = PL_ALLREDUCE,
        .dtype = options->gradient_dtype,
        .op = options->sum || options->predivide > 0.0 ? PL_SUM : PL_AVERAGE,
        .flags = options->wire_flags | PL_AGREED,
        .prescale = 1.0,
        .postscale = 1.0 / passes,
        .count = plan->buckets[end - 1].first_elem + plan->buckets[end - 1].count_elems - first_elem,
        .send = data,
        .recv = data,
        .memory = options->memory,
        .stream = options->stream,
        .name = plan->buckets[first].name,
    };

    if (options->predivide > 0.0) {
        collective.prescale = 1.0 / options->predivide;
        collective.postscale = options->predivide / passes / (options->sum ? 1.0 : (double)pl_world_size(plan->world));
    }
    collective.scaled = options->predivide > 0.0 || options->average_passes;
    return collective;
}

static enum pl_status start_bucket(struct pl_plan *plan, size_t b, struct pl_error *reterr)
{
    struct pl_collective collective = describe_reduction(plan, b, b + 1);

    PL_TRY(end_request(plan, b, plan->counts.steps - 1, reterr));
    return pl_collective_post(plan->world, &collective, &plan->buckets[b].request, reterr);
}

/* What a reduction is for one rank alone, for adjacent buckets at once. */
static enum pl_status scale_buckets(struct pl_plan *plan, size_t first, size_t end, struct pl_error *reterr)
{
    struct pl_collective c = describe_reduction(plan, first, end);

    if (c.prescale == 1.0 && c.postscale == 1.0) {
        return PL_OK;
    }
    return pl_world_check_device(
        plan->world, pl_device_reduce(plan->device, c.recv, &c.send, 1, c.count, c.dtype, c.op, 1, c.prescale, c.postscale, c.stream, reterr),
        reterr);
}

static enum pl_status start_complete(struct pl_plan *plan, struct pl_error *reterr)
{
    while (plan->started < plan->bucket_count && plan->buckets[plan->started].pending == 0) {
        if (exchanges(plan)) {
            PL_TRY(start_bucket(plan, plan->started, reterr));
        }
        plan->started++;
    }
    return PL_OK;
}

static void complete_tensor(struct pl_plan *plan, struct plan_tensor *tensor)
{
    for (size_t b = tensor->first_bucket; b <= tensor->last_bucket; b++) {
        plan->buckets[b].pending--;
    }
}

/* `what` is a tensor or a bucket, of which there are `count`. */
static enum pl_status check_index(const struct pl_plan *plan, const char *what, size_t index, size_t count, struct pl_error *reterr)
{
    PL_TRY(pl_plan_check_sealed(plan, reterr));
    return index < count ? PL_OK : pl_error_set(reterr, PL_INVALID, "%s: no %s %zu, there are %zu, counted from 0", plan->name, what, index, count);
}

enum pl_status pl_plan_ready(struct pl_plan *plan, size_t index, struct pl_error *reterr)
{
    struct plan_tensor *tensor;

    PL_TRY(check_index(plan, "tensor", index, plan->tensor_count, reterr));
    tensor = &plan->tensors[index];
    if (tensor->passes >= plan->options.passes_per_step) {
        return pl_error_set(reterr, PL_INVALID, "%s: '%s' was ready %u times in this step, passes_per_step is %u (wait for the step first)",
                            plan->name, tensor->name, tensor->passes + 1, plan->options.passes_per_step);
    }
    tensor->passes++;
    if (tensor->passes < plan->options.passes_per_step) {
        return PL_OK;
    }
    complete_tensor(plan, tensor);
    PL_TRY(start_complete(plan, reterr));
    return pl_plan_progress(plan, reterr);
}

bool pl_plan_accumulates(const struct pl_plan *plan, size_t index)
{
    PL_BUG_IF(index >= plan->tensor_count);
    return plan->tensors[index].passes > 0;
}

enum pl_status pl_plan_progress(struct pl_plan *plan, struct pl_error *reterr)
{
    /* The newest, since testing one that has ended advances nothing; and what is with the device advances by itself. */
    struct pl_request *newest = plan->ended < plan->started ? plan->buckets[plan->started - 1].request : NULL;
    bool done;

    return newest && !pl_request_launched(newest) ? pl_request_test(newest, &done, reterr) : PL_OK;
}

static enum pl_status zero_gradient(struct pl_plan *plan, const struct plan_tensor *tensor, struct pl_error *reterr)
{
    uint64_t bytes = tensor->facts.count_elems * pl_dtype_bytes(plan->options.gradient_dtype);

    if (plan->device) {
        return pl_world_check_device(plan->world, pl_device_fill(plan->device, tensor->facts.gradient, 0, bytes, plan->options.stream, reterr),
                                     reterr);
    }
    memset(tensor->facts.gradient, 0, bytes);
    return PL_OK;
}

/* Whatever of buckets 0..bucket is missing counts as zero from now on. */
static enum pl_status complete_missing(struct pl_plan *plan, size_t bucket, struct pl_error *reterr)
{
    for (size_t place = 0; place < plan->tensor_count; place++) {
        struct plan_tensor *tensor = &plan->tensors[plan->order[place]];

        if (tensor->first_bucket > bucket) {
            break;
        }
        if (tensor->passes == plan->options.passes_per_step) {
            continue;
        }
        if (tensor->passes == 0) {
            PL_TRY(zero_gradient(plan, tensor, reterr));
            plan->counts.zeroed++;
        }
        tensor->passes = plan->options.passes_per_step;
        complete_tensor(plan, tensor);
    }
    return PL_OK;
}

/* All that has not ended up to bucket `bucket`: in device memory the stream waits, on the host we do. */
static enum pl_status end_buckets(struct pl_plan *plan, size_t bucket, struct pl_error *reterr)
{
    struct pl_request *last = plan->buckets[bucket].request; /* requests run in order: it stands for those before it */

    while (!plan->device && plan->ended <= bucket) {
        PL_TRY(end_request(plan, plan->ended++, plan->counts.steps, reterr));
    }
    if (plan->ended > bucket) {
        return PL_OK;
    }
    if (exchanges(plan)) {
        PL_TRY(last ? pl_request_order(last, plan->options.stream, reterr) : PL_OK);
    } else if (!plan->options.local) {
        PL_TRY(scale_buckets(plan, plan->ended, bucket + 1, reterr));
    }
    plan->ended = bucket + 1;
    return PL_OK;
}

enum pl_status pl_plan_wait_bucket(struct pl_plan *plan, size_t bucket, struct pl_error *reterr)
{
    int64_t began_ns = pl_clock_now_ns();

    PL_TRY(check_index(plan, "bucket", bucket, plan->bucket_count, reterr));
    if (plan->started <= bucket) {
        PL_TRY(complete_missing(plan, bucket, reterr));
        PL_TRY(start_complete(plan, reterr));
    }
    PL_TRY(end_buckets(plan, bucket, reterr));
    plan->counts.waited_ns += pl_clock_now_ns() - began_ns;
    return PL_OK;
}

enum pl_status pl_plan_wait_some(struct pl_plan *plan, size_t first, size_t *ret_end, struct pl_error *reterr)
{
    size_t left = plan->bucket_count - first;
    bool on_its_way = exchanges(plan) && plan->ended < plan->bucket_count;

    *ret_end = first + (!plan->device ? 1 : on_its_way ? (left + 1) / 2 : left);
    return pl_plan_wait_bucket(plan, *ret_end - 1, reterr);
}

/* Let the host be at most one step ahead, where no request of the step before tells how far the device is. */
static enum pl_status mark_step(struct pl_plan *plan, struct pl_error *reterr)
{
    enum pl_status status = pl_device_event_finish(plan->device, plan->step_end, pl_world_deadline_ns(plan->world), reterr);

    if (status != PL_OK) {
        pl_error_context(reterr, "waiting for the end of step %llu of %s", (unsigned long long)plan->counts.steps, plan->name);
        return status;
    }
    return pl_device_event_record(plan->device, plan->step_end, plan->options.stream, reterr);
}

enum pl_status pl_plan_wait(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_TRY(pl_plan_wait_bucket(plan, plan->bucket_count - 1, reterr));
    if (plan->step_end) {
        PL_TRY(pl_world_check_device(plan->world, mark_step(plan, reterr), reterr));
    }
    if (plan->counts.steps == 0 && plan->counts.zeroed == plan->tensor_count) { /* allowed, but mostly a call that was forgotten */
        pl_log(PL_LOG_WARNING,
               "%s: no gradient of this rank was ready in the first step, so all count as zero; pl_plan_ready() says that one is complete",
               plan->name);
    }
    plan->counts.steps++;
    begin_step(plan);
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
    return pl_world_check_device(plan->world, pl_device_stream_finish(plan->device, plan->options.stream, pl_world_deadline_ns(plan->world), reterr),
                                 reterr);
}

enum pl_status pl_plan_broadcast(struct pl_plan *plan, int root, struct pl_error *reterr)
{
    PL_TRY(pl_plan_check_sealed(plan, reterr));
    return pl_plan_broadcast_array(plan, plan->values, root, reterr);
}
