/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/record/idx.c. */
#include "base/clock.h"
#include "s3io/idx.h"
#include "s3io/record.h"
#include "s3io/record/record_formats.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/idx_arrays.h"

TEST(arrays_after_each_other_plain_or_gzip_are_read_whatever_the_read_sizes)
{
    static const size_t pieces[] = {1, 2, 3, 7, 100, 1 << 20};
    unsigned char stream[8192], images[IMAGES_BYTES], labels[LABELS_BYTES];

    idx_images(images);
    idx_labels(labels);
    for (unsigned mix = 0; mix < 4; mix++) {
        size_t bytes = idx_stream(mix, stream, sizeof(stream));

        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
            struct pl_idx_reader *reader;
            struct pl_idx idx = {.dims = 0};

            ck_ok(pl_idx_reader_open, drip_new(stream, bytes, pieces[i]), 1 << 20, &reader);
            ck_ok(pl_idx_reader_next, reader, PL_DEADLINE_NEVER, &idx);
            ck_assert_uint_eq(idx.dims, 3);
            ck_assert_mem_eq(idx.data, images + 16, IMAGES_BYTES - 16);
            pl_idx_done(&idx);
            ck_ok(pl_idx_reader_next, reader, PL_DEADLINE_NEVER, &idx);
            ck_assert_uint_eq(idx.dims, 1);
            ck_assert_mem_eq(idx.data, labels + 8, ITEMS);
            pl_idx_done(&idx);
            ck_fails(PL_END, "", pl_idx_reader_next, reader, PL_DEADLINE_NEVER, &idx);
            pl_idx_reader_close(reader);
        }
    }
}

/* Returns the next length to test: every byte near the ends of the stream and its arrays, and one of 13 between. Each
 * length needs a new reader. */
static size_t next_cut(size_t cut, size_t bytes)
{
    bool near = cut < 48 || cut + 48 > bytes || (cut + 32 > IMAGES_BYTES && cut < IMAGES_BYTES + 32);

    return cut + (near ? 1 : 13);
}

TEST(input_cut_at_any_byte_is_an_error)
{
    unsigned char stream[8192];

    for (unsigned mix = 0; mix < 4; mix++) {
        size_t bytes = idx_stream(mix, stream, sizeof(stream));
        size_t boundary = mix & 1 ? 0 : IMAGES_BYTES;

        for (size_t cut = 1; cut < bytes; cut = next_cut(cut, bytes)) {
            struct pl_error error = PL_ERROR_NONE;
            struct pl_idx_reader *reader;
            enum pl_status status = PL_OK;
            unsigned arrays = 0;

            ck_ok(pl_idx_reader_open, drip_new(stream, cut, 4096), 1 << 20, &reader);
            while (status == PL_OK) {
                struct pl_idx idx = {.dims = 0};

                status = pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error);
                arrays += status == PL_OK;
                pl_idx_done(&idx);
            }
            /* The stream may end between the two arrays, but nowhere else: pairs_load() then misses the labels. */
            if (status == PL_END) {
                ck_assert_uint_eq(arrays, 1);
                ck_assert(boundary == 0 || cut == boundary);
            } else {
                ck_assert_int_eq(status, PL_CORRUPT);
            }
            pl_idx_reader_close(reader);
        }
    }
}

TEST(head_that_promises_too_much_is_refused_before_memory_is_asked_for)
{
    static const unsigned char huge[16] = {0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1};
    static const unsigned char wrong[16] = {0, 0, 7, 3};
    struct pl_idx_reader *reader;
    struct pl_idx idx;

    ck_ok(pl_idx_reader_open, drip_new(huge, sizeof(huge), 16), 1 << 20, &reader);
    ck_fails(PL_LIMIT, "", pl_idx_reader_next, reader, PL_DEADLINE_NEVER, &idx);
    pl_idx_reader_close(reader);
    ck_ok(pl_idx_reader_open, drip_new(wrong, sizeof(wrong), 16), 1 << 20, &reader);
    ck_fails(PL_CORRUPT, "", pl_idx_reader_next, reader, PL_DEADLINE_NEVER, &idx);
    pl_idx_reader_close(reader);
}

TEST(record_reader_gives_the_items_of_all_arrays)
{
    unsigned char stream[8192], images[IMAGES_BYTES];
    struct pl_record_options options = {.format = PL_RECORD_IDX};
    struct pl_record_reader *reader;
    struct pl_record record;

    idx_images(images);
    ck_ok(pl_record_reader_open, drip_new(stream, idx_stream(0, stream, sizeof(stream)), 5), &options, &reader);
    for (size_t i = 0; i < ITEMS; i++) {
        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        ck_assert_uint_eq(record.index, i);
        ck_assert_uint_eq(record.bytes, SIDE * SIDE);
        ck_assert_mem_eq(record.data, images + 16 + i * SIDE * SIDE, SIDE * SIDE);
    }
    for (size_t i = 0; i < ITEMS; i++) {
        ck_ok(pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
        ck_assert_uint_eq(record.bytes, 1);
        ck_assert_uint_eq(record.data[0], i % 10);
    }
    ck_fails(PL_END, "", pl_record_reader_next, reader, PL_DEADLINE_NEVER, &record);
    pl_record_reader_close(reader);
}

TEST(cut_array_is_an_error_whether_its_items_are_read_or_stepped_over)
{
    static const unsigned char cut[] = {0, 0, PL_IDX_UINT8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 'a', 'b', 'c', 'd', 'e'};

    for (int own = 0; own < 4; own++) {
        struct pl_record_options options = {.format = PL_RECORD_IDX, .skip_corrupt = true};
        enum pl_status status = PL_OK;
        struct pl_record_reader *reader;
        struct pl_record record;

        ck_assert_int_eq(pl_record_reader_open(drip_new(cut, sizeof(cut), 5), &options, &reader, NULL), PL_OK);
        for (int item = 0; item < 4 && status == PL_OK; item++) {
            status = item == own ? pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, NULL)
                                 : pl_record_reader_skip(reader, PL_DEADLINE_NEVER, NULL);
        }
        ck_assert_int_eq(status, PL_CORRUPT);
        pl_record_reader_close(reader);
    }
}

UNIT_MAIN("s3io/idx")
