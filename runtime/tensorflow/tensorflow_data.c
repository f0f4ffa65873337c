/* SPDX-License-Identifier: Apache-2.0 */
/* The datasets of a tf.data.Dataset: one for each open iterator, and one that waits for the next epoch. */
#include "runtime/tensorflow/tensorflow_data.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    ALIGN_BYTES = 64, /* TensorFlow copies tensor memory with a smaller alignment */
    NUMBER_BYTES = 24,
    DEFAULT_BATCHES = 64, /* default of max_batches */
};

#define LOCK_NS (30 * PL_NS_PER_S)
#define REPORT "PipeModeDatasetOp::Dataset::Iterator "

struct pl_tensorflow_data {
    struct pl_tensorflow_data_options options;
    struct pl_tensorflow_leases leases;
    pthread_mutex_t mutex;
    struct {
        uint64_t epoch;
        struct pl_dataset *idle; /* its epoch is over; the next iterator uses it */
        bool is_closed;
        struct pl_dataset_progress progress;
    } synced;
};

struct pl_tensorflow_data *pl_tensorflow_data_new(const struct pl_tensorflow_data_options *options,
                                                  size_t options_bytes)
{
    struct pl_tensorflow_data *data = options_bytes == sizeof(*options) ? calloc(1, sizeof(*data)) : NULL;

    if (data) {
        data->options = *options;
        data->leases.limit = (options->dataset.max_batches ? options->dataset.max_batches : DEFAULT_BATCHES) / 2;
        pthread_mutex_init(&data->mutex, NULL);
    }
    return data;
}

void pl_tensorflow_data_set_epoch(struct pl_tensorflow_data *data, uint64_t epoch)
{
    pthread_mutex_lock(&data->mutex);
    data->synced.epoch = epoch;
    pthread_mutex_unlock(&data->mutex);
}

struct pl_dataset_progress pl_tensorflow_data_progress(struct pl_tensorflow_data *data)
{
    struct pl_dataset_progress progress;

    pthread_mutex_lock(&data->mutex);
    progress = data->synced.progress;
    pthread_mutex_unlock(&data->mutex);
    return progress;
}

void pl_tensorflow_data_close(struct pl_tensorflow_data *data)
{
    struct pl_dataset *idle;

    pthread_mutex_lock(&data->mutex);
    idle = data->synced.idle;
    data->synced.idle = NULL;
    data->synced.is_closed = true;
    pthread_mutex_unlock(&data->mutex);
    pl_dataset_close(idle);
}

uint64_t pl_tensorflow_data_mark(void)
{
    const unsigned char *random = (const unsigned char *)getauxval(AT_RANDOM); /* 16 random bytes from the kernel */
    uint64_t mark = 14695981039346656037U;                                     /* hashed, so the bytes stay unknown */

    for (size_t i = 0; random && i < 16; i++) {
        mark = (mark ^ random[i]) * 1099511628211U;
    }
    return mark;
}

const struct pl_tensorflow_data_options *pl_tensorflow_data_options(const struct pl_tensorflow_data *data)
{
    return &data->options;
}

struct pl_tensorflow_leases *pl_tensorflow_data_leases(struct pl_tensorflow_data *data)
{
    return &data->leases;
}

/* Takes the number in the file at `path`, and stores the next number there. A missing file means 0. */
static enum pl_status take_number(const char *path, uint64_t *ret_number, struct pl_error *reterr)
{
    PL_AUTO_FREE char *text = NULL;
    char next[NUMBER_BYTES], *end = NULL;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = pl_file_read(path, NUMBER_BYTES, &text, NULL, &error);
    unsigned long long number = 0;

    if (status != PL_OK && status != PL_NOT_FOUND) {
        *reterr = error;
        return status;
    }
    if (text) {
        errno = 0;
        number = strtoull(text, &end, 10);
        if (errno || end == text || end[strspn(end, " \n")] || text[0] == '-') {
            return pl_error_set(reterr, PL_INVALID, "'%s' has '%.20s', and should have the number of the next epoch",
                                path, text);
        }
    }
    PL_TRY(pl_file_write_atomic(path, next, (size_t)snprintf(next, sizeof(next), "%llu", number + 1), 0644, reterr));
    *ret_number = number;
    return PL_OK;
}

/* Polls for the lock, because flock(2) has no deadline. */
static enum pl_status lock(int fd, const char *path, struct pl_error *reterr)
{
    const int64_t begin_ns = pl_clock_now_ns(), deadline_ns = pl_deadline_after_ns(LOCK_NS);

    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return pl_error_errno(reterr, "lock '%s'", path);
        }
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "another process has had the lock '%s' for %d seconds", path,
                                (int)(LOCK_NS / PL_NS_PER_S));
        }
        pl_clock_nap(pl_clock_backoff_ns(pl_clock_now_ns() - begin_ns, PL_NS_PER_MS, 50 * PL_NS_PER_MS), deadline_ns);
    }
    return PL_OK;
}

static enum pl_status next_epoch(struct pl_tensorflow_data *data, uint64_t *ret_epoch, struct pl_error *reterr)
{
    PL_AUTO_CLOSE int fd = -1;

    if (!data->options.epoch_path) {
        pthread_mutex_lock(&data->mutex);
        *ret_epoch = data->synced.epoch++;
        pthread_mutex_unlock(&data->mutex);
        return PL_OK;
    }
    fd = open(data->options.lock_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return pl_error_errno(reterr, "open '%s'", data->options.lock_path);
    }
    PL_TRY(lock(fd, data->options.lock_path, reterr));
    return take_number(data->options.epoch_path, ret_epoch, reterr);
}

/* Takes the dataset that waits for an epoch, or opens a new one. */
static enum pl_status take_dataset(struct pl_tensorflow_data *data, struct pl_dataset **ret_dataset,
                                   struct pl_error *reterr)
{
    struct pl_dataset_options options = data->options.dataset;
    struct pl_channel channel = {.name = data->options.pipe_channel,
                                 .mode = PL_CHANNEL_PIPE,
                                 .path = data->options.pipe_path,
                                 .is_dealt = data->options.pipe_is_dealt};
    struct pl_dataset *idle;

    pthread_mutex_lock(&data->mutex);
    idle = data->synced.idle;
    data->synced.idle = NULL;
    pthread_mutex_unlock(&data->mutex);
    if (idle) {
        *ret_dataset = idle;
        return PL_OK;
    }
    options.channel = data->options.pipe_path ? &channel : options.channel;
    return pl_dataset_open(&options, ret_dataset, reterr);
}

enum pl_status pl_tensorflow_iterator_open(struct pl_tensorflow_data *data,
                                           struct pl_tensorflow_iterator **ret_iterator, struct pl_error *reterr)
{
    struct pl_tensorflow_iterator *iterator;
    uint64_t epoch;
    enum pl_status status;

    PL_TRY(pl_memory_alloc_aligned(&iterator, 1, sizeof(*iterator), ALIGN_BYTES, reterr));
    *iterator = (struct pl_tensorflow_iterator){.self = iterator, .data = data};
    status = next_epoch(data, &epoch, reterr);
    status = status == PL_OK ? take_dataset(data, &iterator->dataset, reterr) : status;
    status = status == PL_OK ? pl_dataset_start(iterator->dataset, epoch, reterr) : status;
    if (status != PL_OK) {
        pl_dataset_close(iterator->dataset);
        free(iterator);
        return status;
    }
    *ret_iterator = iterator;
    return PL_OK;
}

/* Called after a batch or the end: if too many damaged pieces came before it, returns an error instead of it. */
static void check_skipped(struct pl_tensorflow_iterator *iterator, const struct pl_dataset_progress *progress)
{
    const struct pl_tensorflow_data_options *options = &iterator->data->options;
    const uint64_t skipped = progress->skipped - iterator->skipped;

    if (options->pipe_path && skipped > options->max_skipped) {
        pl_batch_release(&iterator->batch);
        iterator->status = pl_error_set(&iterator->error, PL_CORRUPT,
                                        "channel '%s', after %" PRIu64 " records: %" PRIu64
                                        " damaged ones follow each other, and at most %" PRIu64 " may be left out",
                                        options->pipe_channel ? options->pipe_channel : "?", iterator->samples, skipped,
                                        options->max_skipped);
    }
    iterator->skipped = progress->skipped;
}

/* Counts a batch, and prints the words of AWS's PipeModeDataset, for which programs that watch logs look. */
static void count(struct pl_tensorflow_iterator *iterator, uint64_t bytes, int64_t read_ns)
{
    const uint64_t step = iterator->data->options.report_samples;

    iterator->bytes += bytes;
    if (step && iterator->status == PL_OK && iterator->samples % step == 0) {
        printf(REPORT "records: %" PRIu64 "\n" REPORT "records read_time_ns: %" PRIi64 "\n" REPORT
                      "records read_bytes: %" PRIu64 "\n",
               iterator->samples, read_ns, bytes);
        fflush(stdout);
    }
}

bool pl_tensorflow_iterator_wait(struct pl_tensorflow_iterator *iterator, int64_t deadline_ns)
{
    struct pl_tensorflow_data *data = iterator->data;
    struct pl_dataset_progress progress, before;
    enum pl_status status;
    int64_t read_ns;

    if (iterator->is_known || !iterator->dataset) {
        return true;
    }
    before = pl_dataset_progress(iterator->dataset);
    iterator->error = PL_ERROR_NONE;
    status = pl_dataset_next(iterator->dataset, deadline_ns, &iterator->batch, &iterator->error);
    progress = pl_dataset_progress(iterator->dataset);
    read_ns = progress.waited_ns - before.waited_ns;
    iterator->read_ns += read_ns;
    if (status != PL_OK && status != PL_END && iterator->error.retryable) {
        return false; /* PL_LIMIT: wait until TensorFlow's tensors release a batch */
    }
    iterator->is_known = true;
    iterator->status = status;
    if (status == PL_OK || status == PL_END) {
        check_skipped(iterator, &progress);
        iterator->samples = progress.samples;
        count(iterator, progress.bytes - before.bytes, read_ns);
        pthread_mutex_lock(&data->mutex);
        data->synced.progress = progress;
        pthread_mutex_unlock(&data->mutex);
    }
    return true;
}

/* Ends the epoch: the dataset may wait for the next one. */
static void leave(struct pl_tensorflow_iterator *iterator)
{
    struct pl_tensorflow_data *data = iterator->data;
    struct pl_dataset *surplus = iterator->dataset;

    if (iterator->status == PL_END) {
        pthread_mutex_lock(&data->mutex);
        if (!data->synced.idle && !data->synced.is_closed) {
            data->synced.idle = surplus;
            surplus = NULL;
        }
        pthread_mutex_unlock(&data->mutex);
    }
    pl_dataset_close(surplus);
    iterator->dataset = NULL;
}

enum pl_status pl_tensorflow_iterator_take(struct pl_tensorflow_iterator *iterator, struct pl_batch *ret_batch,
                                           struct pl_error *reterr)
{
    if (!iterator->dataset) {
        return PL_END;
    }
    if (!iterator->is_known) {
        return pl_error_set(reterr, PL_TIMEOUT, "no batch has come yet");
    }
    iterator->is_known = false;
    if (iterator->status == PL_OK) {
        *ret_batch = iterator->batch;
        iterator->batch = (struct pl_batch){0};
        return PL_OK;
    }
    leave(iterator);
    *reterr = iterator->error;
    return iterator->status;
}

void pl_tensorflow_iterator_close(struct pl_tensorflow_iterator *iterator)
{
    if (iterator->data->options.reports_totals) {
        const double seconds = (double)iterator->read_ns / (double)PL_NS_PER_S;

        printf(REPORT "total read_time_ms: %" PRIi64 "\n" REPORT "total read_bytes: %" PRIu64 "\n" REPORT
                      "total read_GB/s: %g\n",
               iterator->read_ns / PL_NS_PER_MS, iterator->bytes,
               seconds > 0 ? (double)iterator->bytes / (1024.0 * 1024 * 1024) / seconds : 0);
        fflush(stdout);
    }
    pl_batch_release(&iterator->batch);
    pl_dataset_close(iterator->dataset);
    iterator->self = NULL;
    free(iterator);
}
