/* SPDX-License-Identifier: Apache-2.0 */
/** IDX arrays out of a byte source. Internal to s3io/. */
#ifndef PL_S3IO_IDX_READER_H
#define PL_S3IO_IDX_READER_H

#include "s3io/idx.h"
#include "s3io/source.h"

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

#endif
