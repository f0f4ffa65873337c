/* SPDX-License-Identifier: Apache-2.0 */
#include "s3io/window.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST_CAPACITY = 64 };

enum pl_status pl_window_init(struct pl_window *window, struct pl_source *source, size_t capacity, struct pl_error *reterr)
{
    window->source = source;
    window->offset_bytes = source->offset_bytes;
    if (source->ops->view) {
        window->available = source->ops->view(source, &window->data);
        window->ended = true;
        return PL_OK;
    }
    window->capacity = capacity < LEAST_CAPACITY ? LEAST_CAPACITY : capacity;
    /* Page alignment lets the kernel copy whole pages. */
    window->buffer = pl_memory_new_aligned(window->capacity, 1, 4096, reterr);
    window->data = window->buffer;
    return window->buffer ? PL_OK : PL_MEMORY;
}

/* Room behind the available bytes: move them to the front, or double the buffer when they fill it. */
static enum pl_status make_room(struct pl_window *window, struct pl_error *reterr)
{
    unsigned char *larger;

    if (window->data != window->buffer) {
        memmove(window->buffer, window->data, window->available);
        window->data = window->buffer;
        return PL_OK;
    }
    if (window->capacity > SIZE_MAX / 2) {
        return pl_error_set(reterr, PL_MEMORY, "a window of %zu bytes cannot be doubled", window->capacity);
    }
    larger = pl_memory_new_aligned(window->capacity * 2, 1, 4096, reterr);
    if (!larger) {
        return PL_MEMORY;
    }
    memcpy(larger, window->data, window->available);
    free(window->buffer);
    window->buffer = larger;
    window->data = larger;
    window->capacity *= 2;
    return PL_OK;
}

enum pl_status pl_window_wait(struct pl_window *window, size_t want, int64_t deadline_ns, struct pl_error *reterr)
{
    if (window->available == 0 && !window->ended) {
        window->data = window->buffer;
    }
    while (window->available < want && !window->ended) {
        size_t used = (size_t)(window->data - window->buffer) + window->available;
        size_t got = 0;

        /* A record that does not fit behind the others is moved at once: the next read is then a large one. */
        if (used == window->capacity || (window->data != window->buffer && (size_t)(window->data - window->buffer) + want > window->capacity)) {
            PL_TRY(make_room(window, reterr));
            used = window->available;
        }
        PL_TRY(pl_source_read(window->source, window->buffer + used, window->capacity - used, deadline_ns, &got, reterr));
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
