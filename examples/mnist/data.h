/* SPDX-License-Identifier: Apache-2.0 */
/** The images and labels of one channel, on every rank of the job that needs them. */
#ifndef EXAMPLES_MNIST_DATA_H
#define EXAMPLES_MNIST_DATA_H

#include "runtime/paceline.h"

struct mnist_data {
    struct pl_channel_setup channel;
    struct pl_idx_pairs pairs;
    uint64_t epoch;        /* epoch of `pairs` */
    size_t image_bytes;    /* size of every image; 0 until the first images are loaded */
    struct pl_shard deal;  /* this rank's share of the samples */
    struct pl_world *host; /* the ranks of this host; only with Pipe Mode */
};

/**
 * Opens the channel `name`, or the directory `directory`/`name` if `directory` is not empty.
 *
 * Errors  PL_NOT_FOUND if there is no such channel; PL_UNSUPPORTED in Pipe Mode if this host has another worker of
 *         parameter servers that reads the channel.
 */
enum pl_status mnist_data_open(struct pl_runtime *runtime, const char *name, const char *directory,
                               struct mnist_data *ret_data, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Loads the samples of `epoch` into `pairs`. Every rank reads files, once. A Pipe Mode FIFO is read in every epoch by
 * one rank of the host, because its bytes can be read only once.
 *
 * Errors  PL_INVALID if the image size has changed; PL_CANCELLED, on all ranks of the host, if the program was asked to
 *         stop while its FIFO delivered nothing.
 */
enum pl_status mnist_data_load(struct mnist_data *data, uint64_t epoch, struct pl_error *reterr) PL_MUST_CHECK;

void mnist_data_done(struct mnist_data *data);

#endif
