/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TFRecord: u64 length, u32 masked CRC-32C of the length, data, u32 masked CRC-32C of the data, all little-endian.
 * Source: the format's description in TensorFlow's documentation of TFRecord.
 */
#include "base/checksum.h"
#include "s3io/record/record_formats.h"

enum { HEAD_BYTES = 12, TAIL_BYTES = 4 };

static bool head_is_good(const unsigned char *at)
{
    return pl_record_load_le32(at + 8) == pl_checksum_mask(pl_checksum_crc32c(0, at, 8));
}

/* Skips bytes until the window begins with a length whose checksum is right, or ends. Skips at least one byte. */
static enum pl_status find_next_head(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    PL_BUG_IF(window->available == 0);
    reader->counts.skipped++;
    for (;;) {
        pl_window_consume(window, 1);
        reader->counts.skipped_bytes++;
        PL_TRY(pl_window_need(window, HEAD_BYTES, deadline_ns, reterr));
        if (window->available < HEAD_BYTES) {
            reader->counts.skipped_bytes += window->available;
            pl_window_consume(window, window->available);
            return PL_OK;
        }
        if (head_is_good(window->data) && pl_record_load_le64(window->data) <= reader->options.max_record_bytes) {
            return PL_OK;
        }
    }
}

/* The input ends inside a record. This is an error, or the rest is skipped. */
static enum pl_status cut(struct pl_record_reader *reader, const char *where, struct pl_error *reterr)
{
    if (!reader->options.skip_corrupt) {
        return pl_record_corrupt(reader, reterr, "the input ends inside %s", where);
    }
    pl_record_skip_bytes(reader, reader->window.available);
    return PL_END;
}

enum pl_status pl_record_check(const struct pl_record *record, struct pl_error *reterr)
{
    uint32_t computed;

    if (!record->is_unchecked) {
        return PL_OK;
    }
    computed = pl_checksum_mask(pl_checksum_crc32c(0, record->data, record->bytes));
    return computed == record->checksum
               ? PL_OK
               : pl_error_set(reterr, PL_CORRUPT,
                              "the checksum of the data is %08x, the stored one %08x; upload the file again", computed,
                              record->checksum);
}

enum pl_status pl_record_find_tfrecord(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                       struct pl_record *ret_record, uint64_t *ret_framed_bytes,
                                       struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    for (;;) {
        uint64_t bytes;
        uint32_t stored, computed;

        PL_TRY(pl_window_need(window, HEAD_BYTES, deadline_ns, reterr));
        if (window->available == 0) {
            return PL_END;
        }
        if (window->available < HEAD_BYTES) {
            return cut(reader, "a record's length", reterr);
        }
        if (!head_is_good(window->data)) {
            if (!reader->options.skip_corrupt) {
                return pl_record_corrupt(reader, reterr,
                                         "the checksum of the length is wrong: the file is damaged or not a TFRecord "
                                         "file; upload it again, or name its real format");
            }
            PL_TRY(find_next_head(reader, deadline_ns, reterr));
            continue;
        }
        bytes = pl_record_load_le64(window->data);
        PL_TRY(pl_record_check_length(reader, bytes, reterr));
        *ret_framed_bytes = HEAD_BYTES + bytes + TAIL_BYTES;
        ret_record->bytes = (size_t)bytes;
        if (!check) {
            ret_record->data = NULL;
            return PL_OK;
        }
        PL_TRY(pl_window_need(window, (size_t)*ret_framed_bytes, deadline_ns, reterr));
        if (window->available < *ret_framed_bytes) {
            /* The incomplete record gets a number, as on ranks that only skip it, so that records of later objects are
             * sharded the same on all ranks. */
            reader->next_index += reader->options.skip_corrupt;
            return cut(reader, "a record", reterr);
        }
        ret_record->data = window->data + HEAD_BYTES;
        ret_record->checksum = stored = pl_record_load_le32(ret_record->data + bytes);
        ret_record->is_unchecked = reader->options.leave_checksum;
        if (ret_record->is_unchecked) {
            return PL_OK;
        }
        computed = pl_checksum_mask(pl_checksum_crc32c(0, ret_record->data, (size_t)bytes));
        if (stored == computed) {
            return PL_OK;
        }
        if (!reader->options.skip_corrupt) {
            return pl_record_corrupt(reader, reterr,
                                     "the checksum of the data is %08x, the stored one %08x; upload the file again",
                                     computed, stored);
        }
        pl_record_skip_bytes(reader, (size_t)*ret_framed_bytes);
        reader->next_index++;
    }
}
