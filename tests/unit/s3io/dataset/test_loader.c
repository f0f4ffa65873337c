/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/dataset/dataset.c, s3io/dataset/loader.c, s3io/dataset/batch.c, s3io/dataset/store_many.c. */
#include "base/clock.h"
#include "base/random.h"
#include "s3io/dataset.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"

#include <pthread.h>
#include <signal.h>

enum { COUNT = 103, BATCH = 8 };

struct fixture {
    struct scratch scratch;
    const char *path;
    struct pl_field field;
    struct pl_dataset_options options;
    struct pl_dataset *dataset;
    struct pl_error error;
};

/* The records are the numbers from 0 to COUNT - 1 as TFRecords, in files of 20. */
static void write_numbers(const struct scratch *scratch, size_t damaged)
{
    struct build build = {.data = NULL};
    char name[16];

    for (uint32_t i = 0; i < COUNT; i++) {
        build_tfrecord(&build, &i, sizeof(i));
        if (i == damaged) {
            build.data[build.bytes - 5] ^= 1;
        }
        if (i % 20 == 19 || i == COUNT - 1) {
            snprintf(name, sizeof(name), "part-%02u", i / 20);
            scratch_write(scratch, name, build.data, build.bytes);
            build.bytes = 0;
        }
    }
    build_done(&build);
}

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->scratch = scratch_new();
    write_numbers(&f->scratch, COUNT);
    f->path = f->scratch.path;
    f->field = (struct pl_field){.name = "number", .type = PL_INT32};
    f->options = (struct pl_dataset_options){.paths = &f->path,
                                             .path_count = 1,
                                             .records = {.format = PL_RECORD_TFRECORD},
                                             .fields = &f->field,
                                             .field_count = 1,
                                             .batch_samples = BATCH};
}

static void start(struct fixture *f)
{
    ck_ok(pl_dataset_open, &f->options, &f->dataset);
}

static void stop(struct fixture *f)
{
    pl_dataset_close(f->dataset);
    scratch_done(&f->scratch);
}

/* Takes the rest of an epoch. Returns the number of samples, and their order in `order`. */
static size_t run_epoch(struct fixture *f, uint64_t epoch, int32_t *order)
{
    struct pl_batch batch;
    enum pl_status status;
    size_t total = 0;
    uint64_t number = 0;

    ck_ok(pl_dataset_start, f->dataset, epoch);
    while ((status = pl_dataset_next(f->dataset, PL_DEADLINE_NEVER, &batch, &f->error)) == PL_OK) {
        ck_assert(batch.index == number++ && batch.epoch == epoch && batch.field_count == 1);
        memcpy(order + total, batch.fields[0].data, batch.samples * sizeof(*order));
        total += batch.samples;
        pl_batch_release(&batch);
        ck_assert_ptr_null(batch.memory);
    }
    ck_assert_msg(status == PL_END, "%s", f->error.cause);
    ck_assert_int_eq(pl_dataset_next(f->dataset, PL_DEADLINE_NEVER, &batch, &f->error), PL_END);
    return total;
}

static uint64_t hash_of(const int32_t *order, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint32_t)order[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* What release 0.2.0 of the loader, which had one thread and a buffer of decoded samples, made of the same numbers. */
static const struct {
    size_t buffer;
    uint64_t seed, epoch, hash;
} orders[] = {
    {0, 0U, 0, UINT64_C(0xf6fd2103a3dd55c8)},
    {0, 0U, 1, UINT64_C(0xf6fd2103a3dd55c8)},
    {1, 0U, 0, UINT64_C(0xf6fd2103a3dd55c8)},
    {1, 0U, 1, UINT64_C(0xf6fd2103a3dd55c8)},
    {2, 0U, 0, UINT64_C(0x1a6e4011fd3e0d94)},
    {2, 0U, 1, UINT64_C(0xbb3b87936a656938)},
    {2, 1U, 0, UINT64_C(0xbf74be4acfccc614)},
    {2, 1U, 1, UINT64_C(0x982d145d3f1318aa)},
    {2, 12345678901234567U, 0, UINT64_C(0x6108a6c9dfbbf888)},
    {2, 12345678901234567U, 1, UINT64_C(0x29c67dd7ddf22de4)},
    {10, 0U, 0, UINT64_C(0xaec1b388555735f4)},
    {10, 0U, 1, UINT64_C(0x8249654c5299a322)},
    {10, 1U, 0, UINT64_C(0xeab99a4d90a8d654)},
    {10, 1U, 1, UINT64_C(0x4d47db0b886c6aec)},
    {10, 12345678901234567U, 0, UINT64_C(0x51da6ac16ff0d818)},
    {10, 12345678901234567U, 1, UINT64_C(0x26328c95c9494abc)},
    {100, 0U, 0, UINT64_C(0x0d59b633f8c9b43a)},
    {100, 0U, 1, UINT64_C(0x2b289155af0a5164)},
    {100, 1U, 0, UINT64_C(0x14c8d5c38733183a)},
    {100, 1U, 1, UINT64_C(0x11eea9288e019c62)},
    {100, 12345678901234567U, 0, UINT64_C(0x23b6d50672eeb56e)},
    {100, 12345678901234567U, 1, UINT64_C(0x3c07246ed5a0ce7e)},
    {103, 0U, 0, UINT64_C(0x34d2e843ba0d2dcc)},
    {103, 0U, 1, UINT64_C(0x57a3d31b42527828)},
    {103, 1U, 0, UINT64_C(0xf4f7f0a7b4c6ec64)},
    {103, 1U, 1, UINT64_C(0xfc02f8fdc9074d6e)},
    {103, 12345678901234567U, 0, UINT64_C(0xe5a426cd3a8d8440)},
    {103, 12345678901234567U, 1, UINT64_C(0x195fceeee9143f7c)},
    {1000, 0U, 0, UINT64_C(0x34d2e843ba0d2dcc)},
    {1000, 0U, 1, UINT64_C(0x57a3d31b42527828)},
    {1000, 1U, 0, UINT64_C(0xf4f7f0a7b4c6ec64)},
    {1000, 1U, 1, UINT64_C(0xfc02f8fdc9074d6e)},
    {1000, 12345678901234567U, 0, UINT64_C(0xe5a426cd3a8d8440)},
    {1000, 12345678901234567U, 1, UINT64_C(0x195fceeee9143f7c)},
};

TEST(seeds_keep_their_order_with_any_number_of_threads)
{
    static const unsigned threads[] = {1, 2, 4, 8};

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        struct fixture f;
        int32_t order[COUNT];

        set_up(&f);
        f.options.shuffle_samples = orders[i].buffer;
        f.options.seed = orders[i].seed;
        f.options.decode_threads = threads[i % 4];
        start(&f);
        for (int again = 0; again < 2; again++) {
            ck_assert_uint_eq(run_epoch(&f, orders[i].epoch, order), COUNT);
            ck_assert_msg(hash_of(order, COUNT) == orders[i].hash, "buffer %zu, seed %llu, epoch %llu",
                          orders[i].buffer, (unsigned long long)orders[i].seed, (unsigned long long)orders[i].epoch);
        }
        stop(&f);
    }
}

TEST(progress_counts_samples_and_bytes_of_the_epoch)
{
    struct fixture f;
    struct pl_dataset_progress progress;
    int32_t order[COUNT];

    set_up(&f);
    start(&f);
    run_epoch(&f, 0, order);
    run_epoch(&f, 3, order);
    progress = pl_dataset_progress(f.dataset);
    ck_assert_uint_eq(progress.epoch, 3);
    ck_assert_uint_eq(progress.samples, COUNT);
    ck_assert_uint_eq(progress.bytes, COUNT * 4);
    ck_assert_uint_eq(progress.skipped, 0);
    ck_assert_int_ge(progress.elapsed_ns, progress.waited_ns);
    stop(&f);
}

/* A program that forgets the start would otherwise train on no data and succeed. */
TEST(batch_before_the_first_start_is_refused_and_not_the_end)
{
    struct fixture f;
    struct pl_batch batch;
    int32_t order[COUNT];

    set_up(&f);
    start(&f);
    ck_fails(PL_INVALID, "pl_dataset_start() comes first", pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &batch);
    ck_assert_uint_eq(run_epoch(&f, 0, order), COUNT);
    stop(&f);
}

TEST(short_last_batch_can_be_left_out)
{
    struct fixture f;
    int32_t order[COUNT];

    set_up(&f);
    f.options.drop_last = true;
    start(&f);
    ck_assert_uint_eq(run_epoch(&f, 0, order), COUNT / BATCH * BATCH);
    ck_assert_uint_eq(run_epoch(&f, 1, order), COUNT / BATCH * BATCH);
    stop(&f);
}

TEST(batches_larger_than_a_chunk_and_than_the_epoch_hold_all_samples)
{
    static const size_t sizes[] = {1, 50, COUNT - 1, COUNT, COUNT + 1, 5000};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct fixture f;
        int32_t order[COUNT];

        set_up(&f);
        f.options.batch_samples = sizes[i];
        f.options.decode_threads = 3;
        start(&f);
        ck_assert_uint_eq(run_epoch(&f, 0, order), COUNT);
        ck_assert_uint_eq(hash_of(order, COUNT), orders[0].hash);
        stop(&f);
    }
}

TEST(epoch_can_be_left_at_any_batch_also_where_the_next_one_follows)
{
    for (uint64_t epochs = 1; epochs <= 20; epochs += 19) {
        struct fixture f;
        struct pl_batch batch;
        int32_t order[COUNT];

        set_up(&f);
        f.options.prefetch_batches = 2;
        f.options.decode_threads = 2;
        f.options.epochs = epochs;
        start(&f);
        for (uint64_t batches = 0; batches < 14; batches++) {
            ck_ok(pl_dataset_start, f.dataset, batches);
            for (uint64_t i = 0; i < batches && i < 12; i++) {
                ck_ok(pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &batch);
                ck_assert(batch.epoch == batches && batch.index == i);
                pl_batch_release(&batch);
            }
        }
        ck_assert_uint_eq(run_epoch(&f, 14, order), COUNT);
        ck_assert_uint_eq(run_epoch(&f, 3, order), COUNT); /* and back */
        ck_ok(pl_dataset_start, f.dataset, 1);
        stop(&f);
    }
}

TEST(epochs_that_follow_are_those_of_as_many_starts)
{
    int32_t order[COUNT], expected[4][COUNT];

    for (int follow = 0; follow < 2; follow++) {
        struct fixture f;

        set_up(&f);
        f.options.shuffle_samples = 30;
        f.options.shuffle_objects = true;
        f.options.decode_threads = 4;
        f.options.epochs = follow ? 3 : 0;
        start(&f);
        for (uint64_t epoch = 0; epoch < 4; epoch++) { /* the fourth does not follow by itself */
            ck_assert_uint_eq(run_epoch(&f, 5 + epoch, follow ? order : expected[epoch]), COUNT);
            if (follow) {
                ck_assert_mem_eq(order, expected[epoch], sizeof(order));
            }
        }
        stop(&f);
    }
}

TEST(error_comes_after_the_whole_batches_before_it_and_ends_the_dataset)
{
    for (unsigned threads = 1; threads <= 8; threads *= 2) {
        struct fixture f;
        struct pl_batch batch;
        char text[1200];

        set_up(&f);
        write_numbers(&f.scratch, 45);
        f.options.decode_threads = threads;
        start(&f);
        ck_ok(pl_dataset_start, f.dataset, 2);
        for (int i = 0; i < 45 / BATCH; i++) {
            ck_ok(pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &batch);
            ck_assert_uint_eq(batch.samples, BATCH);
            pl_batch_release(&batch);
        }
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(pl_dataset_next(f.dataset, PL_DEADLINE_NEVER, &batch, &f.error), PL_CORRUPT);
            ck_assert(!f.error.retryable);
            pl_error_text(&f.error, text, sizeof(text));
            ck_has(text, "the checksum of the data is ");
            ck_has(text, "/part-02': record 5 at byte 100; channel '");
            ck_has(text, "', epoch 2)");
        }
        ck_fails(PL_CORRUPT, "the checksum of the data is ", pl_dataset_start, f.dataset, 3);
        stop(&f);
    }
}

TEST(first_of_several_errors_is_told_with_any_number_of_threads)
{
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct fixture f;
        struct pl_batch batch;
        char text[1200];
        struct build build = {.data = NULL};

        set_up(&f);
        for (uint32_t i = 0; i < 270; i++) { /* the last record of the first chunk, and all after it, are too long */
            build_tfrecord(&build, "12345678", i >= 255 ? 8 : 4);
        }
        build.bytes -= 3; /* and cut */
        scratch_write(&f.scratch, "a", build.data, build.bytes);
        build_done(&build);
        f.options.decode_threads = threads;
        f.options.batch_samples = 1000;
        start(&f);
        ck_ok(pl_dataset_start, f.dataset, 0);
        ck_assert_int_eq(pl_dataset_next(f.dataset, PL_DEADLINE_NEVER, &batch, &f.error), PL_INVALID);
        pl_error_text(&f.error, text, sizeof(text));
        ck_has(text, "field 'number': found 2 elements, expected int32 ('");
        ck_has(text, "/a': record 255 at byte 5100;");
        stop(&f);
    }
}

TEST(damaged_records_are_left_out_and_counted)
{
    struct fixture f;
    int32_t order[COUNT];

    set_up(&f);
    write_numbers(&f.scratch, 45);
    f.options.records.skip_corrupt = true;
    f.options.decode_threads = 4;
    start(&f);
    ck_assert_uint_eq(run_epoch(&f, 0, order), COUNT - 1);
    ck_assert(order[44] == 44 && order[45] == 46);
    ck_assert_uint_eq(pl_dataset_progress(f.dataset).skipped, 1);
    stop(&f);
}

static void open_silent_pipe(struct fixture *f, struct pl_channel *channel, char path[PATH_MAX])
{
    set_up(f);
    *channel =
        (struct pl_channel){.name = "c", .mode = PL_CHANNEL_PIPE, .path = scratch_path(&f->scratch, "nothing", path)};
    f->options.path_count = 0;
    f->options.channel = channel;
    f->options.decode_threads = 3;
    f->options.records.max_record_bytes = 100;
}

TEST(input_that_hangs_is_a_timeout_and_can_be_left)
{
    struct fixture f;
    struct pl_channel channel;
    struct pl_batch batch;
    char path[PATH_MAX];

    open_silent_pipe(&f, &channel, path);
    start(&f);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        ck_ok(pl_dataset_start, f.dataset, epoch);
        ck_assert_int_eq(pl_dataset_next(f.dataset, pl_deadline_after_ns(20 * PL_NS_PER_MS), &batch, &f.error),
                         PL_TIMEOUT);
        ck_assert(f.error.retryable);
        ck_assert_int_ge(pl_dataset_progress(f.dataset).waited_ns, 15 * PL_NS_PER_MS);
    }
    stop(&f);
}

TEST(input_that_gives_nothing_in_its_time_ends_the_dataset)
{
    struct fixture f;
    struct pl_channel channel;
    struct pl_batch batch;
    char path[PATH_MAX];

    open_silent_pipe(&f, &channel, path);
    f.options.timeout_ns = 10 * PL_NS_PER_MS;
    start(&f);
    ck_ok(pl_dataset_start, f.dataset, 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pl_dataset_next(f.dataset, PL_DEADLINE_NEVER, &batch, &f.error), PL_TIMEOUT);
        ck_has(f.error.cause, "nothing_0' did not appear");
        ck_assert(!f.error.retryable);
    }
    stop(&f);
}

static void *cancel(void *argument)
{
    pl_dataset_cancel(argument);
    return NULL;
}

TEST(dataset_that_is_cancelled_ends_a_wait)
{
    struct fixture f;
    struct pl_channel channel;
    struct pl_batch batch;
    pthread_t thread;
    char path[PATH_MAX];

    open_silent_pipe(&f, &channel, path);
    start(&f);
    ck_ok(pl_dataset_start, f.dataset, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel, f.dataset), 0);
    for (int i = 0; i < 2; i++) {
        ck_fails(PL_CANCELLED, "the dataset was cancelled", pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &batch);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    stop(&f);
}

static struct {
    pthread_mutex_t mutex;
    size_t allocated;
    sigset_t mask;
} seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void *allocate(void *allocator, size_t bytes)
{
    ck_assert_ptr_eq(allocator, &seen);
    pthread_mutex_lock(&seen.mutex);
    seen.allocated += bytes;
    pthread_sigmask(SIG_SETMASK, NULL, &seen.mask);
    pthread_mutex_unlock(&seen.mutex);
    return malloc(bytes);
}

static void release(void *allocator, void *memory, size_t bytes)
{
    pthread_mutex_lock(&seen.mutex);
    seen.allocated -= bytes;
    pthread_mutex_unlock(&seen.mutex);
    free(memory);
}

TEST(batches_lie_in_the_callers_memory_and_may_be_kept_past_the_end)
{
    struct fixture f;
    struct pl_batch kept[COUNT / BATCH + 1];
    int32_t next = 0;

    set_up(&f);
    f.options.allocate = allocate;
    f.options.release = release;
    f.options.allocator = &seen;
    f.options.decode_threads = 2;
    start(&f);
    ck_ok(pl_dataset_start, f.dataset, 0);
    for (size_t i = 0; i < COUNT / BATCH + 1; i++) {
        ck_ok(pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &kept[i]);
    }
    for (int signal = 1; signal <= SIGSYS; signal++) { /* signals are for the program's threads */
        ck_assert(sigismember(&seen.mask, signal) == 1 || signal == SIGKILL || signal == SIGSTOP);
    }
    stop(&f);
    ck_assert_uint_eq(seen.allocated, (COUNT / BATCH + 1) * BATCH * sizeof(int32_t));
    for (size_t i = 0; i < COUNT / BATCH + 1; i++) {
        for (size_t s = 0; s < kept[i].samples; s++) {
            ck_assert_int_eq(((const int32_t *)kept[i].fields[0].data)[s], next++);
        }
        pl_batch_release(&kept[i]);
        pl_batch_release(&kept[i]);
    }
    ck_assert_int_eq(next, COUNT);
    ck_assert_uint_eq(seen.allocated, 0);
}

TEST(batches_that_are_kept_beyond_the_limit_are_an_error_that_names_it)
{
    struct fixture f;
    struct pl_batch kept[3], batch;

    set_up(&f);
    f.options.max_batches = 3;
    start(&f);
    ck_ok(pl_dataset_start, f.dataset, 0);
    for (int i = 0; i < 3; i++) {
        ck_ok(pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &kept[i]);
    }
    ck_assert_int_eq(pl_dataset_next(f.dataset, PL_DEADLINE_NEVER, &batch, &f.error), PL_LIMIT);
    ck_has(f.error.cause, "the program keeps 3 batches, and max_batches allows no more");
    ck_assert(f.error.retryable);
    pl_batch_release(&kept[1]);
    ck_ok(pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &batch);
    ck_assert_uint_eq(batch.index, 3);
    ck_assert_int_eq(*(const int32_t *)kept[0].fields[0].data, 0);
    ck_assert_int_eq(*(const int32_t *)kept[2].fields[0].data, 2 * BATCH);
    pl_batch_release(&batch);
    pl_batch_release(&kept[0]);
    pl_batch_release(&kept[2]);
    stop(&f);
}

/* One record of each format that holds text i, whose length differs. */
static void put_record(struct build *build, enum pl_record_format format, const char *text, size_t bytes)
{
    switch (format) {
    case PL_RECORD_TFRECORD:
        build_tfrecord(build, text, bytes);
        break;
    case PL_RECORD_RECORDIO:
        build_recordio(build, text, bytes);
        break;
    default:
        build_bytes(build, text, bytes);
        if (format != PL_RECORD_WHOLE) {
            build_bytes(build, "\r\n", 2);
        }
    }
}

/* Returns a hash of all batches: samples, offsets and elements, in order. */
static uint64_t hash_batches(struct fixture *f)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    struct pl_batch batch;
    enum pl_status status;

    start(f);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        ck_ok(pl_dataset_start, f->dataset, epoch);
        while ((status = pl_dataset_next(f->dataset, PL_DEADLINE_NEVER, &batch, &f->error)) == PL_OK) {
            const int64_t *offsets = batch.fields[0].offsets;

            hash = (hash ^ batch.samples ^ batch.index << 32) * UINT64_C(0x100000001b3);
            for (size_t i = 0; i < batch.samples; i++) {
                hash = (hash ^ (uint64_t)offsets[i + 1]) * UINT64_C(0x100000001b3);
            }
            for (int64_t i = 0; i < offsets[batch.samples]; i++) {
                hash = (hash ^ ((const unsigned char *)batch.fields[0].data)[i]) * UINT64_C(0x100000001b3);
            }
            pl_batch_release(&batch);
        }
        ck_assert_msg(status == PL_END, "%s", f->error.cause);
    }
    pl_dataset_close(f->dataset);
    return hash;
}

/* Every format, plain and gzip, shuffled and not: batches are the same bit for bit with 1, 2, 4 and 8 threads, and with
 * a window that holds a file and one that moves within a chunk. */
TEST(batches_of_every_format_are_the_same_with_any_number_of_threads)
{
    static const enum pl_record_format formats[] = {PL_RECORD_TFRECORD, PL_RECORD_RECORDIO, PL_RECORD_LINES,
                                                    PL_RECORD_CSV, PL_RECORD_WHOLE};
    static unsigned char packed[1 << 20];
    static char text[4001];

    memset(text, 'x', sizeof(text) - 1);
    for (size_t k = 0; k < 4 * sizeof(formats) / sizeof(formats[0]); k++) {
        bool gzip = k & 1, shuffle = k & 2;
        uint64_t state = k, hash = 0;
        struct fixture f;

        set_up(&f);
        for (int file = 0; file < 6; file++) {
            struct build build = {.data = NULL};
            char name[16];

            for (int i = 0; i < (formats[k / 4] == PL_RECORD_WHOLE ? 1 : 40 * file + 10); i++) {
                uint64_t number = pl_random_next(&state);
                size_t bytes = (size_t)snprintf(text, 30, "%llu", (unsigned long long)number);

                text[bytes] = 'y';
                put_record(&build, formats[k / 4], text, bytes + (i % 10 ? number % 60 : number % 3900));
            }
            snprintf(name, sizeof(name), "part-%02d", file);
            scratch_write(&f.scratch, name, gzip ? packed : build.data,
                          gzip ? drip_gzip(build.data, build.bytes, packed, sizeof(packed)) : build.bytes);
            build_done(&build);
        }
        f.field = (struct pl_field){.name = "text", .type = PL_UINT8, .is_varying = true};
        f.options.records.format = formats[k / 4];
        f.options.compression = PL_COMPRESSION_AUTO;
        f.options.shuffle_samples = shuffle ? 57 : 0;
        f.options.shuffle_objects = shuffle;
        f.options.epochs = 2;
        f.options.batch_samples = 33;
        for (unsigned threads = 1; threads <= 8; threads *= 2) {
            f.options.decode_threads = threads;
            f.options.records.window_bytes = threads == 1 ? 0 : 4096;
            if (threads == 1) {
                hash = hash_batches(&f);
            } else {
                ck_assert_msg(hash_batches(&f) == hash, "format %d, %u threads: other bits", (int)formats[k / 4],
                              threads);
            }
        }
        scratch_done(&f.scratch);
    }
}

TEST(files_directories_and_lists_of_them_are_read_one_after_the_other)
{
    struct fixture f;
    char paths[3][PATH_MAX];
    const char *list[4];
    int32_t order[3 * COUNT];

    set_up(&f);
    list[0] = scratch_path(&f.scratch, "part-05", paths[0]);
    list[1] = f.scratch.path;
    list[2] = scratch_path(&f.scratch, "part-00", paths[1]);
    f.options.paths = list;
    f.options.path_count = 3;
    start(&f);
    ck_assert_uint_eq(run_epoch(&f, 0, order), 3 + COUNT + 20);
    ck_assert(order[0] == 100 && order[3] == 0 && order[3 + COUNT - 1] == COUNT - 1 && order[3 + COUNT + 19] == 19);
    pl_dataset_close(f.dataset);
    list[3] = scratch_path(&f.scratch, "absent", paths[2]);
    f.options.path_count = 4;
    ck_fails(PL_NOT_FOUND, "absent'", pl_dataset_open, &f.options, &f.dataset);
    ck_assert_int_eq(mkdir(paths[2], 0700), 0);
    ck_fails(PL_NOT_FOUND, "/absent' holds no objects", pl_dataset_open, &f.options, &f.dataset);
    scratch_done(&f.scratch);
}

TEST(ranks_share_records_and_objects)
{
    for (int split = 0; split < 2; split++) {
        unsigned counts[COUNT] = {0};
        struct fixture f;

        set_up(&f);
        f.options.split = split ? PL_STREAM_SPLIT_OBJECTS : PL_STREAM_SPLIT_RECORDS;
        for (uint32_t rank = 0; rank < 3; rank++) {
            int32_t order[COUNT];
            size_t count;

            f.options.deal = (struct pl_shard){.rank = rank, .size = 3};
            start(&f);
            count = run_epoch(&f, 0, order);
            for (size_t i = 0; i < count; i++) {
                counts[order[i]]++;
            }
            pl_dataset_close(f.dataset);
        }
        for (int i = 0; i < COUNT; i++) {
            ck_assert_uint_eq(counts[i], 1);
        }
        scratch_done(&f.scratch);
    }
}

TEST(channel_is_found_by_its_name_in_the_environment)
{
    struct fixture f;
    int32_t order[COUNT];

    set_up(&f);
    f.options.path_count = 0;
    f.options.channel_name = "training";
    ck_fails(PL_NOT_FOUND, "there is no channel 'training'", pl_dataset_open, &f.options, &f.dataset);
    ck_assert_int_eq(setenv("SM_CHANNEL_TRAINING", f.scratch.path, 1), 0);
    start(&f);
    ck_assert_uint_eq(run_epoch(&f, 0, order), COUNT);
    pl_dataset_close(f.dataset);
    ck_assert_int_eq(setenv("SM_INPUT_DATA_CONFIG", "{\"training\":{\"S3DistributionType\":\"ShardedByS3Key\"}}", 1),
                     0);
    f.options.deal = (struct pl_shard){.rank = 1, .size = 4};
    ck_fails(PL_INVALID, "channel 'training' is sharded by key", pl_dataset_open, &f.options, &f.dataset);
    f.options.local = (struct pl_shard){.rank = 1, .size = 2};
    start(&f);
    ck_assert_uint_eq(run_epoch(&f, 0, order), COUNT / 2);
    ck_assert_int_eq(order[1], 3);
    stop(&f);
    ck_assert_int_eq(unsetenv("SM_INPUT_DATA_CONFIG"), 0);
}

TEST(options_that_cannot_be_are_refused)
{
    struct fixture f;

    set_up(&f);
    f.options.channel_name = "training";
    ck_fails(PL_INVALID, "expected one of channel, channel_name and paths", pl_dataset_open, &f.options, &f.dataset);
    f.options.channel_name = NULL;
    f.options.path_count = 0;
    ck_fails(PL_INVALID, "expected one of channel, channel_name and paths", pl_dataset_open, &f.options, &f.dataset);
    f.options.path_count = 1;
    f.options.batch_samples = 0;
    ck_fails(PL_INVALID, "batch_samples is 0", pl_dataset_open, &f.options, &f.dataset);
    f.options.batch_samples = SIZE_MAX / 2;
    ck_fails(PL_LIMIT, "samples of 4 bytes are too large", pl_dataset_open, &f.options, &f.dataset);
    f.options.batch_samples = 1;
    f.options.decode_threads = 65;
    ck_fails(PL_INVALID, "decode_threads is 65: expected at most 64", pl_dataset_open, &f.options, &f.dataset);
    f.options.decode_threads = 0;
    f.options.allocate = allocate;
    ck_fails(PL_INVALID, "needs both allocate and release", pl_dataset_open, &f.options, &f.dataset);
    f.options.allocate = NULL;
    f.options.deal = (struct pl_shard){.rank = 3, .size = 3};
    ck_fails(PL_INVALID, "rank 3 of 3", pl_dataset_open, &f.options, &f.dataset);
    f.options.deal.size = 0;
    f.options.field_count = 0;
    ck_fails(PL_INVALID, "0 fields", pl_dataset_open, &f.options, &f.dataset);
    scratch_done(&f.scratch);
}

TEST(sizes_of_structs_are_told_by_name)
{
    ck_assert_uint_eq(pl_dataset_struct_bytes("pl_dataset_options"), sizeof(struct pl_dataset_options));
    ck_assert_uint_eq(pl_dataset_struct_bytes("pl_field"), sizeof(struct pl_field));
    ck_assert_uint_eq(pl_dataset_struct_bytes("pl_other"), 0);
}

UNIT_MAIN("s3io/loader")
