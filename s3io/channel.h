/* SPDX-License-Identifier: Apache-2.0 */
/**
 * A channel of training data as a plain struct, and functions that fill this struct from the platform's public
 * variables SM_CHANNEL_<NAME> and SM_INPUT_DATA_CONFIG.
 *
 * Source  the SageMaker developer guide on input modes; SM_CHANNEL_<NAME> names the same path in Pipe Mode, where only
 *         the FIFOs PATH_0, PATH_1, ... exist.
 * Test    tests/unit/s3io/dataset/test_channel.c, test_idx_pairs.c, test_stream.c
 */
#ifndef PL_S3IO_CHANNEL_H
#define PL_S3IO_CHANNEL_H

#include "s3io/record.h"
#include "s3io/sampler.h"

enum pl_channel_mode {
    PL_CHANNEL_FILE,     /* `path` is a directory of files */
    PL_CHANNEL_PIPE,     /* the path `path` + "_" + epoch is a FIFO with the objects of one epoch in key order */
    PL_CHANNEL_FASTFILE, /* `path` is a read-only mount: as File, but each object is opened only when it is read */
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
    int stop_fd;      /* descriptor that ends waits, see pl_source_stop_fifo(); 0 or less: none */
    /* Pipe Mode: the FIFOs have only the records of this rank. `paceline train` deals them and sets PACELINE_FIFOS: see
     * s3io/pipe/split.h. */
    bool is_dealt;
    /* Pipe Mode under `paceline train`: path of a file with the number of the platform's FIFOs of which reading has
     * begun, because they are used up. Each epoch is read from the next FIFO, whatever the epoch's number: a program
     * that resumes may begin with any. NULL: epoch N is FIFO N. Of a dealt channel the ranks count their own FIFOs. */
    const char *begun_path;
    bool is_shuffled; /* the platform gives each epoch another order (ShuffleConfig) */
};

/** A channel, with the memory of the strings that `info` points to. Zero-initialise. */
struct pl_channel_setup {
    struct pl_channel info;
    char *name;
    char *path;
    char *begun_path;
};

struct pl_environment;

/**
 * Looks `name` up in `environment`. Errors: PL_NOT_FOUND lists the channels that the environment has; PL_INVALID if
 * SM_INPUT_DATA_CONFIG is not strict JSON (base/json/json.h), or if its mode is not text.
 */
enum pl_status pl_channel_setup_find_in(const struct pl_environment *environment, const char *name,
                                        struct pl_channel_setup *ret_setup, struct pl_error *reterr) PL_MUST_CHECK;

/** Describes a File channel `name` at the directory `path`, for programs that run outside the platform. */
enum pl_status pl_channel_setup_directory(const char *name, const char *path, struct pl_channel_setup *ret_setup,
                                          struct pl_error *reterr) PL_MUST_CHECK;

void pl_channel_setup_done(struct pl_channel_setup *setup);

/**
 * Returns the shard of a rank: all ranks of the world share a replicated channel, the ranks of one host share a sharded
 * one. The FIFOs of a dealt channel belong to the rank alone.
 */
struct pl_shard pl_channel_shard(const struct pl_channel *channel, struct pl_shard world, struct pl_shard local);
#define pl_channel_deal pl_channel_shard /* former name, kept for one release */

#endif
