/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The private parts of a plan. plan.c is its life; plan_seal.c seals it: layout, and memory of the values. Optimizers
 * and checkpoints use the functions below. Internal to runtime/.
 */
#ifndef PL_RUNTIME_GRADIENT_PLAN_PRIVATE_H
#define PL_RUNTIME_GRADIENT_PLAN_PRIVATE_H

#include "device/device.h"
#include "runtime/plan.h"

struct pl_text;

/**
 * Functions that replace the allreduce of a plan's gradients, for example to use a parameter server. Such a plan's
 * world has one rank.
 */
struct pl_plan_exchange {
    void *context;
    /** Allocates [pl_plan_elems()] zeroed gradients. Called when the layout is known. */
    enum pl_status (*allocate)(void *context, float **ret_gradients, struct pl_error *reterr);
    /** Starts to exchange bucket `bucket`. Called in the buckets' order, when all gradients of the bucket are ready. */
    enum pl_status (*start)(void *context, size_t bucket, struct pl_error *reterr);
};

struct pl_plan_entry {
    struct pl_plan_tensor info;
    char *name;
    size_t first_bucket;
    size_t last_bucket;
    bool ready; /* the tensor's gradient is ready in this step */
};

struct pl_plan_bucket {
    char *name; /* unique name, under which compression keeps its residual */
    uint64_t first_elem;
    uint64_t count_elems;
    size_t tensors;             /* number of tensors of which the bucket has at least a part */
    size_t pending;             /* number of these tensors that are not ready yet */
    struct pl_request *request; /* with device memory, kept until the bucket starts in the next step */
};

struct pl_plan {
    struct pl_world *world;
    struct pl_device *device; /* NULL with host memory */
    void *copy_event;         /* event at the end of a copy of the values; NULL if no copy is in flight */
    void *step_event;         /* device memory without requests: event at the end of the last step */
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

    size_t started; /* number of buckets started in this step */
    size_t ended;
    struct pl_plan_counts counts;
};

/** Appends a tensor's name and shape: "'dense.w' [10, 128]". */
void pl_plan_print_tensor(const struct pl_plan_tensor *tensor, struct pl_text *text);

/** Sets the exchange. Must be called before the plan is sealed. */
void pl_plan_set_exchange(struct pl_plan *plan, const struct pl_plan_exchange *exchange);

/** Releases the layout, also after pl_plan_seal() has failed half-way. */
void pl_plan_release_layout(struct pl_plan *plan);

/** Begins a step: no gradient is ready. */
void pl_plan_begin_step(struct pl_plan *plan);

/** Returns the tensor at position `place` of the layout: the tensor that was registered last comes first. */
static inline size_t pl_plan_tensor_at(const struct pl_plan *plan, size_t place)
{
    return plan->tensor_count - 1 - place;
}

/** Whether buckets are reduced between ranks by requests. False for one rank with device memory. */
bool pl_plan_exchanges(const struct pl_plan *plan);

/** Returns the address of the gradient of element `elem` of the layout. */
void *pl_plan_gradient_at(const struct pl_plan *plan, uint64_t elem);

/** Returns PL_OK after pl_plan_seal(), else PL_INVALID. */
enum pl_status pl_plan_check_sealed(const struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Waits for the buckets from `first` on that are best processed together, and sets `*ret_end` to the bucket after them.
 *
 * In host memory this is one bucket, while the next ones are in flight. On a device few launches are better: it is all
 * remaining buckets if none is in flight any more, else half of them. So the last bucket is processed alone, as soon as
 * it has arrived.
 */
enum pl_status pl_plan_wait_range(struct pl_plan *plan, size_t first, size_t *ret_end,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/** Copies `array` of rank `root`, [pl_plan_elems()] in the plan's kind of memory, to every rank. Collective. */
enum pl_status pl_plan_broadcast_array(struct pl_plan *plan, float *array, int root,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a zeroed array like the values, [pl_plan_elems()] in the plan's kind of memory; NULL if memory is out. */
float *pl_plan_new_array(struct pl_plan *plan, struct pl_error *reterr);
void pl_plan_free_array(struct pl_plan *plan, float *array);

/** Copies an array like the values to host memory `to`, or back, and waits for the end of the copy. */
enum pl_status pl_plan_read_array(const struct pl_plan *plan, const float *array, float *to,
                                  struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_plan_write_array(struct pl_plan *plan, float *array, const float *from,
                                   struct pl_error *reterr) PL_MUST_CHECK;

/** Device memory: makes the stream wait for `copy_event`, if there is one. */
enum pl_status pl_plan_await_copy(struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

#endif
