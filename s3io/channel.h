/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A channel of training data as a plain struct: the content of the platform's configuration, without its files or
 * variables. The code that reads those fills it in (runtime/channel).
 *
 * Test  tests/unit/s3io/dataset/test_idx_pairs.c, test_stream.c
 */
#ifndef PL_S3IO_CHANNEL_H
#define PL_S3IO_CHANNEL_H

#include "s3io/record.h"
#include "s3io/sampler.h"

enum pl_channel_mode {
    PL_CHANNEL_FILE,     /* `path` is a directory of files */
    PL_CHANNEL_PIPE,     /* the path `path` + "_" + epoch is a FIFO with the objects of one epoch in key order */
    PL_CHANNEL_FASTFILE, /* `path` is a read-only mount; as File, but objects are opened one by one as they are read */
};

enum pl_channel_distribution {
    PL_CHANNEL_FULLY_REPLICATED, /* every host has all objects */
    PL_CHANNEL_SHARDED_BY_KEY,   /* every host has its own objects */
};

/** A channel. The strings belong to the code that fills it in. */
struct pl_channel {
    const char *name; /* "training" */
    enum pl_channel_mode mode;
    enum pl_channel_distribution distribution;
    enum pl_channel_wrapper wrapper;
    const char *path; /* "/opt/ml/input/data/training" */
    int stop_fd;      /* see pl_source_stop_fifo(); 0 or less if there is none */
};

/**
 * Returns the shard of a rank: all ranks of the world share a replicated channel, the ranks of one host share a sharded
 * one.
 */
struct pl_shard pl_channel_shard(const struct pl_channel *channel, struct pl_shard world, struct pl_shard local);
#define pl_channel_deal pl_channel_shard /* former name, kept for one release */

#endif
