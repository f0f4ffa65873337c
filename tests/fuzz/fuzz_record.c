/* SPDX-License-Identifier: Apache-2.0 */
/* Records of arbitrary bytes, of each format. */
#include "base/clock.h"
#include "base/memory.h"
#include "s3io/fields.h"
#include "s3io/idx.h"
#include "s3io/record.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "tests/support/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Read all of `data` as `format`, once strictly and once skipping damaged records. Reading ends or fails, and accounts
 * for every byte. */
static void fuzz_records(enum pl_record_format format, const uint8_t *data, size_t bytes)
{
    for (int skip = 0; skip < 2; skip++) {
        struct pl_record_options options = {.format = format, .skip_corrupt = skip, .max_record_bytes = 1 << 20};
        struct pl_error error = PL_ERROR_NONE;
        struct pl_record_reader *reader;
        struct pl_record_counts counts;
        struct pl_source *source;
        struct pl_record record;
        enum pl_status status;
        volatile unsigned char sum = 0;

        PL_BUG_IF(pl_source_open_memory("fuzz", data, bytes, &source, &error) != PL_OK);
        PL_BUG_IF(pl_record_reader_open(source, &options, &reader, &error) != PL_OK);
        while ((status = pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error)) == PL_OK) {
            for (size_t i = 0; i < record.bytes; i++) {
                sum = (unsigned char)(sum + record.data[i]);
            }
        }
        counts = pl_record_reader_counts(reader);
        PL_BUG_IF(status != PL_END && error.cause[0] == '\0');
        PL_BUG_IF(status == PL_END && counts.source_bytes != bytes);
        PL_BUG_IF(counts.source_bytes > bytes || counts.skipped_bytes > bytes);
        PL_BUG_IF(!skip && counts.skipped != 0);
        PL_BUG_IF(skip && status == PL_CORRUPT && format != PL_RECORD_IDX && format != PL_RECORD_TAR);
        pl_record_reader_close(reader);
    }
}

enum { ROOM = 64 };

/* Decode a record by fields of all kinds: it fails with a text, or fills the rows and no more. */
static int fuzz_fields(enum pl_field_source source, const struct pl_field *fields, size_t count, const uint8_t *data,
                       size_t bytes)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_decoder *decoder;

    for (size_t i = 0; i < count; i++) {
        struct pl_varying varying = {.data = NULL};
        unsigned char row[ROOM + 1];
        void *rows = row;
        enum pl_status status;

        PL_BUG_IF(pl_decoder_new(source, &fields[i], 1, 0, &decoder, &error) != PL_OK);
        row[pl_decoder_row_bytes(decoder, 0)] = 0xa5;
        status = pl_decode(decoder, data, bytes, &rows, &varying, &error);
        PL_BUG_IF(status != PL_OK && error.cause[0] == '\0');
        PL_BUG_IF(row[pl_decoder_row_bytes(decoder, 0)] != 0xa5 || varying.bytes > varying.capacity);
        PL_BUG_IF(varying.bytes % pl_decoder_row_bytes(decoder, 0) != 0);
        free(varying.data);
        pl_decoder_free(decoder);
    }
    return 0;
}

static int fuzz_csv(const uint8_t *data, size_t bytes)
{
    static const struct pl_field fields[] = {
        {.name = "0", .type = PL_FLOAT32, .dims = 1, .shape = {2}},
        {.name = "1", .type = PL_INT16},
        {.name = "2", .type = PL_UINT8, .is_varying = true},
    };

    fuzz_records(PL_RECORD_CSV, data, bytes);
    return fuzz_fields(PL_FIELDS_CSV, fields, PL_ARRAY_ITEMS(fields), data, bytes);
}

static int fuzz_recordio(const uint8_t *data, size_t bytes)
{
    fuzz_records(PL_RECORD_RECORDIO, data, bytes);
    return 0;
}

/* Returns a copy in which the checksum of each block is that of a tar header, so that damage gets behind it. */
static unsigned char *seal_blocks(const uint8_t *data, size_t bytes)
{
    enum { BLOCK_BYTES = 512, SUM_AT = 148, SUM_BYTES = 8 };
    struct pl_error error = PL_ERROR_NONE;
    unsigned char *copy = pl_memory_new(bytes + 1, 1, &error);

    PL_BUG_IF(!copy);
    memcpy(copy, data, bytes);
    for (size_t at = 0; bytes - at >= BLOCK_BYTES; at += BLOCK_BYTES) {
        unsigned sum = 0;

        memset(copy + at + SUM_AT, ' ', SUM_BYTES);
        for (size_t i = 0; i < BLOCK_BYTES; i++) {
            sum += copy[at + i];
        }
        if (sum > SUM_BYTES * ' ') {
            snprintf((char *)copy + at + SUM_AT, SUM_BYTES, "%06o", sum & 0777777);
        } else {
            memset(copy + at + SUM_AT, 0, SUM_BYTES);
        }
    }
    return copy;
}

/* Samples, and each whole archive as one of them. */
static int fuzz_tar(const uint8_t *data, size_t bytes)
{
    static const struct pl_field fields[] = {
        {.name = "__key__", .type = PL_UINT8, .is_varying = true},
        {.name = "txt", .type = PL_UINT8, .dims = 1, .shape = {4}},
        {.name = "cls", .type = PL_INT16},
        {.name = "cls", .type = PL_FLOAT32, .has_default = true, .default_data = "1234", .default_bytes = 4},
    };

    PL_AUTO_FREE unsigned char *sealed = seal_blocks(data, bytes);

    fuzz_records(PL_RECORD_TAR, data, bytes);
    fuzz_records(PL_RECORD_TAR, sealed, bytes);
    fuzz_fields(PL_FIELDS_TAR, fields, PL_ARRAY_ITEMS(fields), sealed, bytes);
    return fuzz_fields(PL_FIELDS_TAR, fields, PL_ARRAY_ITEMS(fields), data, bytes);
}

static int fuzz_tfrecord(const uint8_t *data, size_t bytes)
{
    fuzz_records(PL_RECORD_TFRECORD, data, bytes);
    return 0;
}

/* IDX items one by one, and whole arrays, which may be compressed. */
static int fuzz_idx(const uint8_t *data, size_t bytes)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_idx_reader *reader;
    enum pl_status status = PL_OK;
    struct pl_source *source;

    fuzz_records(PL_RECORD_IDX, data, bytes);
    PL_BUG_IF(pl_source_open_memory("fuzz", data, bytes, &source, &error) != PL_OK);
    PL_BUG_IF(pl_idx_reader_open(source, 1 << 20, &reader, &error) != PL_OK);
    while (status == PL_OK) {
        struct pl_idx idx = {.dims = 0};

        status = pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error);
        PL_BUG_IF(status == PL_OK && (idx.dims == 0 || !idx.data || idx.item_bytes * idx.shape[0] > 1 << 20));
        pl_idx_done(&idx);
    }
    PL_BUG_IF(status != PL_END && error.cause[0] == '\0');
    pl_idx_reader_close(reader);
    return 0;
}

static int fuzz_example(const uint8_t *data, size_t bytes)
{
    static const struct pl_field fields[] = {
        {.name = "image", .type = PL_UINT8, .is_varying = true},
        {.name = "label", .type = PL_INT64, .dims = 1, .shape = {3}},
        {.name = "label", .type = PL_INT16, .is_varying = true},
        {.name = "weights", .type = PL_FLOAT32, .dims = 1, .shape = {3}},
        {.name = "weights", .type = PL_FLOAT64, .is_varying = true},
        {.name = "values", .type = PL_FLOAT64, .dims = 2, .shape = {2, 2}},
    };

    fuzz_fields(PL_FIELDS_PROTOBUF, fields, PL_ARRAY_ITEMS(fields), data, bytes);
    return fuzz_fields(PL_FIELDS_EXAMPLE, fields, PL_ARRAY_ITEMS(fields), data, bytes);
}

FUZZ_TARGETS({"csv", fuzz_csv}, {"recordio", fuzz_recordio}, {"tar", fuzz_tar}, {"tfrecord", fuzz_tfrecord},
             {"idx", fuzz_idx}, {"example", fuzz_example})
