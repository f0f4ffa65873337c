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

#include "s3io/source.h"

enum pl_idx_type {
    PL_IDX_UINT8 = 0x08,
    PL_IDX_INT8 = 0x09,
    PL_IDX_INT16 = 0x0B,
    PL_IDX_INT32 = 0x0C,
    PL_IDX_FLOAT32 = 0x0D,
    PL_IDX_FLOAT64 = 0x0E,
};

enum { PL_IDX_MAX_DIMS = 8 };

/** One array; elements stay big-endian as in the file. Zero-initialise, release with pl_idx_done(). */
struct pl_idx {
    enum pl_idx_type type;
    unsigned dims;
    uint32_t shape[PL_IDX_MAX_DIMS];
    size_t item_bytes; /* one item along the first dimension */
    unsigned char *data;
};

void pl_idx_done(struct pl_idx *idx);

struct pl_idx_reader;

/**
 * Read arrays from `source`, one after the other, each plain, gzip or zstd; ownership of `source` passes to the reader
 * on success. `max_array_bytes` bounds what one header can make us allocate.
 */
enum pl_status pl_idx_reader_open(struct pl_source *source, size_t max_array_bytes, struct pl_idx_reader **ret_reader,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The next array, or PL_END after the last. A truncated or wrong one is PL_CORRUPT with source and offset. After an
 * error only close.
 */
enum pl_status pl_idx_reader_next(struct pl_idx_reader *reader, int64_t deadline_ns, struct pl_idx *ret_idx,
                                  struct pl_error *reterr) PL_MUST_CHECK;

void pl_idx_reader_close(struct pl_idx_reader *reader);

/** Pictures and their labels, as MNIST has them: `images` [count][item_bytes] and `labels` [count], both uint8. */
struct pl_idx_pairs {
    struct pl_idx images;
    struct pl_idx labels;
    size_t count;
};

void pl_idx_pairs_done(struct pl_idx_pairs *pairs);

struct pl_channel;

/**
 * Load all pictures and labels of a channel (s3io/channel.h): from its directory, or from the FIFO of `epoch` in Pipe
 * Mode. Every object is plain, gzip or zstd. In key order, the k-th array of labels (one dimension) belongs to the k-th
 * array of images (more dimensions); several such pairs of the same picture size are concatenated.
 *
 * Errors  PL_INVALID when there are no arrays, counts differ, or the elements are not uint8; PL_CORRUPT; PL_TIMEOUT.
 */
enum pl_status pl_idx_pairs_load(const struct pl_channel *channel, uint64_t epoch, int64_t deadline_ns,
                                 struct pl_idx_pairs *ret_pairs, struct pl_error *reterr) PL_MUST_CHECK;

#endif
