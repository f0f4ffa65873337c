/* SPDX-License-Identifier: Apache-2.0 */
/** The head of an IDX array. Internal to s3io/. */
#ifndef PL_S3IO_RECORD_IDX_FORMAT_H
#define PL_S3IO_RECORD_IDX_FORMAT_H

#include "s3io/bytes/window.h"
#include "s3io/idx.h"

/**
 * Reads the head at the beginning of `window`, without consuming it. Sets type, dims, shape and item_bytes of
 * `ret_idx`, and the length of the head in bytes. PL_END if the window is at the end of its source. PL_CORRUPT and
 * PL_LIMIT have source and offset.
 */
enum pl_status pl_idx_read_head(struct pl_window *window, int64_t deadline_ns, struct pl_idx *ret_idx,
                                size_t *ret_head_bytes, struct pl_error *reterr) PL_MUST_CHECK;

#endif
