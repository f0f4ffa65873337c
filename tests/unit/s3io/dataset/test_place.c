/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/dataset/place.c. */
#include "base/checksum.h"
#include "base/clock.h"
#include "base/random.h"
#include "s3io/dataset.h"
#include "s3io/source.h"
#include "s3io/stream.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"
#include "tests/unit/s3io/record/files.h"

#include <pthread.h>
#include <signal.h>

enum { MOST_BATCHES = 400, COUNT = 103, PER_FILE = 20, NUMBER_BYTES = 20 };

struct fixture {
    struct scratch scratch;
    const char *path;
    struct pl_channel channel;
    struct pl_field field;
    struct pl_dataset_options options;
    struct pl_dataset *dataset;
    struct pl_error error;
};

/* The first file that was opened since `name` was emptied, and where reading of it began. */
static struct {
    char name[PATH_MAX];
    uint64_t first_byte;
} opened;

enum pl_status __real_pl_source_open_file_at(int dir_fd, const char *file, const char *name, uint64_t size_bytes,
                                             uint64_t first_byte, struct pl_source **ret_source,
                                             struct pl_error *reterr);
enum pl_status __wrap_pl_source_open_file_at(int dir_fd, const char *file, const char *name, uint64_t size_bytes,
                                             uint64_t first_byte, struct pl_source **ret_source,
                                             struct pl_error *reterr);

enum pl_status __wrap_pl_source_open_file_at(int dir_fd, const char *file, const char *name, uint64_t size_bytes,
                                             uint64_t first_byte, struct pl_source **ret_source,
                                             struct pl_error *reterr)
{
    if (!*opened.name) {
        snprintf(opened.name, sizeof(opened.name), "%s", name);
        opened.first_byte = first_byte;
    }
    return __real_pl_source_open_file_at(dir_fd, file, name, size_bytes, first_byte, ret_source, reterr);
}

static void set_up(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->scratch = scratch_new();
    f->path = f->scratch.path;
    f->field = (struct pl_field){.name = "record", .type = PL_UINT8, .is_varying = true};
    f->options = (struct pl_dataset_options){.paths = &f->path,
                                             .path_count = 1,
                                             .records = {.format = PL_RECORD_TFRECORD},
                                             .fields = &f->field,
                                             .field_count = 1,
                                             .batch_samples = 7};
}

/* The records are the numbers from 0 to COUNT - 1, of NUMBER_BYTES bytes with their framing, in files of PER_FILE. */
static void set_up_numbers(struct fixture *f)
{
    struct build build = {.data = NULL};
    char name[16];

    set_up(f);
    for (uint32_t i = 0; i < COUNT; i++) {
        build_tfrecord(&build, &i, sizeof(i));
        if (i % PER_FILE == PER_FILE - 1 || i == COUNT - 1) {
            snprintf(name, sizeof(name), "part-%02u", i / PER_FILE);
            scratch_write(&f->scratch, name, build.data, build.bytes);
            build.bytes = 0;
        }
    }
    build_done(&build);
    f->field = (struct pl_field){.name = "number", .type = PL_INT32};
}

static void start(struct fixture *f)
{
    ck_ok(pl_dataset_open, &f->options, &f->dataset);
}

static char *save(const struct fixture *f, uint64_t back)
{
    char *text;

    ck_ok(pl_dataset_save, f->dataset, back, &text);
    return text;
}

/* Ends the dataset and opens one like it at the place. Releases `text`. */
static void start_at(struct fixture *f, char *text)
{
    pl_dataset_close(f->dataset);
    start(f);
    ck_ok(pl_dataset_restore, f->dataset, text);
    free(text);
}

static uint64_t hash_more(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Takes at most `most` batches. Returns how many there were, and hashes of all that is in them. */
static size_t take(struct fixture *f, size_t most, uint64_t *hashes)
{
    enum pl_status status = PL_OK;
    struct pl_batch batch;
    size_t count;

    for (count = 0; count < most; count++) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325);

        status = pl_dataset_next(f->dataset, PL_DEADLINE_NEVER, &batch, &f->error);
        if (status != PL_OK) {
            break;
        }
        hash = hash_more(hash, &batch.epoch, sizeof(batch.epoch));
        hash = hash_more(hash, &batch.index, sizeof(batch.index));
        if (batch.fields[0].offsets) {
            hash = hash_more(hash, batch.fields[0].offsets, (batch.samples + 1) * sizeof(int64_t));
            hash = hash_more(hash, batch.fields[0].data, (size_t)batch.fields[0].offsets[batch.samples]);
        } else {
            hash = hash_more(hash, batch.fields[0].data, batch.samples * sizeof(int32_t));
        }
        hashes[count] = hash;
        pl_batch_release(&batch);
    }
    ck_assert_msg(status == PL_OK || status == PL_END, "%s", f->error.cause);
    return count;
}

/* Takes the rest of the epoch and the whole next one. */
static size_t take_two(struct fixture *f, uint64_t *hashes)
{
    size_t count = take(f, MOST_BATCHES, hashes);

    ck_ok(pl_dataset_start, f->dataset, pl_dataset_progress(f->dataset).epoch + 1);
    return count + take(f, MOST_BATCHES, hashes + count);
}

TEST(rest_after_a_stop_is_that_of_a_run_without_one_in_every_format)
{
    static const size_t buffers[] = {0, 5, 100};
    const char *many = getenv("PACELINE_TEST_STOPS");
    size_t stops = many ? strtoul(many, NULL, 10) : 3;
    uint64_t state = 1;

    for (size_t k = 0; k < 6 * sizeof(formats) / sizeof(formats[0]); k++) {
        enum pl_record_format format = formats[k / 6].format;
        bool gzip = k & 1;
        uint64_t all[2 * MOST_BATCHES], before[MOST_BATCHES], rest[2 * MOST_BATCHES];
        size_t count, first;
        struct fixture f;

        set_up(&f);
        write_files(&f.scratch, format, gzip);
        f.options.records.format = format;
        f.options.compression = gzip ? PL_COMPRESSION_GZIP : PL_COMPRESSION_NONE;
        f.options.shuffle_samples = buffers[k / 2 % 3];
        f.options.shuffle_objects = k & 2;
        f.options.seed = k;
        f.options.decode_threads = 1;
        start(&f);
        ck_ok(pl_dataset_start, f.dataset, 1);
        first = take(&f, MOST_BATCHES, all);
        ck_ok(pl_dataset_start, f.dataset, 2);
        count = first + take(&f, MOST_BATCHES, all + first);
        ck_assert_uint_gt(first, 4);
        for (size_t i = 0; i < stops; i++) {
            size_t stop = i == 0 ? first : (size_t)(pl_random_next(&state) % (first + 2));

            pl_dataset_close(f.dataset);
            f.options.decode_threads = i % 2 ? 4 : 1;
            start(&f);
            ck_ok(pl_dataset_start, f.dataset, 1);
            stop = take(&f, stop, before);
            ck_assert_mem_eq(before, all, stop * sizeof(*all));
            f.options.decode_threads = i % 2 ? 1 : 4;
            start_at(&f, save(&f, 0));
            if (i % 3 == 0 && stop + 2 < first) { /* and stopped once more, early */
                ck_assert_uint_eq(take(&f, 2, before), 2);
                ck_assert_mem_eq(before, all + stop, 2 * sizeof(*all));
                stop += 2;
                start_at(&f, save(&f, 0));
            }
            ck_assert_uint_eq(pl_dataset_progress(f.dataset).epoch, 1);
            ck_assert_msg(take_two(&f, rest) == count - stop && memcmp(rest, all + stop, (count - stop) * 8) == 0,
                          "%s, gzip %d, buffer %zu, stop %zu: other bits", formats[k / 6].name, gzip,
                          f.options.shuffle_samples, stop);
        }
        pl_dataset_close(f.dataset);
        scratch_done(&f.scratch);
    }
}

TEST(reading_begins_with_the_oldest_record_that_is_still_needed)
{
    static const size_t buffers[] = {0, 1, 10, 60, 200};

    for (size_t k = 0; k < 2 * sizeof(buffers) / sizeof(buffers[0]); k++) {
        for (size_t stop = 1; stop < COUNT / 7; stop += 3) {
            bool given[COUNT + 1] = {false}, gzip = k & 1;
            struct pl_batch batch;
            struct fixture f;
            uint64_t hash;
            char name[PATH_MAX];
            size_t oldest = 0;
            char *text;

            set_up_numbers(&f);
            f.options.compression = gzip ? PL_COMPRESSION_AUTO : PL_COMPRESSION_NONE;
            f.options.shuffle_samples = buffers[k / 2];
            start(&f);
            ck_ok(pl_dataset_start, f.dataset, 0);
            for (size_t i = 0; i < stop; i++) {
                ck_ok(pl_dataset_next, f.dataset, PL_DEADLINE_NEVER, &batch);
                for (size_t s = 0; s < batch.samples; s++) {
                    given[((const int32_t *)batch.fields[0].data)[s]] = true;
                }
                pl_batch_release(&batch);
            }
            text = save(&f, 0);
            pl_dataset_close(f.dataset);
            start(&f);
            *opened.name = '\0';
            ck_ok(pl_dataset_restore, f.dataset, text);
            ck_assert_uint_eq(take(&f, 1, &hash), 1);
            while (given[oldest]) {
                oldest++;
            }
            snprintf(name, sizeof(name), "%s/part-%02zu", f.scratch.path, oldest / PER_FILE);
            ck_assert_msg(strcmp(opened.name, name) == 0, "'%s' is %s, not %s", f.path, opened.name, name);
            ck_assert_uint_eq(opened.first_byte, gzip ? 0 : oldest % PER_FILE * NUMBER_BYTES);
            free(text);
            pl_dataset_close(f.dataset);
            scratch_done(&f.scratch);
        }
    }
}

/* What threads have read ahead does not show in a place, and an earlier one can be asked for afterwards. */
TEST(place_is_that_after_the_batch_that_was_taken_last_or_so_many_before)
{
    char *texts[COUNT / 7 + 1] = {NULL};
    struct fixture f;
    uint64_t hash;

    for (unsigned threads = 1; threads <= 4; threads += 3) {
        set_up_numbers(&f);
        f.path = "/tmp"; /* the source has a name of its own */
        f.channel = (struct pl_channel){.name = "training", .path = f.scratch.path};
        f.options.path_count = 0;
        f.options.channel = &f.channel;
        f.options.shuffle_samples = 20;
        f.options.decode_threads = threads;
        f.options.prefetch_batches = threads;
        f.options.max_batches = 6;
        start(&f);
        ck_ok(pl_dataset_start, f.dataset, 3);
        for (size_t i = 0; i < COUNT / 7; i++) {
            char *text;

            ck_assert_uint_eq(take(&f, 1, &hash), 1);
            text = save(&f, 0);
            if (threads == 1) {
                texts[i] = text;
            } else {
                ck_assert_str_eq(text, texts[i]);
                free(text);
            }
            for (uint64_t back = 0; back <= i && back < 6; back++) {
                text = save(&f, back);
                ck_assert_str_eq(text, texts[i - back]);
                free(text);
            }
            ck_fails(PL_LIMIT, "is not known any more", pl_dataset_save, f.dataset, 7, &text);
        }
        pl_dataset_close(f.dataset);
        scratch_done(&f.scratch);
    }
    for (size_t i = 0; i < COUNT / 7; i++) {
        free(texts[i]);
    }
}

TEST(place_at_the_beginning_and_at_the_end_of_an_epoch)
{
    uint64_t expected[2 * MOST_BATCHES], found[2 * MOST_BATCHES];
    struct fixture f;
    size_t count;
    char *text;

    set_up_numbers(&f);
    f.options.shuffle_samples = 10;
    f.options.epochs = 3;
    start(&f);
    ck_fails(PL_INVALID, "pl_dataset_start() comes first", pl_dataset_save, f.dataset, 0, &text);
    ck_ok(pl_dataset_start, f.dataset, 4);
    start_at(&f, save(&f, 0));
    count = take(&f, MOST_BATCHES, expected);
    ck_assert_uint_eq(count, COUNT / 7 + 1);
    text = save(&f, 0);
    ck_ok(pl_dataset_start, f.dataset, 5);
    ck_assert_uint_eq(take(&f, MOST_BATCHES, expected + count), count);
    start_at(&f, text);
    ck_assert_uint_eq(take(&f, 1, found), 0);
    ck_ok(pl_dataset_start, f.dataset, 5);
    ck_assert_uint_eq(take(&f, MOST_BATCHES, found), count);
    ck_assert_mem_eq(found, expected + count, count * sizeof(*found));
    ck_ok(pl_dataset_start, f.dataset, 4);
    ck_assert_uint_eq(take(&f, 3, found), 3); /* a place in the middle, and then another epoch after all */
    start_at(&f, save(&f, 0));
    ck_ok(pl_dataset_start, f.dataset, 4);
    ck_assert_uint_eq(take(&f, MOST_BATCHES, found), count);
    ck_assert_mem_eq(found, expected, count * sizeof(*found));
    pl_dataset_close(f.dataset);
    scratch_done(&f.scratch);
}

static void expect_error(struct fixture *f, enum pl_status status, const char *text, const char *words)
{
    struct pl_batch batch;

    start(f);
    ck_fails(status, words, pl_dataset_restore, f->dataset, text);
    ck_fails(PL_INVALID, "pl_dataset_start() comes first", pl_dataset_next, f->dataset, PL_DEADLINE_NEVER, &batch);
    pl_dataset_close(f->dataset);
}

TEST(place_of_something_else_is_refused_by_name_with_found_and_expected)
{
    struct pl_dataset_options options;
    struct fixture f;
    uint64_t hash[4];
    const char *path;
    char *text, *at, other[PATH_MAX];

    set_up_numbers(&f);
    f.options.shuffle_samples = 10;
    f.options.deal = (struct pl_shard){1, 2};
    f.options.seed = UINT64_MAX;
    start(&f);
    ck_ok(pl_dataset_start, f.dataset, 0);
    take(&f, 4, hash);
    text = save(&f, 0);
    pl_dataset_close(f.dataset);
    options = f.options;

#define REFUSED(words, ...)                                                                                            \
    do {                                                                                                               \
        __VA_ARGS__;                                                                                                   \
        expect_error(&f, PL_MISMATCH, text, words);                                                                    \
        f.options = options;                                                                                           \
    } while (0)
    REFUSED("another seed: found '18446744073709551615', expected '5'", f.options.seed = 5);
    REFUSED("another batch: found '7', expected '8'", f.options.batch_samples = 8);
    REFUSED("another shuffle: found '10', expected '0'", f.options.shuffle_samples = 0);
    REFUSED("another format: found 'tfrecord', expected 'csv'", f.options.records.format = PL_RECORD_CSV);
    REFUSED("another format: found 'tfrecord', expected 'tfrecord without corrupt records'",
            f.options.records.skip_corrupt = true);
    REFUSED("another compression: found 'none', expected 'gzip'", f.options.compression = PL_COMPRESSION_GZIP);
    REFUSED("another order: found 'objects by key', expected 'shuffled objects'", f.options.shuffle_objects = true);
    REFUSED("another split: found 'records', expected 'objects'", f.options.split = PL_STREAM_SPLIT_OBJECTS);
    REFUSED("rank 1 of 2, this is rank 1 of 3", f.options.deal.size = 3);
    REFUSED("rank 1 of 2, this is rank 0 of 2", f.options.deal.rank = 0);
    path = scratch_path(&f.scratch, "part-01", other);
    REFUSED("another source: found '", f.options.paths = &path);

    scratch_write(&f.scratch, "part-99", "", 0);
    expect_error(&f, PL_MISMATCH, text, "its list has 7 objects and the digest ");
    ck_assert_int_eq(unlink(scratch_path(&f.scratch, "part-99", other)), 0);
    ck_assert_int_eq(truncate(scratch_path(&f.scratch, "part-05", other), 40), 0);
    expect_error(&f, PL_MISMATCH, text, "its list has 6 objects and the digest ");
    ck_assert_int_eq(truncate(scratch_path(&f.scratch, "part-01", other), 380), 0);
    at = strstr(text, "\"key\":\"00000000/part-0");
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(truncate(scratch_path(&f.scratch, at[22] == '0' ? "part-00" : "part-01", other), 380), 0);
    expect_error(&f, PL_MISMATCH, text, "of 380 bytes, and was '00000000/part-0");
    text[20] ^= 1;
    expect_error(&f, PL_CORRUPT, text, "the text of the saved place is damaged");
    text[strlen(text) / 2] = '\0';
    expect_error(&f, PL_CORRUPT, text, "the text of the saved place is damaged");
    expect_error(&f, PL_CORRUPT, "", "the text of the saved place is damaged");
    free(text);
    scratch_done(&f.scratch);
}

/* A text whose checksum is right, but whose numbers no one has saved: an error, or another rest. */
TEST(place_with_wrong_numbers_neither_crashes_nor_hangs)
{
    uint64_t state = 1, hash[MOST_BATCHES];
    size_t refused = 0;
    struct fixture f;

    for (uint32_t k = 0; k < 400; k++) {
        struct pl_batch batch;
        size_t at, before;
        char *text;

        if (k % 100 == 0) {
            set_up_numbers(&f);
        }
        f.options.shuffle_samples = k / 100 % 2 * 10;
        f.options.deal = (struct pl_shard){0, 1 + k / 200};
        start(&f);
        ck_ok(pl_dataset_start, f.dataset, 0);
        take(&f, 4, hash);
        text = save(&f, 0);
        before = strlen(text) - 20;
        do {
            at = (size_t)(pl_random_next(&state) % before);
        } while (text[at] < '0' || text[at] > '9');
        text[at] = (char)('0' + pl_random_next(&state) % 10);
        snprintf(text + before, 21, ",\"check\":\"%08x\"}", pl_checksum_crc32c(0, text, before));
        pl_dataset_close(f.dataset);
        start(&f);
        if (pl_dataset_restore(f.dataset, text, &f.error) == PL_OK) {
            while (pl_dataset_next(f.dataset, PL_DEADLINE_NEVER, &batch, &f.error) == PL_OK) {
                pl_batch_release(&batch);
            }
        } else {
            refused++;
        }
        free(text);
        pl_dataset_close(f.dataset);
        if (k % 100 == 99) {
            scratch_done(&f.scratch);
        }
    }
    ck_assert_uint_gt(refused, 50);
}

/* Takes `most` batches of numbers and counts them. Returns how many samples there were. */
static size_t count_numbers(struct fixture *f, size_t most, unsigned seen[COUNT])
{
    struct pl_batch batch;
    size_t count = 0;

    for (size_t i = 0; i < most && pl_dataset_next(f->dataset, PL_DEADLINE_NEVER, &batch, &f->error) == PL_OK; i++) {
        for (size_t s = 0; s < batch.samples; s++) {
            seen[((const int32_t *)batch.fields[0].data)[s]]++;
        }
        count += batch.samples;
        pl_batch_release(&batch);
    }
    return count;
}

/* In the middle of an epoch the job goes on with other numbers of ranks, twice, from the place of any rank. */
TEST(another_number_of_ranks_goes_on_behind_whole_rounds_without_a_buffer)
{
    static const uint32_t sizes[][3] = {{1, 4, 2}, {2, 3, 5}, {3, 2, 3}, {4, 1, 7}, {5, 5, 2}};

    for (size_t k = 0; k < 3 * sizeof(sizes) / sizeof(sizes[0]); k++) {
        unsigned seen[COUNT] = {0};
        char *text = NULL, *next = NULL;
        struct fixture f;

        set_up_numbers(&f);
        f.options.batch_samples = 2 + k % 4;
        for (int turn = 0; turn < 3; turn++) {
            uint32_t size = sizes[k / 3][turn];

            for (uint32_t rank = 0; rank < size; rank++) {
                f.options.deal = (struct pl_shard){rank, size};
                start(&f);
                if (text) {
                    ck_ok(pl_dataset_restore, f.dataset, text);
                } else {
                    ck_ok(pl_dataset_start, f.dataset, 0);
                }
                if (turn == 1 && k % 3 == 1) { /* a place that is saved before anything was taken from there */
                    start_at(&f, save(&f, 0));
                }
                count_numbers(&f, turn == 2 ? COUNT : turn == 1 && k % 3 == 2 ? 0 : 1 + k % 2, seen);
                if (rank == k % size) {
                    next = save(&f, 0);
                }
                pl_dataset_close(f.dataset);
            }
            free(text);
            text = next;
        }
        for (int i = 0; i < COUNT; i++) {
            ck_assert_msg(seen[i] == 1, "case %zu: record %d came %u times", k, i, seen[i]);
        }
        free(text);
        scratch_done(&f.scratch);
    }
}

TEST(at_the_beginning_of_an_epoch_any_number_of_ranks_goes_on)
{
    unsigned seen[COUNT] = {0};
    struct fixture f;
    char *text;

    set_up_numbers(&f);
    f.options.shuffle_samples = 30;
    f.options.deal = (struct pl_shard){0, 3};
    start(&f);
    ck_ok(pl_dataset_start, f.dataset, 6);
    text = save(&f, 0);
    pl_dataset_close(f.dataset);
    for (uint32_t rank = 0; rank < 2; rank++) {
        f.options.deal = (struct pl_shard){rank, 2};
        start(&f);
        ck_ok(pl_dataset_restore, f.dataset, text);
        ck_assert_uint_eq(count_numbers(&f, COUNT, seen), (COUNT + 1 - rank) / 2);
        pl_dataset_close(f.dataset);
    }
    free(text);
    scratch_done(&f.scratch);
}

TEST(damaged_records_before_and_after_a_place_are_counted_once)
{
    for (size_t stop = 0; stop <= COUNT / 7; stop++) {
        uint64_t all[MOST_BATCHES], rest[MOST_BATCHES];
        struct pl_dataset_progress progress;
        struct build build = {.data = NULL};
        struct fixture f;
        size_t count;

        set_up_numbers(&f);
        for (uint32_t i = 0; i < 60; i++) {
            build_tfrecord(&build, &i, sizeof(i));
            build.data[build.bytes - (i % 20 == 7 ? 20 : 5)] ^= i % 10 == 7; /* a length, or the data */
        }
        scratch_write(&f.scratch, "part-01", build.data, build.bytes - 3);
        build_done(&build);
        f.options.records.skip_corrupt = true;
        f.options.shuffle_samples = stop % 3 * 8;
        start(&f);
        ck_ok(pl_dataset_start, f.dataset, 0);
        count = take(&f, MOST_BATCHES, all);
        progress = pl_dataset_progress(f.dataset);
        ck_assert_uint_gt(progress.skipped, 5);
        ck_ok(pl_dataset_start, f.dataset, 0);
        take(&f, stop, rest);
        start_at(&f, save(&f, 0));
        ck_assert_uint_eq(take(&f, MOST_BATCHES, rest), count - stop);
        ck_assert_mem_eq(rest, all + stop, (count - stop) * sizeof(*rest));
        ck_assert_uint_eq(pl_dataset_progress(f.dataset).skipped, progress.skipped);
        ck_assert_uint_eq(pl_dataset_progress(f.dataset).samples, progress.samples);
        ck_assert_uint_eq(pl_dataset_progress(f.dataset).bytes, progress.bytes);
        pl_dataset_close(f.dataset);
        scratch_done(&f.scratch);
    }
}

struct writer {
    const char *path;
    struct build build;
    pthread_t thread;
};

static void *write_fifo(void *argument)
{
    const struct writer *writer = argument;
    int fd = open(writer->path, O_WRONLY | O_CLOEXEC);

    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_ge(fd, 0);
    for (size_t at = 0; at < writer->build.bytes;) { /* the reader may leave */
        ssize_t wrote = write(fd, writer->build.data + at, writer->build.bytes - at);

        if (wrote < 0) {
            break;
        }
        at += (size_t)wrote;
    }
    close(fd);
    return NULL;
}

/* The FIFO holds 1,000 numbers from `first` on; wrapped: in objects of 100. */
static void start_writer(struct writer *writer, const char *path, uint32_t first, bool wrapped)
{
    struct build object = {.data = NULL};

    *writer = (struct writer){.path = path};
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t number = first + i;

        build_tfrecord(wrapped ? &object : &writer->build, &number, sizeof(number));
        if (wrapped && i % 100 == 99) {
            build_recordio(&writer->build, object.data, object.bytes);
            object.bytes = 0;
        }
    }
    build_done(&object);
    ck_assert_int_eq(pthread_create(&writer->thread, NULL, write_fifo, writer), 0);
}

static void end_writer(struct writer *writer)
{
    ck_assert_int_eq(pthread_join(writer->thread, NULL), 0);
    build_done(&writer->build);
}

struct fifo {
    struct fixture f;
    char path[PATH_MAX], name[PATH_MAX];
    struct writer writer;
};

/* Opens a dataset of a FIFO. */
static void set_up_fifo(struct fifo *fifo, bool wrapped, size_t buffer)
{
    struct fixture *f = &fifo->f;

    set_up_numbers(f);
    f->channel = (struct pl_channel){.name = "training",
                                     .mode = PL_CHANNEL_PIPE,
                                     .wrapper = wrapped ? PL_CHANNEL_WRAPPER_RECORDIO : PL_CHANNEL_WRAPPER_NONE,
                                     .path = scratch_path(&f->scratch, "training", fifo->path)};
    f->options.path_count = 0;
    f->options.channel = &f->channel;
    f->options.shuffle_samples = buffer;
    ck_assert_int_eq(mkfifo(scratch_path(&f->scratch, "training_0", fifo->name), 0600), 0);
    start(f);
}

/* Takes `most` batches of the FIFO, and returns how many there were. The dataset is closed and opened again after it,
 * or the next writer would find this reader. */
static size_t take_fifo(struct fifo *fifo, bool wrapped, size_t most, uint64_t *hashes, char **ret_place)
{
    size_t count;

    start_writer(&fifo->writer, fifo->name, 0, wrapped);
    ck_ok(pl_dataset_start, fifo->f.dataset, 0);
    count = take(&fifo->f, most, hashes);
    *ret_place = save(&fifo->f, 0);
    pl_dataset_close(fifo->f.dataset);
    end_writer(&fifo->writer);
    start(&fifo->f);
    return count;
}

TEST(fifo_is_read_from_its_beginning_and_what_was_seen_is_passed_over)
{
    for (unsigned variant = 0; variant < 4; variant++) {
        uint64_t all[MOST_BATCHES], rest[MOST_BATCHES];
        bool wrapped = variant & 1;
        struct pl_batch batch;
        struct fifo fifo;
        char *text;

        set_up_fifo(&fifo, wrapped, variant & 2 ? 50 : 0);
        ck_assert_uint_eq(take_fifo(&fifo, wrapped, MOST_BATCHES, all, &text), 143);
        free(text);
        take_fifo(&fifo, wrapped, 60, rest, &text);
        start_writer(&fifo.writer, fifo.name, 0, wrapped);
        ck_ok(pl_dataset_restore, fifo.f.dataset, text);
        ck_assert_uint_eq(take(&fifo.f, MOST_BATCHES, rest), 143 - 60);
        ck_assert_mem_eq(rest, all + 60, (143 - 60) * sizeof(*rest));
        end_writer(&fifo.writer);
        ck_ok(pl_dataset_start, fifo.f.dataset, 1); /* has no writer */
        ck_fails(PL_TIMEOUT, "", pl_dataset_next, fifo.f.dataset, pl_deadline_after_ns(5 * PL_NS_PER_MS), &batch);
        free(text);
        pl_dataset_close(fifo.f.dataset);
        scratch_done(&fifo.f.scratch);
    }
}

TEST(place_of_a_rank_with_a_fifo_of_its_own_is_that_ranks)
{
    for (unsigned variant = 0; variant < 8; variant++) { /* rank, size and a division that differ or not; a buffer */
        static const char *const words[] = {"rank 1 of 2 with a FIFO of its own, this is rank 0 of 3 with a FIFO of",
                                            "rank 1 of 2 with a FIFO of its own, this is rank 1 of 2: in the middle"};
        uint64_t all[MOST_BATCHES], rest[MOST_BATCHES];
        struct fifo fifo;
        struct fixture *f = &fifo.f;
        char *text;

        set_up_fifo(&fifo, false, variant & 4 ? 50 : 0);
        pl_dataset_close(f->dataset);
        f->channel.is_dealt = true;
        f->options.deal = (struct pl_shard){.rank = 1, .size = 2};
        start(f);
        ck_assert_uint_eq(take_fifo(&fifo, false, MOST_BATCHES, all, &text), 143); /* all that is in it */
        free(text);
        take_fifo(&fifo, false, 60, rest, &text);
        ck_assert_ptr_nonnull(strstr(text, "\"rank\":1,\"size\":2,\"is_dealt\":true"));
        pl_dataset_close(f->dataset);
        f->channel.is_dealt = (variant & 3) != 3;
        f->options.deal = (struct pl_shard){.rank = (variant & 3) % 2, .size = (variant & 3) == 2 ? 3 : 2};
        start(f);
        if ((variant & 3) >= 2) {
            ck_fails(PL_MISMATCH, words[(variant & 3) - 2], pl_dataset_restore, f->dataset, text);
        } else if (variant == 4) {
            ck_fails(PL_MISMATCH, "rank 1 of 2, this is rank 0 of 2", pl_dataset_restore, f->dataset, text);
        } else {
            start_writer(&fifo.writer, fifo.name, 0, false);
            ck_ok(pl_dataset_restore, f->dataset, text);
            ck_assert_uint_eq(take(f, MOST_BATCHES, rest), 143 - 60);
            ck_assert_mem_eq(rest, all + 60, (143 - 60) * sizeof(*rest));
            end_writer(&fifo.writer);
        }
        free(text);
        pl_dataset_close(f->dataset);
        scratch_done(&f->scratch);
    }
}

/* What a list of objects cannot tell: the records of the buffer are not where they were. */
TEST(records_that_are_not_where_they_were_are_an_error)
{
    for (int shorter = 0; shorter < 2; shorter++) {
        struct pl_batch batch;
        struct fifo fifo;
        uint64_t hash[20];
        char *text;

        set_up_fifo(&fifo, false, 50);
        take_fifo(&fifo, false, 20, hash, &text);
        fifo.writer = (struct writer){.path = fifo.name};
        build_tfrecord(&fifo.writer.build, "a longer record", 15);
        for (uint32_t i = 0; i < (shorter ? 30 : 1000); i++) {
            build_tfrecord(&fifo.writer.build, &i, sizeof(i));
        }
        ck_assert_int_eq(pthread_create(&fifo.writer.thread, NULL, write_fifo, &fifo.writer), 0);
        ck_ok(pl_dataset_restore, fifo.f.dataset, text);
        ck_fails(PL_MISMATCH, "the data has changed", pl_dataset_next, fifo.f.dataset, PL_DEADLINE_NEVER, &batch);
        free(text);
        pl_dataset_close(fifo.f.dataset);
        end_writer(&fifo.writer);
        scratch_done(&fifo.f.scratch);
    }
}

TEST(stream_goes_on_behind_its_last_record)
{
    for (uint32_t stop = 0; stop <= COUNT / 2 + 1; stop++) {
        struct pl_error error = PL_ERROR_NONE;
        struct pl_stream_options options = {.records = {.format = PL_RECORD_TFRECORD}, .deal = {1, 2}};
        struct pl_stream *stream;
        struct pl_record record;
        struct fixture f;
        uint32_t number = 0, expected = 1;
        char *text;

        set_up_numbers(&f);
        f.channel = (struct pl_channel){.name = "training", .path = f.scratch.path};
        ck_ok(pl_stream_open, &f.channel, &options, &stream);
        ck_fails(PL_INVALID, "cannot save the place", pl_stream_save, stream, &text);
        ck_ok(pl_stream_start, stream, 9, PL_DEADLINE_NEVER);
        for (uint32_t i = 0; i < stop; i++, expected += 2) {
            ck_assert_int_eq(pl_stream_next(stream, PL_DEADLINE_NEVER, &record, &error),
                             expected < COUNT ? PL_OK : PL_END);
        }
        ck_ok(pl_stream_save, stream, &text);
        pl_stream_close(stream);
        ck_ok(pl_stream_open, &f.channel, &options, &stream);
        ck_ok(pl_stream_restore, stream, text, PL_DEADLINE_NEVER);
        for (; expected < COUNT; expected += 2) {
            ck_ok(pl_stream_next, stream, PL_DEADLINE_NEVER, &record);
            memcpy(&number, record.data, sizeof(number));
            ck_assert_uint_eq(number, expected);
            ck_assert_uint_eq(record.index, expected);
            ck_assert_uint_eq(record.number, expected % PER_FILE);
            ck_assert_uint_eq(record.offset_bytes, expected % PER_FILE * NUMBER_BYTES);
            ck_assert_uint_eq(record.object, expected / PER_FILE);
        }
        ck_assert_int_eq(pl_stream_next(stream, PL_DEADLINE_NEVER, &record, &error), PL_END);
        ck_ok(pl_stream_start, stream, 10, PL_DEADLINE_NEVER);
        ck_ok(pl_stream_next, stream, PL_DEADLINE_NEVER, &record);
        ck_assert_uint_eq(record.index, 1);
        free(text);
        pl_stream_close(stream);
        scratch_done(&f.scratch);
    }
}

UNIT_MAIN("s3io/place")
