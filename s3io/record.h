/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Records from a byte source. A record is a view into the reader's buffer: nothing is copied, and the view is valid
 * until the next call. Checksums are verified, and a length that is too large is refused before memory is allocated. If
 * the input ends inside a record, that is an error with source and offset: an epoch is never too short without an
 * error.
 *
 * Test  tests/unit/s3io/record/test_record.c, test_tar.c and the fuzz targets in tests/fuzz
 */
#ifndef PL_S3IO_RECORD_H
#define PL_S3IO_RECORD_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The compression of a source. */
enum pl_compression {
    PL_COMPRESSION_NONE,
    PL_COMPRESSION_GZIP, /* any number of members, one after the other */
    PL_COMPRESSION_ZSTD, /* any number of frames */
    /* detected from the first bytes; if they are neither gzip nor zstd, the source is not compressed */
    PL_COMPRESSION_AUTO,
};

enum pl_record_format {
    PL_RECORD_TFRECORD, /* length, masked CRC32C, data, masked CRC32C */
    PL_RECORD_RECORDIO, /* magic, flag and length, data, padding; also the wrapping that Pipe Mode adds */
    /* a line ends with "\n" or "\r\n", which is not part of the record; the last line may lack it */
    PL_RECORD_LINES,
    /* as lines, but a line end inside a quoted field belongs to the record (RFC 4180); PL_UNSUPPORTED if the text is of
     * another dialect */
    PL_RECORD_CSV,
    PL_RECORD_IDX,   /* the items along the first dimension of IDX arrays, one array after the other */
    PL_RECORD_WHOLE, /* all the bytes of the source are one record */
    /* the samples of tar archives (ustar, GNU, pax), one archive after the other: files that follow each other and have
     * the same name before the first dot of the base name; the record has their headers too. A repeated name is
     * PL_CORRUPT; a link, a device or a sparse file is PL_UNSUPPORTED. Directories are passed over, and files whose
     * base name has no dot or begins with one. */
    PL_RECORD_TAR,
};

/** How the parts of a split RecordIO record are joined. */
enum pl_record_join {
    PL_RECORD_JOIN_DMLC,   /* with the magic word between the parts, which dmlc's and MXNet's writers dropped there */
    PL_RECORD_JOIN_CONCAT, /* with nothing between the parts, as SageMaker's own readers do */
};

enum pl_channel_wrapper {
    PL_CHANNEL_WRAPPER_NONE,
    PL_CHANNEL_WRAPPER_RECORDIO, /* Pipe Mode: each object is one RecordIO record */
};

/** A record. `data` is valid until the next call on the reader. */
struct pl_record {
    const unsigned char *data;
    size_t bytes;
    uint64_t index;        /* number of the record in the source, from 0; a skipped record keeps its number */
    uint64_t offset_bytes; /* where the record's framing begins in the source, after decompression */
    uint64_t object;       /* of a stream: number of the record's object in the epoch's order */
    uint64_t number;       /* number of the record in its source; differs from `index` only in a stream */
    bool is_unchecked;     /* the data was not compared with `checksum` yet: see pl_record_check() */
    uint32_t checksum;
};

/** Zero-initialise, then set the options that differ from the defaults. */
struct pl_record_options {
    enum pl_record_format format;
    enum pl_record_join join; /* only for RecordIO */
    size_t max_record_bytes;  /* 0 means 1 GiB; a longer record is PL_LIMIT before anything is allocated */
    size_t window_bytes;      /* first size of the buffer, which grows to the longest record; 0 means 2 MiB */
    /* skip and count corrupt records instead of returning PL_CORRUPT; not for IDX and tar, where only the lengths of
     * earlier items tell where the next item begins */
    bool skip_corrupt;
    bool keep_empty_lines; /* lines and CSV: an empty line is a record */
    /* CSV: the byte between fields, which tells where a field and its quotes begin; 0 means a comma */
    char delimiter;
    /* leave the checksum of a TFRecord's data to pl_record_check(), which another thread may call; no effect with
     * skip_corrupt */
    bool leave_checksum;
};

struct pl_record_counts {
    uint64_t records;
    uint64_t record_bytes;  /* payload */
    uint64_t source_bytes;  /* bytes consumed from the source */
    uint64_t skipped;       /* number of corrupt records or pieces that were skipped */
    uint64_t skipped_bytes; /* bytes of the skipped pieces */
    uint64_t next_index;    /* number of the next record: counts records, and skipped pieces that have a number */
};

/** Checks the data of a record that `leave_checksum` left unchecked. PL_CORRUPT has both checksums if they differ. */
enum pl_status pl_record_check(const struct pl_record *record, struct pl_error *reterr) PL_MUST_CHECK;

struct pl_record_reader;

#endif
