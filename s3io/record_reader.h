/* SPDX-License-Identifier: Apache-2.0 */
/** Reads records from a byte source. Internal to s3io/; programs read the records of a stream (s3io/stream.h). */
#ifndef PL_S3IO_RECORD_READER_H
#define PL_S3IO_RECORD_READER_H

#include "s3io/record.h"
#include "s3io/source.h"

/** Opens a reader of the records in `source`. On success the reader owns `source`. */
enum pl_status pl_record_reader_open(struct pl_source *source, const struct pl_record_options *options,
                                     struct pl_record_reader **ret_reader, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the next record, or PL_END (without an error text) after the last one.
 *
 * Errors  PL_TIMEOUT: nothing was lost, call again. PL_CORRUPT with source, record number and offset: truncated or
 *         damaged input. PL_UNSUPPORTED with source, record number and offset: CSV that is not RFC 4180, also with
 *         skip_corrupt. PL_LIMIT: a record is longer than allowed. After any error except PL_TIMEOUT the reader can
 *         only be closed.
 */
enum pl_status pl_record_reader_next(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_record *ret_record,
                                     struct pl_error *reterr) PL_MUST_CHECK;

/** Skips one record without checking its data. Otherwise as pl_record_reader_next(). */
enum pl_status pl_record_reader_skip(struct pl_record_reader *reader, int64_t deadline_ns,
                                     struct pl_error *reterr) PL_MUST_CHECK;

struct pl_record_counts pl_record_reader_counts(const struct pl_record_reader *reader);

void pl_record_reader_close(struct pl_record_reader *reader);

#endif
