/* SPDX-License-Identifier: Apache-2.0 */
/* The record reader: returns one record after the other, each found by its format. */
#include "s3io/record.h"

#include "base/activity.h"
#include "base/memory.h"
#include "base/number.h"
#include "s3io/record/record_formats.h"

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

static pl_record_find *const finders[] = {
    [PL_RECORD_TFRECORD] = pl_record_find_tfrecord, [PL_RECORD_RECORDIO] = pl_record_find_recordio,
    [PL_RECORD_LINES] = pl_record_find_lines,       [PL_RECORD_CSV] = pl_record_find_csv,
    [PL_RECORD_IDX] = pl_record_find_idx,           [PL_RECORD_WHOLE] = pl_record_find_whole,
    [PL_RECORD_TAR] = pl_record_find_tar,
};

static enum pl_status step(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                           struct pl_record *ret_record, struct pl_error *reterr)
{
    uint64_t framed_bytes = 0;
    enum pl_status status;

    if (reader->broken) {
        return pl_error_set(reterr, PL_INVALID, "'%s' cannot be read any further after an error", reader->source->name);
    }
    if ((unsigned)reader->options.format >= PL_ARRAY_ITEMS(finders)) {
        return pl_error_set(reterr, PL_INVALID, "unknown record format %d", (int)reader->options.format);
    }
    ret_record->is_unchecked = false;
    status = reader->discard_bytes ? discard(reader, deadline_ns, reterr) : PL_OK;
    if (status == PL_OK) {
        status = finders[reader->options.format](reader, check, deadline_ns, ret_record, &framed_bytes, reterr);
    }
    if (status != PL_OK) {
        reader->broken = status != PL_TIMEOUT && status != PL_END;
        return status;
    }
    ret_record->index = ret_record->number = reader->next_index++;
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
