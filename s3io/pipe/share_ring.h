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

/*
 * What the distributor says beside the frames: how an epoch ended, or what keeps the next frame. It has a place of its
 * own in each ring's head, so that neither a full ring nor a rank that does not read keeps it from the others.
 */
struct pl_share_report {
    uint64_t epoch;
    uint64_t final;        /* 0: what is waited for now; nothing when the error's status is PL_OK */
    struct pl_error error; /* its status is PL_END after the last record of an epoch */
};

enum pl_share_report_slot {
    PL_SHARE_REPORT_EPOCH,   /* on the latest epoch that was opened; its end stays until all ranks ask for another */
    PL_SHARE_REPORT_CHANNEL, /* on the wait for the next epoch; final: there is none */
    PL_SHARE_REPORT_SLOTS,
};

enum { PL_SHARE_REPORT_WORDS = sizeof(struct pl_share_report) / sizeof(uint64_t) };

/* A report as words, so that reading it while it is written is defined; a version that changed tells so. */
struct pl_share_report_words {
    _Atomic uint64_t version; /* 0: never written; odd while it is written */
    _Atomic uint64_t words[PL_SHARE_REPORT_WORDS];
};

/* The first page of the shared memory. The fields of the two writers are in separate cache lines. */
struct pl_share_ring_head {
    _Alignas(64) _Atomic uint64_t written; /* bytes, ever growing; by the distributor */
    _Atomic uint32_t distributor_waits;    /* for room in this ring */
    _Alignas(64) _Atomic uint64_t read;    /* by the rank */
    _Atomic uint32_t rank_waits;           /* for a frame */
    _Atomic uint64_t wanted;               /* epoch the rank reads, plus one; UINT64_MAX when it has left for good */
    _Atomic uint32_t timed_out;            /* the rank's last call ended at its deadline */
    /* By local rank 0: its own last call ended at its deadline. */
    _Alignas(64) _Atomic uint32_t distributor_timed_out;
    struct pl_share_report_words reports[PL_SHARE_REPORT_SLOTS]; /* by the distributor */
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

/** Write a report, which replaces the one in `slot`, and wake the rank. One thread at a time. */
void pl_share_ring_report(struct pl_share_ring *ring, enum pl_share_report_slot slot,
                          const struct pl_share_report *report);

/** The report in `slot`; false when there is none, or while it is written. */
bool pl_share_ring_read_report(const struct pl_share_ring *ring, enum pl_share_report_slot slot,
                               struct pl_share_report *ret_report);

/** The next frame, or NULL. PL_CORRUPT in `*ret_status` when the bytes there are not a frame. */
struct pl_share_frame *pl_share_ring_peek(struct pl_share_ring *ring, enum pl_status *ret_status);

/** Release the frame's room and wake the distributor if it waits for room. */
void pl_share_ring_release(struct pl_share_ring *ring, const struct pl_share_frame *frame);

/** Make `fd`, an eventfd, readable; then empty it again. */
void pl_share_ring_event_set(int fd);
void pl_share_ring_event_clear(int fd);

#endif
