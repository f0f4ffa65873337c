/* SPDX-License-Identifier: Apache-2.0 */
/* The program's side of a dataset: opening it, batches and their release. */
#include "s3io/dataset.h"

#include "base/clock.h"
#include "base/environment.h"
#include "base/memory.h"
#include "base/number.h"
#include "s3io/dataset/dataset_private.h"
#include "s3io/store_private.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_NS (300 * PL_NS_PER_S)

/* How long a wait of the program can go on after a cancel: a signal handler cannot wake it. */
#define LOOK_NS (50 * PL_NS_PER_MS)

enum { DEFAULT_PREFETCH = 4, DEFAULT_MOST_BATCHES = 64, DEFAULT_MOST_THREADS = 4, MOST_THREADS = 64 };

static void destroy(struct pl_dataset *dataset)
{
    pl_decoder_free(dataset->decoder);
    pthread_cond_destroy(&dataset->work);
    pthread_cond_destroy(&dataset->ready);
    pthread_mutex_destroy(&dataset->mutex);
    free(dataset->row_bytes);
    free(dataset);
}

void pl_dataset_close(struct pl_dataset *dataset)
{
    bool last;

    if (!dataset) {
        return;
    }
    pthread_mutex_lock(&dataset->mutex);
    if (dataset->running) {
        pl_loader_abandon(dataset);
    }
    dataset->synced.stop = true;
    pthread_cond_broadcast(&dataset->work);
    pthread_mutex_unlock(&dataset->mutex);
    for (unsigned i = 0; i < dataset->running; i++) {
        pthread_join(dataset->workers[i].thread, NULL);
    }
    for (unsigned i = 0; dataset->workers && i < dataset->options.decode_threads; i++) {
        pl_stream_let_go(dataset->stream, dataset->workers[i].window);
        pl_held_free(dataset->workers[i].held, PL_CHUNK_RECORDS);
        free(dataset->workers[i].rows);
    }
    free(dataset->workers);
    pl_held_free(dataset->shuffle.held, dataset->options.shuffle_samples);
    pl_trail_done(&dataset->trail);
    pl_stream_close(dataset->stream);
    pthread_mutex_lock(&dataset->mutex);
    dataset->synced.closed = true;
    while (dataset->synced.spare) {
        struct pl_batch_memory *memory = dataset->synced.spare;

        dataset->synced.spare = memory->next;
        pl_batch_memory_free(memory);
    }
    last = dataset->synced.kept == 0;
    pthread_mutex_unlock(&dataset->mutex);
    if (last) {
        destroy(dataset);
    }
}

void pl_batch_release(struct pl_batch *batch)
{
    struct pl_batch_memory *memory = batch->memory;
    struct pl_dataset *dataset;
    bool last;

    *batch = (struct pl_batch){.memory = NULL};
    if (!memory) {
        return;
    }
    dataset = memory->dataset;
    pthread_mutex_lock(&dataset->mutex);
    if (dataset->synced.closed) {
        pl_batch_memory_free(memory);
    } else {
        pl_loader_recycle(memory);
    }
    last = --dataset->synced.kept == 0 && dataset->synced.closed;
    pthread_mutex_unlock(&dataset->mutex);
    if (last) {
        destroy(dataset);
    }
}

void pl_dataset_cancel(struct pl_dataset *dataset)
{
    __atomic_store_n(&dataset->cancelled, true, __ATOMIC_RELEASE);
}

/* Returns the number of threads that are right for this process: one for each CPU that it may use. */
static unsigned default_threads(const struct pl_dataset_options *options)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t allowed;
    long count = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : online;

    if (count == online && options->local.size > 1) {
        count /= (long)options->local.size; /* the host's ranks are not bound to CPUs, and share all of them */
    }
    return count < 1 ? 1 : count > DEFAULT_MOST_THREADS ? DEFAULT_MOST_THREADS : (unsigned)count;
}

static enum pl_status check_options(const struct pl_dataset_options *options, struct pl_error *reterr)
{
    if (!options->channel + !options->channel_name + !options->path_count != 2) {
        return pl_error_set(reterr, PL_INVALID, "expected one of channel, channel_name and paths");
    }
    if (options->batch_samples == 0) {
        return pl_error_set(reterr, PL_INVALID, "batch_samples is 0: a batch has at least one sample");
    }
    if (!options->allocate != !options->release) {
        return pl_error_set(reterr, PL_INVALID, "a dataset's memory needs both allocate and release");
    }
    for (size_t i = 0; i < options->field_count && options->records.format == PL_RECORD_IDX; i++) {
        if (pl_dtype_bytes(options->fields[i].type) > 1) {
            return pl_error_set(
                reterr, PL_UNSUPPORTED,
                "field '%s': the elements of IDX arrays are read as bytes: expected uint8, int8 or bool",
                options->fields[i].name);
        }
    }
    if (options->decode_threads > MOST_THREADS) {
        return pl_error_set(reterr, PL_INVALID, "decode_threads is %u: expected at most %d", options->decode_threads,
                            (int)MOST_THREADS);
    }
    return PL_OK;
}

static enum pl_status set_up(struct pl_dataset *dataset, struct pl_error *reterr)
{
    struct pl_dataset_options *options = &dataset->options;

    options->prefetch_batches = options->prefetch_batches ? options->prefetch_batches : DEFAULT_PREFETCH;
    options->max_batches = options->max_batches ? options->max_batches : DEFAULT_MOST_BATCHES;
    options->decode_threads = options->decode_threads ? options->decode_threads : default_threads(options);
    PL_TRY(pl_memory_alloc(&dataset->row_bytes, dataset->fields, sizeof(*dataset->row_bytes), reterr));
    for (size_t f = 0; f < dataset->fields; f++) {
        size_t bytes = pl_decoder_row_bytes(dataset->decoder, f), total;

        if (pl_decoder_is_varying(dataset->decoder, f)) {
            dataset->is_varying = true;
        } else if (__builtin_mul_overflow(bytes, options->batch_samples, &total)) {
            return pl_error_set(reterr, PL_LIMIT, "%zu samples of %zu bytes are too large", options->batch_samples,
                                bytes);
        } else {
            dataset->row_bytes[f] = bytes;
        }
    }
    PL_TRY(pl_memory_alloc(&dataset->workers, options->decode_threads, sizeof(*dataset->workers), reterr));
    for (unsigned i = 0; i < options->decode_threads; i++) {
        struct pl_worker *worker = &dataset->workers[i];

        worker->dataset = dataset;
        PL_TRY(pl_memory_alloc(&worker->held, PL_CHUNK_RECORDS, sizeof(*worker->held), reterr));
        PL_TRY(pl_memory_alloc(&worker->rows, dataset->fields, sizeof(*worker->rows), reterr));
    }
    PL_TRY(pl_trail_init(&dataset->trail, options->shuffle_samples, options->max_batches, reterr));
    return options->shuffle_samples ? pl_memory_alloc(&dataset->shuffle.held, options->shuffle_samples,
                                                      sizeof(*dataset->shuffle.held), reterr)
                                    : PL_OK;
}

/* Makes a dataset from a stream and a decoder. On success it owns both. */
static enum pl_status make(struct pl_stream *stream, struct pl_decoder *decoder,
                           const struct pl_dataset_options *options, struct pl_dataset **ret_dataset,
                           struct pl_error *reterr)
{
    struct pl_dataset *dataset;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&dataset, 1, sizeof(*dataset), reterr));
    pthread_mutex_init(&dataset->mutex, NULL);
    pthread_cond_init(&dataset->work, NULL);
    pthread_cond_init(&dataset->ready, NULL);
    dataset->options = *options;
    dataset->fields = pl_decoder_count(decoder);
    dataset->decoder = decoder;
    status = set_up(dataset, reterr);
    if (status != PL_OK) {
        dataset->decoder = NULL; /* the decoder is still the caller's */
        pl_dataset_close(dataset);
        return status;
    }
    dataset->stream = stream;
    *ret_dataset = dataset;
    return PL_OK;
}

static enum pl_status open_channel(const struct pl_dataset_options *options, const struct pl_channel *channel,
                                   struct pl_stream_options *records, struct pl_stream **ret_stream,
                                   struct pl_error *reterr)
{
    const struct pl_shard local = options->local.size ? options->local : records->deal;
    struct pl_channel whole = *channel;

    if (!channel->is_dealt && channel->distribution == PL_CHANNEL_SHARDED_BY_KEY && options->local.size == 0 &&
        records->deal.size > 1) {
        return pl_error_set(reterr, PL_INVALID,
                            "channel '%s' is sharded by key, so that each host has its own objects: `local` is needed",
                            channel->name);
    }
    whole.is_dealt = false;
    records->dealt_to = pl_channel_shard(&whole, records->deal, local);
    records->deal = pl_channel_shard(channel, records->deal, local);
    return pl_stream_open(channel, records, ret_stream, reterr);
}

static enum pl_status open_named(const struct pl_dataset_options *options, struct pl_stream_options *records,
                                 struct pl_stream **ret_stream, struct pl_error *reterr)
{
    PL_AUTO_ENVIRONMENT struct pl_environment *environment = NULL;
    struct pl_channel_setup setup = {.name = NULL};
    enum pl_status status;

    PL_TRY(pl_environment_new(&environment, reterr));
    PL_TRY(pl_channel_setup_find_in(environment, options->channel_name, &setup, reterr));
    status = open_channel(options, &setup.info, records, ret_stream, reterr);
    pl_channel_setup_done(&setup);
    return status;
}

/* Opens the paths as a stream, which may be open after an error, too. */
static enum pl_status open_paths(const struct pl_dataset_options *options, struct pl_stream_options *records,
                                 struct pl_stream **ret_stream, struct pl_error *reterr)
{
    struct pl_store *store;
    enum pl_status status;

    PL_TRY(pl_store_open_many(options->paths, options->path_count, &store, reterr));
    status = pl_stream_open_store(store, records, ret_stream, reterr);
    if (status != PL_OK) {
        pl_store_close(store);
        return status;
    }
    return pl_stream_list(*ret_stream, pl_deadline_after_ns(options->timeout_ns), reterr);
}

enum pl_status pl_dataset_open(const struct pl_dataset_options *given, struct pl_dataset **ret_dataset,
                               struct pl_error *reterr)
{
    const struct pl_shard only = {.rank = 0, .size = 1};
    struct pl_dataset_options options = *given;
    struct pl_stream_options records = {.records = options.records,
                                        .compression = options.compression,
                                        .split = options.split,
                                        .deal = options.deal.size ? options.deal : only,
                                        .shuffle_objects = options.shuffle_objects,
                                        .seed = options.seed};
    struct pl_decoder *decoder;
    struct pl_stream *stream = NULL;
    enum pl_status status;

    PL_TRY(check_options(&options, reterr));
    options.timeout_ns = options.timeout_ns ? options.timeout_ns : DEFAULT_TIMEOUT_NS;
    records.records.leave_checksum = true;
    PL_TRY(pl_decoder_new(options.source, options.fields, options.field_count, options.records.delimiter, &decoder,
                          reterr));
    status = options.channel        ? open_channel(&options, options.channel, &records, &stream, reterr)
             : options.channel_name ? open_named(&options, &records, &stream, reterr)
                                    : open_paths(&options, &records, &stream, reterr);
    if (status == PL_OK) {
        status = make(stream, decoder, &options, ret_dataset, reterr);
    }
    if (status != PL_OK) {
        pl_stream_close(stream);
        pl_decoder_free(decoder);
    }
    return status;
}

enum pl_status pl_dataset_start(struct pl_dataset *dataset, uint64_t epoch, struct pl_error *reterr)
{
    enum pl_status status = PL_OK;

    PL_TRY(pl_loader_start(dataset, reterr));
    pthread_mutex_lock(&dataset->mutex);
    if (dataset->synced.failed) {
        status = dataset->synced.error.status;
        *(reterr ? reterr : &(struct pl_error){.status = PL_OK}) = dataset->synced.error;
    } else if (!dataset->start_ns || epoch <= dataset->progress.epoch || dataset->synced.epoch < epoch ||
               epoch - dataset->first >= dataset->options.epochs) {
        pl_loader_abandon(dataset);
        if (!dataset->start_ns || epoch < dataset->first || epoch - dataset->first >= dataset->options.epochs) {
            dataset->first = epoch;
        }
        dataset->restores = false;
        dataset->synced.epoch = epoch;
        dataset->synced.index = 0;
        dataset->synced.begins = dataset->synced.producing = true;
        pthread_cond_signal(&dataset->work);
    } /* otherwise it has begun by itself: pl_dataset_next() drops batches of earlier epochs */
    pthread_mutex_unlock(&dataset->mutex);
    if (status == PL_OK) {
        dataset->at_end = dataset->over = false;
        dataset->start_ns = pl_clock_now_ns();
        dataset->progress = (struct pl_dataset_progress){.epoch = epoch};
        pl_trail_start(&dataset->trail, epoch, dataset->first);
    }
    return status;
}

enum pl_status pl_dataset_save(const struct pl_dataset *dataset, uint64_t back, char **ret_text,
                               struct pl_error *reterr)
{
    if (!dataset->start_ns) {
        return pl_error_set(reterr, PL_INVALID, "pl_dataset_start() comes first: no epoch has begun");
    }
    return pl_trail_save(&dataset->trail, dataset, back, ret_text, reterr);
}

enum pl_status pl_dataset_restore(struct pl_dataset *dataset, const char *text, struct pl_error *reterr)
{
    const struct pl_position *position = &dataset->trail.position;
    bool has_failed;

    PL_TRY(pl_loader_start(dataset, reterr));
    pthread_mutex_lock(&dataset->mutex);
    has_failed = dataset->synced.failed;
    if (!has_failed) {
        pl_loader_abandon(dataset);
    }
    pthread_mutex_unlock(&dataset->mutex);
    if (has_failed) {
        return pl_dataset_start(dataset, 0, reterr); /* returns the error */
    }
    dataset->start_ns = 0;
    PL_TRY(pl_trail_restore(&dataset->trail, dataset, text, &dataset->from, reterr));
    dataset->first = position->first_epoch;
    dataset->at_end = position->is_end;
    dataset->over = false;
    dataset->start_ns = pl_clock_now_ns();
    dataset->progress = (struct pl_dataset_progress){
        .epoch = position->epoch, .samples = position->samples, .bytes = position->bytes, .skipped = position->skipped};
    pthread_mutex_lock(&dataset->mutex);
    dataset->restores = position->index > 0;
    dataset->synced.epoch = position->epoch;
    dataset->synced.index = position->batches;
    dataset->synced.begins = dataset->synced.producing = !position->is_end;
    pthread_cond_signal(&dataset->work);
    pthread_mutex_unlock(&dataset->mutex);
    return PL_OK;
}

/* Marks an error after which the program can call again. */
static enum pl_status later(enum pl_status status, struct pl_error *reterr)
{
    if (reterr) {
        reterr->retryable = true;
    }
    return status;
}

/* Waits for the next batch of the epoch, under the lock. */
static enum pl_status wait_for_batch(struct pl_dataset *dataset, int64_t deadline_ns, struct pl_error *reterr)
{
    for (;;) {
        const struct pl_batch_memory *first = dataset->synced.first;
        bool is_behind = dataset->synced.failed && (!first || first->sequence >= dataset->synced.failed_sequence);

        if (__atomic_load_n(&dataset->cancelled, __ATOMIC_ACQUIRE)) {
            return pl_error_set(reterr, PL_CANCELLED, "the dataset was cancelled");
        }
        if (is_behind && !dataset->synced.decoding) { /* a chunk that is still read has later rows */
            *(reterr ? reterr : &(struct pl_error){.status = PL_OK}) = dataset->synced.error;
            return dataset->synced.error.status;
        }
        if (first && first->is_ready && !is_behind) {
            if (first->epoch == dataset->progress.epoch) {
                return PL_OK;
            }
            pl_loader_recycle(pl_loader_take_first(dataset)); /* batch of an epoch that the program has left */
            continue;
        }
        if (!first && !dataset->synced.reading && dataset->synced.kept >= dataset->options.max_batches) {
            return later(pl_error_set(reterr, PL_LIMIT,
                                      "the program keeps %zu batches, and max_batches allows no more: release some, or "
                                      "raise the limit",
                                      dataset->synced.kept),
                         reterr);
        }
        if (pl_deadline_passed(deadline_ns)) {
            return later(pl_error_set(reterr, PL_TIMEOUT, "no batch was ready before the deadline"), reterr);
        }
        pl_deadline_wait((int64_t)pl_number_min((uint64_t)deadline_ns, (uint64_t)pl_deadline_after_ns(LOOK_NS)),
                         &dataset->ready, &dataset->mutex);
    }
}

/* Notes where the epoch is after a batch that the program has taken. */
static void note_place(struct pl_dataset *dataset, const struct pl_batch *batch)
{
    struct pl_step *step = &batch->memory->step;
    struct pl_position *after = &step->after;

    after->epoch = batch->epoch;
    after->first_epoch = dataset->first;
    after->batches = batch->index + 1;
    after->samples = dataset->progress.samples;
    after->bytes = dataset->progress.bytes;
    after->skipped = dataset->progress.skipped;
    after->is_end = dataset->at_end;
    after->index = after->next.index;
    after->origin = dataset->trail.position.origin;
    pl_trail_take(&dataset->trail, step);
}

/* Gives the first made batch to the program, or PL_END if it is the empty end of the epoch. Under the lock. */
static enum pl_status give_first(struct pl_dataset *dataset, struct pl_batch *ret_batch)
{
    struct pl_batch_memory *memory = pl_loader_take_first(dataset);
    bool is_short = memory->samples < dataset->options.batch_samples;

    dataset->at_end = memory->ends_epoch;
    dataset->progress.skipped = memory->skipped;
    if (memory->samples == 0 || (is_short && dataset->options.drop_last)) {
        pl_loader_recycle(memory);
        return PL_END;
    }
    *ret_batch = (struct pl_batch){.epoch = memory->epoch,
                                   .index = memory->index,
                                   .samples = memory->samples,
                                   .field_count = dataset->fields,
                                   .fields = memory->fields,
                                   .memory = memory};
    dataset->synced.kept++;
    pthread_cond_signal(&dataset->work);
    dataset->progress.samples += memory->samples;
    dataset->progress.bytes += memory->bytes;
    return PL_OK;
}

enum pl_status pl_dataset_next(struct pl_dataset *dataset, int64_t deadline_ns, struct pl_batch *ret_batch,
                               struct pl_error *reterr)
{
    int64_t begin_ns = pl_clock_now_ns();
    enum pl_status status;

    if (!dataset->start_ns) {
        return pl_error_set(reterr, PL_INVALID, "pl_dataset_start() comes first: no epoch has begun");
    }
    if (dataset->over) {
        return PL_END;
    }
    status = PL_END;
    if (!dataset->at_end) {
        pthread_mutex_lock(&dataset->mutex);
        status = wait_for_batch(dataset, deadline_ns, reterr);
        status = status == PL_OK ? give_first(dataset, ret_batch) : status;
        pthread_mutex_unlock(&dataset->mutex);
    }
    if (status == PL_OK) {
        note_place(dataset, ret_batch);
    }
    dataset->over = status == PL_END;
    dataset->progress.waited_ns += pl_clock_now_ns() - begin_ns;
    dataset->progress.elapsed_ns = pl_clock_now_ns() - dataset->start_ns;
    return status;
}

struct pl_dataset_progress pl_dataset_progress(const struct pl_dataset *dataset)
{
    struct pl_dataset_progress progress = dataset->progress;

    if (!dataset->over && dataset->start_ns) {
        progress.elapsed_ns = pl_clock_now_ns() - dataset->start_ns;
    }
    return progress;
}

size_t pl_dataset_struct_bytes(const char *name)
{
    static const struct {
        const char *name;
        size_t bytes;
    } structs[] = {
        {"pl_batch", sizeof(struct pl_batch)},
        {"pl_batch_field", sizeof(struct pl_batch_field)},
        {"pl_dataset_options", sizeof(struct pl_dataset_options)},
        {"pl_dataset_progress", sizeof(struct pl_dataset_progress)},
        {"pl_error", sizeof(struct pl_error)},
        {"pl_field", sizeof(struct pl_field)},
    };

    for (size_t i = 0; i < PL_ARRAY_ITEMS(structs); i++) {
        if (strcmp(structs[i].name, name) == 0) {
            return structs[i].bytes;
        }
    }
    return 0;
}
