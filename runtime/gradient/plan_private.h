/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A plan's inside: plan.c is its life, plan_seal.c its seal, plan_layout.c what both need, plan_memory.c where values
 * lie; optimizer and checkpoints use the functions below. Internal to runtime/.
 */
#ifndef PL_RUNTIME_GRADIENT_PLAN_PRIVATE_H
#define PL_RUNTIME_GRADIENT_PLAN_PRIVATE_H

#include "device/device.h"
#include "runtime/plan.h"

struct pl_text;

/**
 * Who takes a plan's gradients in place of an allreduce, a parameter server for one. The world of such a plan has one
 * rank.
 */
struct pl_plan_exchange {
    void *context;
    /** Memory for the gradients of the plan, whose layout is known: [pl_plan_elems()] zeroes. */
    enum pl_status (*allocate)(void *context, float **ret_gradients, struct pl_error *reterr);
    /** All gradients of bucket `bucket` are ready. Called in order. */
    enum pl_status (*start)(void *context, size_t bucket, struct pl_error *reterr);
};

struct pl_plan_entry {
    struct pl_plan_tensor info;
    char *name;
    size_t first_bucket;
    size_t last_bucket;
    bool ready; /* in this step */
};

struct pl_plan_bucket {
    char *name; /* its own, by which compression keeps its residual */
    uint64_t first_elem;
    uint64_t count_elems;
    size_t tensors;             /* in it, whole or in part */
    size_t pending;             /* how many of them are not ready yet */
    struct pl_request *request; /* in device memory it is kept until the bucket starts in the next step */
};

struct pl_plan {
    struct pl_world *world;
    struct pl_device *device; /* NULL: host memory */
    void *copy_event;         /* event after a copy of the values that is under way; NULL: none is */
    void *step_event;         /* device memory without requests: an event after the last step */
    struct pl_plan_options options;
    char *name;
    struct pl_plan_exchange exchange; /* zero: an allreduce over the world */

    struct pl_plan_entry *tensors;
    size_t tensor_count;
    size_t tensor_capacity;

    bool sealed;
    struct pl_span gradients;
    float *values;
    uint64_t elems;
    struct pl_plan_bucket *buckets;
    size_t bucket_count;
    size_t bucket_capacity;

    size_t started; /* buckets of this step */
    size_t ended;
    struct pl_plan_counts counts;
};

/** Append a tensor's name and shape, "'dense.w' [10, 128]". */
void pl_plan_print_tensor(const struct pl_plan_tensor *tensor, struct pl_text *text);

/** Before the plan is sealed. */
void pl_plan_set_exchange(struct pl_plan *plan, const struct pl_plan_exchange *exchange);

/** Undo the layout of a seal, as far as it was made. */
void pl_plan_release_layout(struct pl_plan *plan);

/** Nothing is ready yet. */
void pl_plan_begin_step(struct pl_plan *plan);

/** The tensor at position `place` of the layout: the last one registered comes first. */
static inline size_t pl_plan_tensor_at(const struct pl_plan *plan, size_t place)
{
    return plan->tensor_count - 1 - place;
}

/** Whether buckets are reduced between ranks, and so have requests. In one rank's device memory nothing is. */
bool pl_plan_exchanges(const struct pl_plan *plan);

/** Where the gradient of element `elem` of the layout lies. */
void *pl_plan_gradient_at(const struct pl_plan *plan, uint64_t elem);

/** PL_OK after pl_plan_seal(), else PL_INVALID. */
enum pl_status pl_plan_check_sealed(const struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Wait for buckets from `first` on, for as many as are best processed at once, and set `*ret_end` to the one after the
 * last of them.
 *
 * In host memory that is one bucket, while the next are under way. On a device a launch costs more than a wait gains:
 * all buckets where none is under way any more, else half of those that are left. So the last bucket is processed
 * alone, as soon as it is there, and the others before it.
 */
enum pl_status pl_plan_wait_range(struct pl_plan *plan, size_t first, size_t *ret_end,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Give every rank `root`'s `array`, [pl_plan_elems()] in the plan's kind of memory. Collective. */
enum pl_status pl_plan_broadcast_array(struct pl_plan *plan, float *array, int root,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** A zeroed array like the values: [pl_plan_elems()] in the plan's kind of memory; NULL when there is no room. */
float *pl_plan_new_array(struct pl_plan *plan, struct pl_error *reterr);
void pl_plan_free_array(struct pl_plan *plan, float *array);

/** Copy an array like the values to host memory `to`, or back; returns when that has ended. */
enum pl_status pl_plan_read_array(const struct pl_plan *plan, const float *array, float *to,
                                  struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_plan_write_array(struct pl_plan *plan, float *array, const float *from,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Device memory: values or optimizer arrays are read until `event`, and the stream waits for it before it changes them;
 * NULL: no longer. The event stays the caller's. pl_plan_await_copy() is that wait.
 */
void pl_plan_set_copy_event(struct pl_plan *plan, void *event);
enum pl_status pl_plan_await_copy(struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

#endif
