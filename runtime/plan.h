/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A gradient plan: a program registers the parameters of its model once. Their gradients are then contiguous in memory
 * that the ranks of a host share, in the order in which the backward pass finishes them, cut into buckets. When all
 * gradients of a bucket are ready, its allreduce starts, in place: in the steady state nothing is packed, copied or
 * negotiated. Calls that need the layout return PL_INVALID before pl_plan_seal().
 *
 *   registered   conv1.w  conv1.b  dense.w  dense.b          forward order
 *   laid out    |dense.b  dense.w ...|... dense.w  conv1.b|  backward order, buckets of about bucket_bytes;
 *                   bucket 0           bucket 1              a tensor may span several
 *
 * Values have the same layout, in this rank's own memory, so that an optimizer is one loop over a bucket.
 *
 * In device memory (option `memory`) one stream orders everything and the host does not wait: ready() means that the
 * work queued on the stream so far computes this gradient, and wait() makes the stream wait. A failure of a step's
 * communication is reported by the next step, or by pl_plan_finish(). The host is at most one step ahead of the device.
 * With one rank there is no communication, and ready() does not call the driver. While the stream is captured into a
 * CUDA graph, waits return PL_INVALID, with several ranks ready() too.
 *
 * Threads  one thread per plan, which must also be the world's.
 * Source   the idea of one in-place reduction over adjacent outputs is TensorFlow's ScopedAllocator; buckets that
 *          follow the backward pass are described in Li et al., "PyTorch Distributed", VLDB 2020.
 * Test     tests/unit/runtime/gradient/test_plan.c
 */
#ifndef PL_RUNTIME_PLAN_H
#define PL_RUNTIME_PLAN_H

#include "collectives/arena.h"
#include "collectives/collective.h"
#include "collectives/world.h"

struct pl_plan;

enum { PL_PLAN_MAX_DIMS = 8 };

/** Zero-initialise; zero means the default everywhere. */
struct pl_plan_options {
    uint64_t bucket_bytes; /* 0: the setting bucket_bytes */
    bool sum;              /* add gradients over ranks; default: average */
    unsigned wire_flags;   /* PL_WIRE_FLOAT16 or PL_WIRE_BFLOAT16 between hosts */
    /* no exchange: the program reduces the gradients itself, e.g. as named tensors, before it calls pl_plan_ready() */
    bool local;
    /* used in messages, and for the residuals of wire_flags: different for each plan of a world; default "gradients" */
    const char *name;
    enum pl_memory
        memory;   /* place of values and gradients: PL_MEMORY_HOST, or PL_MEMORY_DEVICE on the world's device */
    void *stream; /* device memory: the CUDA stream that computes gradients and uses values */
    /* device memory: PL_FLOAT16 or PL_BFLOAT16 halve the bytes on the wire; values stay float32 */
    enum pl_dtype gradient_dtype;
};

/** One registered tensor. */
struct pl_plan_tensor {
    const char *name;
    uint64_t count_elems;
    unsigned dims;
    uint64_t shape[PL_PLAN_MAX_DIMS];
    uint64_t offset_elems; /* position in values and in gradients, set by pl_plan_seal() */
    float *value;
    float *gradient; /* if gradient_dtype is float16 or bfloat16, cast it to a pointer to that type */
};

enum pl_status pl_plan_new(struct pl_world *world, const struct pl_plan_options *options, struct pl_plan **ret_plan,
                           struct pl_error *reterr) PL_MUST_CHECK;

/** Frees the plan. Same order on all ranks as for pl_arena_free(), but does not wait. NULL is fine. */
void pl_plan_free(struct pl_plan *plan);

/** Registers a float32 tensor; copies name and shape. PL_INVALID: the name exists, no elements, or sealed already. */
enum pl_status pl_plan_add(struct pl_plan *plan, const char *name, unsigned dims, const uint64_t *shape,
                           size_t *ret_index, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Compares the plan on all ranks, lays it out and allocates it. Values and gradients are zero then.
 *
 * Collective  yes.
 * Errors      PL_MISMATCH on all ranks, naming the first tensor or option that differs and two ranks; PL_UNSUPPORTED:
 *             device memory in a world without a device, or half-width gradients in host memory; PL_MEMORY; PL_INVALID:
 *             no tensors, other or several wire_flags, or sealed already; those of pl_arena_alloc(). A failure of one
 *             rank is reported on all ranks, with its number; the program may free memory and call again.
 */
enum pl_status pl_plan_seal(struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

size_t pl_plan_tensor_count(const struct pl_plan *plan);
const struct pl_plan_tensor *pl_plan_tensor(const struct pl_plan *plan, size_t index);

/** Returns the index of the tensor called `name`, or the number of tensors if there is none. */
size_t pl_plan_find(const struct pl_plan *plan, const char *name);

size_t pl_plan_bucket_count(const struct pl_plan *plan);

/** Returns all values as one array with the gradients' layout; gaps between tensors are zero. */
float *pl_plan_values(const struct pl_plan *plan);
float *pl_plan_gradients(const struct pl_plan *plan);
uint64_t pl_plan_elems(const struct pl_plan *plan);

/** Returns the elements of bucket `bucket`: [*ret_first, *ret_first + *ret_count). */
void pl_plan_bucket(const struct pl_plan *plan, size_t bucket, uint64_t *ret_first, uint64_t *ret_count);

struct pl_world *pl_plan_world(const struct pl_plan *plan);

/** Returns the device whose memory the plan uses, or NULL for host memory. */
struct pl_device *pl_plan_device(const struct pl_plan *plan);

/**
 * Says that the gradient of tensor `index` is complete. A bucket starts when all its gradients are complete; buckets
 * start in the same order on every rank. A program that adds up several backward passes calls this in the last one.
 *
 * Errors  PL_INVALID: unknown index, or the tensor was ready before in this step (it is named). Errors of
 *         pl_collective_post().
 */
enum pl_status pl_plan_ready(struct pl_plan *plan, size_t index, struct pl_error *reterr) PL_MUST_CHECK;

/** Advances the buckets that were started, without waiting. */
enum pl_status pl_plan_progress(struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Waits for bucket `bucket` and all buckets before it. A gradient that is not ready yet counts as zero on this rank, so
 * a rank that did not use a parameter does not block the others.
 */
enum pl_status pl_plan_wait_bucket(struct pl_plan *plan, size_t bucket, struct pl_error *reterr) PL_MUST_CHECK;

/** Waits for all buckets and ends the step: gradients may be written again. */
enum pl_status pl_plan_wait(struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Device memory: waits until all work queued on the stream has ended, and returns its failures. Host memory: does
 * nothing.
 */
enum pl_status pl_plan_finish(struct pl_plan *plan, struct pl_error *reterr) PL_MUST_CHECK;

/** Gives every rank the values of `root`. Collective. */
enum pl_status pl_plan_broadcast(struct pl_plan *plan, int root, struct pl_error *reterr) PL_MUST_CHECK;

/** Counts of the whole run. */
struct pl_plan_counts {
    uint64_t steps;
    uint64_t zeroed;   /* number of tensors that were not ready at a wait */
    int64_t waited_ns; /* time in pl_plan_wait() and pl_plan_wait_bucket() */
};

struct pl_plan_counts pl_plan_counts(const struct pl_plan *plan);

#endif
