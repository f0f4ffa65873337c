/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Device memory of an engine, kept for reuse. A buffer holds packed tensors, neutral elements of a rank that has
 * joined, or the result of an operation that makes new memory. An operation takes a buffer while it needs one. When
 * enough buffers exist for the program's largest step, nothing more is allocated, even if sizes and addresses change.
 * Internal to runtime/.
 *
 * Threads  one at a time; pl_named_buffer_return() and moves of a result: any thread.
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
    PL_NAMED_MOST_PIECES = 4096,       /* most tensors in a buffer */
};

struct pl_named_buffer {
    struct pl_device *device;
    uint64_t bytes;
    bool is_part;                      /* `memory` is a part of a span that the caller owns */
    void *memory;                      /* NULL if the engine has ended while the caller has the buffer (`given`) */
    bool busy;                         /* an operation uses it */
    struct pl_device_pieces *in, *out; /* lists of the tensors to pack and to unpack; NULL before the first use */
    struct pl_named_buffer *next;
    pthread_mutex_t lock; /* guards `memory` and `synced`, once the buffer was given to the caller */
    struct {
        const struct pl_world *world;       /* world of the engine, for messages; valid while `memory` is not NULL */
        char name[PL_NAMED_MAX_NAME_BYTES]; /* operation that uses the buffer, for messages */
        bool given;                         /* the caller has the buffer, as a result */
        bool read;                          /* the caller's stream may still read it, until `event` is reached */
        void *event;
    } synced;
};

/** Rounds up to a power of two, so that slightly larger tensors can reuse the buffer. */
uint64_t pl_named_buffer_round_up(uint64_t bytes);

/** Takes a buffer of at least `bytes`. */
enum pl_status pl_named_buffer_take(struct pl_device *device, struct pl_named_buffer **buffers, uint64_t bytes,
                                    struct pl_named_buffer **ret_buffer, struct pl_error *reterr) PL_MUST_CHECK;

/** Makes the lists `in` and `out` of a buffer that has none so far. */
enum pl_status pl_named_buffer_equip(struct pl_device *device, struct pl_named_buffer *buffer,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Fills the first `elems` elements, on `stream`, with elements that do not change a result of `op`. Except for sums it
 * waits for a short copy.
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

/** Returns a result's buffer to its engine. Allowed after the engine's end too. NULL is fine. */
void pl_named_buffer_return(struct pl_named_buffer *buffer);

/** Divides `span`, which the caller releases, into `count` equal buffers. Earlier buffers of the list are released. */
enum pl_status pl_named_buffers_divide(struct pl_device *device, const struct pl_span *span, unsigned count,
                                       struct pl_named_buffer **buffers, struct pl_error *reterr) PL_MUST_CHECK;

/** Takes one of the buffers of pl_named_buffers_divide(); `*ret_buffer` is NULL if all are in use. */
void pl_named_buffer_take_part(struct pl_named_buffer *buffers, struct pl_named_buffer **ret_buffer);

/** Releases all buffers; of a buffer that the caller has, only the memory: the caller must still return it. */
void pl_named_buffers_done(struct pl_device *device, struct pl_named_buffer **buffers);

/** Fills host memory with `elems` elements that do not change a result of `op`. */
void pl_named_fill_neutral(void *data, uint64_t elems, enum pl_dtype dtype, enum pl_op op);

#endif
