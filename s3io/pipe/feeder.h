/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The platform's side of Pipe Mode: the objects of a store written into the FIFOs PATH_0, PATH_1, ..., one an epoch, so
 * that a program that reads Pipe Mode runs anywhere. A reader that closes early ends the epoch, as on the platform.
 *
 * Test  tests/unit/s3io/pipe/test_feeder.c, tests/integration/cifar10.py
 */
#ifndef PL_S3IO_PIPE_FEEDER_H
#define PL_S3IO_PIPE_FEEDER_H

#include "s3io/record.h"
#include "s3io/sampler.h"
#include "s3io/source.h"
#include "s3io/store.h"

/** One epoch as a single source, for what is not a list of objects; its shards and shuffling are its own. */
struct pl_feeder_epochs {
    void *context;
    enum pl_status (*open)(void *context, uint64_t epoch, struct pl_source **ret_source, struct pl_error *reterr);
};

/** Zero-initialise, then set what differs. */
struct pl_feeder_options {
    enum pl_channel_wrapper wrapper;
    enum pl_compression compression; /* decompress objects before they are written */
    /* objects in an order that `seed` and the epoch decide, as pl_stream_options has it */
    bool shuffle;
    uint64_t seed;
    struct pl_shard shard; /* size 0: all objects; else object i when i mod size is rank, counted in key order */
    bool late;             /* make the FIFO of an epoch when the one before is over, not in advance */
    bool copy;             /* write copies instead of lending pages to the pipe; for readers that splice or tee */
    uint64_t cut_bytes;    /* for tests: close the FIFO after so many bytes of the epoch; 0: never */
    int64_t timeout_ns;    /* 0: for ever; longest wait for a reader to open an epoch, and for it to read on */
    int cancel_fd;         /* stop when it is readable (a signalfd, an eventfd); -1: none. Must be set */
};

/** Of one epoch. */
struct pl_feeder_counts {
    uint64_t objects; /* written whole; an epoch that is one source counts as one */
    uint64_t bytes;
    bool closed_early; /* the reader left before the end */
};

struct pl_feeder;

/**
 * Feed `store`, which must outlive the feeder, into the FIFOs of `path`. Objects are listed now; if there are none
 * is PL_NOT_FOUND.
 */
enum pl_status pl_feeder_open(struct pl_store *store, const char *path, const struct pl_feeder_options *options,
                              int64_t deadline_ns, struct pl_feeder **ret_feeder,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Feed `epochs`, whose context must outlive the feeder; of the options those about objects are not used. */
enum pl_status pl_feeder_open_epochs(const struct pl_feeder_epochs *epochs, const char *path,
                                     const struct pl_feeder_options *options, struct pl_feeder **ret_feeder,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Feed one epoch: make its FIFO (and the next one's unless `late`), wait for a reader, write everything, remove the
 * FIFO.
 *
 * Errors  PL_TIMEOUT when no reader came or it stopped reading; PL_CANCELLED; what reading the store returns.
 * Note    SIGPIPE must be ignored by the process.
 */
enum pl_status pl_feeder_run(struct pl_feeder *feeder, uint64_t epoch, struct pl_feeder_counts *ret_counts,
                             struct pl_error *reterr) PL_MUST_CHECK;

/** Remove FIFOs that were made and not used. */
void pl_feeder_close(struct pl_feeder *feeder);

#endif
