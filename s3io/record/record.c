/* SPDX-License-Identifier: Apache-2.0 */
/* The record reader: its window and counts, one record after the other, each found by its format, and errors about
 * records. */
#include "s3io/record.h"

#include "base/activity.h"
#include "base/memory.h"
#include "base/number.h"
#include "s3io/record/record_formats.h"
#include "s3io/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Consumes the last record. All of it is in the window, unless the last call skipped it. */
static enum pl_status discard(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_error *reterr)
{
    while (reader->discard_bytes > 0) {
        size_t now;

        PL_TRY(pl_window_need(&reader->window, 1, deadline_ns, reterr));
        if (reader->window.available == 0 && reader->options.skip_corrupt) {
            reader->counts.skipped++;
            reader->discard_bytes = 0;
            return PL_OK;
        }
        if (reader->window.available == 0) {
            return pl_record_corrupt(reader, reterr, "the input ends %llu bytes before the end of the previous record",
                                     (unsigned long long)reader->discard_bytes);
        }
        now = pl_number_min(reader->discard_bytes, reader->window.available);
        pl_window_consume(&reader->window, now);
        reader->discard_bytes -= now;
    }
    return PL_OK;
}

static enum pl_status find(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                           struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    switch (reader->options.format) {
    case PL_RECORD_TFRECORD:
        return pl_record_find_tfrecord(reader, check, deadline_ns, ret_record, ret_framed_bytes, reterr);
    case PL_RECORD_RECORDIO:
        return pl_record_find_recordio(reader, check, deadline_ns, ret_record, ret_framed_bytes, reterr);
    case PL_RECORD_LINES:
        return pl_record_find_lines(reader, check, deadline_ns, ret_record, ret_framed_bytes, reterr);
    case PL_RECORD_CSV:
        return pl_record_find_csv(reader, check, deadline_ns, ret_record, ret_framed_bytes, reterr);
    case PL_RECORD_IDX:
        return pl_record_find_idx(reader, check, deadline_ns, ret_record, ret_framed_bytes, reterr);
    case PL_RECORD_WHOLE:
        return pl_record_find_whole(reader, check, deadline_ns, ret_record, ret_framed_bytes, reterr);
    }
    return pl_error_set(reterr, PL_INVALID, "unknown record format %d", (int)reader->options.format);
}

static enum pl_status step(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                           struct pl_record *ret_record, struct pl_error *reterr)
{
    uint64_t framed_bytes = 0;
    enum pl_status status;

    if (reader->broken) {
        return pl_error_set(reterr, PL_INVALID, "'%s' cannot be read any further after an error", reader->source->name);
    }
    status = reader->discard_bytes ? discard(reader, deadline_ns, reterr) : PL_OK;
    if (status == PL_OK) {
        status = find(reader, check, deadline_ns, ret_record, &framed_bytes, reterr);
    }
    if (status != PL_OK) {
        reader->broken = status != PL_TIMEOUT && status != PL_END;
        return status;
    }
    ret_record->index = reader->next_index++;
    ret_record->offset_bytes = reader->window.offset_bytes;
    reader->discard_bytes = framed_bytes;
    reader->counts.records++;
    pl_activity_note();
    reader->counts.record_bytes += ret_record->bytes;
    return PL_OK;
}

enum pl_status pl_record_reader_next(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_record *ret_record,
                                     struct pl_error *reterr)
{
    return step(reader, true, deadline_ns, ret_record, reterr);
}

enum pl_status pl_record_reader_skip(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_record record;

    return step(reader, false, deadline_ns, &record, reterr);
}

#define DEFAULT_MAX_RECORD_BYTES ((size_t)1 << 30)
#define DEFAULT_WINDOW_BYTES ((size_t)2 << 20) /* a full pipe and the rest of a record */

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
    reader->options.skip_corrupt = options->skip_corrupt && options->format != PL_RECORD_IDX;
    if (reader->options.max_record_bytes == 0) {
        reader->options.max_record_bytes = DEFAULT_MAX_RECORD_BYTES;
    }
    status = pl_window_init(&reader->window, source,
                            options->window_bytes ? options->window_bytes : DEFAULT_WINDOW_BYTES, reterr);
    if (status != PL_OK) {
        free(reader);
        return status;
    }
    reader->source = source;
    *ret_reader = reader;
    return PL_OK;
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
