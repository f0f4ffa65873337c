/* SPDX-License-Identifier: Apache-2.0 */
/** Hyperparameters as SageMaker passes them: --name value or --name=value; '_' and '-' mean the same. */
#ifndef EXAMPLES_MNIST_OPTIONS_H
#define EXAMPLES_MNIST_OPTIONS_H

#include "base/status.h"

#include <stdint.h>
#include <stdio.h>

/* field, name, type (COUNT: whole number, REAL: at least 0, TEXT), default, help */
#define MNIST_OPTION_LIST(X)                                                                                                                         \
    X(epochs, "epochs", COUNT, "3", "how often the training images are gone through")                                                                \
    X(batch_size, "batch-size", COUNT, "64", "images a rank and step")                                                                               \
    X(learning_rate, "learning-rate", REAL, "0.02", "what one rank would use; multiplied by the number of ranks")                                    \
    X(scale_rate, "scale-learning-rate", COUNT, "1", "0: do not multiply it")                                                                        \
    X(warmup_epochs, "warmup-epochs", REAL, "1", "epochs over which the rate rises to its full size")                                                \
    X(momentum, "momentum", REAL, "0.9", "of SGD")                                                                                                   \
    X(weight_decay, "weight-decay", REAL, "0", "of SGD")                                                                                             \
    X(dropout, "dropout", COUNT, "1", "0: train without dropout")                                                                                    \
    X(seed, "seed", COUNT, "1", "of initial weights, shuffle and dropout")                                                                           \
    X(max_steps, "max-steps", COUNT, "0", "end behind so many steps; 0: no limit")                                                                   \
    X(target_accuracy, "target-accuracy", REAL, "0", "end behind the first epoch that reaches it; 0: never")                                         \
    X(checkpoint_dir, "checkpoint-dir", TEXT, "", "where checkpoints go and come from, in place of /opt/ml/checkpoints where that exists")           \
    X(checkpoint_steps, "checkpoint-steps", COUNT, "0", "one every so many steps, besides those behind each epoch; 0: no others")                    \
    X(data, "data", TEXT, "", "directory with training/ and testing/, in place of SageMaker's channels")                                             \
    X(model_dir, "model-dir", TEXT, "", "where model.safetensors goes, in place of SM_MODEL_DIR")

typedef uint64_t mnist_COUNT;
typedef double mnist_REAL;
typedef const char *mnist_TEXT;

struct mnist_options {
#define MNIST_OPTION_FIELD(field, name, type, fallback, help) mnist_##type field;
    MNIST_OPTION_LIST(MNIST_OPTION_FIELD)
#undef MNIST_OPTION_FIELD
};

/** Texts point into `argv`. PL_INVALID says which word was wrong and what was expected. */
enum pl_status mnist_options_parse(int argc, char *const *argv, struct mnist_options *ret_options, struct pl_error *reterr) PL_MUST_CHECK;

void mnist_options_help(FILE *stream);

#endif
