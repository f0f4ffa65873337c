/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The ring between the distributor and one rank: frames in shared memory, with one writer, one reader and no locks. A
 * side that must wait sets its flag in the ring and waits for its eventfd. Internal to s3io/.
 */
#ifndef PL_S3IO_PIPE_SHARE_RING_H
#define PL_S3IO_PIPE_SHARE_RING_H

#include "base/status.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum pl_share_frame_kind {
    PL_SHARE_FRAME_PAD,    /* unused bytes up to the ring's end: each frame must be contiguous */
    PL_SHARE_FRAME_RECORD, /* a whole record */
    /* a part of a record that is too large for one frame; `bytes` is the size of the whole record */
    PL_SHARE_FRAME_PART,
};

struct pl_share_frame {
    uint32_t kind;
    uint32_t frame_bytes; /* size of this frame with its head and padding */
    uint32_t data_bytes;  /* size of the data after the head */
    uint32_t reserved;
    uint64_t epoch;
    uint64_t number;       /* number of the record in the epoch */
    uint64_t offset_bytes; /* offset of the record in its source */
    uint64_t bytes;        /* size of the whole record */
};

enum { PL_SHARE_FRAME_ALIGN = 64 };

/*
 * A message of the distributor outside the frames: how an epoch ended, or what delays the next frame. Each ring's head
 * has a separate place for it, so that all ranks can read it although a ring is full or a rank does not read.
 */
struct pl_share_report {
    uint64_t epoch;
    uint64_t final;        /* 0: the reason for a wait, or nothing if the error's status is PL_OK */
    struct pl_error error; /* its status is PL_END after the last record of an epoch */
};

enum pl_share_report_slot {
    /* about the latest epoch that was opened; the report of its end stays until all ranks ask for another epoch */
    PL_SHARE_REPORT_EPOCH,
    PL_SHARE_REPORT_CHANNEL, /* about the wait for the next epoch; if it is final, there is no next epoch */
    PL_SHARE_REPORT_SLOTS,
};

enum { PL_SHARE_REPORT_WORDS = sizeof(struct pl_share_report) / sizeof(uint64_t) };

/* A report as words, so that a read during a write is defined behaviour. The reader detects such a write by the
 * version. */
struct pl_share_report_words {
    _Atomic uint64_t version; /* 0 if it was never written; odd while it is written */
    _Atomic uint64_t words[PL_SHARE_REPORT_WORDS];
};

/* The first page of the shared memory. The fields of the two writers are in separate cache lines. */
struct pl_share_ring_head {
    _Alignas(64) _Atomic uint64_t written; /* total number of bytes; written by the distributor */
    _Atomic uint32_t distributor_waits;    /* the distributor waits for room in this ring */
    _Alignas(64) _Atomic uint64_t read;    /* total number of bytes; written by the rank */
    _Atomic uint32_t rank_waits;           /* the rank waits for a frame */
    /* number of the epoch that the rank reads, plus one; UINT64_MAX after the rank has left the channel */
    _Atomic uint64_t wanted;
    _Atomic uint32_t timed_out; /* whether the rank's last call ended at its deadline */
    /* Whether local rank 0's own last call ended at its deadline; written by local rank 0. */
    _Alignas(64) _Atomic uint32_t distributor_timed_out;
    struct pl_share_report_words reports[PL_SHARE_REPORT_SLOTS]; /* written by the distributor */
};

struct pl_share_ring {
    struct pl_share_ring_head *head;
    unsigned char *data;
    size_t bytes; /* size of `data`; a power of two */
    int memory_fd;
    int rank_fd;        /* eventfd that wakes the rank */
    int distributor_fd; /* eventfd that wakes the distributor; the same one for all rings */
};

/** Makes the memory of a ring and the rank's eventfd. `distributor_fd` is duplicated. */
enum pl_status pl_share_ring_create(size_t ring_bytes, int distributor_fd, struct pl_share_ring *ret_ring,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Maps a ring by the three descriptors that another process has made. They belong to the ring from then on. */
enum pl_status pl_share_ring_attach(int memory_fd, int rank_fd, int distributor_fd, struct pl_share_ring *ret_ring,
                                    struct pl_error *reterr) PL_MUST_CHECK;

void pl_share_ring_done(struct pl_share_ring *ring);

/** Returns the largest number of data bytes in one frame. */
size_t pl_share_ring_max_data(const struct pl_share_ring *ring);

/**
 * Reserves room for a frame with `data_bytes` bytes of data. Returns its address, or NULL if there is no room now. The
 * rank cannot see the frame yet.
 */
struct pl_share_frame *pl_share_ring_reserve(struct pl_share_ring *ring, size_t data_bytes);

/** Makes the frame visible to the rank and wakes the rank. */
void pl_share_ring_publish(struct pl_share_ring *ring, struct pl_share_frame *frame);

/** Writes a report instead of the last one in `slot`, and wakes the rank. One thread at a time. */
void pl_share_ring_report(struct pl_share_ring *ring, enum pl_share_report_slot slot,
                          const struct pl_share_report *report);

/** Reads the report in `slot`. Returns false if there is none, or while it is being written. */
bool pl_share_ring_read_report(const struct pl_share_ring *ring, enum pl_share_report_slot slot,
                               struct pl_share_report *ret_report);

/** Returns the next frame, or NULL. `*ret_status` becomes PL_CORRUPT if the bytes there are not a frame. */
struct pl_share_frame *pl_share_ring_peek(struct pl_share_ring *ring, enum pl_status *ret_status);

/** Releases the frame's room, and wakes the distributor if it waits for room. */
void pl_share_ring_release(struct pl_share_ring *ring, const struct pl_share_frame *frame);

/** The first makes `fd`, an eventfd, readable. The second empties it again. */
void pl_share_ring_event_set(int fd);
void pl_share_ring_event_clear(int fd);

#endif
