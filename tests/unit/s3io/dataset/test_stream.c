/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/dataset/stream.c. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "s3io/dataset.h"
#include "s3io/source.h"
#include "s3io/stream.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"

#include <pthread.h>
#include <stdlib.h>

enum { OBJECTS = 5, PER_OBJECT = 13, TOTAL = OBJECTS * PER_OBJECT };

/* Makes object k, with the records "k:0", "k:1", ... as TFRecords. */
static struct build make_object(unsigned object)
{
    struct build build = {.data = NULL};

    for (unsigned i = 0; i < PER_OBJECT; i++) {
        char text[32];

        build_tfrecord(&build, text, (size_t)snprintf(text, sizeof(text), "%u:%u", object, i));
    }
    return build;
}

static void write_objects(const struct scratch *scratch)
{
    char path[PATH_MAX], name[32];

    ck_assert_int_eq(mkdir(scratch_path(scratch, "sub", path), 0700), 0);
    for (unsigned k = 0; k < OBJECTS; k++) {
        struct build build = make_object(k);

        /* Keys are ordered by bytes: "a-0", "a-1", "sub/a-2", ... */
        snprintf(name, sizeof(name), k < 2 ? "a-%u" : "sub/a-%u", k);
        scratch_write(scratch, name, build.data, build.bytes);
        build_done(&build);
    }
}

static struct pl_stream *open_stream(const struct pl_channel *channel, const struct pl_stream_options *options)
{
    struct pl_stream *stream;

    ck_ok(pl_stream_open, channel, options, &stream);
    return stream;
}

/* Reads all records of the epoch. Returns the number of the first, and counts how often each was seen. */
static size_t read_epoch(struct pl_stream *stream, uint64_t epoch, unsigned seen[OBJECTS][PER_OBJECT], uint64_t *order)
{
    struct pl_error error = PL_ERROR_NONE;
    struct pl_record record;
    enum pl_status status;
    size_t count = 0;

    ck_ok(pl_stream_start, stream, epoch, pl_deadline_after_ns(100 * PL_NS_PER_S));
    while ((status = pl_stream_next(stream, pl_deadline_after_ns(100 * PL_NS_PER_S), &record, &error)) == PL_OK) {
        unsigned object, number;
        char text[32] = "";

        memcpy(text, record.data, record.bytes);
        ck_assert_int_eq(sscanf(text, "%u:%u", &object, &number), 2);
        seen[object][number]++;
        if (order) {
            order[record.index] = object * PER_OBJECT + number;
        }
        count++;
    }
    ck_assert_msg(status == PL_END, "%s", error.cause);
    return count;
}

TEST(every_record_is_read_exactly_once_whatever_the_number_of_ranks_and_the_split)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_channel channel = {.name = "training", .mode = PL_CHANNEL_FILE, .path = scratch.path};

    write_objects(&scratch);
    for (uint32_t size = 1; size <= 9; size++) {
        for (int split = 0; split < 2; split++) {
            for (int shuffle = 0; shuffle < 2; shuffle++) {
                unsigned seen[OBJECTS][PER_OBJECT] = {{0}};
                uint64_t order[TOTAL];
                size_t total = 0;

                for (uint32_t rank = 0; rank < size; rank++) {
                    struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD},
                                                        .split =
                                                            split ? PL_STREAM_SPLIT_OBJECTS : PL_STREAM_SPLIT_RECORDS,
                                                        .deal = {.rank = rank, .size = size},
                                                        .shuffle_objects = shuffle,
                                                        .seed = 3};
                    struct pl_stream *stream = open_stream(&channel, &options);
                    size_t count;

                    count = read_epoch(stream, 1, seen, split ? NULL : order);
                    ck_assert_uint_eq(read_epoch(stream, 0, seen, NULL), count);
                    total += split ? 0 : count;
                    pl_stream_close(stream);
                }
                ck_assert_uint_eq(total, split ? 0 : TOTAL);
                for (unsigned i = 0; i < TOTAL; i++) {
                    ck_assert_uint_eq(seen[i / PER_OBJECT][i % PER_OBJECT], 2);
                    if (!split && !shuffle) {
                        ck_assert_uint_eq(order[i], i);
                    }
                }
            }
        }
    }
}

struct feeder {
    char path[PATH_MAX];
    bool wrapped;
    bool gzip;
    size_t cut; /* number of bytes that are left out at the end */
};

static void *feed(void *argument)
{
    const struct feeder *feeder = argument;
    int fd = open(feeder->path, O_WRONLY | O_CLOEXEC);
    struct build all = {.data = NULL};

    ck_assert_int_ge(fd, 0);
    for (unsigned k = 0; k < OBJECTS; k++) {
        struct build object = make_object(k);

        if (feeder->gzip) {
            unsigned char packed[4096];
            size_t bytes = drip_gzip(object.data, object.bytes, packed, sizeof(packed));

            object.bytes = 0;
            build_bytes(&object, packed, bytes);
        }
        if (feeder->wrapped) {
            build_recordio_part(&all, 0, object.data, object.bytes);
        } else {
            build_bytes(&all, object.data, object.bytes);
        }
        build_done(&object);
    }
    ck_assert_int_eq(write(fd, all.data, all.bytes - feeder->cut), (ssize_t)(all.bytes - feeder->cut));
    close(fd);
    build_done(&all);
    return NULL;
}

TEST(pipe_gives_the_same_records_as_files_wrapped_or_not_packed_or_not)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    for (unsigned variant = 0; variant < 4; variant++) {
        struct pl_channel channel = {.name = "training",
                                     .mode = PL_CHANNEL_PIPE,
                                     .wrapper = variant & 1 ? PL_CHANNEL_WRAPPER_RECORDIO : PL_CHANNEL_WRAPPER_NONE,
                                     .path = scratch_path(&scratch, "training", path)};
        unsigned seen[OBJECTS][PER_OBJECT] = {{0}};
        uint64_t order[TOTAL];

        for (uint32_t rank = 0; rank < 2; rank++) {
            struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD},
                                                .compression = variant & 2 ? PL_COMPRESSION_AUTO : PL_COMPRESSION_NONE,
                                                .deal = {.rank = rank, .size = 2}};
            struct pl_stream *stream = open_stream(&channel, &options);
            struct feeder feeder = {.wrapped = variant & 1, .gzip = variant & 2};
            pthread_t thread;
            char name[32];

            snprintf(name, sizeof(name), "training_%u", variant * 2 + rank);
            scratch_path(&scratch, name, feeder.path);
            ck_assert_int_eq(mkfifo(feeder.path, 0600), 0);
            ck_assert_int_eq(pthread_create(&thread, NULL, feed, &feeder), 0);
            ck_assert_uint_eq(read_epoch(stream, variant * 2 + rank, seen, order), (TOTAL + 1 - rank) / 2);
            ck_assert_int_eq(pthread_join(thread, NULL), 0);
            pl_stream_close(stream);
        }
        for (unsigned i = 0; i < TOTAL; i++) {
            ck_assert_uint_eq(seen[i / PER_OBJECT][i % PER_OBJECT], 1);
            ck_assert_uint_eq(order[i], i);
        }
    }
}

TEST(channel_reads_the_first_fifo_that_is_not_used_up_for_any_epoch)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX], begun_path[PATH_MAX], name[32];
    struct pl_channel channel = {.name = "training",
                                 .mode = PL_CHANNEL_PIPE,
                                 .path = scratch_path(&scratch, "training", path),
                                 .begun_path = scratch_path(&scratch, "opened-training", begun_path)};
    struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD}, .deal = {.rank = 0, .size = 1}};

    for (unsigned fifo = 0; fifo < 3; fifo++) {
        unsigned seen[OBJECTS][PER_OBJECT] = {{0}};
        const uint64_t epoch = 7 - fifo;
        PL_AUTO_FREE char *begun = NULL;
        struct feeder feeder = {.cut = 0};
        struct pl_stream *stream;
        struct pl_record record;
        uint64_t order[TOTAL];
        pthread_t thread;

        stream = open_stream(&channel, &options);
        snprintf(name, sizeof(name), "training_%u", fifo);
        ck_ok(pl_stream_start, stream, epoch, PL_DEADLINE_NEVER);
        ck_fails(PL_TIMEOUT, name, pl_stream_next, stream, pl_deadline_after_ns(PL_NS_PER_MS), &record);
        scratch_path(&scratch, name, feeder.path);
        ck_assert_int_eq(mkfifo(feeder.path, 0600), 0);
        ck_assert_int_eq(pthread_create(&thread, NULL, feed, &feeder), 0);
        ck_assert_uint_eq(read_epoch(stream, epoch, seen, order), TOTAL);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        pl_stream_close(stream);
        ck_ok(pl_file_read, begun_path, 32, &begun, NULL);
        ck_assert_int_eq(atoi(begun), (int)fifo + 1);
    }
}

TEST(writer_that_dies_in_mid_record_is_an_error_that_names_channel_epoch_and_offset)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX], text[1200];
    struct pl_channel channel = {
        .name = "training", .mode = PL_CHANNEL_PIPE, .path = scratch_path(&scratch, "training", path)};
    struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD}, .deal = {.rank = 0, .size = 1}};
    struct feeder feeder = {.cut = 5};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_stream *stream = open_stream(&channel, &options);
    struct pl_record record;
    enum pl_status status;
    pthread_t thread;
    unsigned count = 0;

    scratch_path(&scratch, "training_7", feeder.path);
    ck_assert_int_eq(mkfifo(feeder.path, 0600), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, feed, &feeder), 0);
    ck_ok(pl_stream_start, stream, 7, PL_DEADLINE_NEVER);
    while ((status = pl_stream_next(stream, pl_deadline_after_ns(100 * PL_NS_PER_S), &record, &error)) == PL_OK) {
        count++;
    }
    ck_assert_uint_eq(count, TOTAL - 1);
    ck_assert_int_eq(status, PL_CORRUPT);
    pl_error_text(&error, text, sizeof(text));
    ck_has(text, "training_7': record 64 at byte ");
    ck_has(text, "channel 'training', epoch 7");
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pl_stream_close(stream);
}

TEST(writer_that_never_comes_is_a_timeout)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    struct pl_channel channel = {
        .name = "training", .mode = PL_CHANNEL_PIPE, .path = scratch_path(&scratch, "training", path)};
    struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD}, .deal = {.rank = 0, .size = 1}};
    struct pl_stream *stream = open_stream(&channel, &options);
    struct pl_record record;

    ck_ok(pl_stream_start, stream, 0, PL_DEADLINE_NEVER);
    ck_fails(PL_TIMEOUT, "training_0' did not appear", pl_stream_next, stream, pl_deadline_after_ns(20 * PL_NS_PER_MS),
             &record);
    pl_stream_close(stream);
}

static bool no_reader;

enum pl_status __real_pl_record_reader_open(struct pl_source *source, const struct pl_record_options *options,
                                            struct pl_record_reader **ret_reader, struct pl_error *reterr);
enum pl_status __wrap_pl_record_reader_open(struct pl_source *source, const struct pl_record_options *options,
                                            struct pl_record_reader **ret_reader, struct pl_error *reterr);

enum pl_status __wrap_pl_record_reader_open(struct pl_source *source, const struct pl_record_options *options,
                                            struct pl_record_reader **ret_reader, struct pl_error *reterr)
{
    return no_reader ? pl_error_set(reterr, PL_LIMIT, "no more readers")
                     : __real_pl_record_reader_open(source, options, ret_reader, reterr);
}

TEST(a_reader_that_does_not_open_keeps_its_status_wrapped_or_not)
{
    static const enum pl_channel_wrapper wrappers[] = {PL_CHANNEL_WRAPPER_NONE, PL_CHANNEL_WRAPPER_RECORDIO};
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];

    for (size_t i = 0; i < 2; i++) {
        struct pl_channel channel = {.name = "training",
                                     .mode = PL_CHANNEL_PIPE,
                                     .wrapper = wrappers[i],
                                     .path = scratch_path(&scratch, "training", path)};
        struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD}, .deal = {.rank = 0, .size = 1}};
        struct pl_stream *stream = open_stream(&channel, &options);

        no_reader = true;
        ck_fails_as(PL_LIMIT, "no more readers", pl_stream_start, stream, 0, PL_DEADLINE_NEVER);
        no_reader = false;
        pl_stream_close(stream);
    }
}

TEST(dataset_takes_its_samples_from_a_fifo_and_can_leave_a_waiting_one)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    struct pl_channel channel = {
        .name = "training", .mode = PL_CHANNEL_PIPE, .path = scratch_path(&scratch, "training", path)};
    struct pl_field field = {.name = "text", .type = PL_UINT8, .is_varying = true};
    struct pl_dataset_options options = {.channel = &channel,
                                         .records = {.format = PL_RECORD_TFRECORD},
                                         .fields = &field,
                                         .field_count = 1,
                                         .batch_samples = 10};
    struct feeder feeder = {.cut = 0};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_dataset *dataset;
    struct pl_batch batch;
    pthread_t thread;
    size_t total = 0;

    ck_ok(pl_dataset_open, &options, &dataset);
    for (int i = 0; i < 3; i++) { /* epoch 5 has no writer */
        ck_ok(pl_dataset_start, dataset, 5);
        ck_fails(PL_TIMEOUT, "", pl_dataset_next, dataset, pl_deadline_after_ns(10 * PL_NS_PER_MS), &batch);
    }
    scratch_path(&scratch, "training_0", feeder.path);
    ck_assert_int_eq(mkfifo(feeder.path, 0600), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, feed, &feeder), 0);
    ck_ok(pl_dataset_start, dataset, 0);
    while (pl_dataset_next(dataset, pl_deadline_after_ns(100 * PL_NS_PER_S), &batch, &error) == PL_OK) {
        const int64_t *offsets = batch.fields[0].offsets;

        for (size_t i = 0; i < batch.samples; i++, total++) {
            char text[32];

            ck_assert_int_eq(snprintf(text, sizeof(text), "%zu:%zu", total / PER_OBJECT, total % PER_OBJECT),
                             offsets[i + 1] - offsets[i]);
            ck_assert_mem_eq((const char *)batch.fields[0].data + offsets[i], text, strlen(text));
        }
        pl_batch_release(&batch);
    }
    ck_assert_uint_eq(total, TOTAL);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pl_dataset_close(dataset);
}

TEST(damaged_record_that_is_skipped_does_not_shift_the_records_of_other_ranks)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_channel channel = {.name = "training", .mode = PL_CHANNEL_FILE, .path = scratch.path};
    struct pl_error error = PL_ERROR_NONE;
    unsigned count = 0;

    for (unsigned k = 0; k < 2; k++) {
        struct build build = make_object(k);

        if (k == 0) {
            build.data[19 * 3 + 12] ^= 1; /* damage the data of record 3 */
            build.bytes -= 3;             /* cut the last record */
        }
        scratch_write(&scratch, k ? "b" : "a", build.data, build.bytes);
        build_done(&build);
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD, .skip_corrupt = true},
                                            .deal = {.rank = rank, .size = 3}};
        struct pl_stream *stream = open_stream(&channel, &options);
        struct pl_record record;
        enum pl_status status;

        ck_ok(pl_stream_start, stream, 0, PL_DEADLINE_NEVER);
        while ((status = pl_stream_next(stream, PL_DEADLINE_NEVER, &record, &error)) == PL_OK) {
            char text[32] = "", expected[32];

            memcpy(text, record.data, record.bytes);
            snprintf(expected, sizeof(expected), "%u:%u", (unsigned)record.index / PER_OBJECT,
                     (unsigned)record.index % PER_OBJECT);
            ck_assert_str_eq(text, expected);
            ck_assert_uint_eq(record.index % 3, rank);
            count++;
        }
        ck_assert_int_eq(status, PL_END);
        ck_assert_uint_ge(pl_stream_counts(stream).skipped, 1);
        pl_stream_close(stream);
    }
    ck_assert_uint_eq(count, 2 * PER_OBJECT - 2);
}

/* A file that is cut or grown at the end of a record would only make the epoch shorter or longer, and differently for
 * each rank. */
TEST(file_that_has_not_the_size_with_which_it_was_listed_is_an_error)
{
    static const int changes[] = {-1, 1};

    for (size_t i = 0; i < 2; i++) {
        AUTO_SCRATCH struct scratch scratch = scratch_new();
        struct pl_channel channel = {.name = "training", .mode = PL_CHANNEL_FILE, .path = scratch.path};
        struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD, .skip_corrupt = true},
                                            .deal = {.rank = 0, .size = 1}};
        unsigned seen[OBJECTS][PER_OBJECT] = {{0}};
        struct build one = {.data = NULL}, build = make_object(0);
        struct pl_error error = PL_ERROR_NONE;
        struct pl_record record;
        struct pl_stream *stream;
        enum pl_status status;

        build_tfrecord(&one, "0:0", 3);
        scratch_write(&scratch, "a", build.data, build.bytes);
        stream = open_stream(&channel, &options);
        ck_assert_uint_eq(read_epoch(stream, 0, seen, NULL), PER_OBJECT);
        if (changes[i] > 0) {
            build_bytes(&build, one.data, one.bytes);
        }
        scratch_write(&scratch, "a", build.data + (changes[i] < 0 ? one.bytes : 0),
                      build.bytes - (changes[i] < 0 ? one.bytes : 0));
        ck_ok(pl_stream_start, stream, 1, PL_DEADLINE_NEVER);
        while ((status = pl_stream_next(stream, PL_DEADLINE_NEVER, &record, &error)) == PL_OK) {
        }
        ck_assert_int_eq(status, PL_CORRUPT);
        ck_has(error.cause, "has changed");
        pl_stream_close(stream);
        build_done(&one);
        build_done(&build);
    }
}

TEST(empty_channel_and_objects_split_in_pipe_mode_are_errors)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_channel channel = {.name = "training", .mode = PL_CHANNEL_FILE, .path = scratch.path};
    struct pl_stream_options options = {.deal = {.rank = 0, .size = 1}};
    struct pl_stream *stream = open_stream(&channel, &options);

    ck_fails(PL_NOT_FOUND, "", pl_stream_start, stream, 0, PL_DEADLINE_NEVER);
    pl_stream_close(stream);
    channel.mode = PL_CHANNEL_PIPE;
    options.split = PL_STREAM_SPLIT_OBJECTS;
    ck_fails(PL_INVALID, "", pl_stream_open, &channel, &options, &stream);
}

UNIT_MAIN("s3io/stream")
