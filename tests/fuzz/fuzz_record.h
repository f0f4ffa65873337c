/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the fuzz targets of the record formats: reads the whole input twice, once strictly and once skipping
 * damaged records. */
#ifndef PL_TESTS_FUZZ_RECORD_H
#define PL_TESTS_FUZZ_RECORD_H

#include "base/clock.h"
#include "s3io/record.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "tests/support/fuzz.h"

/** Read all of `data` as `format`. The output must account for every byte of the input. */
static inline void fuzz_records(enum pl_record_format format, const uint8_t *data, size_t bytes)
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
        PL_BUG_IF(skip && status == PL_CORRUPT && format != PL_RECORD_IDX);
        pl_record_reader_close(reader);
    }
}

#endif
