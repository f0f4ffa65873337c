/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Device memory of an engine, kept for reuse: what many tensors are packed into, and what stands for the tensors of a
 * rank that has joined. A buffer is taken while an operation needs it; once as much was in use as the program ever
 * needs, nothing is allocated any more, whatever the sizes and addresses are. Internal to runtime/.
 *
 * Threads  one at a time.
 */
#ifndef PL_RUNTIME_NAMED_BUFFER_H
#define PL_RUNTIME_NAMED_BUFFER_H

#include "base/dtype.h"
#include "device/kernel.h"

enum {
    PL_NAMED_BUFFER_ALIGN_BYTES = 256, /* each tensor in a buffer is aligned for the kernels */
    PL_NAMED_MOST_PIECES = 4096,       /* tensors in a buffer */
};

struct pl_named_buffer {
    void *memory;
    uint64_t bytes;
    bool busy;
    struct pl_device_pieces *in, *out; /* the lists of what is packed and unpacked; NULL before the first use */
    struct pl_named_buffer *next;
};

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

/** Releases all buffers. */
void pl_named_buffers_done(struct pl_device *device, struct pl_named_buffer **buffers);

#endif
