/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer over a source: readers read bytes in place before they consume them. */
#include "s3io/bytes/window.h"

#include "base/memory.h"
#include "s3io/source.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_CAPACITY = 64, PAGE_BYTES = 4096, MOST_READ_BYTES = 1 << 20 };

bool pl_window_hold(const struct pl_window *window, const unsigned char *data, struct pl_window_buffer **held)
{
    struct pl_window_buffer *buffer = *held ? *held : window->buffer;

    if (!buffer || data < buffer->bytes || data >= buffer->bytes + buffer->capacity) {
        return false;
    }
    buffer->holders += !*held;
    *held = buffer;
    return true;
}

void pl_window_let_go(struct pl_window *window, struct pl_window_buffer *held)
{
    if (!held || --held->holders > 0) {
        return;
    }
    if (held->capacity < window->buffer->capacity) {
        free(held);
        return;
    }
    held->next = window->spare;
    window->spare = held;
}

/* Takes a buffer that nobody holds. */
static enum pl_status take_buffer(struct pl_window *window, size_t capacity, struct pl_window_buffer **ret_buffer,
                                  struct pl_error *reterr)
{
    struct pl_window_buffer *buffer = window->spare;

    if (buffer) {
        window->spare = buffer->next;
    }
    if (buffer && buffer->capacity < capacity) {
        free(buffer);
        buffer = NULL;
    }
    if (capacity > SIZE_MAX / 2) {
        return pl_error_set(reterr, PL_MEMORY, "no memory for a window of %zu bytes", capacity);
    }
    if (!buffer) {
        PL_TRY(pl_memory_alloc_aligned(&buffer, 1, sizeof(*buffer) + capacity, PAGE_BYTES, reterr));
        buffer->capacity = capacity;
    }
    buffer->holders = 1;
    *ret_buffer = buffer;
    return PL_OK;
}

/*
 * Moves the available bytes to the front, or to another buffer if this one is held or has less than `capacity`. If
 * `want` bytes still fit there, the available bytes end at a page boundary: the kernel copies to whole pages faster,
 * and a FIFO's writer mostly fills whole pages.
 */
static enum pl_status move_to_front(struct pl_window *window, size_t capacity, size_t want, struct pl_error *reterr)
{
    size_t start = -window->available & (PAGE_BYTES - 1);
    struct pl_window_buffer *old = window->buffer, *to = old;

    if (!old || old->holders > 1 || old->capacity < capacity) {
        PL_TRY(take_buffer(window, capacity, &to, reterr));
    }
    if (start > to->capacity || want > to->capacity - start) {
        start = 0;
    }
    if (window->available) {
        memmove(to->bytes + start, window->data, window->available);
    }
    window->data = to->bytes + start;
    window->buffer = to;
    if (to != old) {
        pl_window_let_go(window, old);
    }
    return PL_OK;
}

enum pl_status pl_window_init(struct pl_window *window, struct pl_source *source, size_t capacity,
                              struct pl_error *reterr)
{
    *window = (struct pl_window){
        .source = source, .offset_bytes = source->offset_bytes, .buffer = window->buffer, .spare = window->spare};
    if (source->ops->view) {
        window->available = source->ops->view(source, &window->data);
        window->ended = true;
        return PL_OK;
    }
    return move_to_front(window, capacity < LEAST_CAPACITY ? LEAST_CAPACITY : capacity, 0, reterr);
}

/* Makes room after the available bytes, for a read that is large enough to be worth a system call. There is also room
 * for `want` bytes in all, unless the available bytes are more than the buffer. */
static enum pl_status make_room(struct pl_window *window, size_t want, struct pl_error *reterr)
{
    size_t capacity = window->buffer->capacity, before = (size_t)(window->data - window->buffer->bytes);
    size_t room = capacity - before - window->available;

    if (want > capacity - before) {
        if (before > 0) {
            return move_to_front(window, capacity, want, reterr);
        }
        return room > 0 ? PL_OK : move_to_front(window, 2 * capacity, want, reterr);
    }
    return room < capacity / 4 && window->available <= capacity / 4 && before >= PAGE_BYTES
               ? move_to_front(window, capacity, want, reterr)
               : PL_OK;
}

enum pl_status pl_window_wait(struct pl_window *window, size_t want, int64_t deadline_ns, struct pl_error *reterr)
{
    if (window->available == 0 && !window->ended && window->buffer->holders == 1) {
        window->data = window->buffer->bytes;
    }
    while (window->available < want && !window->ended) {
        size_t used, room, got = 0;

        PL_TRY(make_room(window, want, reterr));
        used = (size_t)(window->data - window->buffer->bytes) + window->available;
        room = window->buffer->capacity - used;
        PL_TRY(pl_source_read(window->source, window->buffer->bytes + used,
                              room < MOST_READ_BYTES ? room : MOST_READ_BYTES, deadline_ns, &got, reterr));
        window->available += got;
        window->ended = got == 0;
    }
    return PL_OK;
}

void pl_window_done(struct pl_window *window)
{
    pl_window_let_go(window, window->buffer);
    while (window->spare) {
        struct pl_window_buffer *next = window->spare->next;

        free(window->spare);
        window->spare = next;
    }
    memset(window, 0, sizeof(*window));
}
