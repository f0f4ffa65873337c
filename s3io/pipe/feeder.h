/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The platform's part in Pipe Mode: writes the objects of a store into the FIFOs PATH_0, PATH_1, ..., one FIFO per
 * epoch. So a program that reads Pipe Mode runs anywhere. If a reader closes the FIFO early, the epoch ends, as on the
 * platform.
 *
 * Test  tests/unit/s3io/pipe/test_feeder.c, tests/integration/cifar10.py
 */
#ifndef PL_S3IO_PIPE_FEEDER_H
#define PL_S3IO_PIPE_FEEDER_H

#include "s3io/record.h"
#include "s3io/sampler.h"
#include "s3io/source.h"
#include "s3io/store.h"

/**
 * Opens an epoch as a single source, for data that is not a list of objects. Sharding and shuffling are the source's
 * own.
 */
struct pl_feeder_epochs {
    void *context;
    enum pl_status (*open)(void *context, uint64_t epoch, struct pl_source **ret_source, struct pl_error *reterr);
};

/** Zero-initialise, then set the options that differ from the defaults. */
struct pl_feeder_options {
    enum pl_channel_wrapper wrapper;
    enum pl_compression compression; /* decompress objects before they are written */
    /* write the objects in an order that depends on `seed` and the epoch, see pl_stream_options */
    bool shuffle;
    uint64_t seed;
    struct pl_shard shard; /* objects to write: all if size is 0, or object i in key order if i mod size is rank */
    bool late;             /* make the FIFO of an epoch after the end of the previous one, not in advance */
    /* write copies instead of lending pages to the pipe; needed for readers that splice or tee */
    bool copy;
    uint64_t cut_bytes; /* for tests: close the FIFO after this many bytes of the epoch; 0 means never */
    /* longest wait for a reader to open an epoch, to continue reading, and to leave after a failure; 0: no limit */
    int64_t timeout_ns;
    /* stop when this descriptor is readable (a signalfd, an eventfd); -1 if there is none. It must be set */
    int cancel_fd;
};

/** The counts of one epoch. */
struct pl_feeder_counts {
    uint64_t objects; /* objects that were written completely; a single source counts as one object */
    uint64_t bytes;
    bool closed_early; /* the reader closed the FIFO before the end */
};

struct pl_feeder;

/**
 * Makes a feeder that writes `store`, which must outlive it, into the FIFOs of `path`. The objects are listed now.
 * PL_NOT_FOUND if there are none.
 */
enum pl_status pl_feeder_open(struct pl_store *store, const char *path, const struct pl_feeder_options *options,
                              int64_t deadline_ns, struct pl_feeder **ret_feeder,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Makes a feeder that writes `epochs`, whose context must outlive it. The options about objects have no effect. */
enum pl_status pl_feeder_open_epochs(const struct pl_feeder_epochs *epochs, const char *path,
                                     const struct pl_feeder_options *options, struct pl_feeder **ret_feeder,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Feeds one epoch: makes its FIFO (and, unless `late`, the FIFO of the next epoch), waits for a reader, writes
 * everything, and removes the FIFO. After an error in the middle of the epoch, other than PL_CANCELLED, the FIFO stays
 * open for writing, so that its reader does not take the end of the FIFO for the end of the data: report the error,
 * then call pl_feeder_hold().
 *
 * Errors  PL_TIMEOUT: no reader came, or it stopped reading. PL_CANCELLED. The errors of reading the store.
 * Note    the process must ignore SIGPIPE.
 */
enum pl_status pl_feeder_run(struct pl_feeder *feeder, uint64_t epoch, struct pl_feeder_counts *ret_counts,
                             struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Call it after an error of pl_feeder_run(): keeps the FIFO of the failed epoch open until its reader leaves, a stop is
 * requested, or the `timeout_ns` passes. Meanwhile the reader's own deadline tells it that no data comes.
 */
void pl_feeder_hold(struct pl_feeder *feeder);

/** Removes the FIFOs that were made and not used, and frees the feeder. */
void pl_feeder_close(struct pl_feeder *feeder);

#endif
