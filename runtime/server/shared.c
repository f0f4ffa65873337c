/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a host's parameter server and its workers share: its layout, and consistent reads. */
#include "runtime/server/shared.h"

#include "base/number.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 };

_Static_assert(sizeof(struct pl_server_slot) <= PAGE_BYTES, "gradients begin a page after their slot");

enum pl_status pl_server_shape(struct pl_server_shape *shape, struct pl_error *reterr)
{
    uint64_t heads_bytes, values_bytes, slots_bytes;

    if (shape->elems < PTRDIFF_MAX / 16 && shape->pieces < PTRDIFF_MAX / 1024 && shape->workers > 0) {
        heads_bytes = sizeof(struct pl_server_header) + shape->pieces * sizeof(struct pl_server_piece);
        shape->values_at = pl_number_round_up(heads_bytes, PAGE_BYTES);
        values_bytes = pl_number_round_up(shape->elems * sizeof(float), PAGE_BYTES);
        shape->slots_at = shape->values_at + values_bytes;
        shape->slot_bytes = PAGE_BYTES + values_bytes + shape->rows_bytes;
        if (!__builtin_mul_overflow(shape->workers, shape->slot_bytes, &slots_bytes) &&
            !__builtin_add_overflow(shape->slots_at, slots_bytes, &shape->file_bytes) &&
            shape->file_bytes < PTRDIFF_MAX) {
            return PL_OK;
        }
    }
    return pl_error_set(reterr, PL_LIMIT,
                        "%llu elements and %llu workers' gradients need more bytes than memory can hold",
                        (unsigned long long)shape->elems, (unsigned long long)shape->workers);
}

enum pl_status pl_server_view_open(struct pl_server_view *view, const struct pl_server_shape *shape, int fd,
                                   struct pl_error *reterr)
{
    struct stat info;
    void *base;

    if (fstat(fd, &info) != 0) {
        return pl_error_errno(reterr, "look at the parameter server's memory");
    }
    if ((uint64_t)info.st_size != shape->file_bytes) {
        return pl_error_set(reterr, PL_CORRUPT, "the parameter server's memory has %lld bytes, expected %llu",
                            (long long)info.st_size, (unsigned long long)shape->file_bytes);
    }
    base = mmap(NULL, shape->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        return pl_error_errno(reterr, "map the parameter server's memory, %llu bytes",
                              (unsigned long long)shape->file_bytes);
    }
    view->shape = *shape;
    view->base = base;
    return PL_OK;
}

void pl_server_view_close(struct pl_server_view *view)
{
    if (view->base) {
        munmap(view->base, view->shape.file_bytes);
        view->base = NULL;
    }
}

/* The values may change during the copy. This is not a race to report, because the caller detects it. */
__attribute__((no_sanitize("thread"))) static void copy(float *restrict to, const float *restrict from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] = from[i];
    }
}

bool pl_server_read_piece(const struct pl_server_view *view, uint64_t piece, uint64_t first, uint64_t count, float *to,
                          uint64_t *last_sequence)
{
    struct pl_server_piece *head = pl_server_view_piece(view, piece);
    uint64_t before = atomic_load_explicit(&head->sequence, memory_order_acquire);

    if (before == *last_sequence) {
        return true;
    }
    if (before % 2 != 0) {
        return false;
    }
    *last_sequence = 0; /* from now on `to` has no valid copy */
    copy(to, pl_server_view_values(view) + first, count);
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&head->sequence, memory_order_relaxed) != before) {
        return false;
    }
    *last_sequence = before;
    return true;
}

bool pl_server_copy_at(int fd, bool writes, void *data, uint64_t bytes, uint64_t at)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = writes ? pwrite(fd, (char *)data + done, bytes - done, (off_t)(at + done))
                             : pread(fd, (char *)data + done, bytes - done, (off_t)(at + done));

        if (got == 0) {
            errno = ENODATA; /* the file is too short */
        }
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return false;
        }
        done += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}
