/* SPDX-License-Identifier: Apache-2.0 */
/* Records of arbitrary bytes, of each format. */
#include "base/clock.h"
#include "s3io/idx.h"
#include "s3io/record.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"
#include "tests/support/fuzz.h"

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
        PL_BUG_IF(skip && status == PL_CORRUPT && format != PL_RECORD_IDX);
        pl_record_reader_close(reader);
    }
}

static int fuzz_csv(const uint8_t *data, size_t bytes)
{
    fuzz_records(PL_RECORD_CSV, data, bytes);
    return 0;
}

static int fuzz_recordio(const uint8_t *data, size_t bytes)
{
    fuzz_records(PL_RECORD_RECORDIO, data, bytes);
    return 0;
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

enum { ROOM = 64 };

static void read_values(const struct pl_example_feature *feature)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_view views[ROOM];
    int64_t integers[ROOM];
    float floats[ROOM];
    size_t count = 0;

    PL_BUG_IF(pl_example_bytes_list(feature, views, ROOM, &count, &error) == PL_OK && count > ROOM);
    PL_BUG_IF(pl_example_int64(feature, integers, ROOM, &count, &error) == PL_OK && count > ROOM);
    PL_BUG_IF(pl_example_float32(feature, floats, ROOM, &count, &error) == PL_OK && count > ROOM);
}

/* Every feature that a walk finds lies inside the message and is found again by its name. */
static int fuzz_example(const uint8_t *data, size_t bytes)
{
    struct pl_example_walk walk = {.started = false};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_example_feature feature, again;
    enum pl_status status;
    size_t features = 0;
    char name[32] = "";

    while ((status = pl_example_next(&walk, data, bytes, &feature, &error)) == PL_OK) {
        PL_BUG_IF(feature.name.data &&
                  (feature.name.data < data || feature.name.data + feature.name.bytes > data + bytes));
        PL_BUG_IF(feature.list.data &&
                  (feature.list.data < data || feature.list.data + feature.list.bytes > data + bytes));
        if (features++ == 0 && feature.name.bytes > 0 && feature.name.bytes < sizeof(name)) {
            memcpy(name, feature.name.data, feature.name.bytes);
        }
        read_values(&feature);
    }
    PL_BUG_IF(status != PL_END && status != PL_CORRUPT);
    PL_BUG_IF(status == PL_END && name[0] && !memchr(name, 0, strlen(name)) && features == 1 &&
              pl_example_find(data, bytes, name, &again, &error) == PL_CORRUPT);
    return 0;
}

FUZZ_TARGETS({"csv", fuzz_csv}, {"recordio", fuzz_recordio}, {"tfrecord", fuzz_tfrecord}, {"idx", fuzz_idx},
             {"example", fuzz_example})
