/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals a plan: compares it over the ranks, gives tensors their offsets and buckets, and allocates memory on all ranks
 * or on none. Also arrays with the layout of the values, and copies of them.
 */
#include "base/memory.h"

#include "base/text.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/compare_lines.h"
#include "runtime/gradient/plan_private.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_ELEMS = 16 }; /* tensors begin at multiples of 64 bytes */

void pl_plan_print_tensor(const struct pl_plan_tensor *tensor, struct pl_text *text)
{
    pl_text_printf(text, "'%s' [", tensor->name);
    for (unsigned d = 0; d < tensor->dims; d++) {
        pl_text_printf(text, "%s%llu", d > 0 ? ", " : "", (unsigned long long)tensor->shape[d]);
    }
    pl_text_append(text, "]");
}

/* Prints options and tensors into `text` as lines; `*ret_lines` points to them, for pl_compare_lines(). */
static enum pl_status write_lines(const struct pl_plan *plan, struct pl_text *text, const char ***ret_lines,
                                  struct pl_error *reterr)
{
    const struct pl_plan_options *options = &plan->options;
    PL_AUTO_FREE const char **lines = NULL;

    PL_TRY(pl_memory_alloc(&lines, plan->tensor_count + 1, sizeof(*lines), reterr));
    pl_text_printf(text, "options bucket_bytes=%llu sum=%d wire=%u local=%d memory=%d gradient=%s",
                   (unsigned long long)options->bucket_bytes, (int)options->sum, options->wire_flags,
                   (int)options->local, (int)options->memory, pl_dtype_text(options->gradient_dtype));
    for (size_t i = 0; i < plan->tensor_count; i++) {
        pl_text_append_char(text, '\0');
        pl_plan_print_tensor(&plan->tensors[i].info, text);
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
    struct pl_plan_bucket bucket = {.first_elem = first, .count_elems = end - first};
    PL_AUTO_TEXT struct pl_text name = PL_TEXT_NONE;

    PL_TRY(
        pl_memory_grow(&plan->buckets, &plan->bucket_capacity, plan->bucket_count + 1, sizeof(*plan->buckets), reterr));
    pl_text_printf(&name, "%s.%zu", plan->name, plan->bucket_count);
    PL_TRY(pl_text_take(&name, &bucket.name, reterr));
    plan->buckets[plan->bucket_count++] = bucket;
    return PL_OK;
}

/* Cuts buckets of the wanted size. If the last one would be below half of that size, it joins the bucket before it. */
static enum pl_status cut(struct pl_plan *plan, struct pl_error *reterr)
{
    uint64_t want =
        plan->options.bucket_bytes / pl_dtype_bytes(plan->options.gradient_dtype) / ALIGN_ELEMS * ALIGN_ELEMS;
    uint64_t first = 0;

    want = want < ALIGN_ELEMS ? ALIGN_ELEMS : want;
    while (plan->elems - first > want + want / 2) {
        PL_TRY(add_bucket(plan, first, first + want, reterr));
        first += want;
    }
    return add_bucket(plan, first, plan->elems, reterr);
}

/* Gives tensors their offsets, in the order of the layout. */
static enum pl_status place_tensors(struct pl_plan *plan, struct pl_error *reterr)
{
    for (size_t place = 0; place < plan->tensor_count; place++) {
        struct pl_plan_tensor *info = &plan->tensors[pl_plan_tensor_at(plan, place)].info;

        info->offset_elems = plan->elems;
        plan->elems += (info->count_elems + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
        if (plan->elems > PTRDIFF_MAX / sizeof(float)) {
            return pl_error_set(reterr, PL_MEMORY, "%s: the tensors up to '%s' have more elements than memory can hold",
                                plan->name, info->name);
        }
    }
    return PL_OK;
}

static enum pl_status cut_buckets(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_TRY(cut(plan, reterr));
    for (size_t place = 0, b = 0; place < plan->tensor_count; place++) {
        struct pl_plan_entry *tensor = &plan->tensors[pl_plan_tensor_at(plan, place)];
        uint64_t end = tensor->info.offset_elems + tensor->info.count_elems;

        while (plan->buckets[b].first_elem + plan->buckets[b].count_elems <= tensor->info.offset_elems) {
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
    }
    return PL_OK;
}

static enum pl_status check(const struct pl_plan *plan, struct pl_error *reterr)
{
    const struct pl_plan_options *options = &plan->options;

    if (plan->tensor_count == 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: cannot seal a plan without tensors", plan->name);
    }
    if ((options->wire_flags & ~(unsigned)PL_WIRES) != 0 || (options->wire_flags & (options->wire_flags - 1)) != 0) {
        return pl_error_set(reterr, PL_INVALID, "%s: wire_flags is 0x%x, expected 0 or one of the PL_WIRE_ flags",
                            plan->name, options->wire_flags);
    }
    if (options->memory != PL_MEMORY_HOST && options->memory != PL_MEMORY_DEVICE) {
        return pl_error_set(reterr, PL_INVALID, "%s: a plan can only be in host or device memory", plan->name);
    }
    if (options->memory == PL_MEMORY_DEVICE && !plan->device) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "%s: device memory is asked for, but this world has no device",
                            plan->name);
    }
    if (options->gradient_dtype != PL_FLOAT32 &&
        (!plan->device || pl_dtype_bytes(options->gradient_dtype) != sizeof(uint16_t) ||
         !pl_dtype_is_float(options->gradient_dtype))) {
        return pl_error_set(reterr, PL_UNSUPPORTED,
                            "%s: gradients cannot be %s: expected float32, or float16 or bfloat16 in device memory",
                            plan->name, pl_dtype_text(options->gradient_dtype));
    }
    return PL_OK;
}

/* Checks that all ranks have the same options and tensors, and that no rank has failed. */
static enum pl_status compare_ranks(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_FREE const char **lines = NULL;
    struct pl_error own = PL_ERROR_NONE;

    own.status = check(plan, &own);
    if (own.status == PL_OK) {
        own.status = write_lines(plan, &text, &lines, &own);
    }
    return pl_compare_lines(plan->world, plan->name, &own, lines, plan->tensor_count + 1, reterr);
}

/* Allocates the memory that each rank has for itself. */
static enum pl_status take_own(struct pl_plan *plan, struct pl_error *reterr)
{
    PL_TRY(place_tensors(plan, reterr));
    if (plan->device && !pl_plan_exchanges(plan)) {
        PL_TRY(pl_device_event_new(plan->device, false, &plan->step_event, reterr));
    }
    plan->values = pl_plan_new_array(plan, reterr);
    if (!plan->values) {
        return PL_MEMORY;
    }
    /* after the arrays: if they do not fit, a list of their buckets could use up the memory */
    return cut_buckets(plan, reterr);
}

/* Allocates on all ranks or on none. A rank without memory reports that before the others wait in the arena. */
static enum pl_status allocate(struct pl_plan *plan, struct pl_error *reterr)
{
    struct pl_error own = PL_ERROR_NONE;

    own.status = take_own(plan, &own);
    PL_TRY(pl_compare_lines(plan->world, plan->name, &own, NULL, 0, reterr));
    if (plan->exchange.allocate) {
        float *gradients = NULL;

        PL_TRY(plan->exchange.allocate(plan->exchange.context, &gradients, reterr));
        plan->gradients.data = gradients;
        return PL_OK;
    }
    return pl_arena_alloc(plan->world, plan->elems * pl_dtype_bytes(plan->options.gradient_dtype), plan->options.memory,
                          &plan->gradients, reterr);
}

enum pl_status pl_plan_seal(struct pl_plan *plan, struct pl_error *reterr)
{
    enum pl_status status;

    if (plan->sealed) {
        return pl_error_set(reterr, PL_INVALID, "%s: the plan is sealed already", plan->name);
    }
    PL_TRY(compare_ranks(plan, reterr));
    status = allocate(plan, reterr);
    if (status != PL_OK) {
        pl_plan_release_layout(plan); /* the program may free memory and seal again */
        return status;
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        struct pl_plan_tensor *info = &plan->tensors[i].info;

        info->value = plan->values + info->offset_elems;
        info->gradient = pl_plan_gradient_at(plan, info->offset_elems);
    }
    plan->sealed = true;
    pl_plan_begin_step(plan);
    return PL_OK;
}

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
