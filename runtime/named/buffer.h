/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Device memory of an engine, kept for reuse: what many tensors are packed into, what stands for the tensors of a rank
 * that has joined, and the results of operations that make new memory. A buffer is taken while an operation needs it;
 * once as much was in use as the program ever needs, nothing is allocated any more, whatever the sizes and addresses
 * are. Internal to runtime/.
 *
 * Threads  one at a time; what the caller of an engine does with a result, any.
 */
#ifndef PL_RUNTIME_NAMED_BUFFER_H
#define PL_RUNTIME_NAMED_BUFFER_H

#include "base/dtype.h"
#include "collectives/arena.h"
#include "device/kernel.h"
#include "runtime/named.h"

#include <pthread.h>

enum {
    PL_NAMED_BUFFER_ALIGN_BYTES = 256, /* each tensor in a buffer is aligned for the kernels */
    PL_NAMED_MOST_PIECES = 4096,       /* tensors in a buffer */
};

struct pl_named_buffer {
    struct pl_device *device;
    uint64_t bytes;
    bool is_part;                      /* `memory` is the caller's */
    void *memory;                      /* NULL after the engine's end, while `given` */
    bool busy;                         /* an operation uses it */
    struct pl_device_pieces *in, *out; /* the lists of what is packed and unpacked; NULL before the first use */
    struct pl_named_buffer *next;
    pthread_mutex_t lock; /* guards `memory` and the following, once it was given */
    struct {
        const struct pl_world *world;       /* world of the engine, for messages; valid while `memory` is not NULL */
        char name[PL_NAMED_MAX_NAME_BYTES]; /* operation that uses the buffer, for messages */
        bool given;                         /* the caller has it, as a result */
        bool read;                          /* the caller's stream may still read it, until `event` is reached */
        void *event;
    } synced;
};

/** Sizes are powers of two, so that tensors of few more bytes need no other buffer. */
uint64_t pl_named_buffer_round_up(uint64_t bytes);

/** Takes a buffer of at least `bytes`. */
enum pl_status pl_named_buffer_take(struct pl_device *device, struct pl_named_buffer **buffers, uint64_t bytes,
                                    struct pl_named_buffer **ret_buffer, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the lists of a buffer that has none so far. */
enum pl_status pl_named_buffer_equip(struct pl_device *device, struct pl_named_buffer *buffer,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Fills the first `elems` elements, on `stream`, with elements that do not change a result of `op`. For all operations
 * but sums it waits for a short copy.
 */
enum pl_status pl_named_buffer_fill(struct pl_device *device, struct pl_named_buffer *buffer, uint64_t elems,
                                    enum pl_dtype dtype, enum pl_op op, void *stream, int64_t deadline_ns,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Hands a buffer that is busy to the caller as the result of the operation `name`. It stays busy until the operation
 * has ended. `world` is the engine's.
 */
void pl_named_buffer_give(struct pl_named_buffer *buffer, const struct pl_world *world, const char *name,
                          struct pl_named_result *result);

/** The caller gives the buffer of a result back, after the end of its engine too. NULL is fine. */
void pl_named_buffer_return(struct pl_named_buffer *buffer);

/** Makes buffers of `count` equal parts of `span`, which the caller releases. Those that were made before go. */
enum pl_status pl_named_buffers_divide(struct pl_device *device, const struct pl_span *span, unsigned count,
                                       struct pl_named_buffer **buffers, struct pl_error *reterr) PL_MUST_CHECK;

/** Takes one of these; NULL in `*ret_buffer`: all are busy. */
void pl_named_buffer_take_part(struct pl_named_buffer *buffers, struct pl_named_buffer **ret_buffer);

/** Releases all buffers. Of those that are given, the memory: the caller still returns them. */
void pl_named_buffers_done(struct pl_device *device, struct pl_named_buffer **buffers);

/** Fills host memory with `elems` elements that do not change a result of `op`. */
void pl_named_fill_neutral(void *data, uint64_t elems, enum pl_dtype dtype, enum pl_op op);

#endif
