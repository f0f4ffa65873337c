/* SPDX-License-Identifier: Apache-2.0 */
/** Decompression for readers inside s3io that detect it in a stream themselves. */
#ifndef PL_S3IO_BYTES_INFLATE_H
#define PL_S3IO_BYTES_INFLATE_H

#include "s3io/bytes/window.h"
#include "s3io/source.h"

/** Returns whether gzip data begins here. At least two bytes must be available for true. */
bool pl_inflate_is_gzip(const struct pl_window *window);

/** Returns whether a zstd frame begins here. At least four bytes must be available for true. */
bool pl_inflate_is_zstd(const struct pl_window *window);

/**
 * Opens the gzip member or zstd frame at the beginning of `window`. The window stays the caller's; after the source's
 * end it is at the byte behind the member.
 */
enum pl_status pl_inflate_open_member(struct pl_window *window, enum pl_compression compression,
                                      struct pl_source **ret_source, struct pl_error *reterr) PL_MUST_CHECK;

#endif
