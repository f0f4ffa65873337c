/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that an engine keeps for reuse. */
#include "runtime/named/buffer.h"

#include "base/memory.h"
#include "device/device_private.h"
#include "device/kernel_private.h"
#include "runtime/named/batch.h"

#include <stdlib.h>

enum { SMALLEST_BYTES = 1 << 20, FILL_BYTES = 64 << 10 };

/* Sizes are powers of two, so that tensors of few more bytes need no other buffer. */
static uint64_t round_up(uint64_t bytes)
{
    uint64_t rounded = SMALLEST_BYTES;

    while (rounded < bytes) {
        rounded *= 2;
    }
    return rounded;
}

enum pl_status pl_named_buffer_take(struct pl_device *device, struct pl_named_buffer **buffers, uint64_t bytes,
                                    struct pl_named_buffer **ret_buffer, struct pl_error *reterr)
{
    struct pl_named_buffer *best = NULL;
    enum pl_status status;

    for (struct pl_named_buffer *buffer = *buffers; buffer; buffer = buffer->next) {
        if (!buffer->busy && buffer->bytes >= bytes && (!best || buffer->bytes < best->bytes)) {
            best = buffer;
        }
    }
    if (!best) {
        best = pl_memory_new(1, sizeof(*best), reterr);
        if (!best) {
            return PL_MEMORY;
        }
        best->bytes = round_up(bytes);
        status = pl_device_alloc(device, best->bytes, &best->memory, reterr);
        if (status != PL_OK) {
            free(best);
            return status;
        }
        best->next = *buffers;
        *buffers = best;
    }
    best->busy = true;
    *ret_buffer = best;
    return PL_OK;
}

enum pl_status pl_named_buffer_equip(struct pl_device *device, struct pl_named_buffer *buffer, struct pl_error *reterr)
{
    if (!buffer->in) {
        PL_TRY(pl_device_pieces_reserve(device, PL_NAMED_MOST_PIECES, buffer->bytes, &buffer->in, reterr));
    }
    return buffer->out ? PL_OK
                       : pl_device_pieces_reserve(device, PL_NAMED_MOST_PIECES, buffer->bytes, &buffer->out, reterr);
}

enum pl_status pl_named_buffer_fill(struct pl_device *device, struct pl_named_buffer *buffer, uint64_t elems,
                                    enum pl_dtype dtype, enum pl_op op, void *stream, int64_t deadline_ns,
                                    struct pl_error *reterr)
{
    uint64_t bytes = elems * pl_dtype_bytes(dtype), filled = bytes < FILL_BYTES ? bytes : FILL_BYTES;
    PL_AUTO_FREE void *neutral = NULL;
    enum pl_status status;
    void *idle;

    if (op == PL_SUM || op == PL_AVERAGE || op == PL_ADASUM) {
        return pl_device_fill(device, buffer->memory, 0, bytes, stream, reterr);
    }
    neutral = pl_memory_new(filled, 1, reterr);
    if (!neutral) {
        return PL_MEMORY;
    }
    pl_named_fill_neutral(neutral, filled / pl_dtype_bytes(dtype), dtype, op);
    /* A copy from ordinary memory waits for the earlier work of its stream. This stream has no earlier work. */
    PL_TRY(pl_device_stream_new(device, &idle, reterr));
    status = pl_device_copy_now(device, buffer->memory, neutral, filled, idle, deadline_ns, reterr);
    pl_device_stream_free(device, idle);
    PL_TRY(status);
    while (filled < bytes) {
        uint64_t more = bytes - filled < filled ? bytes - filled : filled;

        PL_TRY(pl_device_copy(device, (char *)buffer->memory + filled, buffer->memory, more, stream, reterr));
        filled += more;
    }
    return PL_OK;
}

void pl_named_buffers_done(struct pl_device *device, struct pl_named_buffer **buffers)
{
    while (*buffers) {
        struct pl_named_buffer *buffer = *buffers;

        *buffers = buffer->next;
        pl_device_pieces_free(buffer->in);
        pl_device_pieces_free(buffer->out);
        pl_device_release(device, buffer->memory);
        free(buffer);
    }
}
