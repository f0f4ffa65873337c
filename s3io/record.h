/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Records out of a byte source. A record is a view into the reader's buffer: nothing is copied, and the view is valid
 * until the next call. Checksums are checked, lengths are refused before memory is asked for, and input that ends
 * inside a record is an error with source and offset: an epoch is never silently short.
 *
 * Test  tests/unit/s3io/record/test_record.c and the fuzz targets in tests/fuzz
 */
#ifndef PL_S3IO_RECORD_H
#define PL_S3IO_RECORD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** How the bytes of a source are compressed. */
enum pl_compression {
    PL_COMPRESSION_NONE,
    PL_COMPRESSION_GZIP, /* any number of members one after the other */
    PL_COMPRESSION_ZSTD, /* any number of frames */
    PL_COMPRESSION_AUTO, /* look at the first bytes; neither means plain */
};

enum pl_record_format {
    PL_RECORD_TFRECORD, /* length, masked CRC32C, data, masked CRC32C */
    PL_RECORD_RECORDIO, /* magic, flag and length, data, padding; also the wrapping that Pipe Mode adds */
    PL_RECORD_LINES,    /* "\n" or "\r\n" ends a line, the last may lack it; the end is not part of the record */
    /* as lines, but a line end inside a quoted field belongs to the record (RFC 4180); PL_UNSUPPORTED where the text
     * shows another dialect */
    PL_RECORD_CSV,
    PL_RECORD_IDX,   /* the items along the first dimension of IDX arrays, one array after the other */
    PL_RECORD_WHOLE, /* all the bytes of the source are one record */
};

/** How the parts of a RecordIO record that was split are put together. */
enum pl_record_join {
    PL_RECORD_JOIN_DMLC,   /* the magic word that dmlc's and MXNet's writers dropped is put back between the parts */
    PL_RECORD_JOIN_CONCAT, /* nothing between the parts, as SageMaker's own readers do */
};

enum pl_channel_wrapper {
    PL_CHANNEL_WRAPPER_NONE,
    PL_CHANNEL_WRAPPER_RECORDIO, /* Pipe Mode: each object is one RecordIO record */
};

/** A record; `data` is valid until the next call on the reader. */
struct pl_record {
    const unsigned char *data;
    size_t bytes;
    uint64_t index;        /* counts records of the source from 0; a skipped one keeps its number */
    uint64_t offset_bytes; /* where its framing begins in the (decompressed) source */
};

/** Zero-initialise, then set what differs. */
struct pl_record_options {
    enum pl_record_format format;
    enum pl_record_join join; /* RecordIO */
    size_t max_record_bytes;  /* 0: 1 GiB; a longer record is PL_LIMIT before anything is allocated */
    size_t window_bytes;      /* 0: 2 MiB; the buffer, which grows to the longest record seen */
    /* leave out what is corrupt and count it, instead of PL_CORRUPT; not IDX, where nothing marks the next item */
    bool skip_corrupt;
    bool keep_empty_lines; /* lines and CSV: an empty line is a record */
    /* CSV: the byte between fields; 0: a comma. Needed because a quote opens only as the first byte of a field */
    char delimiter;
};

struct pl_record_counts {
    uint64_t records;
    uint64_t record_bytes;  /* payload */
    uint64_t source_bytes;  /* consumed from the source */
    uint64_t skipped;       /* records or stretches left out because they were corrupt */
    uint64_t skipped_bytes; /* their size */
    uint64_t next_index;    /* the number of the next record: records and those skipped that have a number */
};

struct pl_record_reader;

#endif
