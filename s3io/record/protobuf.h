/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Protocol-buffer wire format, read in place: a cursor over a message gives one field at a time. Internal to s3io/.
 *
 * Source  the protocol buffers encoding guide (varints, wire types 0, 1, 2 and 5; groups are refused).
 */
#ifndef PL_S3IO_RECORD_PROTOBUF_H
#define PL_S3IO_RECORD_PROTOBUF_H

#include "s3io/example.h"

enum pl_protobuf_wire {
    PL_PROTOBUF_VARINT = 0,
    PL_PROTOBUF_FIXED64 = 1,
    PL_PROTOBUF_BYTES = 2,
    PL_PROTOBUF_FIXED32 = 5
};

struct pl_protobuf_field {
    uint32_t number;
    enum pl_protobuf_wire wire;
    uint64_t value;      /* value of a varint */
    struct pl_view view; /* the bytes of a BYTES field, or the 4 or 8 bytes of a fixed number */
};

/** A cursor: the rest of a message. */
struct pl_protobuf {
    const unsigned char *next;
    const unsigned char *end;
};

static inline struct pl_protobuf pl_protobuf_of(struct pl_view message)
{
    struct pl_protobuf whole = {message.data, message.data ? message.data + message.bytes : NULL};

    return whole;
}

/** Reads the next field. Returns PL_END after the last one, and PL_CORRUPT without an error text. */
enum pl_status pl_protobuf_next(struct pl_protobuf *protobuf, struct pl_protobuf_field *ret_field) PL_MUST_CHECK;

/**
 * The position in the values of a repeated scalar field, packed or not. Zero-initialise, then call pl_protobuf_scalar()
 * until PL_END. `wire` is the wire type of the scalar, PL_PROTOBUF_VARINT or PL_PROTOBUF_FIXED32; a value is its raw
 * bits.
 */
struct pl_protobuf_run {
    struct pl_protobuf packed;
};

enum pl_status pl_protobuf_scalar(struct pl_protobuf *message, struct pl_protobuf_run *run, uint32_t number,
                                  enum pl_protobuf_wire wire, uint64_t *ret_value) PL_MUST_CHECK;

/* Walks through the features of a tf.Example, for s3io/example.h and its tests. */

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
