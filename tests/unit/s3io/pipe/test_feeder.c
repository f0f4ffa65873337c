/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/pipe/feeder.c. */
#include "base/clock.h"
#include "s3io/pipe/feeder.h"
#include "s3io/source.h"
#include "s3io/store_private.h"
#include "s3io/stream.h"
#include "tests/support/refuse_call.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/s3io/drip.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

enum { OBJECTS = 7 };

/* Returns the size of object k, k * 150,000 + k bytes: some are larger than the feeder's chunks, and one is empty. */
static size_t object_bytes(unsigned object)
{
    return object * 150000U + object;
}

static void fill_object(unsigned object, unsigned char *data)
{
    uint32_t state = object + 1;

    for (size_t i = 0; i < object_bytes(object); i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (unsigned char)(state >> 24);
    }
}

static void write_objects(const struct scratch *scratch, bool gzip)
{
    static unsigned char data[1 << 20], packed[2 << 20];

    for (unsigned k = 0; k < OBJECTS; k++) {
        char name[32];

        fill_object(k, data);
        snprintf(name, sizeof(name), "object-%u", k);
        if (gzip) {
            scratch_write(scratch, name, packed, drip_gzip(data, object_bytes(k), packed, sizeof(packed)));
        } else {
            scratch_write(scratch, name, data, object_bytes(k));
        }
    }
}

struct run {
    const struct scratch *objects;
    char path[PATH_MAX];
    struct pl_feeder_options options;
    uint64_t epochs;
    bool contained;               /* its thread may not call vmsplice(), as in podman's containers */
    struct pl_feeder_epochs from; /* used instead of objects */
    atomic_bool failed;           /* an epoch has ended with an error, and the feeder holds its FIFO */
    enum pl_status status;
    struct pl_feeder_counts counts; /* the counts of the last epoch */
    struct pl_error error;
    pthread_t thread;
};

static void *run_feeder(void *argument)
{
    struct run *run = argument;
    struct pl_feeder *feeder;
    struct pl_store *store;

    if (run->contained) {
        refuse_call(SYS_vmsplice, NULL);
    }
    ck_ok(pl_store_open_directory, run->objects->path, false, &store);
    ck_ok(pl_feeder_open, store, run->path, &run->options, PL_DEADLINE_NEVER, &feeder);
    for (uint64_t epoch = 0; run->status == PL_OK && epoch < run->epochs; epoch++) {
        run->status = pl_feeder_run(feeder, epoch, &run->counts, &run->error);
    }
    pl_feeder_close(feeder);
    pl_store_close(store);
    return NULL;
}

static void start(struct run *run, const struct scratch *objects, const struct scratch *fifos)
{
    signal(SIGPIPE, SIG_IGN);
    run->objects = objects;
    scratch_path(fifos, "training", run->path);
    run->options.cancel_fd = -1;
    run->options.timeout_ns = 100 * PL_NS_PER_S;
    ck_assert_int_eq(pthread_create(&run->thread, NULL, run_feeder, run), 0);
}

/* Start the feeder of the objects, which are written here, and open its reader. */
static struct pl_stream *open_run(struct run *run, const struct scratch *objects, bool gzip,
                                  const struct scratch *fifos)
{
    struct pl_channel channel = {
        .name = "training", .mode = PL_CHANNEL_PIPE, .wrapper = run->options.wrapper, .path = run->path};
    struct pl_stream_options options = {.records = {.format = PL_RECORD_WHOLE}, .deal = {.rank = 0, .size = 1}};
    struct pl_stream *stream;

    write_objects(objects, gzip);
    start(run, objects, fifos);
    ck_ok(pl_stream_open, &channel, &options, &stream);
    return stream;
}

static void close_run(struct run *run, struct pl_stream *stream)
{
    pl_stream_close(stream);
    ck_assert_int_eq(pthread_join(run->thread, NULL), 0);
}

/* With RecordIO wrapping each object is a record: returns the order of the objects. */
static size_t read_objects(struct pl_stream *stream, uint64_t epoch, unsigned *order)
{
    static unsigned char data[1 << 20];
    struct pl_error error = PL_ERROR_NONE;
    struct pl_record record;
    enum pl_status status;
    size_t count = 0;

    ck_ok(pl_stream_start, stream, epoch, PL_DEADLINE_NEVER);
    while ((status = pl_stream_next(stream, pl_deadline_after_ns(100 * PL_NS_PER_S), &record, &error)) == PL_OK) {
        unsigned object = (unsigned)(record.bytes / 150000);

        ck_assert_uint_eq(record.bytes, object_bytes(object));
        fill_object(object, data);
        ck_assert(record.bytes == 0 || memcmp(record.data, data, record.bytes) == 0);
        order[count++] = object;
    }
    ck_assert_msg(status == PL_END, "%s", error.cause);
    return count;
}

TEST(objects_come_whole_in_key_order_epoch_after_epoch)
{
    for (unsigned variant = 0; variant < 8; variant++) {
        AUTO_SCRATCH struct scratch objects = scratch_new(), fifos = scratch_new();
        struct run run = {.epochs = 3,
                          .options = {.wrapper = PL_CHANNEL_WRAPPER_RECORDIO,
                                      .compression = variant & 1 ? PL_COMPRESSION_AUTO : PL_COMPRESSION_NONE,
                                      .late = variant & 2,
                                      .copy = variant & 4}};
        struct pl_stream *stream;
        char path[PATH_MAX];

        stream = open_run(&run, &objects, variant & 1, &fifos);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            unsigned order[OBJECTS];

            ck_assert_uint_eq(read_objects(stream, epoch, order), OBJECTS);
            for (unsigned k = 0; k < OBJECTS; k++) {
                ck_assert_uint_eq(order[k], k);
            }
        }
        close_run(&run, stream);
        ck_assert_ok(run.status, &run.error);
        ck_assert_uint_eq(run.counts.objects, OBJECTS);
        for (int epoch = 0; epoch < 4; epoch++) {
            char name[32];

            snprintf(name, sizeof(name), "training_%d", epoch);
            ck_assert_int_eq(access(scratch_path(&fifos, name, path), F_OK), -1);
        }
    }
}

TEST(where_pages_may_not_be_lent_they_are_copied)
{
    AUTO_SCRATCH struct scratch objects = scratch_new(), fifos = scratch_new();
    struct run run = {.epochs = 2, .contained = true, .options = {.wrapper = PL_CHANNEL_WRAPPER_RECORDIO}};
    struct pl_stream *stream;
    unsigned order[OBJECTS];

    stream = open_run(&run, &objects, false, &fifos);
    ck_assert_uint_eq(read_objects(stream, 0, order), OBJECTS);
    ck_assert_uint_eq(read_objects(stream, 1, order), OBJECTS);
    close_run(&run, stream);
    ck_assert_ok(run.status, &run.error);
}

TEST(without_wrapping_the_objects_lie_back_to_back)
{
    AUTO_SCRATCH struct scratch objects = scratch_new(), fifos = scratch_new();
    struct run run = {.epochs = 1};
    static unsigned char data[1 << 20];
    struct pl_record record;
    struct pl_stream *stream;
    size_t at = 0;

    stream = open_run(&run, &objects, false, &fifos);
    ck_ok(pl_stream_start, stream, 0, PL_DEADLINE_NEVER);
    ck_ok(pl_stream_next, stream, pl_deadline_after_ns(100 * PL_NS_PER_S), &record);
    for (unsigned k = 0; k < OBJECTS; k++) {
        fill_object(k, data);
        ck_assert(memcmp(record.data + at, data, object_bytes(k)) == 0);
        at += object_bytes(k);
    }
    ck_assert_uint_eq(record.bytes, at);
    close_run(&run, stream);
    ck_assert_uint_eq(run.counts.bytes, at);
}

TEST(shards_are_disjoint_and_shuffles_repeat)
{
    unsigned seen[OBJECTS] = {0}, orders[2][OBJECTS];

    for (uint32_t host = 0; host < 2; host++) {
        for (int again = 0; again < 2; again++) {
            AUTO_SCRATCH struct scratch objects = scratch_new(), fifos = scratch_new();
            struct run run = {.epochs = 1,
                              .options = {.wrapper = PL_CHANNEL_WRAPPER_RECORDIO,
                                          .shuffle = true,
                                          .seed = 5,
                                          .shard = {.rank = host, .size = 2}}};
            struct pl_stream *stream;
            size_t count;

            stream = open_run(&run, &objects, false, &fifos);
            count = read_objects(stream, 0, orders[again]);
            ck_assert_uint_eq(count, host ? 3 : 4);
            for (size_t i = 0; i < count; i++) {
                seen[orders[again][i]]++;
                ck_assert_uint_eq(orders[again][i] % 2, host);
            }
            ck_assert(!again || memcmp(orders[0], orders[1], count * sizeof(unsigned)) == 0);
            close_run(&run, stream);
        }
    }
    for (int k = 0; k < OBJECTS; k++) {
        ck_assert_uint_eq(seen[k], 2);
    }
}

TEST(reader_that_leaves_early_gets_the_next_epoch)
{
    AUTO_SCRATCH struct scratch objects = scratch_new(), fifos = scratch_new();
    struct run run = {.epochs = 2, .options = {.wrapper = PL_CHANNEL_WRAPPER_RECORDIO}};
    struct pl_record record;
    struct pl_stream *stream;
    unsigned order[OBJECTS];

    stream = open_run(&run, &objects, false, &fifos);
    ck_ok(pl_stream_start, stream, 0, PL_DEADLINE_NEVER);
    ck_ok(pl_stream_next, stream, pl_deadline_after_ns(100 * PL_NS_PER_S), &record);
    ck_assert_uint_eq(read_objects(stream, 1, order), OBJECTS);
    close_run(&run, stream);
    ck_assert_ok(run.status, &run.error);
}

TEST(a_store_without_objects_is_no_empty_epoch)
{
    AUTO_SCRATCH struct scratch objects = scratch_new();
    struct pl_feeder *feeder;
    struct pl_store *store;

    ck_ok(pl_store_open_directory, objects.path, false, &store);
    ck_fails(PL_NOT_FOUND, "there are no objects in", pl_feeder_open, store, "/dev/null/x",
             &(struct pl_feeder_options){.cancel_fd = -1}, PL_DEADLINE_NEVER, &feeder);
    pl_store_close(store);
}

TEST(nobody_there_is_a_timeout_and_a_file_in_the_way_an_error)
{
    AUTO_SCRATCH struct scratch objects = scratch_new(), fifos = scratch_new();
    struct pl_feeder_options options = {.timeout_ns = 30 * PL_NS_PER_MS, .cancel_fd = -1};
    struct pl_feeder_counts counts;
    struct pl_feeder *feeder;
    struct pl_store *store;
    char path[PATH_MAX];

    scratch_write(&objects, "a", "x", 1);
    ck_ok(pl_store_open_directory, objects.path, false, &store);
    ck_ok(pl_feeder_open, store, scratch_path(&fifos, "training", path), &options, PL_DEADLINE_NEVER, &feeder);
    ck_fails(PL_TIMEOUT, "", pl_feeder_run, feeder, 0, &counts);
    scratch_write(&fifos, "training_7", "precious", 8);
    ck_fails(PL_INVALID, "", pl_feeder_run, feeder, 7, &counts);
    pl_feeder_close(feeder);
    ck_assert_int_eq(access(scratch_path(&fifos, "training_7", path), F_OK), 0);
    ck_assert_int_eq(access(scratch_path(&fifos, "training_0", path), F_OK), -1);
    pl_store_close(store);
}

TEST(cut_epoch_is_an_error_for_the_reader)
{
    AUTO_SCRATCH struct scratch objects = scratch_new(), fifos = scratch_new();
    struct run run = {.epochs = 1, .options = {.wrapper = PL_CHANNEL_WRAPPER_RECORDIO, .cut_bytes = 300000}};
    struct pl_error error = PL_ERROR_NONE;
    struct pl_record record;
    struct pl_stream *stream;
    enum pl_status status;

    stream = open_run(&run, &objects, false, &fifos);
    ck_ok(pl_stream_start, stream, 0, PL_DEADLINE_NEVER);
    do {
        status = pl_stream_next(stream, pl_deadline_after_ns(100 * PL_NS_PER_S), &record, &error);
    } while (status == PL_OK);
    ck_assert_int_eq(status, PL_CORRUPT);
    close_run(&run, stream);
    ck_assert_uint_eq(run.counts.bytes, 300000);
}

/* A source that never delivers bytes. */
struct silence {
    struct pl_source head;
    atomic_bool *asked;
};

static enum pl_status silent_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                  size_t *ret_bytes, struct pl_error *reterr)
{
    atomic_store(((struct silence *)source)->asked, true);
    poll(NULL, 0, pl_deadline_poll_ms(deadline_ns));
    return pl_error_set(reterr, PL_TIMEOUT, "silence");
}

static void silent_close(struct pl_source *source)
{
    free(source);
}

static enum pl_status open_silence(void *context, uint64_t epoch, struct pl_source **ret_source,
                                   struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {.read = silent_read, .close = silent_close};
    struct silence *silence = calloc(1, sizeof(*silence));

    ck_assert_ptr_nonnull(silence);
    silence->asked = context;
    *ret_source = &silence->head;
    return pl_source_init(&silence->head, &ops, "silence", reterr);
}

static void *run_epochs(void *argument)
{
    struct run *run = argument;
    struct pl_feeder *feeder;

    ck_ok(pl_feeder_open_epochs, &run->from, run->path, &run->options, &feeder);
    for (uint64_t epoch = 0; run->status == PL_OK && epoch < run->epochs; epoch++) {
        run->status = pl_feeder_run(feeder, epoch, &run->counts, &run->error);
    }
    if (run->status != PL_OK && run->status != PL_CANCELLED) {
        atomic_store(&run->failed, true);
        pl_feeder_hold(feeder);
    }
    pl_feeder_close(feeder);
    return NULL;
}

/* A source that fails after some bytes. */
enum { BROKEN_BYTES = 700 << 10 };

struct broken {
    struct pl_source head;
    size_t left;
};

static enum pl_status broken_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                  size_t *ret_bytes, struct pl_error *reterr)
{
    struct broken *broken = (struct broken *)source;

    if (broken->left == 0) {
        return pl_error_set(reterr, PL_FAILED, "the source is broken");
    }
    *ret_bytes = bytes < broken->left ? bytes : broken->left;
    memset(data, 'x', *ret_bytes);
    broken->left -= *ret_bytes;
    return PL_OK;
}

static enum pl_status open_broken(void *context, uint64_t epoch, struct pl_source **ret_source, struct pl_error *reterr)
{
    static const struct pl_source_ops ops = {.read = broken_read, .close = silent_close};
    struct broken *broken = calloc(1, sizeof(*broken));

    ck_assert_ptr_nonnull(broken);
    broken->left = BROKEN_BYTES;
    *ret_source = &broken->head;
    return pl_source_init(&broken->head, &ops, "broken", reterr);
}

/* Epochs that each fit into a pipe: more pages than the feeder has if pipes may be so large, otherwise only all epochs
 * in total. */
enum { EPOCHS = 8, EPOCH_BYTES = 700 << 10, LARGE_EPOCHS = 2, LARGE_EPOCH_BYTES = 7 << 20, LARGE_PIPE_BYTES = 8 << 20 };

struct written {
    unsigned char bytes[LARGE_EPOCHS * LARGE_EPOCH_BYTES];
    size_t epoch_bytes;
};

static enum pl_status open_bytes(void *context, uint64_t epoch, struct pl_source **ret_source, struct pl_error *reterr)
{
    const struct written *written = context;

    return pl_source_open_memory("bytes", written->bytes + epoch * written->epoch_bytes, written->epoch_bytes,
                                 ret_source, reterr);
}

/* Opens the FIFO of an epoch once it has bytes. The feeder also sets the pipe's size before it writes. */
static int open_epoch(const struct scratch *fifos, unsigned epoch, bool large)
{
    struct pollfd wait = {.events = POLLIN};
    char path[PATH_MAX], name[32];

    snprintf(name, sizeof(name), "training_%u", epoch);
    while ((wait.fd = open(scratch_path(fifos, name, path), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
        poll(NULL, 0, 1);
    }
    ck_assert_int_eq(poll(&wait, 1, 100000), 1);
    ck_assert(!large || fcntl(wait.fd, F_SETPIPE_SZ, LARGE_PIPE_BYTES) >= LARGE_PIPE_BYTES);
    return wait.fd;
}

static bool large_pipes_are_allowed(void)
{
    int fds[2];
    bool allowed;

    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    allowed = fcntl(fds[0], F_SETPIPE_SZ, LARGE_PIPE_BYTES) >= LARGE_PIPE_BYTES;
    close(fds[0]);
    close(fds[1]);
    return allowed;
}

TEST(what_lies_in_pipes_stays_as_it_was_written)
{
    static struct written written;
    static unsigned char got[LARGE_EPOCH_BYTES + 1];
    bool large = large_pipes_are_allowed();
    AUTO_SCRATCH struct scratch fifos = scratch_new();
    struct run run = {.epochs = large ? LARGE_EPOCHS : EPOCHS,
                      .from = {.context = &written, .open = open_bytes},
                      .options = {.cancel_fd = -1, .timeout_ns = 100 * PL_NS_PER_S}};
    uint32_t state = 1;
    int fds[EPOCHS];

    for (size_t i = 0; i < sizeof(written.bytes); i++) {
        state = state * 1664525 + 1013904223;
        written.bytes[i] = (unsigned char)(state >> 24);
    }
    written.epoch_bytes = large ? LARGE_EPOCH_BYTES : EPOCH_BYTES;
    scratch_path(&fifos, "training", run.path);
    ck_assert_int_eq(pthread_create(&run.thread, NULL, run_epochs, &run), 0);
    for (unsigned epoch = 0; epoch < run.epochs; epoch++) {
        fds[epoch] = open_epoch(&fifos, epoch, large);
    }
    ck_assert_int_eq(pthread_join(run.thread, NULL), 0);
    ck_assert_ok(run.status, &run.error);
    for (unsigned epoch = 0; epoch < run.epochs; epoch++) {
        size_t at = 0;

        for (ssize_t now = 1; now > 0; at += (size_t)now) {
            now = read(fds[epoch], got + at, written.epoch_bytes + 1 - at);
            ck_assert_int_ge(now, 0);
        }
        ck_assert_uint_eq(at, written.epoch_bytes);
        ck_assert_msg(memcmp(got, written.bytes + epoch * written.epoch_bytes, at) == 0, "epoch %u", epoch);
        ck_assert_int_eq(close(fds[epoch]), 0);
    }
}

TEST(a_request_to_stop_is_seen_while_the_source_is_silent)
{
    AUTO_SCRATCH struct scratch fifos = scratch_new();
    atomic_bool asked = false;
    struct run run = {.epochs = 1,
                      .from = {.context = &asked, .open = open_silence},
                      .options = {.cancel_fd = eventfd(0, EFD_CLOEXEC)}};
    char path[PATH_MAX];
    int reader_fd = -1;

    scratch_path(&fifos, "training", run.path);
    ck_assert_int_eq(pthread_create(&run.thread, NULL, run_epochs, &run), 0);
    while (!atomic_load(&asked)) {
        reader_fd = reader_fd < 0 ? open(scratch_path(&fifos, "training_0", path), O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                                  : reader_fd;
        poll(NULL, 0, 1);
    }
    ck_assert_int_eq(eventfd_write(run.options.cancel_fd, 1), 0);
    ck_assert_int_eq(pthread_join(run.thread, NULL), 0);
    ck_assert_int_eq(run.status, PL_CANCELLED);
    ck_assert_int_eq(access(path, F_OK), -1);
    ck_assert_int_eq(close(reader_fd), 0);
    ck_assert_int_eq(close(run.options.cancel_fd), 0);
}

TEST(data_that_fails_in_an_epoch_has_no_end_for_the_reader)
{
    enum { STOP, READER_LEAVES, WAYS };
    static char data[64 << 10];

    for (int way = 0; way < WAYS; way++) {
        AUTO_SCRATCH struct scratch fifos = scratch_new();
        struct run run = {.epochs = 1,
                          .from = {.open = open_broken},
                          .options = {.timeout_ns = 100 * PL_NS_PER_S, .cancel_fd = eventfd(0, EFD_CLOEXEC)}};
        size_t got = 0;
        ssize_t now;
        int fd;

        scratch_path(&fifos, "training", run.path);
        ck_assert_int_eq(pthread_create(&run.thread, NULL, run_epochs, &run), 0);
        fd = open_epoch(&fifos, 0, false);
        while (!atomic_load(&run.failed)) {
            poll(NULL, 0, 1);
        }
        while ((now = read(fd, data, sizeof(data))) > 0) {
            got += (size_t)now;
        }
        ck_assert_uint_lt(got, BROKEN_BYTES);
        ck_assert_int_eq(now, -1);
        ck_assert_int_eq(errno, EAGAIN);
        if (way == STOP) {
            ck_assert_int_eq(eventfd_write(run.options.cancel_fd, 1), 0);
        } else if (way == READER_LEAVES) {
            ck_assert_int_eq(close(fd), 0);
        }
        ck_assert_int_eq(pthread_join(run.thread, NULL), 0);
        ck_assert_int_eq(run.status, PL_FAILED);
        ck_assert_str_eq(run.error.cause, "the source is broken");
        if (way == STOP) {
            ck_assert_int_eq(read(fd, data, sizeof(data)), 0);
            ck_assert_int_eq(close(fd), 0);
        }
        ck_assert_int_eq(close(run.options.cancel_fd), 0);
    }
}

UNIT_MAIN("s3io/feeder")
