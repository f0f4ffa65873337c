/* SPDX-License-Identifier: Apache-2.0 */
/** Decompression inside s3io, for readers that detect it in a stream themselves. */
#ifndef PL_S3IO_BYTES_INFLATE_H
#define PL_S3IO_BYTES_INFLATE_H

#include "s3io/bytes/window.h"
#include "s3io/source.h"

/** Does gzip data begin here? Needs two available bytes to say yes. */
bool pl_inflate_is_gzip(const struct pl_window *window);

/** Does a zstd frame begin here? Needs four available bytes to say yes. */
bool pl_inflate_is_zstd(const struct pl_window *window);

/**
 * One gzip member or one zstd frame at the beginning of `window`, which stays the caller's and is afterwards just after
 * it.
 */
enum pl_status pl_inflate_open_member(struct pl_window *window, enum pl_compression compression,
                                      struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

#endif
