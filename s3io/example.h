/* SPDX-License-Identifier: Apache-2.0 */
/**
 * tf.Example messages, read in place. A feature is a view into the record; its numbers are decoded directly into the
 * caller's memory.
 *
 * Source  TensorFlow's example.proto and feature.proto.
 * Test    tests/unit/s3io/record/test_example.c, tests/fuzz/fuzz_record.c
 */
#ifndef PL_S3IO_EXAMPLE_H
#define PL_S3IO_EXAMPLE_H

#include "base/status.h"

#include <stddef.h>

/** Bytes of a message; valid as long as the message. */
struct pl_view {
    const unsigned char *data;
    size_t bytes;
};

enum pl_example_kind { PL_EXAMPLE_EMPTY, PL_EXAMPLE_BYTES, PL_EXAMPLE_FLOAT32, PL_EXAMPLE_INT64 };

/** A feature of a message; valid as long as the message. */
struct pl_example_feature {
    struct pl_view name;
    enum pl_example_kind kind;
    struct pl_view list; /* the BytesList, FloatList or Int64List */
};

/**
 * Finds the feature `name` of the message `data`. If there are several, the last one counts, as in protocol buffers.
 *
 * Errors  PL_NOT_FOUND: there is no such feature. PL_CORRUPT: the message is not a tf.Example.
 */
enum pl_status pl_example_find(const void *data, size_t bytes, const char *name, struct pl_example_feature *ret_feature,
                               struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the only value of a bytes feature. PL_INVALID if the feature has another kind or number of values. */
enum pl_status pl_example_bytes(const struct pl_example_feature *feature, struct pl_view *ret_value,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Stores the values of a bytes feature in `values` [room], and their number in `*ret_count`. PL_LIMIT if there are more
 * than `room`.
 */
enum pl_status pl_example_bytes_list(const struct pl_example_feature *feature, struct pl_view *values, size_t room,
                                     size_t *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_example_bytes_list() for a feature of floats, packed or not. */
enum pl_status pl_example_float32(const struct pl_example_feature *feature, float *values, size_t room,
                                  size_t *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

/** As pl_example_bytes_list() for a feature of integers, packed or not. */
enum pl_status pl_example_int64(const struct pl_example_feature *feature, int64_t *values, size_t room,
                                size_t *ret_count, struct pl_error *reterr) PL_MUST_CHECK;

#endif
