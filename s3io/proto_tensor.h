/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The tensors of a RecordIO-protobuf record (SageMaker's `Record` message), dense or sparse, read in place.
 *
 * Source  "Common data formats for training" in the SageMaker developer guide: Record, Value, Float32Tensor and its
 *         siblings.
 * Test    tests/unit/s3io/record/test_proto_tensor.c, tests/fuzz/fuzz_proto_tensor.c
 */
#ifndef PL_S3IO_PROTO_TENSOR_H
#define PL_S3IO_PROTO_TENSOR_H

#include "base/status.h"
#include "s3io/protobuf.h"

enum { PL_PROTO_TENSOR_MAX_DIMS = 16 };

enum pl_proto_tensor_part { PL_PROTO_TENSOR_FEATURES, PL_PROTO_TENSOR_LABEL };

enum pl_proto_tensor_type {
    PL_PROTO_TENSOR_FLOAT32,
    PL_PROTO_TENSOR_FLOAT64,
    PL_PROTO_TENSOR_INT32,
    PL_PROTO_TENSOR_BYTES
};

/** A tensor of a record; valid as long as the record. */
struct pl_proto_tensor {
    enum pl_proto_tensor_type type;
    struct pl_view message; /* the tensor message; for bytes the only value */
    uint64_t value_count;
    uint64_t key_count; /* not 0: sparse, and then equal to value_count */
    unsigned dims;      /* 0: no shape given, one dimension of value_count */
    uint64_t shape[PL_PROTO_TENSOR_MAX_DIMS];
};

/**
 * The tensor `name` ("values" by convention) among the features or labels of the record `data`.
 *
 * Errors  PL_NOT_FOUND; PL_CORRUPT for a damaged message, a sparse tensor whose keys and values differ in number or
 *         that lacks its shape; PL_LIMIT for more than PL_PROTO_TENSOR_MAX_DIMS dimensions.
 */
enum pl_status pl_proto_tensor_find(const void *data, size_t bytes, enum pl_proto_tensor_part part, const char *name,
                                    struct pl_proto_tensor *ret_tensor, struct pl_error *reterr) PL_MUST_CHECK;

/** How many elements the dense form has; PL_LIMIT when the shape's product does not fit in 63 bits. */
enum pl_status pl_proto_tensor_elements(const struct pl_proto_tensor *tensor, uint64_t *ret_elements,
                                        struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The dense form as float32 in row-major order: elements that a sparse tensor does not name become 0.
 *
 * Shapes  values: [elems]; elems must be what pl_proto_tensor_elements() says (PL_INVALID otherwise).
 * Errors  PL_CORRUPT for a key beyond the shape; PL_INVALID for a bytes tensor.
 */
enum pl_status pl_proto_tensor_float32(const struct pl_proto_tensor *tensor, float *values, size_t elems,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/** The keys (row-major positions) of a sparse tensor, [key_count]. */
enum pl_status pl_proto_tensor_keys(const struct pl_proto_tensor *tensor, uint64_t *keys, size_t count,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** The stored values without the zeros between them, [value_count]. */
enum pl_status pl_proto_tensor_values(const struct pl_proto_tensor *tensor, float *values, size_t count,
                                      struct pl_error *reterr) PL_MUST_CHECK;

#endif
