/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that an engine keeps for reuse. */
#include "runtime/named/buffer.h"

#include "base/memory.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "device/kernel_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_BYTES = 1 << 20, FILL_BYTES = 64 << 10 };

/* The bits of the neutral elements of product, minimum and maximum. A sum's is zero. */
static const struct {
    uint64_t one, largest, smallest;
} neutral_bits[PL_DTYPE_COUNT] = {
    [PL_FLOAT32] = {0x3f800000, 0x7f800000, 0xff800000},
    [PL_FLOAT64] = {UINT64_C(0x3ff0000000000000), UINT64_C(0x7ff0000000000000), UINT64_C(0xfff0000000000000)},
    [PL_FLOAT16] = {0x3c00, 0x7c00, 0xfc00},
    [PL_BFLOAT16] = {0x3f80, 0x7f80, 0xff80},
    [PL_INT8] = {1, INT8_MAX, 0x80},
    [PL_INT16] = {1, INT16_MAX, 0x8000},
    [PL_INT32] = {1, INT32_MAX, 0x80000000},
    [PL_INT64] = {1, INT64_MAX, UINT64_C(1) << 63},
    [PL_UINT8] = {1, UINT8_MAX, 0},
    [PL_BOOL] = {1, 1, 0},
};

/* Elements are stored little-endian. */
void pl_named_fill_neutral(void *data, uint64_t elems, enum pl_dtype dtype, enum pl_op op)
{
    size_t elem_bytes = pl_dtype_bytes(dtype);
    uint64_t bits = op == PL_PRODUCT ? neutral_bits[dtype].one
                    : op == PL_MIN   ? neutral_bits[dtype].largest
                    : op == PL_MAX   ? neutral_bits[dtype].smallest
                                     : 0;

    for (uint64_t i = 0; i < elems; i++) {
        memcpy((char *)data + i * elem_bytes, &bits, elem_bytes);
    }
}

uint64_t pl_named_buffer_round_up(uint64_t bytes)
{
    uint64_t rounded = SMALLEST_BYTES;

    while (rounded < bytes) {
        rounded *= 2;
    }
    return rounded;
}

/* Tells whether the buffer is idle: neither an operation, nor the caller, nor a stream uses it. */
static enum pl_status find_idle(struct pl_named_buffer *buffer, bool *ret_idle, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;

    pthread_mutex_lock(&buffer->lock);
    *ret_idle = !buffer->busy && !buffer->synced.given;
    if (*ret_idle && buffer->synced.read) {
        status = pl_device_event_done(buffer->device, buffer->synced.event, ret_idle, reterr);
        buffer->synced.read = !*ret_idle;
    }
    pthread_mutex_unlock(&buffer->lock);
    return status;
}

enum pl_status pl_named_buffer_take(struct pl_device *device, struct pl_named_buffer **buffers, uint64_t bytes,
                                    struct pl_named_buffer **ret_buffer, struct pl_error *reterr)
{
    struct pl_named_buffer *best = NULL;
    enum pl_status status;

    for (struct pl_named_buffer *buffer = *buffers; buffer; buffer = buffer->next) {
        bool idle = false;

        if (buffer->bytes >= bytes && (!best || buffer->bytes < best->bytes)) {
            PL_TRY(find_idle(buffer, &idle, reterr));
            best = idle ? buffer : best;
        }
    }
    if (!best) {
        PL_TRY(pl_memory_alloc(&best, 1, sizeof(*best), reterr));
        best->device = device;
        best->bytes = pl_named_buffer_round_up(bytes);
        status = pl_device_alloc(device, best->bytes, &best->memory, reterr);
        if (status != PL_OK) {
            free(best);
            return status;
        }
        pthread_mutex_init(&best->lock, NULL);
        best->next = *buffers;
        *buffers = best;
    }
    best->busy = true;
    *ret_buffer = best;
    return PL_OK;
}

enum pl_status pl_named_buffers_divide(struct pl_device *device, const struct pl_span *span, unsigned count,
                                       struct pl_named_buffer **buffers, struct pl_error *reterr)
{
    pl_named_buffers_done(device, buffers);
    for (unsigned i = 0; i < count && span->data; i++) {
        struct pl_named_buffer *part;

        PL_TRY(pl_memory_alloc(&part, 1, sizeof(*part), reterr));
        part->device = device;
        part->bytes = span->bytes / count;
        part->memory = (char *)span->data + i * part->bytes;
        part->is_part = true;
        pthread_mutex_init(&part->lock, NULL);
        part->next = *buffers;
        *buffers = part;
    }
    return PL_OK;
}

void pl_named_buffer_take_part(struct pl_named_buffer *buffers, struct pl_named_buffer **ret_buffer)
{
    while (buffers && buffers->busy) {
        buffers = buffers->next;
    }
    if (buffers) {
        buffers->busy = true;
    }
    *ret_buffer = buffers;
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
    PL_TRY(pl_memory_alloc(&neutral, filled, 1, reterr));
    pl_named_fill_neutral(neutral, filled / pl_dtype_bytes(dtype), dtype, op);
    /* A copy from pageable memory waits for the earlier work of its stream. This stream has no earlier work. */
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

void pl_named_buffer_give(struct pl_named_buffer *buffer, const struct pl_world *world, const char *name,
                          struct pl_named_result *result)
{
    pthread_mutex_lock(&buffer->lock);
    buffer->synced.world = world;
    snprintf(buffer->synced.name, sizeof(buffer->synced.name), "%s", name);
    buffer->synced.given = true;
    pthread_mutex_unlock(&buffer->lock);
    result->buffer = buffer;
    result->data = buffer->memory;
}

static void buffer_free(struct pl_named_buffer *buffer)
{
    pthread_mutex_destroy(&buffer->lock);
    free(buffer);
}

void pl_named_buffer_return(struct pl_named_buffer *buffer)
{
    bool orphaned;

    if (buffer) {
        pthread_mutex_lock(&buffer->lock);
        buffer->synced.given = false;
        orphaned = !buffer->memory;
        pthread_mutex_unlock(&buffer->lock);
        if (orphaned) {
            buffer_free(buffer);
        }
    }
}

static enum pl_status copy_and_mark(struct pl_named_buffer *buffer, void *to, uint64_t bytes, void *stream,
                                    struct pl_error *reterr)
{
    struct pl_device *device = buffer->device;

    if (!buffer->synced.event) {
        PL_TRY(pl_device_event_new(device, false, &buffer->synced.event, reterr));
    }
    PL_TRY(pl_device_copy(device, to, buffer->memory, bytes, stream, reterr));
    PL_TRY(pl_device_event_record(device, buffer->synced.event, stream, reterr));
    buffer->synced.read = true;
    return PL_OK;
}

/* Copies with the lock held. */
static enum pl_status move(struct pl_named_buffer *buffer, void *to, uint64_t bytes, void *stream,
                           struct pl_error *reterr)
{
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    if (!buffer->memory) {
        return pl_error_set(reterr, PL_CANCELLED,
                            "'%s': the result in device memory was released, because the named tensors were shut down "
                            "before it was taken",
                            buffer->synced.name);
    }
    status = copy_and_mark(buffer, to, bytes, stream, &error);
    if (status != PL_OK && reterr) {
        *reterr = error;
        pl_error_context(reterr, "taking the result of '%s'", buffer->synced.name);
        pl_world_place_error(buffer->synced.world, buffer->device, reterr);
    }
    return status;
}

void pl_named_result_done(struct pl_named_result *result)
{
    if (result->buffer) {
        pl_named_buffer_return(result->buffer);
    } else {
        free(result->data);
    }
    free(result->rows_of_rank);
    memset(result, 0, sizeof(*result));
}

enum pl_status pl_named_result_move(struct pl_named_result *result, void *to, void *stream, struct pl_error *reterr)
{
    struct pl_named_buffer *buffer = PL_TAKE(result->buffer);
    enum pl_status status;

    result->data = NULL;
    pthread_mutex_lock(&buffer->lock);
    status = move(buffer, to, result->bytes, stream, reterr);
    pthread_mutex_unlock(&buffer->lock);
    pl_named_buffer_return(buffer);
    return status;
}

void pl_named_buffers_done(struct pl_device *device, struct pl_named_buffer **buffers)
{
    while (*buffers) {
        struct pl_named_buffer *buffer = *buffers;
        bool given;

        *buffers = buffer->next;
        pl_device_pieces_free(buffer->in);
        pl_device_pieces_free(buffer->out);
        pthread_mutex_lock(&buffer->lock);
        if (!buffer->is_part) {
            pl_device_release(device, buffer->memory);
        }
        buffer->memory = NULL;
        pl_device_event_free(device, PL_TAKE(buffer->synced.event));
        given = buffer->synced.given;
        pthread_mutex_unlock(&buffer->lock);
        if (!given) {
            buffer_free(buffer);
        }
    }
}
