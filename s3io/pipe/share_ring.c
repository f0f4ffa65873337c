/* SPDX-License-Identifier: Apache-2.0 */
/* A single-producer, single-consumer ring of frames in shared memory. */
#include "s3io/pipe/share_ring.h"

#include "base/fd.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096 };

_Static_assert(sizeof(struct pl_share_ring_head) <= HEAD_BYTES, "the head has its own page");
_Static_assert(sizeof(struct pl_share_report) == PL_SHARE_REPORT_WORDS * sizeof(uint64_t), "a report is whole words");

void pl_share_ring_event_set(int fd)
{
    uint64_t one = 1;

    /* This fails only if the counter is full, and then the eventfd is readable already. */
    (void)!write(fd, &one, sizeof(one));
}

void pl_share_ring_event_clear(int fd)
{
    uint64_t count;

    (void)!read(fd, &count, sizeof(count));
}

static enum pl_status map_ring(struct pl_share_ring *ring, struct pl_error *reterr)
{
    void *memory = mmap(NULL, HEAD_BYTES + ring->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->memory_fd, 0);

    if (memory == MAP_FAILED) {
        return pl_error_errno(reterr, "map a ring of %zu bytes", ring->bytes);
    }
    ring->head = memory;
    ring->data = (unsigned char *)memory + HEAD_BYTES;
    return PL_OK;
}

static enum pl_status create(size_t ring_bytes, int distributor_fd, struct pl_share_ring *ring, struct pl_error *reterr)
{
    int code;

    ring->bytes = ring_bytes;
    ring->memory_fd = pl_fd_new_memory("paceline-ring", HEAD_BYTES + ring_bytes);
    ring->rank_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ring->distributor_fd = fcntl(distributor_fd, F_DUPFD_CLOEXEC, 0);
    if (ring->memory_fd < 0 || ring->rank_fd < 0 || ring->distributor_fd < 0) {
        return pl_error_errno(reterr, "make the descriptors of a ring");
    }
    /* Allocate the memory now: without memory, a write in the middle of a record would end with SIGBUS. */
    code = pl_file_allocate(ring->memory_fd, 0, (off_t)(HEAD_BYTES + ring_bytes));
    if (code != 0) {
        return pl_error_raise(reterr, PL_SYSTEM, PL_DOMAIN_ERRNO, code, "cannot make a ring of %zu bytes", ring_bytes);
    }
    if (pl_fd_seal_size(ring->memory_fd) != 0) {
        return pl_error_errno(reterr, "seal the memory of a ring");
    }
    return map_ring(ring, reterr);
}

enum pl_status pl_share_ring_create(size_t ring_bytes, int distributor_fd, struct pl_share_ring *ret_ring,
                                    struct pl_error *reterr)
{
    struct pl_share_ring ring = {.memory_fd = -1, .rank_fd = -1, .distributor_fd = -1};
    enum pl_status status;

    if (ring_bytes < HEAD_BYTES || (ring_bytes & (ring_bytes - 1)) != 0 || ring_bytes > UINT32_MAX) {
        return pl_error_set(reterr, PL_INVALID,
                            "expected a ring whose size is a power of two from 4096 bytes to 2 GiB, found %zu bytes",
                            ring_bytes);
    }
    status = create(ring_bytes, distributor_fd, &ring, reterr);
    if (status != PL_OK) {
        pl_share_ring_done(&ring);
        return status;
    }
    *ret_ring = ring;
    return PL_OK;
}

enum pl_status pl_share_ring_attach(int memory_fd, int rank_fd, int distributor_fd, struct pl_share_ring *ret_ring,
                                    struct pl_error *reterr)
{
    struct pl_share_ring ring = {.memory_fd = memory_fd, .rank_fd = rank_fd, .distributor_fd = distributor_fd};
    enum pl_status status = PL_OK;
    struct stat info;

    if (fstat(memory_fd, &info) != 0) {
        status = pl_error_errno(reterr, "fstat a ring");
    } else if (info.st_size <= 2 * HEAD_BYTES - 1 ||
               ((info.st_size - HEAD_BYTES) & (info.st_size - HEAD_BYTES - 1)) != 0) {
        status = pl_error_set(reterr, PL_INVALID,
                              "expected a ring with a head and a power of two of bytes, found %lld bytes",
                              (long long)info.st_size);
    } else {
        ring.bytes = (size_t)info.st_size - HEAD_BYTES;
        status = map_ring(&ring, reterr);
    }
    if (status != PL_OK) {
        pl_share_ring_done(&ring);
        return status;
    }
    *ret_ring = ring;
    return PL_OK;
}

void pl_share_ring_done(struct pl_share_ring *ring)
{
    if (ring->head) {
        munmap(ring->head, HEAD_BYTES + ring->bytes);
    }
    pl_file_close_at(&ring->memory_fd);
    pl_file_close_at(&ring->rank_fd);
    pl_file_close_at(&ring->distributor_fd);
    *ring = (struct pl_share_ring){.memory_fd = -1, .rank_fd = -1, .distributor_fd = -1};
}

size_t pl_share_ring_max_data(const struct pl_share_ring *ring)
{
    /* A frame takes at most a quarter of the ring. So a frame and the padding before it always fit into an empty ring,
     * and the two sides can work at the same time. */
    return ring->bytes / 4 - sizeof(struct pl_share_frame);
}

static size_t frame_size(size_t data_bytes)
{
    return (sizeof(struct pl_share_frame) + data_bytes + PL_SHARE_FRAME_ALIGN - 1) &
           ~(size_t)(PL_SHARE_FRAME_ALIGN - 1);
}

struct pl_share_frame *pl_share_ring_reserve(struct pl_share_ring *ring, size_t data_bytes)
{
    uint64_t written = atomic_load_explicit(&ring->head->written, memory_order_relaxed);
    uint64_t used = written - atomic_load_explicit(&ring->head->read, memory_order_acquire);
    size_t at = (size_t)written & (ring->bytes - 1), bytes = frame_size(data_bytes), to_end = ring->bytes - at;
    struct pl_share_frame *frame = (struct pl_share_frame *)(void *)(ring->data + at);

    PL_BUG_IF(data_bytes > pl_share_ring_max_data(ring));
    /* Another process writes the rank's counter: an invalid value counts as a full ring. */
    if (used > ring->bytes || (bytes <= to_end ? bytes : bytes + to_end) > ring->bytes - used) {
        return NULL;
    }
    if (bytes > to_end) {
        *frame = (struct pl_share_frame){.kind = PL_SHARE_FRAME_PAD, .frame_bytes = (uint32_t)to_end};
        atomic_store_explicit(&ring->head->written, written + to_end, memory_order_release);
        frame = (struct pl_share_frame *)(void *)ring->data;
    }
    *frame = (struct pl_share_frame){.frame_bytes = (uint32_t)bytes, .data_bytes = (uint32_t)data_bytes};
    return frame;
}

static void wake_rank(struct pl_share_ring *ring)
{
    if (atomic_exchange(&ring->head->rank_waits, 0)) {
        pl_share_ring_event_set(ring->rank_fd);
    }
}

void pl_share_ring_publish(struct pl_share_ring *ring, struct pl_share_frame *frame)
{
    uint64_t written = atomic_load_explicit(&ring->head->written, memory_order_relaxed);

    /* This store, and the other side's flag and load, are sequentially consistent: so one of the two sides sees the
     * other. */
    atomic_store(&ring->head->written, written + frame->frame_bytes);
    wake_rank(ring);
}

/* All accesses are sequentially consistent: a reader that finds the same even version before and after has the whole
 * report. */
void pl_share_ring_report(struct pl_share_ring *ring, enum pl_share_report_slot slot,
                          const struct pl_share_report *report)
{
    struct pl_share_report_words *to = &ring->head->reports[slot];
    uint64_t words[PL_SHARE_REPORT_WORDS], version = atomic_load(&to->version);

    memcpy(words, report, sizeof(words));
    atomic_store(&to->version, version + 1);
    for (size_t i = 0; i < PL_SHARE_REPORT_WORDS; i++) {
        atomic_store(&to->words[i], words[i]);
    }
    atomic_store(&to->version, version + 2);
    wake_rank(ring);
}

bool pl_share_ring_read_report(const struct pl_share_ring *ring, enum pl_share_report_slot slot,
                               struct pl_share_report *ret_report)
{
    const struct pl_share_report_words *from = &ring->head->reports[slot];
    uint64_t words[PL_SHARE_REPORT_WORDS], version = atomic_load(&from->version);

    if (version == 0 || version % 2 != 0) {
        return false;
    }
    for (size_t i = 0; i < PL_SHARE_REPORT_WORDS; i++) {
        words[i] = atomic_load(&from->words[i]);
    }
    if (atomic_load(&from->version) != version) {
        return false;
    }
    memcpy(ret_report, words, sizeof(words));
    return true;
}

struct pl_share_frame *pl_share_ring_peek(struct pl_share_ring *ring, enum pl_status *ret_status)
{
    *ret_status = PL_OK;
    for (;;) {
        uint64_t read = atomic_load_explicit(&ring->head->read, memory_order_relaxed),
                 written = atomic_load(&ring->head->written);
        size_t at = (size_t)read & (ring->bytes - 1);
        struct pl_share_frame *frame = (struct pl_share_frame *)(void *)(ring->data + at);

        if (read == written) {
            return NULL;
        }
        if (frame->frame_bytes < PL_SHARE_FRAME_ALIGN || frame->frame_bytes % PL_SHARE_FRAME_ALIGN ||
            frame->frame_bytes > ring->bytes - at || frame->frame_bytes > written - read ||
            frame->data_bytes > frame->frame_bytes - sizeof(*frame)) {
            *ret_status = PL_CORRUPT;
            return NULL;
        }
        if (frame->kind != PL_SHARE_FRAME_PAD) {
            return frame;
        }
        pl_share_ring_release(ring, frame);
    }
}

void pl_share_ring_release(struct pl_share_ring *ring, const struct pl_share_frame *frame)
{
    uint64_t read = atomic_load_explicit(&ring->head->read, memory_order_relaxed);

    atomic_store(&ring->head->read, read + frame->frame_bytes);
    if (atomic_exchange(&ring->head->distributor_waits, 0)) {
        pl_share_ring_event_set(ring->distributor_fd);
    }
}
