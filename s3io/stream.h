/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The records of a channel, epoch after epoch: the same records in the same order for the same rank whether they come
 * from files, from S3 or through Pipe Mode's FIFOs. Records are numbered over all objects of the epoch in key order (or
 * in the epoch's shuffled order), and record i belongs to rank i mod size.
 *
 * Test  tests/unit/s3io/dataset/test_stream.c
 */
#ifndef PL_S3IO_STREAM_H
#define PL_S3IO_STREAM_H

#include "s3io/channel.h"
#include "s3io/loader.h"
#include "s3io/record.h"
#include "s3io/store.h"

enum pl_stream_split {
    PL_STREAM_SPLIT_RECORDS, /* record i belongs to rank i mod size; every rank reads over all bytes */
    /* object i belongs to rank i mod size; not in Pipe Mode, where objects cannot be told apart */
    PL_STREAM_SPLIT_OBJECTS,
};

/**
 * How the ranks of a host share a FIFO of Pipe Mode, which one of them reads (s3io/share.h). Zero-initialise, then set
 * what differs.
 */
struct pl_share_options {
    /* the same on all ranks of the host, in a directory only the job's user can write; at most 107 bytes */
    const char *socket_path;
    uint32_t local_rank;
    uint32_t local_size;
    struct pl_shard deal; /* of this rank */
    size_t ring_bytes;    /* 0: 8 MiB; a power of two; local rank 0's counts */
    int64_t timeout_ns;   /* 0: 5 minutes; for ranks to connect, and for the FIFO to deliver a record */
};

/** Zero-initialise, then set what differs. `deal` must be set. */
struct pl_stream_options {
    struct pl_record_options records;
    enum pl_compression compression; /* of every object, or of the FIFO's stream */
    enum pl_stream_split split;
    struct pl_shard deal;
    /* read the objects in an order that `seed` and the epoch decide; in Pipe Mode the order is the feeder's */
    bool shuffle_objects;
    uint64_t seed;
    const struct pl_share_options *share; /* Pipe Mode with several ranks on the host; its `deal` is taken from here */
};

struct pl_stream;

/**
 * The records of `channel`, whose strings are copied.
 *
 * Collective  with `share`, over the ranks of the host.
 * Errors      PL_NOT_FOUND for a directory that is not there; a FIFO is only looked for when an epoch is read.
 */
enum pl_status pl_stream_open(const struct pl_channel *channel, const struct pl_stream_options *options,
                              struct pl_stream **ret_stream, struct pl_error *reterr) PL_MUST_CHECK;

/** The records of the objects of `store`, whose ownership passes to the stream on success. */
enum pl_status pl_stream_open_store(struct pl_store *store, const struct pl_stream_options *options,
                                    struct pl_stream **ret_stream, struct pl_error *reterr) PL_MUST_CHECK;

/** Go to the beginning of `epoch`. Objects are listed once, in the first epoch. */
enum pl_status pl_stream_start(struct pl_stream *stream, uint64_t epoch, int64_t deadline_ns,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * This rank's next record; valid until the next call. `index` numbers it in the whole epoch. PL_END after the last.
 *
 * Errors  as pl_record_reader_next().
 */
enum pl_status pl_stream_next(struct pl_stream *stream, int64_t deadline_ns, struct pl_record *ret_record,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Of this epoch, over all objects so far; with `share` only records and record_bytes. */
struct pl_record_counts pl_stream_counts(const struct pl_stream *stream);

/** With true, make running calls and later ones return PL_CANCELLED; with false, end that. Any thread. */
void pl_stream_cancel(struct pl_stream *stream, bool cancelled);

void pl_stream_close(struct pl_stream *stream);

/** Samples for a loader out of the records of a stream. */
struct pl_stream_samples {
    struct pl_stream *stream;
    void *context;
    /* Decode one record into the rows `fields`. */
    enum pl_status (*decode)(void *context, const struct pl_record *record, void *const *fields,
                             struct pl_error *reterr);
};

/**
 * An input for a loader; `samples` must outlive the loader. A record that cannot be decoded is an error with its number
 * and offset.
 */
struct pl_loader_input pl_loader_input_stream(struct pl_stream_samples *samples);

#endif
