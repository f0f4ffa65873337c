/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The ring between the distributor and one rank: frames in shared memory, one writer and one reader, no locks. A side
 * that has to wait sets its flag in the ring and waits for its eventfd. Inside s3io only.
 */
#ifndef PL_S3IO_PIPE_SHARE_RING_H
#define PL_S3IO_PIPE_SHARE_RING_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum pl_share_frame_kind {
    PL_SHARE_FRAME_PAD,    /* nothing, up to the ring's end: a frame lies in one piece */
    PL_SHARE_FRAME_RECORD, /* a whole record */
    PL_SHARE_FRAME_PART,   /* a piece of a record too large for a frame; `bytes` counts the whole record */
    PL_SHARE_FRAME_END,    /* of the epoch */
    PL_SHARE_FRAME_ERROR,  /* `number` is the status, the data its text */
};

struct pl_share_frame {
    uint32_t kind;
    uint32_t frame_bytes; /* of this frame with its head and padding */
    uint32_t data_bytes;  /* after the head */
    uint32_t reserved;
    uint64_t epoch;
    uint64_t number;       /* of the record in the epoch */
    uint64_t offset_bytes; /* of the record in its source */
    uint64_t bytes;        /* of the record */
};

enum { PL_SHARE_FRAME_ALIGN = 64 };

/* The first page of the shared memory. The fields of the two writers are in separate cache lines. */
struct pl_share_ring_head {
    _Alignas(64) _Atomic uint64_t written; /* bytes, ever growing; by the distributor */
    _Atomic uint32_t distributor_waits;    /* for room in this ring */
    _Alignas(64) _Atomic uint64_t read;    /* by the rank */
    _Atomic uint32_t rank_waits;           /* for a frame */
    _Atomic uint64_t wanted;               /* epoch the rank reads, plus one; UINT64_MAX when it has left for good */
};

struct pl_share_ring {
    struct pl_share_ring_head *head;
    unsigned char *data;
    size_t bytes; /* of `data`; a power of two */
    int memory_fd;
    int rank_fd;        /* eventfd: something for the rank */
    int distributor_fd; /* eventfd: something for the distributor; the same in all rings */
};

/** Make the memory of a ring and its eventfd for the rank; `distributor_fd` is duplicated. */
enum pl_status pl_share_ring_create(size_t ring_bytes, int distributor_fd, struct pl_share_ring *ret_ring,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Map a ring from the three descriptors another process made, which then belong to the ring. */
enum pl_status pl_share_ring_attach(int memory_fd, int rank_fd, int distributor_fd, struct pl_share_ring *ret_ring,
                                    struct pl_error *reterr) PL_MUST_CHECK;

void pl_share_ring_done(struct pl_share_ring *ring);

/** The largest data of one frame. */
size_t pl_share_ring_max_data(const struct pl_share_ring *ring);

/** Room for a frame with `data_bytes`: its address, or NULL when there is none now. The frame is not yet visible. */
struct pl_share_frame *pl_share_ring_reserve(struct pl_share_ring *ring, size_t data_bytes);

/** Make the frame visible to the rank and wake it. */
void pl_share_ring_publish(struct pl_share_ring *ring, struct pl_share_frame *frame);

/** The next frame, or NULL. PL_CORRUPT in `*ret_status` when the bytes there are not a frame. */
struct pl_share_frame *pl_share_ring_peek(struct pl_share_ring *ring, enum pl_status *ret_status);

/** Release the frame's room and wake the distributor if it waits for room. */
void pl_share_ring_release(struct pl_share_ring *ring, const struct pl_share_frame *frame);

/** Make `fd`, an eventfd, readable; then empty it again. */
void pl_share_ring_event_set(int fd);
void pl_share_ring_event_clear(int fd);

#endif
