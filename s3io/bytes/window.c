/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer over a source: readers read bytes in place before they consume them. */
#include "s3io/bytes/window.h"

#include "base/memory.h"
#include "s3io/source.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_CAPACITY = 64, PAGE_BYTES = 4096, MOST_READ_BYTES = 1 << 20 };

enum pl_status pl_window_init(struct pl_window *window, struct pl_source *source, size_t capacity,
                              struct pl_error *reterr)
{
    *window = (struct pl_window){
        .source = source, .offset_bytes = source->offset_bytes, .buffer = window->buffer, .capacity = window->capacity};
    if (source->ops->view) {
        window->available = source->ops->view(source, &window->data);
        window->ended = true;
        return PL_OK;
    }
    if (!window->buffer || window->capacity < capacity) {
        free(window->buffer);
        window->capacity = capacity < LEAST_CAPACITY ? LEAST_CAPACITY : capacity;
        PL_TRY(pl_memory_alloc_aligned(&window->buffer, window->capacity, 1, PAGE_BYTES, reterr));
    }
    window->data = window->buffer;
    return PL_OK;
}

/*
 * Moves the available bytes to the front. If `want` bytes still fit there, the available bytes end at a page boundary:
 * the kernel copies to whole pages faster, and a FIFO's writer mostly fills whole pages.
 */
static void move_to_front(struct pl_window *window, size_t want)
{
    size_t start = -window->available & (PAGE_BYTES - 1);

    if (start > window->capacity || want > window->capacity - start) {
        start = 0;
    }
    memmove(window->buffer + start, window->data, window->available);
    window->data = window->buffer + start;
}

static enum pl_status double_buffer(struct pl_window *window, struct pl_error *reterr)
{
    unsigned char *larger;

    if (window->capacity > SIZE_MAX / 2) {
        return pl_error_set(reterr, PL_MEMORY, "cannot double a window of %zu bytes", window->capacity);
    }
    PL_TRY(pl_memory_alloc_aligned(&larger, window->capacity * 2, 1, PAGE_BYTES, reterr));
    memcpy(larger, window->data, window->available);
    free(window->buffer);
    window->buffer = larger;
    window->data = larger;
    window->capacity *= 2;
    return PL_OK;
}

/* Makes room after the available bytes, for a read that is large enough to be worth a system call. There is also room
 * for `want` bytes in all, unless the available bytes are more than the buffer. */
static enum pl_status make_room(struct pl_window *window, size_t want, struct pl_error *reterr)
{
    size_t before = (size_t)(window->data - window->buffer);
    size_t room = window->capacity - before - window->available;

    if (want > window->capacity - before) {
        if (before > 0) {
            move_to_front(window, want);
        } else if (room == 0) {
            return double_buffer(window, reterr);
        }
    } else if (room < window->capacity / 4 && window->available <= window->capacity / 4 && before >= PAGE_BYTES) {
        move_to_front(window, want);
    }
    return PL_OK;
}

enum pl_status pl_window_wait(struct pl_window *window, size_t want, int64_t deadline_ns, struct pl_error *reterr)
{
    if (window->available == 0 && !window->ended) {
        window->data = window->buffer;
    }
    while (window->available < want && !window->ended) {
        size_t used, room, got = 0;

        PL_TRY(make_room(window, want, reterr));
        used = (size_t)(window->data - window->buffer) + window->available;
        room = window->capacity - used;
        PL_TRY(pl_source_read(window->source, window->buffer + used, room < MOST_READ_BYTES ? room : MOST_READ_BYTES,
                              deadline_ns, &got, reterr));
        window->available += got;
        window->ended = got == 0;
    }
    return PL_OK;
}

void pl_window_done(struct pl_window *window)
{
    free(window->buffer);
    memset(window, 0, sizeof(*window));
}
