/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/record/idx.c. */
#include "base/clock.h"
#include "s3io/channel.h"
#include "s3io/idx.h"
#include "s3io/record.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"

#include <pthread.h>

enum { ITEMS = 50, SIDE = 6, IMAGES_BYTES = 16 + ITEMS * SIDE * SIDE, LABELS_BYTES = 8 + ITEMS };

static void make_images(unsigned char *data)
{
    static const unsigned char head[16] = {0, 0, 8, 3, 0, 0, 0, ITEMS, 0, 0, 0, SIDE, 0, 0, 0, SIDE};

    memcpy(data, head, sizeof(head));
    for (int i = 0; i < ITEMS * SIDE * SIDE; i++) {
        data[16 + i] = (unsigned char)(i * 31 + i / 7);
    }
}

static void make_labels(unsigned char *data)
{
    static const unsigned char head[8] = {0, 0, 8, 1, 0, 0, 0, ITEMS};

    memcpy(data, head, sizeof(head));
    for (int i = 0; i < ITEMS; i++) {
        data[8 + i] = (unsigned char)(i % 10);
    }
}

static void check_pairs(const struct pl_idx_pairs *pairs, size_t copies)
{
    unsigned char images[IMAGES_BYTES], labels[LABELS_BYTES];

    make_images(images);
    make_labels(labels);
    ck_assert_uint_eq(pairs->count, ITEMS * copies);
    ck_assert_uint_eq(pairs->images.item_bytes, SIDE * SIDE);
    ck_assert_uint_eq(pairs->images.shape[0], ITEMS * copies);
    for (size_t copy = 0; copy < copies; copy++) {
        ck_assert_mem_eq(pairs->images.data + copy * (IMAGES_BYTES - 16), images + 16, IMAGES_BYTES - 16);
        ck_assert_mem_eq(pairs->labels.data + copy * ITEMS, labels + 8, ITEMS);
    }
}

/* The four mixes of plain and gzip images and labels. */
static size_t make_stream(unsigned mix, unsigned char *out, size_t room)
{
    unsigned char images[IMAGES_BYTES], labels[LABELS_BYTES];
    size_t used;

    make_images(images);
    make_labels(labels);
    if (mix & 1) {
        used = drip_gzip(images, sizeof(images), out, room);
    } else {
        memcpy(out, images, sizeof(images));
        used = sizeof(images);
    }
    if (mix & 2) {
        return used + drip_gzip(labels, sizeof(labels), out + used, room - used);
    }
    memcpy(out + used, labels, sizeof(labels));
    return used + sizeof(labels);
}

START_TEST(arrays_behind_each_other_plain_or_gzip_are_read_whatever_the_read_sizes)
{
    static const size_t pieces[] = {1, 2, 3, 7, 100, 1 << 20};
    unsigned char stream[8192], images[IMAGES_BYTES], labels[LABELS_BYTES];
    struct pl_error error = PL_ERROR_NONE;

    make_images(images);
    make_labels(labels);
    for (unsigned mix = 0; mix < 4; mix++) {
        size_t bytes = make_stream(mix, stream, sizeof(stream));

        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
            struct pl_idx_reader *reader;
            struct pl_idx idx = {.dims = 0};

            ck_assert_ok(pl_idx_reader_open(drip_new(stream, bytes, pieces[i]), 1 << 20, &reader, &error), &error);
            ck_assert_ok(pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error), &error);
            ck_assert_uint_eq(idx.dims, 3);
            ck_assert_mem_eq(idx.data, images + 16, IMAGES_BYTES - 16);
            pl_idx_done(&idx);
            ck_assert_ok(pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error), &error);
            ck_assert_uint_eq(idx.dims, 1);
            ck_assert_mem_eq(idx.data, labels + 8, ITEMS);
            pl_idx_done(&idx);
            ck_assert_int_eq(pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error), PL_END);
            pl_idx_reader_close(reader);
        }
    }
}
END_TEST

/* Every byte near an edge of the stream or its arrays, one in 13 between; each cut costs a reader with its window. */
static size_t next_cut(size_t cut, size_t bytes)
{
    bool near = cut < 48 || cut + 48 > bytes || (cut + 32 > IMAGES_BYTES && cut < IMAGES_BYTES + 32);

    return cut + (near ? 1 : 13);
}

START_TEST(input_cut_at_any_byte_is_an_error)
{
    unsigned char stream[8192];

    for (unsigned mix = 0; mix < 4; mix++) {
        size_t bytes = make_stream(mix, stream, sizeof(stream));
        size_t boundary = mix & 1 ? 0 : IMAGES_BYTES;

        for (size_t cut = 1; cut < bytes; cut = next_cut(cut, bytes)) {
            struct pl_error error = PL_ERROR_NONE;
            struct pl_idx_reader *reader;
            enum pl_status status = PL_OK;
            unsigned arrays = 0;

            ck_assert_ok(pl_idx_reader_open(drip_new(stream, cut, 4096), 1 << 20, &reader, &error), &error);
            while (status == PL_OK) {
                struct pl_idx idx = {.dims = 0};

                status = pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error);
                arrays += status == PL_OK;
                pl_idx_done(&idx);
            }
            /* Between the two arrays is the one place where the stream may end: pairs_load() then misses the labels. */
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
END_TEST

START_TEST(head_that_promises_too_much_is_refused_before_memory_is_asked_for)
{
    static const unsigned char huge[16] = {0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1};
    static const unsigned char wrong[16] = {0, 0, 7, 3};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_idx_reader *reader;
    struct pl_idx idx;

    ck_assert_ok(pl_idx_reader_open(drip_new(huge, sizeof(huge), 16), 1 << 20, &reader, &error), &error);
    ck_assert_int_eq(pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error), PL_LIMIT);
    pl_idx_reader_close(reader);
    ck_assert_ok(pl_idx_reader_open(drip_new(wrong, sizeof(wrong), 16), 1 << 20, &reader, &error), &error);
    ck_assert_int_eq(pl_idx_reader_next(reader, PL_DEADLINE_NEVER, &idx, &error), PL_CORRUPT);
    pl_idx_reader_close(reader);
}
END_TEST

START_TEST(pairs_come_from_a_directory_in_key_order)
{
    struct scratch scratch = scratch_new();
    struct pl_channel channel = {.name = "training", .mode = PL_CHANNEL_FILE, .path = scratch.path};
    struct pl_error error = PL_ERROR_NONE;
    unsigned char images[IMAGES_BYTES], labels[LABELS_BYTES], packed[8192];
    struct pl_idx_pairs pairs;

    make_images(images);
    make_labels(labels);
    scratch_write(&scratch, "a-images.gz", packed, drip_gzip(images, sizeof(images), packed, sizeof(packed)));
    scratch_write(&scratch, "a-labels", labels, sizeof(labels));
    scratch_write(&scratch, "b-images", images, sizeof(images));
    scratch_write(&scratch, "b-labels.gz", packed, drip_gzip(labels, sizeof(labels), packed, sizeof(packed)));
    scratch_write(&scratch, ".hidden", "x", 1);
    ck_assert_ok(pl_idx_pairs_load(&channel, 0, PL_DEADLINE_NEVER, &pairs, &error), &error);
    check_pairs(&pairs, 2);
    pl_idx_pairs_done(&pairs);

    scratch_write(&scratch, "c-images", images, sizeof(images));
    ck_assert_int_eq(pl_idx_pairs_load(&channel, 0, PL_DEADLINE_NEVER, &pairs, &error), PL_INVALID);
    labels[7]--;
    scratch_write(&scratch, "c-labels", labels, sizeof(labels) - 1);
    ck_assert_int_eq(pl_idx_pairs_load(&channel, 0, PL_DEADLINE_NEVER, &pairs, &error), PL_INVALID);
    ck_assert_ptr_nonnull(strstr(error.cause, "50 images but 49 labels"));
    scratch_done(&scratch);
}
END_TEST

struct feed {
    char path[PATH_MAX];
    unsigned char data[8192];
    size_t bytes;
};

static void *feed(void *argument)
{
    const struct feed *what = argument;
    int fd = open(what->path, O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, what->data, what->bytes), (ssize_t)what->bytes);
    close(fd);
    return NULL;
}

START_TEST(pairs_come_from_the_fifo_of_the_epoch)
{
    struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    char path[PATH_MAX];
    struct pl_channel channel = {
        .name = "training", .mode = PL_CHANNEL_PIPE, .path = scratch_path(&scratch, "training", path)};

    for (unsigned epoch = 0; epoch < 4; epoch++) {
        char name[32];
        struct feed what;
        struct pl_idx_pairs pairs;
        pthread_t thread;

        snprintf(name, sizeof(name), "training_%u", epoch);
        scratch_path(&scratch, name, what.path);
        what.bytes = make_stream(epoch, what.data, sizeof(what.data));
        ck_assert_int_eq(mkfifo(what.path, 0600), 0);
        ck_assert_int_eq(pthread_create(&thread, NULL, feed, &what), 0);
        ck_assert_ok(pl_idx_pairs_load(&channel, epoch, pl_deadline_after_ns(100 * PL_NS_PER_S), &pairs, &error),
                     &error);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        check_pairs(&pairs, 1);
        pl_idx_pairs_done(&pairs);
    }
    scratch_done(&scratch);
}
END_TEST

START_TEST(record_reader_gives_the_items_of_all_arrays)
{
    unsigned char stream[8192], images[IMAGES_BYTES];
    struct pl_record_options options = {.format = PL_RECORD_IDX};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_record_reader *reader;
    struct pl_record record;

    make_images(images);
    ck_assert_ok(
        pl_record_reader_open(drip_new(stream, make_stream(0, stream, sizeof(stream)), 5), &options, &reader, &error),
        &error);
    for (size_t i = 0; i < ITEMS; i++) {
        ck_assert_ok(pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error), &error);
        ck_assert_uint_eq(record.index, i);
        ck_assert_uint_eq(record.bytes, SIDE * SIDE);
        ck_assert_mem_eq(record.data, images + 16 + i * SIDE * SIDE, SIDE * SIDE);
    }
    for (size_t i = 0; i < ITEMS; i++) {
        ck_assert_ok(pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error), &error);
        ck_assert_uint_eq(record.bytes, 1);
        ck_assert_uint_eq(record.data[0], i % 10);
    }
    ck_assert_int_eq(pl_record_reader_next(reader, PL_DEADLINE_NEVER, &record, &error), PL_END);
    pl_record_reader_close(reader);
}
END_TEST

START_TEST(cut_array_is_an_error_whether_its_items_are_read_or_stepped_over)
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
END_TEST

UNIT_MAIN("s3io/idx", arrays_behind_each_other_plain_or_gzip_are_read_whatever_the_read_sizes,
          input_cut_at_any_byte_is_an_error, head_that_promises_too_much_is_refused_before_memory_is_asked_for,
          pairs_come_from_a_directory_in_key_order, pairs_come_from_the_fifo_of_the_epoch,
          record_reader_gives_the_items_of_all_arrays, cut_array_is_an_error_whether_its_items_are_read_or_stepped_over)
