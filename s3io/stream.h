/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The records of a channel, epoch after epoch. A rank gets the same records in the same order from files, from S3, and
 * from Pipe Mode's FIFOs. Records are numbered over all objects of the epoch in key order, or in the epoch's shuffled
 * order. Record i belongs to rank i mod size.
 *
 * Test  tests/unit/s3io/dataset/test_stream.c, test_place.c
 */
#ifndef PL_S3IO_STREAM_H
#define PL_S3IO_STREAM_H

#include "s3io/channel.h"
#include "s3io/record.h"
#include "s3io/sampler.h"
#include "s3io/store.h"

enum pl_stream_split {
    PL_STREAM_SPLIT_RECORDS, /* record i belongs to rank i mod size; every rank reads all bytes */
    /* object i belongs to rank i mod size; not in Pipe Mode, whose FIFOs have no borders between objects */
    PL_STREAM_SPLIT_OBJECTS,
};

/** Zero-initialise, then set the options that differ from the defaults. `deal` must be set. */
struct pl_stream_options {
    struct pl_record_options records;
    enum pl_compression compression; /* compression of every object, or of the FIFO's stream */
    enum pl_stream_split split;
    struct pl_shard deal;
    /* read the objects in an order that depends on `seed` and the epoch; in Pipe Mode the writer of the FIFO chooses
     * the order */
    bool shuffle_objects;
    uint64_t seed;
    /* For a dealt channel: the rank whose records its FIFOs have, for saved places. A size of 0: not known. */
    struct pl_shard dealt_to;
};

struct pl_stream;

/**
 * Opens the records of `channel`. Its strings are copied.
 *
 * Errors  PL_NOT_FOUND if the directory does not exist. A missing FIFO is noticed only when an epoch is read.
 */
enum pl_status pl_stream_open(const struct pl_channel *channel, const struct pl_stream_options *options,
                              struct pl_stream **ret_stream, struct pl_error *reterr) PL_MUST_CHECK;

/** Opens the records of the objects of `store`. On success the stream owns `store`. */
enum pl_status pl_stream_open_store(struct pl_store *store, const struct pl_stream_options *options,
                                    struct pl_stream **ret_stream, struct pl_error *reterr) PL_MUST_CHECK;

/** Goes to the beginning of `epoch`. The objects are listed once, in the first epoch. */
enum pl_status pl_stream_start(struct pl_stream *stream, uint64_t epoch, int64_t deadline_ns,
                               struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns this rank's next record; it is valid until the next call. Its `index` is its number in the whole epoch, or in
 * the rank's FIFO if the channel is dealt. PL_END after the last record.
 *
 * Errors  those of pl_record_reader_next().
 */
enum pl_status pl_stream_next(struct pl_stream *stream, int64_t deadline_ns, struct pl_record *ret_record,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the place after the last record that was returned, as text (JSON with a checksum), which the caller frees.
 * It has the epoch, the record's number, its object and byte, the seed, the format, rank and number of ranks, and a
 * digest of the list of objects: their keys, sizes and ETags.
 *
 * Errors  PL_INVALID: no epoch was started.
 */
enum pl_status pl_stream_save(struct pl_stream *stream, char **ret_text, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call instead of pl_stream_start(): goes to the place in `text`; pl_stream_next() then returns the record after it. An
 * object is read from there. A FIFO, or an object that is compressed or IDX, is read from its beginning; records before
 * the place are passed over without a check of their data. Counts begin at the place, except `source_bytes`.
 *
 * The place may come from another rank or from another number of ranks if it is the beginning of an epoch. The same
 * holds if records are dealt, without `skip_corrupt`, and all ranks had read equally many when it was saved.
 *
 * Errors  PL_CORRUPT: the text is damaged. PL_UNSUPPORTED: it has another version. PL_MISMATCH names what differs, with
 *         what was found and what was expected: the source, a listed object, the format, compression, order, split,
 *         seed, or the ranks. Those of pl_stream_start(). After PL_TIMEOUT it can be called again.
 */
enum pl_status pl_stream_restore(struct pl_stream *stream, const char *text, int64_t deadline_ns,
                                 struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the counts of this epoch, over all objects so far. */
struct pl_record_counts pl_stream_counts(const struct pl_stream *stream);

void pl_stream_close(struct pl_stream *stream);

/**
 * With true, a waiting pl_stream_start() or pl_stream_next(), and later calls, return PL_CANCELLED; with false, later
 * calls work again. Any thread may call it.
 */
void pl_stream_cancel(struct pl_stream *stream, bool cancelled);

/** Adds the place of a record to an error about its contents: object, number, byte, channel and epoch. */
void pl_stream_error_context(const struct pl_stream *stream, uint64_t epoch, const struct pl_record *record,
                             struct pl_error *reterr);

#endif
