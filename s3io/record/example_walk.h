/* SPDX-License-Identifier: Apache-2.0 */
/** Walks through the features of a tf.Example, for s3io/example.h and its tests. Internal to s3io/. */
#ifndef PL_S3IO_RECORD_EXAMPLE_WALK_H
#define PL_S3IO_RECORD_EXAMPLE_WALK_H

#include "s3io/example.h"
#include "s3io/record/protobuf.h"

/**
 * The position in the features of a message. Zero-initialise before the first pl_example_next(), which returns the
 * features in their order, and PL_END after the last one.
 */
struct pl_example_walk {
    bool started;
    struct pl_protobuf example;
    struct pl_protobuf features;
};

enum pl_status pl_example_next(struct pl_example_walk *walk, const void *data, size_t bytes,
                               struct pl_example_feature *ret_feature, struct pl_error *reterr) PL_MUST_CHECK;

#endif
