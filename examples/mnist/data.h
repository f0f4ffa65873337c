/* SPDX-License-Identifier: Apache-2.0 */
/** The images and labels of one channel, on every rank of the job that needs them. */
#ifndef EXAMPLES_MNIST_DATA_H
#define EXAMPLES_MNIST_DATA_H

#include "runtime/paceline.h"

struct mnist_data {
    struct pl_channel_setup channel;
    struct pl_idx_pairs pairs;
    uint64_t epoch;        /* that `pairs` are of */
    size_t image_bytes;    /* of every image; 0: that of the first ones that are loaded */
    struct pl_shard deal;  /* which samples are this rank's */
    struct pl_world *host; /* the ranks of this host; only for Pipe Mode */
};

/**
 * Open the channel `name`, or the directory `directory`/`name` unless that is empty.
 *
 * Errors  PL_NOT_FOUND: no such channel. PL_UNSUPPORTED: Pipe Mode, and another worker of parameter servers reads it.
 */
enum pl_status mnist_data_open(struct pl_runtime *runtime, const char *name, const char *directory,
                               struct mnist_data *ret_data, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Load the samples of `epoch` into `pairs`. Files are read once, by every rank; a Pipe Mode FIFO is read every epoch,
 * by one rank of the host, since the others cannot read the same bytes again.
 *
 * Errors  PL_INVALID: images of another size than before. PL_CANCELLED, on all ranks of the host: asked to stop while
 *         its FIFO delivered nothing.
 */
enum pl_status mnist_data_load(struct mnist_data *data, uint64_t epoch, struct pl_error *reterr) PL_MUST_CHECK;

void mnist_data_done(struct mnist_data *data);

#endif
