/* SPDX-License-Identifier: Apache-2.0 */
/** The common part of the record formats. Internal to s3io/. */
#ifndef PL_S3IO_RECORD_RECORD_FORMATS_H
#define PL_S3IO_RECORD_RECORD_FORMATS_H

#include "s3io/bytes/window.h"
#include "s3io/idx.h"
#include "s3io/record.h"
#include "s3io/source.h"

struct pl_record_reader {
    struct pl_source *source;
    struct pl_record_options options;
    struct pl_window window;
    struct pl_record_counts counts;
    uint64_t next_index;
    /* bytes of the last record with its framing: the next call consumes them, so that the view stays valid until
     * then */
    uint64_t discard_bytes;
    bool broken;           /* an error was returned, and the position is no longer valid */
    unsigned char *joined; /* RecordIO: a record of several parts; tar: key and extensions of a sample */
    size_t joined_capacity;
    uint64_t items_left; /* IDX: remaining items of the current array */
    size_t item_bytes;
    bool whole_done;    /* PL_RECORD_WHOLE: the only record was returned */
    bool archive_ended; /* tar: zeros have ended the archive */
};

/**
 * Finds the record at the beginning of the window, and describes it. It does not consume a good record but sets
 * `*ret_framed_bytes`; the bytes that it consumes are skipped data, which it counts in `counts`. If `check` is false,
 * the record's data need not be in the window and is not checked.
 */
typedef enum pl_status pl_record_find(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                      struct pl_record *ret_record, uint64_t *ret_framed_bytes,
                                      struct pl_error *reterr);

pl_record_find pl_record_find_tfrecord, pl_record_find_recordio, pl_record_find_lines, pl_record_find_csv,
    pl_record_find_idx, pl_record_find_whole, pl_record_find_tar;

/** Sets PL_CORRUPT with source, record number and offset. */
enum pl_status pl_record_corrupt(const struct pl_record_reader *reader, struct pl_error *reterr, const char *format,
                                 ...) PL_PRINTF(3, 4);

/** Returns PL_LIMIT if a record of `bytes` bytes is longer than allowed, else PL_OK. */
enum pl_status pl_record_check_length(const struct pl_record_reader *reader, uint64_t bytes,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Skips `bytes` corrupt bytes, which must be available, and counts them as one piece. */
void pl_record_skip_bytes(struct pl_record_reader *reader, size_t bytes);

static inline uint32_t pl_record_load_le32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t pl_record_load_le64(const unsigned char *at)
{
    return pl_record_load_le32(at) | (uint64_t)pl_record_load_le32(at + 4) << 32;
}

static inline void pl_record_store_le32(unsigned char *at, uint32_t word)
{
    for (unsigned i = 0; i < 4; i++) {
        at[i] = (unsigned char)(word >> (8 * i));
    }
}

enum { PL_RECORDIO_HEAD_BYTES = 8 };

/** The longest data of one RecordIO part. */
#define PL_RECORDIO_MOST_BYTES ((UINT32_C(1) << 29) - 1)

/**
 * Writes the head of a RecordIO part. Flag 0 is a whole record; 1, 2 and 3 are the first, a middle and the last part of
 * a record.
 */
static inline void pl_record_recordio_head(unsigned flag, uint32_t bytes, unsigned char head[PL_RECORDIO_HEAD_BYTES])
{
    pl_record_store_le32(head, UINT32_C(0xced7230a));
    pl_record_store_le32(head + 4, (uint32_t)flag << 29 | bytes);
}

static inline uint32_t pl_record_load_be32(const unsigned char *at)
{
    return (uint32_t)at[3] | (uint32_t)at[2] << 8 | (uint32_t)at[1] << 16 | (uint32_t)at[0] << 24;
}

enum { PL_RECORD_TAR_NAME_BYTES = 4096 };

/** A member of a tar archive, as its headers describe it. Places are relative to the data that is walked over. */
struct pl_record_tar_member {
    char name[PL_RECORD_TAR_NAME_BYTES]; /* name with its folder */
    /* length of the key in `name`: the folder, and the base name before its first dot. 0: the member belongs to no
     * sample. It is a directory, a global header, or a file whose name has no dot or begins with one. */
    size_t key_bytes;
    size_t data_at, end; /* where the member's bytes begin, and where the next member begins */
    uint64_t bytes;
    size_t want;  /* number of bytes needed first; if above `available`, only this is set */
    bool is_zero; /* there is no member here, but a block of zeros */
};

/**
 * Describes the member at `at` of `data`, of which `available` bytes are there, from its headers. `offset_bytes` says
 * where `data` is in the source, for errors.
 *
 * Errors  PL_CORRUPT: a checksum, a number or a pax header is wrong. PL_UNSUPPORTED names a link, a device, a sparse
 *         file. PL_LIMIT: a name is too long.
 */
enum pl_status pl_record_tar_next(const unsigned char *data, size_t available, size_t at, uint64_t offset_bytes,
                                  struct pl_record_tar_member *member, struct pl_error *reterr) PL_MUST_CHECK;

/* Reads records from a byte source. Internal to s3io/; programs read the records of a stream (s3io/stream.h). */

/** Opens a reader of the records in `source`. On success the reader owns `source`. */
enum pl_status pl_record_reader_open(struct pl_source *source, const struct pl_record_options *options,
                                     struct pl_record_reader **ret_reader, struct pl_error *reterr) PL_MUST_CHECK;

/** Close the source of a reader, and begin another one in the reader's memory, as pl_record_reader_open() does. */
void pl_record_reader_end(struct pl_record_reader *reader);
enum pl_status pl_record_reader_begin(struct pl_record_reader *reader, struct pl_source *source, size_t window_bytes,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Says that the source begins at record `number` of an object, in the middle of it. */
void pl_record_reader_begin_at(struct pl_record_reader *reader, uint64_t number);

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

/* Reads IDX arrays from a byte source. */

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
