/* SPDX-License-Identifier: Apache-2.0 */
/** The head of an IDX array. Inside s3io only. */
#ifndef PL_S3IO_RECORD_IDX_FORMAT_H
#define PL_S3IO_RECORD_IDX_FORMAT_H

#include "s3io/bytes/window.h"
#include "s3io/idx.h"

/**
 * Read the head at the beginning of `window`, which is not consumed: type, dims, shape and item_bytes of `ret_idx`, and
 * its own length in bytes. PL_END when the window is at the end of its source. PL_CORRUPT and PL_LIMIT name source and
 * offset.
 */
enum pl_status pl_idx_read_head(struct pl_window *window, int64_t deadline_ns, struct pl_idx *ret_idx,
                                size_t *ret_head_bytes, struct pl_error *reterr) PL_MUST_CHECK;

#endif
