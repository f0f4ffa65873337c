/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The private parts of a plan: plan.c is its life, plan_seal.c its seal, with layout and memory of the values.
 * Optimizer and checkpoints use the functions below. Internal to runtime/.
 */
#ifndef PL_RUNTIME_GRADIENT_PLAN_PRIVATE_H
#define PL_RUNTIME_GRADIENT_PLAN_PRIVATE_H

#include "device/device.h"
#include "runtime/plan.h"

struct pl_text;

/**
 * Replaces the allreduce of a plan's gradients, for example by a parameter server. The world of such a plan has one
 * rank.
 */
struct pl_plan_exchange {
    void *context;
    /** Allocates [pl_plan_elems()] zeroes for the gradients of a plan whose layout is known. */
    enum pl_status (*allocate)(void *context, float **ret_gradients, struct pl_error *reterr);
    /** Called in order, when all gradients of bucket `bucket` are ready. */
    enum pl_status (*start)(void *context, size_t bucket, struct pl_error *reterr);
};

struct pl_plan_entry {
    struct pl_plan_tensor info;
    char *name;
    size_t first_bucket;
    size_t last_bucket;
    bool ready; /* its gradient is ready in this step */
};

struct pl_plan_bucket {
    char *name; /* unique name, under which compression keeps its residual */
    uint64_t first_elem;
    uint64_t count_elems;
    size_t tensors;             /* number of tensors that lie in it, whole or in part */
    size_t pending;             /* number of these that are not ready yet */
    struct pl_request *request; /* in device memory it is kept until the bucket starts in the next step */
};

struct pl_plan {
    struct pl_world *world;
    struct pl_device *device; /* NULL in host memory */
    void *copy_event;         /* event at the end of a copy of the values; NULL if no copy is in flight */
    void *step_event;         /* device memory without requests: event after the last step */
    struct pl_plan_options options;
    char *name;
    struct pl_plan_exchange exchange; /* all zero: an allreduce over the world */

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

    size_t started; /* number of buckets that are started in this step */
    size_t ended;
    struct pl_plan_counts counts;
};

/** Appends a tensor's name and shape, "'dense.w' [10, 128]". */
void pl_plan_print_tensor(const struct pl_plan_tensor *tensor, struct pl_text *text);

/** Must be called before the plan is sealed. */
void pl_plan_set_exchange(struct pl_plan *plan, const struct pl_plan_exchange *exchange);

/** Releases the layout of a seal, also of one that failed half-way. */
void pl_plan_release_layout(struct pl_plan *plan);

/** Begins a step: no gradient is ready. */
void pl_plan_begin_step(struct pl_plan *plan);

/** Returns the tensor at position `place` of the layout: the tensor that was registered last comes first. */
static inline size_t pl_plan_tensor_at(const struct pl_plan *plan, size_t place)
{
    return plan->tensor_count - 1 - place;
}

/** Whether buckets are reduced between ranks and so have requests. This is false for one rank with device memory. */
bool pl_plan_exchanges(const struct pl_plan *plan);

/** Returns where the gradient of element `elem` of the layout lies. */
void *pl_plan_gradient_at(const struct pl_plan *plan, uint64_t elem);

/** Returns PL_OK after pl_plan_seal(), else PL_INVALID. */
enum pl_status pl_plan_check_sealed(const struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Waits for buckets from `first` on, for as many as are best processed together, and sets `*ret_end` to the one after
 * the last of them.
 *
 * In host memory that is one bucket, while the next ones are in flight. On a device a launch costs more than a wait
 * gains: it is all buckets if no bucket is in flight any more, else half of the remaining ones. So the last bucket is
 * processed alone, as soon as it has arrived, and the others before it.
 */
enum pl_status pl_plan_wait_range(struct pl_plan *plan, size_t first, size_t *ret_end,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Copies `array` of rank `root`, [pl_plan_elems()] in the plan's kind of memory, to every rank. Collective. */
enum pl_status pl_plan_broadcast_array(struct pl_plan *plan, float *array, int root,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns a zeroed array like the values, [pl_plan_elems()] in the plan's kind of memory; NULL if there is no memory.
 */
float *pl_plan_new_array(struct pl_plan *plan, struct pl_error *reterr);
void pl_plan_free_array(struct pl_plan *plan, float *array);

/** Copies an array like the values to host memory `to`, or back, and waits for the end of the copy. */
enum pl_status pl_plan_read_array(const struct pl_plan *plan, const float *array, float *to,
                                  struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_plan_write_array(struct pl_plan *plan, float *array, const float *from,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** In device memory: lets the stream wait for `copy_event`, if there is one. */
enum pl_status pl_plan_await_copy(struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

#endif
