/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A channel of training data as a plain struct: what the platform's configuration says, without its files or
 * variables. Whoever reads those (runtime/channel) fills it in.
 *
 * Test  tests/unit/s3io/dataset/test_idx_pairs.c, test_stream.c
 */
#ifndef PL_S3IO_CHANNEL_H
#define PL_S3IO_CHANNEL_H

#include "s3io/record.h"
#include "s3io/sampler.h"

enum pl_channel_mode {
    PL_CHANNEL_FILE,     /* `path` is a directory of files */
    PL_CHANNEL_PIPE,     /* `path` + "_" + epoch is a FIFO that carries the objects of one epoch in key order */
    PL_CHANNEL_FASTFILE, /* `path` is a read-only mount; as File, opened one by one as they are read */
};

enum pl_channel_distribution {
    PL_CHANNEL_FULLY_REPLICATED, /* every host has all objects */
    PL_CHANNEL_SHARDED_BY_KEY,   /* every host has its own objects */
};

/** Strings stay the owner's. */
struct pl_channel {
    const char *name; /* "training" */
    enum pl_channel_mode mode;
    enum pl_channel_distribution distribution;
    enum pl_channel_wrapper wrapper;
    const char *path; /* "/opt/ml/input/data/training" */
    int stop_fd;      /* as pl_source_stop_fifo() takes it; 0 or less: none */
};

/** World ranks share a replicated channel, the ranks of one host share a sharded one. */
struct pl_shard pl_channel_shard(const struct pl_channel *channel, struct pl_shard world, struct pl_shard local);
#define pl_channel_deal pl_channel_shard /* its former name, for one release */

#endif
