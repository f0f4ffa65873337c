/* SPDX-License-Identifier: Apache-2.0 */
/** Batches of CIFAR-10 pictures from TFRecord shards: from files, from S3, or through Pipe Mode's FIFOs. */
#ifndef EXAMPLES_CIFAR10_DATA_H
#define EXAMPLES_CIFAR10_DATA_H

#include "runtime/paceline.h"

enum {
    CIFAR10_SIDE = 32,
    CIFAR10_CHANNELS = 3,
    CIFAR10_PIXELS = CIFAR10_SIDE * CIFAR10_SIDE,
    CIFAR10_VALUES = CIFAR10_PIXELS * CIFAR10_CHANNELS
};

/** The program's hyperparameters; the table in cifar10.c describes them. */
struct cifar10_options {
    uint64_t epochs, batch_size;
    double learning_rate;
    uint64_t warmup_steps;
    double momentum, weight_decay;
    uint64_t seed, shuffle_buffer, max_steps, checkpoint_steps;
    double timeout; /* in seconds */
    const char *checkpoint_dir, *data, *model_dir, *device, *precision;
};

/** A channel's data, see cifar10_data_open(). */
struct cifar10_data;

/**
 * Opens the channel `name`, or the directory or S3 prefix OPTIONS.data/NAME if OPTIONS.data is set. With `training`,
 * batches are full and shuffled; without, samples keep their order and the last batch may be short. `all` and `local`
 * are this process's shares: in the job and on its host.
 *
 * Errors  PL_NOT_FOUND: no such channel.
 */
enum pl_status cifar10_data_open(struct pl_runtime *runtime, const char *name, bool training,
                                 const struct cifar10_options *options, struct pl_shard all, struct pl_shard local,
                                 struct cifar10_data **ret_data, struct pl_error *reterr) PL_MUST_CHECK;

/** Begins `epoch`. */
enum pl_status cifar10_data_start(struct cifar10_data *data, uint64_t epoch, struct pl_error *reterr) PL_MUST_CHECK;

/** A batch; valid until the next one. */
struct cifar10_batch {
    uint64_t index; /* number in the epoch, from 0 */
    size_t samples;
    const float *images;   /* [samples][32][32][3], values from about -2 to 2 */
    const uint8_t *labels; /* [samples]: classes of the pictures */
};

/** Returns this rank's next batch. PL_END after the last batch. */
enum pl_status cifar10_data_next(struct cifar10_data *data, struct cifar10_batch *ret_batch,
                                 struct pl_error *reterr) PL_MUST_CHECK;

struct pl_dataset_progress cifar10_data_progress(const struct cifar10_data *data);

/** Closes the data, which may be NULL. */
void cifar10_data_close(struct cifar10_data *data);

#endif
