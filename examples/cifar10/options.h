/* SPDX-License-Identifier: Apache-2.0 */
/** Hyperparameters as SageMaker passes them: --name value or --name=value; '_' and '-' mean the same. */
#ifndef EXAMPLES_CIFAR10_OPTIONS_H
#define EXAMPLES_CIFAR10_OPTIONS_H

#include "base/status.h"

#include <stdio.h>

/* field, name, smallest value, largest value, default, help; all are numbers, and a whole default means whole numbers */
#define CIFAR10_NUMBER_LIST(X)                                                                                                                       \
    X(epochs, "epochs", 1, 100000, 10, "how often the training records are gone through")                                                            \
    X(batch_size, "batch-size", 1, 4096, 64, "pictures a rank and step")                                                                             \
    X(learning_rate, "learning-rate", 0, 100, 0.01, "what one rank would use; multiplied by the number of ranks")                                    \
    X(warmup_steps, "warmup-steps", 0, 1e9, 100, "steps over which the rate rises to its full size")                                                 \
    X(momentum, "momentum", 0, 1, 0.9, "of SGD")                                                                                                     \
    X(weight_decay, "weight-decay", 0, 1, 0.0005, "of SGD")                                                                                          \
    X(seed, "seed", 0, 1e15, 1, "of initial weights, shuffle and dropout")                                                                           \
    X(shuffle_buffer, "shuffle-buffer", 0, 1e7, 2000, "records a rank picks its next one from; 0: as they come")                                     \
    X(max_steps, "max-steps", 0, 1e12, 0, "end behind so many steps; 0: no limit")                                                                   \
    X(timeout, "timeout", 1, 1e6, 600, "seconds to wait for one record")

struct cifar10_options {
#define CIFAR10_NUMBER_FIELD(field, name, least, most, fallback, help) double field;
    CIFAR10_NUMBER_LIST(CIFAR10_NUMBER_FIELD)
#undef CIFAR10_NUMBER_FIELD
    const char *data;      /* a directory or s3://BUCKET/PREFIX with training/ and testing/, in place of SageMaker's channels */
    const char *model_dir; /* in place of SM_MODEL_DIR */
};

/** Texts point into `argv`. PL_INVALID says which word was wrong and what was expected. */
enum pl_status cifar10_options_parse(int argc, char *const *argv, struct cifar10_options *ret_options, struct pl_error *reterr) PL_MUST_CHECK;

void cifar10_options_help(FILE *stream);

#endif
