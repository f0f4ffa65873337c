/* SPDX-License-Identifier: Apache-2.0 */
/** The features of a tf.Example one after the other, for s3io/example.h and its tests. Internal to s3io/. */
#ifndef PL_S3IO_RECORD_EXAMPLE_WALK_H
#define PL_S3IO_RECORD_EXAMPLE_WALK_H

#include "s3io/example.h"
#include "s3io/record/protobuf.h"

/** Step through the features of `message` in their order; start with a zeroed `walk`. PL_END after the last. */
struct pl_example_walk {
    bool started;
    struct pl_protobuf example;
    struct pl_protobuf features;
};

enum pl_status pl_example_next(struct pl_example_walk *walk, const void *data, size_t bytes,
                               struct pl_example_feature *ret_feature, struct pl_error *reterr) PL_MUST_CHECK;

#endif
