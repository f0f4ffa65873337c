/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RecordIO: u32 magic, u32 (flag << 29 | length), data, zero bytes up to a multiple of four, all little-endian. Flag 0
 * is a whole record; 1, 2 and 3 are the first, a middle and the last part of a record. Source: the format in the
 * documentation of MXNet and SageMaker; the rule for the dropped magic word is dmlc's.
 */
#include "base/memory.h"
#include "s3io/record/record_formats.h"

#include <string.h>

enum { HEAD_BYTES = PL_RECORDIO_HEAD_BYTES, FLAG_WHOLE = 0, FLAG_FIRST = 1, FLAG_MIDDLE = 2, FLAG_LAST = 3 };

static const unsigned char magic[4] = {0x0a, 0x23, 0xd7, 0xce};

static bool begins_record(const unsigned char *at)
{
    return memcmp(at, magic, sizeof(magic)) == 0 && pl_record_load_le32(at + 4) >> 29 <= FLAG_FIRST;
}

static size_t padded(size_t bytes)
{
    return (bytes + 3) & ~(size_t)3;
}

/* Skips words until the window begins with the head of a whole record or of a first part, or ends. Skips at least
 * `bytes`. */
static enum pl_status find_next_head(struct pl_record_reader *reader, size_t bytes, int64_t deadline_ns,
                                     struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    reader->counts.skipped++;
    for (;;) {
        if (bytes > window->available) {
            bytes = window->available;
        }
        pl_window_consume(window, bytes);
        reader->counts.skipped_bytes += bytes;
        PL_TRY(pl_window_need(window, HEAD_BYTES, deadline_ns, reterr));
        if (window->available < HEAD_BYTES) {
            reader->counts.skipped_bytes += window->available;
            pl_window_consume(window, window->available);
            return PL_OK;
        }
        if (begins_record(window->data)) {
            return PL_OK;
        }
        /* Heads are at multiples of four bytes in the stream. If the position is not one, this skips to the
         * next one. */
        bytes = 4 - (size_t)(window->offset_bytes & 3);
    }
}

/* Reads the head of a part, `at` bytes after the beginning of the window. PL_END if the input ends inside the part.
 * PL_CORRUPT if there is no head, or one with an unexpected flag. */
static enum pl_status parse_part(struct pl_record_reader *reader, size_t at, bool first, bool need_data,
                                 int64_t deadline_ns, unsigned *ret_flag, size_t *ret_bytes, struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;
    uint32_t word;

    PL_TRY(pl_window_need(window, at + HEAD_BYTES, deadline_ns, reterr));
    if (window->available < at + HEAD_BYTES) {
        return PL_END;
    }
    word = pl_record_load_le32(window->data + at + 4);
    *ret_flag = word >> 29;
    *ret_bytes = word & PL_RECORDIO_MOST_BYTES;
    if (memcmp(window->data + at, magic, sizeof(magic)) != 0 || *ret_flag > FLAG_LAST ||
        first != (*ret_flag <= FLAG_FIRST)) {
        return PL_CORRUPT;
    }
    if (need_data) {
        size_t end = at + HEAD_BYTES + padded(*ret_bytes);

        PL_TRY(pl_record_check_length(reader, end, reterr));
        PL_TRY(pl_window_need(window, end, deadline_ns, reterr));
        if (window->available < end) {
            return PL_END;
        }
    }
    return PL_OK;
}

/* Appends a part to the parts before it. */
static enum pl_status join(struct pl_record_reader *reader, bool first, size_t *used, const unsigned char *data,
                           size_t bytes, struct pl_error *reterr)
{
    PL_TRY(pl_memory_grow(&reader->joined, &reader->joined_capacity, *used + bytes + sizeof(magic), 1, reterr));
    if (!first && reader->options.join == PL_RECORD_JOIN_DMLC) {
        memcpy(reader->joined + *used, magic, sizeof(magic));
        *used += sizeof(magic);
    }
    memcpy(reader->joined + *used, data, bytes);
    *used += bytes;
    return PL_OK;
}

/* Reads a record of several parts. All parts are in the window first, and then joined in a buffer. */
static enum pl_status find_parts(struct pl_record_reader *reader, int64_t deadline_ns, struct pl_record *ret_record,
                                 uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    size_t at = 0, used = 0, parts = 0, bytes = 0;
    unsigned flag = FLAG_FIRST;

    while (flag != FLAG_LAST) {
        PL_TRY(parse_part(reader, at, parts == 0, true, deadline_ns, &flag, &bytes, reterr));
        at += HEAD_BYTES + padded(bytes);
        parts++;
    }
    at = 0;
    for (size_t part = 0; part < parts; part++) {
        const unsigned char *head = reader->window.data + at;

        bytes = pl_record_load_le32(head + 4) & PL_RECORDIO_MOST_BYTES;
        PL_TRY(join(reader, part == 0, &used, head + HEAD_BYTES, bytes, reterr));
        at += HEAD_BYTES + padded(bytes);
    }
    ret_record->data = reader->joined;
    ret_record->bytes = used;
    *ret_framed_bytes = at;
    return PL_OK;
}

static enum pl_status find_one(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                               struct pl_record *ret_record, uint64_t *ret_framed_bytes, struct pl_error *reterr)
{
    size_t bytes = 0;
    unsigned flag = 0;

    PL_TRY(parse_part(reader, 0, true, false, deadline_ns, &flag, &bytes, reterr));
    PL_TRY(pl_record_check_length(reader, bytes, reterr));
    if (flag != FLAG_WHOLE) {
        return find_parts(reader, deadline_ns, ret_record, ret_framed_bytes, reterr);
    }
    ret_record->data = NULL;
    ret_record->bytes = bytes;
    *ret_framed_bytes = HEAD_BYTES + padded(bytes);
    if (check) {
        PL_TRY(pl_window_need(&reader->window, (size_t)*ret_framed_bytes, deadline_ns, reterr));
        if (reader->window.available < *ret_framed_bytes) {
            return PL_END;
        }
        ret_record->data = reader->window.data + HEAD_BYTES;
    }
    return PL_OK;
}

enum pl_status pl_record_find_recordio(struct pl_record_reader *reader, bool check, int64_t deadline_ns,
                                       struct pl_record *ret_record, uint64_t *ret_framed_bytes,
                                       struct pl_error *reterr)
{
    struct pl_window *window = &reader->window;

    /* Lengths have no checksum, so damage is found only by reading the whole record. All ranks must find the same
     * damage. */
    check = check || reader->options.skip_corrupt;
    for (;;) {
        enum pl_status status;
        bool cut;

        PL_TRY(pl_window_need(window, 1, deadline_ns, reterr));
        if (window->available == 0) {
            return PL_END;
        }
        status = find_one(reader, check, deadline_ns, ret_record, ret_framed_bytes, reterr);
        if (status != PL_END && status != PL_CORRUPT) {
            return status;
        }
        cut = status == PL_END;
        if (!reader->options.skip_corrupt) {
            return pl_record_corrupt(reader, reterr,
                                     cut ? "the input ends inside a record"
                                         : "expected the head of a RecordIO record, found other data; upload the file "
                                           "again, or name its real format");
        }
        /* If the damage is in the length of this record, there may be whole records before the end of the input. */
        PL_TRY(find_next_head(reader, window->available < 4 ? window->available : 4, deadline_ns, reterr));
    }
}
