/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Whole IDX arrays (MNIST's file format) in memory.
 *
 * Source  "The IDX file format" on the page of the MNIST database: two zero bytes, a type byte, the number of
 *         dimensions, the dimensions as big-endian 32-bit words, then the elements, big-endian, last dimension fastest.
 * Test    tests/unit/s3io/record/test_idx.c, tests/unit/s3io/dataset/test_idx_pairs.c
 */
#ifndef PL_S3IO_IDX_H
#define PL_S3IO_IDX_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum pl_idx_type {
    PL_IDX_UINT8 = 0x08,
    PL_IDX_INT8 = 0x09,
    PL_IDX_INT16 = 0x0B,
    PL_IDX_INT32 = 0x0C,
    PL_IDX_FLOAT32 = 0x0D,
    PL_IDX_FLOAT64 = 0x0E,
};

enum { PL_IDX_MAX_DIMS = 8 };

/** One array. Its elements stay big-endian, as in the file. Zero-initialise; release with pl_idx_done(). */
struct pl_idx {
    enum pl_idx_type type;
    unsigned dims;
    uint32_t shape[PL_IDX_MAX_DIMS];
    size_t item_bytes; /* size of one item along the first dimension */
    unsigned char *data;
};

void pl_idx_done(struct pl_idx *idx);

struct pl_idx_reader;

/** Images and their labels, as in MNIST: `images` [count][item_bytes] and `labels` [count], both uint8. */
struct pl_idx_pairs {
    struct pl_idx images;
    struct pl_idx labels;
    size_t count;
};

void pl_idx_pairs_done(struct pl_idx_pairs *pairs);

struct pl_channel;

/**
 * Loads all images and labels of a channel (s3io/channel.h): from its directory, or in Pipe Mode from the FIFO of
 * `epoch`. Each object may be plain, gzip or zstd. In key order, the k-th array of labels (one dimension) belongs to
 * the k-th array of images (more dimensions). Several such pairs with the same image size are concatenated.
 *
 * Errors  PL_INVALID: there are no arrays, the numbers of images and labels differ, or the elements are not uint8.
 *         PL_CORRUPT. PL_TIMEOUT.
 */
enum pl_status pl_idx_pairs_load(const struct pl_channel *channel, uint64_t epoch, int64_t deadline_ns,
                                 struct pl_idx_pairs *ret_pairs, struct pl_error *reterr) PL_MUST_CHECK;

#endif
