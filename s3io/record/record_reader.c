/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all record formats: the reader with its window and counts, and errors about records. */
#include "s3io/record.h"

#include "base/activity.h"
#include "base/memory.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_MAX_RECORD_BYTES ((size_t)1 << 30)
#define DEFAULT_WINDOW_BYTES ((size_t)2 << 20) /* room for a full pipe and the rest of a record */

enum pl_status pl_record_corrupt(const struct pl_record_reader *reader, struct pl_error *reterr, const char *format,
                                 ...)
{
    char what[200];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return pl_error_set(reterr, PL_CORRUPT, "'%s': record %llu at byte %llu: %s", reader->source->name,
                        (unsigned long long)reader->next_index, (unsigned long long)reader->window.offset_bytes, what);
}

enum pl_status pl_record_check_length(const struct pl_record_reader *reader, uint64_t bytes, struct pl_error *reterr)
{
    if (bytes <= reader->options.max_record_bytes) {
        return PL_OK;
    }
    return pl_error_set(reterr, PL_LIMIT, "'%s': record %llu at byte %llu is longer than %zu bytes",
                        reader->source->name, (unsigned long long)reader->next_index,
                        (unsigned long long)reader->window.offset_bytes, reader->options.max_record_bytes);
}

void pl_record_skip_bytes(struct pl_record_reader *reader, size_t bytes)
{
    pl_window_consume(&reader->window, bytes);
    reader->counts.skipped++;
    reader->counts.skipped_bytes += bytes;
}

enum pl_status pl_record_reader_open(struct pl_source *source, const struct pl_record_options *options,
                                     struct pl_record_reader **ret_reader, struct pl_error *reterr)
{
    struct pl_record_reader *reader = pl_memory_new(1, sizeof(*reader), reterr);
    enum pl_status status;

    pl_activity_start();
    if (!reader) {
        return PL_MEMORY;
    }
    reader->options = *options;
    reader->options.skip_corrupt =
        options->skip_corrupt && options->format != PL_RECORD_IDX && options->format != PL_RECORD_TAR;
    reader->options.leave_checksum = options->leave_checksum && !options->skip_corrupt;
    if (reader->options.max_record_bytes == 0) {
        reader->options.max_record_bytes = DEFAULT_MAX_RECORD_BYTES;
    }
    status = pl_record_reader_begin(reader, source, options->window_bytes, reterr);
    if (status != PL_OK) {
        free(reader);
        return status;
    }
    *ret_reader = reader;
    return PL_OK;
}

enum pl_status pl_record_reader_begin(struct pl_record_reader *reader, struct pl_source *source, size_t window_bytes,
                                      struct pl_error *reterr)
{
    PL_TRY(pl_window_init(&reader->window, source, window_bytes ? window_bytes : DEFAULT_WINDOW_BYTES, reterr));
    *reader = (struct pl_record_reader){.source = source,
                                        .options = reader->options,
                                        .window = reader->window,
                                        .joined = reader->joined,
                                        .joined_capacity = reader->joined_capacity};
    return PL_OK;
}

void pl_record_reader_begin_at(struct pl_record_reader *reader, uint64_t number)
{
    reader->next_index = number;
}

void pl_record_reader_end(struct pl_record_reader *reader)
{
    pl_source_close(reader->source);
    reader->source = NULL;
}

struct pl_record_counts pl_record_reader_counts(const struct pl_record_reader *reader)
{
    struct pl_record_counts counts = reader->counts;

    counts.next_index = reader->next_index;
    counts.source_bytes = reader->window.offset_bytes + reader->discard_bytes;
    return counts;
}

void pl_record_reader_close(struct pl_record_reader *reader)
{
    if (reader) {
        pl_window_done(&reader->window);
        pl_source_close(reader->source);
        free(reader->joined);
        free(reader);
    }
}
