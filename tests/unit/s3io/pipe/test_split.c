/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/pipe/split.c, s3io/pipe/pipe_writer.c. */
#include "base/clock.h"
#include "base/file.h"
#include "s3io/pipe/split.h"
#include "s3io/stream.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"
#include "tests/unit/s3io/record/build.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/eventfd.h>

enum { MOST_RANKS = 5, MOST_EPOCHS = 2, RECORDS = 300 };

#define LONG_NS (100 * PL_NS_PER_S)

/* A split in a thread, between FIFOs in `scratch`: in/training_E and out/L/training_E. */
struct rig {
    struct scratch scratch;
    char from[PATH_MAX], to[PATH_MAX], opened[PATH_MAX];
    struct pl_channel channel;
    struct pl_split_options options;
    enum pl_status status;
    struct pl_error error;
    bool all_left; /* what pl_split_hold() has returned */
    pthread_t thread;
};

static char *rig_path(const struct rig *rig, char path[PATH_MAX], const char *format, ...)
{
    char name[100];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof(name), format, args);
    va_end(args);
    return scratch_path(&rig->scratch, name, path);
}

static struct rig *rig_new(void)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    char path[PATH_MAX];

    signal(SIGPIPE, SIG_IGN);
    rig->scratch = scratch_new();
    ck_assert_int_eq(mkdir(rig_path(rig, path, "in"), 0700), 0);
    ck_assert_int_eq(mkdir(rig_path(rig, rig->to, "out"), 0700), 0);
    rig->channel = (struct pl_channel){
        .name = "training", .mode = PL_CHANNEL_PIPE, .path = rig_path(rig, rig->from, "in/training")};
    rig->options = (struct pl_split_options){.channel = &rig->channel,
                                             .directory = rig->to,
                                             .opened_path = rig_path(rig, rig->opened, "opened"),
                                             .cancel_fd = eventfd(0, EFD_CLOEXEC)};
    return rig;
}

static void *run_split(void *argument)
{
    struct rig *rig = argument;
    struct pl_split *split;

    ck_ok(pl_split_new, &rig->options, &split);
    rig->status = pl_split_run(split, &rig->error);
    if (rig->status != PL_OK && rig->status != PL_CANCELLED) {
        rig->all_left = pl_split_hold(split, &rig->error);
    }
    pl_split_free(split);
    return NULL;
}

static void rig_start(struct rig *rig)
{
    ck_assert_int_eq(pthread_create(&rig->thread, NULL, run_split, rig), 0);
}

/* What the shim of a rank does before its program. */
static void enter(const struct rig *rig, unsigned local_rank, unsigned rank, unsigned size, unsigned local_size)
{
    char path[PATH_MAX], place[64];

    ck_assert_int_eq(mkdir(rig_path(rig, path, "out/%u", local_rank), 0700), 0);
    ck_assert_int_eq(mkfifo(rig_path(rig, path, "out/%u/training_0", local_rank), 0600), 0);
    snprintf(place, sizeof(place), "%u/%u/%u", rank, size, local_size);
    ck_assert_int_eq(symlink(place, rig_path(rig, path, "out/%u.place", local_rank)), 0);
}

/* What it does after the program. */
static void leave(const struct rig *rig, unsigned local_rank)
{
    char path[PATH_MAX];

    nftw(rig_path(rig, path, "out/%u", local_rank), scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* All ranks have ended, or a stop is requested: the split ends. */
static void rig_end(struct rig *rig, enum pl_status expected)
{
    uint64_t one = 1;

    if (expected == PL_CANCELLED) {
        ck_assert_int_eq(write(rig->options.cancel_fd, &one, sizeof(one)), sizeof(one));
    }
    ck_assert_int_eq(pthread_join(rig->thread, NULL), 0);
    ck_assert_msg(rig->status == expected, "%s: %s", pl_status_name(rig->status), rig->error.cause);
    close(rig->options.cancel_fd);
    scratch_done(&rig->scratch);
    free(rig);
}

/* The platform: writes the FIFO of an epoch, whose reader may leave. */
struct writer {
    char path[PATH_MAX];
    const struct build *build;
    bool stays;    /* it keeps the FIFO open until `go_on` */
    int go_on_fd;  /* an eventfd */
    bool was_left; /* the reader has closed the FIFO early */
    pthread_t thread;
};

static void *write_epoch(void *argument)
{
    struct writer *writer = argument;
    const size_t all = writer->build->bytes;
    uint64_t count;
    int fd = open(writer->path, O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    for (size_t at = 0; at < all && !writer->was_left;) {
        ssize_t put = write(fd, writer->build->data + at, all - at < 65536 ? all - at : 65536);

        writer->was_left = put < 0;
        ck_assert(put > 0 || errno == EPIPE);
        at += put > 0 ? (size_t)put : 0;
    }
    if (writer->stays) {
        ck_assert_int_eq(read(writer->go_on_fd, &count, sizeof(count)), sizeof(count));
    }
    close(fd);
    unlink(writer->path);
    return NULL;
}

static void start_writer(const struct rig *rig, struct writer *writer, unsigned epoch, const struct build *build)
{
    writer->build = build;
    ck_assert_int_eq(mkfifo(rig_path(rig, writer->path, "in/training_%u", epoch), 0600), 0);
    ck_assert_int_eq(pthread_create(&writer->thread, NULL, write_epoch, writer), 0);
}

/* A program that knows nothing of Paceline. */
struct reader {
    const struct rig *rig;
    unsigned local_rank, epochs;
    size_t most; /* in epoch 0 it leaves after so many bytes; 0: it does not */
    struct build got[MOST_EPOCHS];
    pthread_t thread;
};

static void *read_epochs(void *argument)
{
    static _Thread_local unsigned char data[65536];
    struct reader *reader = argument;

    for (unsigned epoch = 0; epoch < reader->epochs; epoch++) {
        struct build *got = &reader->got[epoch];
        char path[PATH_MAX];
        ssize_t bytes = 1;
        int fd =
            open(rig_path(reader->rig, path, "out/%u/training_%u", reader->local_rank, epoch), O_RDONLY | O_CLOEXEC);

        ck_assert_msg(fd >= 0, "open '%s': %s", path, strerror(errno));
        while (bytes > 0 && !(epoch == 0 && reader->most && got->bytes >= reader->most)) {
            bytes = read(fd, data, sizeof(data));
            ck_assert_int_ge(bytes, 0);
            build_bytes(got, data, (size_t)bytes);
        }
        close(fd);
    }
    return NULL;
}

static void start_reader(const struct rig *rig, struct reader *reader, unsigned local_rank, unsigned epochs)
{
    reader->rig = rig;
    reader->local_rank = local_rank;
    reader->epochs = epochs;
    ck_assert_int_eq(pthread_create(&reader->thread, NULL, read_epochs, reader), 0);
}

static void end_reader(struct reader *reader)
{
    ck_assert_int_eq(pthread_join(reader->thread, NULL), 0);
    for (unsigned epoch = 0; epoch < MOST_EPOCHS; epoch++) {
        build_done(&reader->got[epoch]);
    }
}

/* Appends record i of a stream in a format. */
typedef void add_record(struct build *build, unsigned i);

static size_t text_of(unsigned i, char text[64])
{
    return (size_t)snprintf(text, 64, "record %u%.*s", i, (int)(i % 40), "........................................");
}

static void add_tfrecord(struct build *build, unsigned i)
{
    char text[64];

    build_tfrecord(build, text, text_of(i, text));
}

static void add_recordio(struct build *build, unsigned i)
{
    unsigned char data[80] = {0};
    size_t bytes = text_of(i, (char *)data);

    memcpy(data + 4 * (i % 4), "\x0a\x23\xd7\xce", 4); /* so that it has several parts */
    build_recordio(build, data, bytes);
}

static void add_line(struct build *build, unsigned i)
{
    char text[64];

    build_bytes(build, text, i % 7 == 3 ? 0 : text_of(i, text));
    build_bytes(build, i % 5 ? "\n" : "\r\n", i % 5 ? 1 : 2);
}

static void add_csv(struct build *build, unsigned i)
{
    char text[64];
    int bytes = snprintf(text, sizeof(text), i % 3 ? "%u,plain\n" : "%u,\"two\nlines\"\n", i);

    build_bytes(build, text, (size_t)bytes);
}

static void add_large(struct build *build, unsigned i)
{
    static unsigned char data[100000];

    memset(data, (int)i, sizeof(data));
    build_tfrecord(build, data, sizeof(data) - i);
}

static void expect_same(const char *what, unsigned rank, const struct build *found, const struct build *wanted)
{
    ck_assert_msg(found->bytes == wanted->bytes, "%s, rank %u: %zu bytes, not %zu", what, rank, found->bytes,
                  wanted->bytes);
    ck_assert_msg(memcmp(found->data, wanted->data, wanted->bytes) == 0, "%s, rank %u: other bytes", what, rank);
}

struct layout {
    const char *what;
    add_record *add;
    bool gzip, is_csv, sharded;
    enum pl_channel_wrapper wrapper;
    unsigned first, local_size, size; /* local rank l is rank `first` + l */
};

/* Two epochs, of which the second has one record less. */
static void check_layout(const struct layout *layout)
{
    static unsigned char packed[1 << 20];
    struct build streams[MOST_EPOCHS] = {{.data = NULL}}, wanted[MOST_EPOCHS][MOST_RANKS] = {{{.data = NULL}}};
    struct writer writers[MOST_EPOCHS] = {{.stays = false}};
    struct reader readers[MOST_RANKS] = {{.rig = NULL}};
    struct rig *rig = rig_new();
    unsigned size = layout->sharded ? layout->local_size : layout->size, first = layout->sharded ? 0 : layout->first;

    rig->channel.wrapper = layout->wrapper;
    rig->channel.distribution = layout->sharded ? PL_CHANNEL_SHARDED_BY_KEY : PL_CHANNEL_FULLY_REPLICATED;
    rig->options.is_csv = layout->is_csv;
    for (unsigned epoch = 0; epoch < MOST_EPOCHS; epoch++) {
        for (unsigned i = 0; i < RECORDS - epoch; i++) {
            unsigned owner = i % size - first; /* of another host: large */

            layout->add(&streams[epoch], i);
            if (owner < layout->local_size) {
                layout->add(&wanted[epoch][owner], i);
            }
        }
        if (layout->gzip) {
            size_t bytes = drip_gzip(streams[epoch].data, streams[epoch].bytes, packed, sizeof(packed));

            streams[epoch].bytes = 0;
            build_bytes(&streams[epoch], packed, bytes);
        }
        start_writer(rig, &writers[epoch], epoch, &streams[epoch]);
    }
    rig_start(rig);
    for (unsigned l = 0; l < layout->local_size; l++) {
        enter(rig, l, layout->first + l, layout->size, layout->local_size);
        start_reader(rig, &readers[l], l, MOST_EPOCHS);
    }
    for (unsigned l = 0; l < layout->local_size; l++) {
        ck_assert_int_eq(pthread_join(readers[l].thread, NULL), 0);
        leave(rig, l);
    }
    for (unsigned epoch = 0; epoch < MOST_EPOCHS; epoch++) {
        ck_assert_int_eq(pthread_join(writers[epoch].thread, NULL), 0);
        ck_assert(!writers[epoch].was_left);
        for (unsigned l = 0; l < layout->local_size; l++) {
            expect_same(layout->what, l, &readers[l].got[epoch], &wanted[epoch][l]);
            build_done(&readers[l].got[epoch]);
            build_done(&wanted[epoch][l]);
        }
        build_done(&streams[epoch]);
    }
    rig_end(rig, PL_OK);
}

TEST(every_record_reaches_one_rank_in_order_in_every_epoch)
{
    static const struct layout layouts[] = {
        {.what = "TFRecord, 2 ranks", .add = add_tfrecord, .local_size = 2, .size = 2},
        {.what = "TFRecord, 5 ranks", .add = add_tfrecord, .local_size = 5, .size = 5},
        {.what = "TFRecord, 2 of 6 ranks", .add = add_tfrecord, .first = 3, .local_size = 2, .size = 6},
        {.what = "TFRecord, sharded", .add = add_tfrecord, .first = 2, .local_size = 2, .size = 4, .sharded = true},
        {.what = "TFRecord, gzip", .add = add_tfrecord, .local_size = 3, .size = 3, .gzip = true},
        {.what = "large TFRecords", .add = add_large, .local_size = 2, .size = 2},
        {.what = "RecordIO", .add = add_recordio, .local_size = 3, .size = 3},
        {.what = "objects in RecordIO",
         .add = add_recordio,
         .local_size = 2,
         .size = 2,
         .wrapper = PL_CHANNEL_WRAPPER_RECORDIO},
        {.what = "lines", .add = add_line, .local_size = 4, .size = 4},
        {.what = "CSV", .add = add_csv, .local_size = 2, .size = 2, .is_csv = true},
    };

    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        check_layout(&layouts[i]);
    }
}

static void add_all(struct build *build, add_record *add, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        add(build, i);
    }
}

TEST(rank_that_leaves_an_epoch_early_does_not_hold_the_others_up)
{
    struct build stream = {.data = NULL}, rest = {.data = NULL}, half = {.data = NULL};
    struct writer writers[MOST_EPOCHS] = {{.stays = false}};
    struct reader readers[2] = {{.most = 0}, {.most = 1}};
    struct rig *rig = rig_new();

    add_all(&stream, add_large, 60);
    for (unsigned i = 0; i < 60; i += 2) {
        add_large(&half, i);
    }
    add_tfrecord(&rest, 0);
    add_tfrecord(&rest, 1);
    start_writer(rig, &writers[0], 0, &stream);
    start_writer(rig, &writers[1], 1, &rest);
    rig_start(rig);
    for (unsigned l = 0; l < 2; l++) {
        enter(rig, l, l, 2, 2);
        start_reader(rig, &readers[l], l, MOST_EPOCHS);
    }
    for (unsigned l = 0; l < 2; l++) {
        ck_assert_int_eq(pthread_join(readers[l].thread, NULL), 0);
        ck_assert_int_eq(pthread_join(writers[l].thread, NULL), 0);
        ck_assert(!writers[l].was_left);
        leave(rig, l);
    }
    ck_assert_uint_eq(readers[0].got[1].bytes + readers[1].got[1].bytes, rest.bytes);
    expect_same("the other rank", 0, &readers[0].got[0], &half);
    for (unsigned i = 0; i < 4; i++) {
        build_done(&readers[i / 2].got[i % 2]);
    }
    rig_end(rig, PL_OK);
    build_done(&stream);
    build_done(&half);
    build_done(&rest);
}

TEST(platform_is_left_when_all_ranks_have_left_also_while_it_is_silent)
{
    for (int silent = 0; silent < 2; silent++) {
        struct writer writer = {.stays = silent, .go_on_fd = eventfd(0, EFD_CLOEXEC)};
        struct reader readers[2] = {{.most = 1}, {.most = 1}};
        struct build stream = {.data = NULL};
        struct rig *rig = rig_new();
        uint64_t one = 1;
        char path[PATH_MAX];

        add_all(&stream, add_large, silent ? 2 : 100);
        start_writer(rig, &writer, 0, &stream);
        rig_start(rig);
        for (unsigned l = 0; l < 2; l++) {
            enter(rig, l, l, 2, 2);
            start_reader(rig, &readers[l], l, 1);
        }
        for (unsigned l = 0; l < 2; l++) {
            end_reader(&readers[l]);
            leave(rig, l);
        }
        ck_assert_int_eq(pthread_join(rig->thread, NULL), 0); /* it does not wait for the platform */
        ck_assert_int_eq(write(writer.go_on_fd, &one, sizeof(one)), sizeof(one));
        ck_assert_int_eq(pthread_join(writer.thread, NULL), 0);
        ck_assert(writer.was_left == !silent);
        ck_assert_int_eq(access(rig_path(rig, path, "out/training.report"), F_OK), -1);
        rig->thread = pthread_self();
        ck_assert_int_eq(rig->status, PL_OK);
        close(rig->options.cancel_fd);
        close(writer.go_on_fd);
        scratch_done(&rig->scratch);
        free(rig);
        build_done(&stream);
    }
}

/* A rank with Paceline's library, which reads until its error has these words, or to the end. */
struct library {
    const struct rig *rig;
    unsigned local_rank;
    const char *until;
    enum pl_status status;
    unsigned records;
    char text[1200];
    pthread_t thread;
};

static void *read_by_library(void *argument)
{
    struct library *library = argument;
    char path[PATH_MAX];
    struct pl_channel channel = {.name = "training",
                                 .mode = PL_CHANNEL_PIPE,
                                 .path = rig_path(library->rig, path, "out/%u/training", library->local_rank),
                                 .is_dealt = true};
    struct pl_stream_options options = {
        .records = {.format = PL_RECORD_TFRECORD},
        .deal = pl_channel_shard(&channel, (struct pl_shard){.rank = 1, .size = 2}, (struct pl_shard){.size = 0})};
    int64_t deadline_ns = pl_deadline_after_ns(LONG_NS);
    struct pl_error error = PL_ERROR_NONE;
    struct pl_stream *stream;
    struct pl_record record;

    ck_ok(pl_stream_open, &channel, &options, &stream);
    ck_ok(pl_stream_start, stream, 0, deadline_ns);
    do {
        library->status = pl_stream_next(stream, pl_deadline_after_ns(20 * PL_NS_PER_MS), &record, &error);
        library->records += library->status == PL_OK;
        pl_error_text(&error, library->text, sizeof(library->text));
    } while (library->status == PL_OK || (library->status == PL_TIMEOUT && !strstr(library->text, library->until) &&
                                          !pl_deadline_passed(deadline_ns)));
    pl_stream_close(stream);
    return NULL;
}

/* Two ranks read what `build` has; both get `records` records and then the same error. */
static void expect_on_all(const struct build *build, enum pl_status status, unsigned records, const char *words)
{
    struct library ranks[2];
    struct writer writer = {.stays = false};
    struct rig *rig = rig_new();
    char text[PATH_MAX + 300];

    start_writer(rig, &writer, 0, build);
    rig_start(rig);
    snprintf(text, sizeof(text), "'%s_0'%s (channel 'training', epoch 0)", rig->from, words);
    for (unsigned l = 0; l < 2; l++) {
        enter(rig, l, l, 2, 2);
        ranks[l] = (struct library){.rig = rig, .local_rank = l, .until = "nothing"};
        ck_assert_int_eq(pthread_create(&ranks[l].thread, NULL, read_by_library, &ranks[l]), 0);
    }
    for (unsigned l = 0; l < 2; l++) {
        ck_assert_int_eq(pthread_join(ranks[l].thread, NULL), 0);
        ck_assert_str_eq(ranks[l].text, text);
        ck_assert_int_eq(ranks[l].status, status);
        ck_assert_uint_eq(ranks[l].records, records);
    }
    ck_assert_int_eq(pthread_join(writer.thread, NULL), 0);
    ck_assert_int_eq(pthread_join(rig->thread, NULL), 0);
    ck_assert(rig->all_left);
    ck_assert_int_eq(rig->status, status);
    close(rig->options.cancel_fd);
    scratch_done(&rig->scratch);
    free(rig);
}

TEST(error_of_the_fifo_reaches_all_ranks_after_the_records_before_it)
{
    static const unsigned char binary[2000] = {1, 0, 2};
    struct build stream = {.data = NULL}, other = {.data = (unsigned char *)(uintptr_t)binary, .bytes = sizeof(binary)};
    char words[200];
    size_t last;

    add_all(&stream, add_tfrecord, 20);
    last = stream.bytes;
    add_tfrecord(&stream, 20);
    stream.bytes--; /* the platform dies in the middle of a record */
    snprintf(words, sizeof(words), ": record 20 at byte %zu: the input ends inside a record", last);
    expect_on_all(&stream, PL_CORRUPT, 10, words);
    stream.data[last] ^= 1;
    stream.bytes++;
    snprintf(
        words, sizeof(words),
        ": record 20 at byte %zu: the checksum of the length is wrong: the file is damaged or not a TFRecord file; "
        "upload it again, or name its real format",
        last);
    expect_on_all(&stream, PL_CORRUPT, 10, words);
    build_done(&stream);
    expect_on_all(
        &other, PL_UNSUPPORTED, 0,
        " begins with neither RecordIO, TFRecord, tar nor text, so that it cannot be divided among the 2 ranks "
        "of this host: have its objects wrapped (RecordWrapperType RecordIO), or run one process a host");
}

TEST(program_that_knows_nothing_of_the_report_does_not_see_the_end_of_damaged_data)
{
    for (int lasting = 0; lasting < 2; lasting++) {
        struct build stream = {.data = NULL};
        struct writer writer = {.stays = false};
        struct rig *rig = rig_new();
        char path[PATH_MAX], data[4096];
        int fds[2];

        add_all(&stream, add_tfrecord, 3);
        stream.bytes--;
        rig->options.hold_ns = lasting ? LONG_NS : 50 * PL_NS_PER_MS;
        start_writer(rig, &writer, 0, &stream);
        for (unsigned l = 0; l < 2; l++) {
            enter(rig, l, l, 2, 2);
            fds[l] = open(rig_path(rig, path, "out/%u/training_0", l), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
            ck_assert_int_ge(fds[l], 0);
        }
        rig_start(rig);
        ck_assert_int_eq(pthread_join(writer.thread, NULL), 0);
        while (access(rig_path(rig, path, "out/training.report"), F_OK) != 0) {
            pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
        }
        while (lasting && read(fds[0], data, sizeof(data)) <= 0) {
            pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
        }
        for (unsigned l = 0; l < 2; l++) {
            ssize_t got;

            while ((got = read(fds[l], data, sizeof(data))) > 0) {
            }
            ck_assert(!lasting || got < 0); /* no data, and no end */
            if (lasting) {
                close(fds[l]);
            }
        }
        ck_assert_int_eq(pthread_join(rig->thread, NULL), 0);
        ck_assert_int_eq(rig->status, PL_CORRUPT);
        ck_assert(rig->all_left == lasting); /* else its process fails the job */
        for (unsigned l = 0; l < 2 && !lasting; l++) {
            close(fds[l]);
        }
        close(rig->options.cancel_fd);
        scratch_done(&rig->scratch);
        free(rig);
        build_done(&stream);
    }
}

/* Rank 0's words while it waits. */
static void expect_wait(const struct rig *rig, const char *words, const char *format, ...)
{
    struct library library = {.rig = rig, .until = words};
    char text[PATH_MAX + 300], told[PATH_MAX + 400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(told, sizeof(told), "%s (channel 'training', epoch 0)", text);
    read_by_library(&library);
    ck_assert_str_eq(library.text, told);
    ck_assert_int_eq(library.status, PL_TIMEOUT);
}

TEST(platform_fifo_is_not_opened_before_all_ranks_have_opened_theirs)
{
    struct rig *rig = rig_new();
    char path[PATH_MAX];
    int fd, other;

    enter(rig, 0, 0, 2, 2);
    enter(rig, 1, 1, 2, 2);
    ck_assert_int_eq(mkfifo(rig_path(rig, path, "in/training_0"), 0600), 0);
    rig_start(rig);
    expect_wait(rig, "not opened",
                "the channel's data waits for local rank 1, which has not opened its FIFO '%s/1/training_0'", rig->to);
    ck_assert_int_eq(open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC), -1);
    ck_assert_int_eq(errno, ENXIO);
    other = open(rig_path(rig, path, "out/1/training_0"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    rig_path(rig, path, "in/training_0");
    while ((fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    close(fd);
    close(other);
    rig_end(rig, PL_CANCELLED);
}

TEST(rank_says_which_wait_of_the_platform_lasts)
{
    struct rig *rig = rig_new();
    char path[PATH_MAX];
    int fd, other;

    enter(rig, 0, 0, 2, 2);
    enter(rig, 1, 1, 2, 2);
    other = open(rig_path(rig, path, "out/1/training_0"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    rig_start(rig);
    expect_wait(rig, "did not appear",
                "FIFO '%s_0' did not appear before the deadline: check the channel's name, and that its input mode is "
                "Pipe (input_mode in the SDK)",
                rig->from);
    close(other);
    rig_end(rig, PL_CANCELLED);

    rig = rig_new();
    enter(rig, 0, 0, 2, 2);
    enter(rig, 1, 1, 2, 2);
    other = open(rig_path(rig, path, "out/1/training_0"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_eq(mkfifo(rig_path(rig, path, "in/training_0"), 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC); /* keeps the three bytes, and does not wait for a reader */
    ck_assert_int_eq(write(fd, "abc", 3), 3);
    rig_start(rig);
    expect_wait(rig, "no data after", "FIFO '%s_0': no data after byte 3 before the deadline", rig->from);
    close(fd);
    close(other);
    rig_end(rig, PL_CANCELLED);
}

/* The other rank has all of the epoch by then, and waits for the next one. */
TEST(rank_that_does_not_read_the_end_of_its_epoch_is_named)
{
    static const char words[] =
        "TIMEOUT the channel's data waits for local rank 1, which has not read its earlier records";
    static const unsigned char data[120000];
    struct reader readers[2] = {{.most = 0}, {.most = 0}};
    int64_t deadline_ns = pl_deadline_after_ns(LONG_NS);
    struct build stream = {.data = NULL};
    struct writer writer = {.stays = false};
    struct rig *rig = rig_new();
    char path[PATH_MAX], *told = NULL;
    int fd;

    for (unsigned i = 0; i < 20; i++) { /* rank 1's are more than its pipe, and less than that and a chunk */
        build_tfrecord(&stream, data, i % 2 ? sizeof(data) : 1);
    }
    start_writer(rig, &writer, 0, &stream);
    rig_start(rig);
    for (unsigned l = 0; l < 2; l++) {
        enter(rig, l, l, 2, 2);
    }
    fd = open(rig_path(rig, path, "out/1/training_0"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    start_reader(rig, &readers[0], 0, 1);
    while (pl_file_read(rig_path(rig, path, "out/training.report"), PATH_MAX, &told, NULL, NULL) != PL_OK) {
        ck_assert(!pl_deadline_passed(deadline_ns));
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    ck_assert_str_eq(told, words);
    free(told);
    readers[1] = (struct reader){.rig = rig, .local_rank = 1, .epochs = 1};
    read_epochs(&readers[1]);
    ck_assert_int_eq(pthread_join(readers[0].thread, NULL), 0);
    close(fd);
    ck_assert_uint_eq(readers[0].got[0].bytes + readers[1].got[0].bytes, stream.bytes);
    ck_assert_int_eq(pthread_join(writer.thread, NULL), 0);
    for (unsigned l = 0; l < 2; l++) {
        build_done(&readers[l].got[0]);
        leave(rig, l);
    }
    rig_end(rig, PL_OK);
    build_done(&stream);
}

TEST(rank_that_has_ended_is_not_waited_for)
{
    struct build stream = {.data = NULL};
    struct writer writer = {.stays = false};
    struct reader reader = {.most = 0};
    struct rig *rig = rig_new();

    add_all(&stream, add_tfrecord, 10);
    start_writer(rig, &writer, 0, &stream);
    enter(rig, 0, 0, 2, 2);
    enter(rig, 1, 1, 2, 2);
    leave(rig, 1);
    rig_start(rig);
    start_reader(rig, &reader, 0, 1);
    ck_assert_int_eq(pthread_join(reader.thread, NULL), 0);
    ck_assert_uint_lt(reader.got[0].bytes, stream.bytes);
    ck_assert_uint_gt(reader.got[0].bytes, stream.bytes / 3);
    build_done(&reader.got[0]);
    ck_assert_int_eq(pthread_join(writer.thread, NULL), 0);
    leave(rig, 0);
    rig_end(rig, PL_OK);
    build_done(&stream);
}

TEST(program_that_starts_again_goes_on_with_the_platforms_next_fifo)
{
    struct build streams[2] = {{.data = NULL}};
    char opened[8] = "";
    char path[PATH_MAX];

    add_all(&streams[0], add_tfrecord, 1);
    add_all(&streams[1], add_large, 1);
    for (unsigned run = 0; run < 2; run++) {
        struct writer writer = {.stays = false};
        struct reader reader = {.most = 0};
        struct rig *rig = rig_new();
        FILE *file;

        if (run == 1) {
            scratch_write(&rig->scratch, "opened", "1\n", 2);
        }
        start_writer(rig, &writer, run, &streams[run]);
        rig_start(rig);
        enter(rig, 0, 0, 1, 1);
        start_reader(rig, &reader, 0, 1);
        ck_assert_int_eq(pthread_join(reader.thread, NULL), 0);
        expect_same("the run", run, &reader.got[0], &streams[run]);
        build_done(&reader.got[0]);
        ck_assert_int_eq(pthread_join(writer.thread, NULL), 0);
        file = fopen(rig_path(rig, path, "opened"), "re");
        ck_assert_ptr_nonnull(file);
        ck_assert_ptr_nonnull(fgets(opened, sizeof(opened), file));
        fclose(file);
        ck_assert_str_eq(opened, run ? "2\n" : "1\n");
        leave(rig, 0);
        rig_end(rig, PL_OK);
        build_done(&streams[run]);
    }
}

TEST(two_ranks_with_one_number_are_refused)
{
    struct rig *rig = rig_new();

    enter(rig, 0, 1, 2, 2);
    enter(rig, 1, 1, 2, 2);
    rig_start(rig);
    rig_end(rig, PL_INVALID);
}

UNIT_MAIN("s3io/split")
