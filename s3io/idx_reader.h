/* SPDX-License-Identifier: Apache-2.0 */
/** Reads IDX arrays from a byte source. Internal to s3io/. */
#ifndef PL_S3IO_IDX_READER_H
#define PL_S3IO_IDX_READER_H

#include "s3io/idx.h"
#include "s3io/source.h"

/**
 * Opens a reader of the arrays in `source`, which follow one another; each may be plain, gzip or zstd. On success the
 * reader owns `source`. `max_array_bytes` limits the memory that one header can make it allocate.
 */
enum pl_status pl_idx_reader_open(struct pl_source *source, size_t max_array_bytes, struct pl_idx_reader **ret_reader,
                                  struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the next array, or PL_END after the last one. PL_CORRUPT with source and offset if an array is truncated or
 * wrong. After an error the reader can only be closed.
 */
enum pl_status pl_idx_reader_next(struct pl_idx_reader *reader, int64_t deadline_ns, struct pl_idx *ret_idx,
                                  struct pl_error *reterr) PL_MUST_CHECK;

void pl_idx_reader_close(struct pl_idx_reader *reader);

#endif
