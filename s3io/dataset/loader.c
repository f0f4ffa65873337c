/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a dataset take turns. A thread reads a chunk of records while no other one reads, which fixes their
 * rows, and then decodes the chunk beside the others. So records are decoded in the cache of the core that has read
 * them, and no queue lies between reading and decoding.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/random.h"
#include "base/thread.h"
#include "s3io/dataset/dataset_private.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE_BYTES = 64 << 10 }; /* memory up to this size is kept for a much shorter record */

static void swap_held(struct pl_held *a, struct pl_held *b)
{
    struct pl_held one = *a;

    *a = *b;
    *b = one;
}

/* Copies the record from the stream's memory to the memory of `held`. */
static enum pl_status copy_record(struct pl_held *held, struct pl_error *reterr)
{
    struct pl_record *record = &held->record;
    size_t want = record->bytes + 1;

    if (want > held->capacity || (held->capacity > SPARE_BYTES && want < held->capacity / 4)) {
        free(held->data);
        held->capacity = 0;
        PL_TRY(pl_memory_alloc(&held->data, want + want / 8, 1, reterr));
        held->capacity = want + want / 8;
    }
    if (record->bytes) {
        memcpy(held->data, record->data, record->bytes);
    }
    record->data = held->data;
    return PL_OK;
}

static enum pl_status next_record(struct pl_dataset *dataset, struct pl_held *held, struct pl_error *reterr)
{
    return pl_stream_next(dataset->stream, pl_deadline_after_ns(dataset->options.timeout_ns), &held->record, reterr);
}

/* Reads the next record of the stream into `held`. */
static enum pl_status read_record(struct pl_dataset *dataset, struct pl_held *held, struct pl_error *reterr)
{
    PL_TRY(next_record(dataset, held, reterr));
    return copy_record(held, reterr);
}

/* Reads the next record of the chunk. If the record is in the window that the chunk holds, it stays there. */
static enum pl_status read_in_place(struct pl_worker *worker, struct pl_held *held, struct pl_error *reterr)
{
    PL_TRY(next_record(worker->dataset, held, reterr));
    return pl_stream_hold(worker->dataset->stream, &held->record, &worker->window) ? PL_OK : copy_record(held, reterr);
}

/* Takes a random record out of the shuffle buffer, and reads the next one of the stream into its place. */
static enum pl_status shuffled_record(struct pl_dataset *dataset, struct pl_held *held, struct pl_error *reterr)
{
    struct pl_shuffle *shuffle = &dataset->shuffle;
    enum pl_status status = PL_OK;
    size_t pick;

    while (!shuffle->filled) {
        status = read_record(dataset, &shuffle->held[shuffle->count], reterr);
        if (status != PL_OK && status != PL_END) {
            return status;
        }
        if (status == PL_OK) {
            PL_TRY(pl_step_add(shuffle->step, shuffle->count, &shuffle->held[shuffle->count].record, reterr));
            shuffle->count++;
        }
        shuffle->filled = status == PL_END || shuffle->count == dataset->options.shuffle_samples;
    }
    if (shuffle->count == 0) {
        return PL_END;
    }
    pick = (size_t)(pl_random_next(&shuffle->random) % shuffle->count);
    swap_held(held, &shuffle->held[pick]);
    /* The buffer shrinks only after the end of the input: while it is full, there may be more to read. */
    if (shuffle->count == dataset->options.shuffle_samples) {
        status = read_record(dataset, &shuffle->held[pick], reterr);
        if (status != PL_END) {
            return status == PL_OK ? pl_step_add(shuffle->step, pick, &shuffle->held[pick].record, reterr) : status;
        }
    }
    PL_TRY(pl_step_add(shuffle->step, pick, NULL, reterr));
    shuffle->count--;
    if (pick != shuffle->count) {
        swap_held(&shuffle->held[pick], &shuffle->held[shuffle->count]);
    }
    return PL_OK;
}

/* A record of the shuffle buffer that is read again. */
struct wanted {
    struct pl_stream_place place;
    size_t slot;
};

static int compare_wanted(const void *left, const void *right)
{
    const struct wanted *a = left, *b = right;

    return a->place.index < b->place.index ? -1 : a->place.index > b->place.index;
}

/* Passes over the records before `index`. All together may take long; each must come within the timeout. */
static enum pl_status pass(struct pl_dataset *dataset, uint64_t index, struct pl_error *reterr)
{
    for (;;) {
        uint64_t before = pl_stream_where(dataset->stream).index;
        enum pl_status status =
            pl_stream_pass(dataset->stream, index, pl_deadline_after_ns(dataset->options.timeout_ns), reterr);

        if (status != PL_TIMEOUT || pl_stream_where(dataset->stream).index == before) {
            return status;
        }
    }
}

/* Reads a record of the shuffle buffer again, and nothing but this one. */
static enum pl_status read_wanted(struct pl_dataset *dataset, const struct wanted *wanted, struct pl_error *reterr)
{
    const struct pl_stream_place *place = &wanted->place;
    struct pl_held *held = &dataset->shuffle.held[wanted->slot];
    const struct pl_record *record = &held->record;
    enum pl_status status;

    PL_TRY(pass(dataset, place->index, reterr));
    status = read_record(dataset, held, reterr);
    if (status == PL_END) {
        return pl_error_set(reterr, PL_MISMATCH,
                            "the place that was saved needs record %llu, and the epoch has only %llu: the data has "
                            "changed",
                            (unsigned long long)place->index,
                            (unsigned long long)pl_stream_where(dataset->stream).index);
    }
    if (status == PL_OK && (record->index != place->index || record->object != place->object ||
                            record->offset_bytes != place->offset_bytes)) {
        status = pl_error_set(reterr, PL_MISMATCH,
                              "the place that was saved needs record %llu at byte %llu, found is record %llu: the data "
                              "has changed",
                              (unsigned long long)place->index, (unsigned long long)place->offset_bytes,
                              (unsigned long long)record->index);
        pl_stream_error_context(dataset->stream, dataset->trail.position.epoch, record, reterr);
    }
    return status;
}

/* Begins at the place that the program has restored: reads the records of the shuffle buffer there, in their order. */
static enum pl_status restore(struct pl_dataset *dataset, struct pl_error *reterr)
{
    const struct pl_trail *trail = &dataset->trail;
    PL_AUTO_FREE struct wanted *wanted = NULL;

    PL_TRY(pl_stream_start_at(dataset->stream, trail->position.epoch, &dataset->from,
                              pl_deadline_after_ns(dataset->options.timeout_ns), reterr));
    PL_TRY(pl_memory_alloc(&wanted, trail->count + 1, sizeof(*wanted), reterr));
    for (size_t i = 0; i < trail->count; i++) {
        wanted[i] = (struct wanted){.place = trail->buffer[i], .slot = i};
    }
    qsort(wanted, trail->count, sizeof(*wanted), compare_wanted);
    for (size_t i = 0; i < trail->count; i++) {
        PL_TRY(read_wanted(dataset, &wanted[i], reterr));
    }
    PL_TRY(pass(dataset, trail->position.index, reterr));
    dataset->shuffle.count = trail->count;
    dataset->shuffle.filled = true;
    dataset->shuffle.random = trail->position.random;
    dataset->skipped_before = trail->position.skipped - pl_stream_counts(dataset->stream).skipped;
    return PL_OK;
}

static enum pl_status start_epoch(struct pl_dataset *dataset, uint64_t epoch, struct pl_error *reterr)
{
    dataset->skipped_before = 0;
    if (dataset->restores) {
        dataset->restores = false;
        return restore(dataset, reterr);
    }
    dataset->shuffle.count = 0;
    dataset->shuffle.filled = false;
    dataset->shuffle.random = dataset->options.seed ^ (epoch * UINT64_C(0xd1342543de82ef95));
    return pl_stream_start(dataset->stream, epoch, pl_deadline_after_ns(dataset->options.timeout_ns), reterr);
}

/* Reads a chunk of at most `most` records. Returns PL_OK, or the status that cut the chunk short. */
static enum pl_status read_chunk(struct pl_worker *worker, size_t most, size_t *ret_count, struct pl_error *reterr)
{
    struct pl_dataset *dataset = worker->dataset;
    size_t bytes = 0;

    pl_stream_let_go(dataset->stream, PL_TAKE(worker->window));
    for (*ret_count = 0; *ret_count < most && bytes < PL_CHUNK_BYTES; ++*ret_count) {
        struct pl_held *held = &worker->held[*ret_count];

        PL_TRY(dataset->options.shuffle_samples ? shuffled_record(dataset, held, reterr)
                                                : read_in_place(worker, held, reterr));
        bytes += held->record.bytes;
        if (worker->window && held->record.data == held->data && bytes >= PL_CHUNK_BYTES / 4) {
            ++*ret_count; /* the records that follow are in another window */
            break;
        }
    }
    return PL_OK;
}

/* Notes an error in a row of a batch, under the lock. */
static void fail(struct pl_dataset *dataset, uint64_t sequence, size_t row, const struct pl_error *error)
{
    pthread_cond_broadcast(&dataset->ready);
    if (dataset->synced.abandon) {
        return; /* reading was cancelled */
    }
    if (!dataset->synced.failed || sequence < dataset->synced.failed_sequence ||
        (sequence == dataset->synced.failed_sequence && row < dataset->synced.failed_row)) {
        dataset->synced.failed = true;
        dataset->synced.failed_sequence = sequence;
        dataset->synced.failed_row = row;
        dataset->synced.error = *error;
        dataset->synced.error.retryable = false; /* the dataset has ended, also after a deadline */
    }
}

/* Decodes `count` records of the chunk into the rows from `first` on, and appends elements of varying fields to
 * `piece`. Stops at an error, at `*ret_row`. */
static enum pl_status decode_chunk(struct pl_worker *worker, struct pl_batch_memory *memory, struct pl_piece *piece,
                                   size_t first, size_t count, size_t *ret_row, struct pl_error *reterr)
{
    struct pl_dataset *dataset = worker->dataset;
    struct pl_varying *varying = NULL;

    *ret_row = first;
    if (piece && !piece->varying) {
        PL_TRY(pl_memory_alloc(&piece->varying, dataset->fields, sizeof(*varying), reterr));
    }
    varying = piece ? piece->varying : NULL;
    for (size_t f = 0; varying && piece->rows == 0 && f < dataset->fields; f++) {
        varying[f].bytes = 0;
    }
    for (size_t i = 0; i < count; i++) {
        const struct pl_record *record = &worker->held[i].record;
        enum pl_status status;

        for (size_t f = 0; f < dataset->fields; f++) {
            worker->rows[f] = (unsigned char *)memory->fields[f].data + (first + i) * dataset->row_bytes[f];
        }
        *ret_row = first + i;
        status = pl_record_check(record, reterr);
        if (status == PL_OK) {
            status = pl_decode(dataset->decoder, record->data, record->bytes, worker->rows, varying, reterr);
        }
        if (status != PL_OK) {
            pl_stream_error_context(dataset->stream, memory->epoch, record, reterr);
            return status;
        }
        for (size_t f = 0; varying && f < dataset->fields; f++) {
            if (memory->fields[f].offsets) { /* until the batch is whole: where the row ends in this piece */
                ((int64_t *)(uintptr_t)memory->fields[f].offsets)[first + i + 1] = (int64_t)varying[f].bytes;
            }
        }
    }
    if (piece) {
        piece->rows += count;
    }
    return PL_OK;
}

/* Makes a batch ready when all its rows are there. Called under the lock, which it releases in between. */
static void finish(struct pl_batch_memory *memory)
{
    struct pl_dataset *dataset = memory->dataset;
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status = PL_OK;

    if (dataset->is_varying) {
        pthread_mutex_unlock(&dataset->mutex);
        status = pl_batch_join(memory, &error);
        pthread_mutex_lock(&dataset->mutex);
    }
    if (status != PL_OK) {
        fail(dataset, memory->sequence, memory->samples, &error);
    }
    memory->is_ready = true;
    pthread_cond_broadcast(&dataset->ready);
}

static bool may_read(const struct pl_dataset *dataset)
{
    return dataset->synced.producing && !dataset->synced.reading && !dataset->synced.failed &&
           !dataset->synced.abandon &&
           (dataset->synced.filling ||
            (dataset->synced.made < dataset->options.prefetch_batches &&
             (dataset->synced.spare || dataset->synced.total < dataset->options.max_batches)));
}

/* Takes the memory of a new batch, under the lock; NULL if it must be allocated. */
static struct pl_batch_memory *take_spare(struct pl_dataset *dataset)
{
    struct pl_batch_memory *memory = dataset->synced.spare;

    if (memory) {
        dataset->synced.spare = memory->next;
    } else {
        dataset->synced.total++;
    }
    return memory;
}

/* Appends a new batch to the list of made batches, under the lock. */
static void append(struct pl_batch_memory *memory)
{
    struct pl_dataset *dataset = memory->dataset;

    memory->next = NULL;
    memory->sequence = dataset->synced.sequence++;
    memory->epoch = dataset->synced.epoch;
    memory->index = dataset->synced.index++;
    memory->samples = memory->piece_count = 0;
    memory->bytes = 0;
    memory->is_closed = memory->is_ready = memory->ends_epoch = false;
    *(dataset->synced.first ? &dataset->synced.last->next : &dataset->synced.first) = memory;
    dataset->synced.last = memory;
    dataset->synced.made++;
    dataset->synced.filling = memory;
}

/* Returns, under the lock, the piece for a chunk's elements of varying fields; NULL if no field is varying. If the
 * elements of all earlier chunks are there, it is their piece, so nothing need be joined; otherwise a new one. */
static struct pl_piece *piece_for_chunk(struct pl_batch_memory *memory)
{
    if (!memory->pieces) {
        return NULL;
    }
    if (memory->piece_count == 0 || memory->unfinished > 0) {
        memory->pieces[memory->piece_count++].rows = 0;
    }
    return &memory->pieces[memory->piece_count - 1];
}

/* Ends the epoch that was read, under the lock, and begins the next one if there is one (options.epochs). */
static void end_epoch(struct pl_dataset *dataset)
{
    dataset->synced.filling->ends_epoch = true;
    dataset->synced.begins = dataset->synced.epoch - dataset->first + 1 < dataset->options.epochs;
    dataset->synced.producing = dataset->synced.begins;
    dataset->synced.epoch += dataset->synced.begins;
    dataset->synced.index = 0;
}

/* Reads a chunk, without the lock. Makes the batch for it if there is none. */
static enum pl_status read_turn(struct pl_worker *worker, struct pl_batch_memory **memory, size_t first, bool begins,
                                uint64_t epoch, size_t *ret_count, struct pl_error *reterr)
{
    struct pl_dataset *dataset = worker->dataset;

    if (!*memory) {
        PL_TRY(pl_batch_memory_new(dataset, memory, reterr));
    }
    dataset->shuffle.step = &(*memory)->step;
    if (begins) {
        PL_TRY(start_epoch(dataset, epoch, reterr));
    }
    return read_chunk(worker, pl_number_min(dataset->options.batch_samples - first, PL_CHUNK_RECORDS), ret_count,
                      reterr);
}

/* Reads a chunk of records and decodes it. Called under the lock, which it releases in between. */
static void take_turn(struct pl_worker *worker)
{
    struct pl_dataset *dataset = worker->dataset;
    struct pl_batch_memory *memory = dataset->synced.filling;
    size_t first = memory ? memory->samples : 0, count = 0, row = 0;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_piece *piece;
    bool is_new = !memory, begins = dataset->synced.begins;
    uint64_t epoch = dataset->synced.epoch;
    enum pl_status status;

    dataset->synced.reading = true;
    memory = is_new ? take_spare(dataset) : memory;
    pthread_mutex_unlock(&dataset->mutex);
    status = read_turn(worker, &memory, first, begins, epoch, &count, &error);
    pthread_mutex_lock(&dataset->mutex);
    dataset->synced.reading = false;
    if (!memory) {
        dataset->synced.total--;
        fail(dataset, dataset->synced.sequence, 0, &error);
        return;
    }
    if (is_new) {
        append(memory);
    }
    dataset->synced.begins = false;
    memory->samples += count;
    memory->skipped = dataset->skipped_before + pl_stream_counts(dataset->stream).skipped;
    memory->step.after.random = dataset->shuffle.random;
    memory->step.after.next = pl_stream_where(dataset->stream);
    for (size_t i = 0; i < count; i++) {
        memory->bytes += worker->held[i].record.bytes;
    }
    piece = count > 0 ? piece_for_chunk(memory) : NULL;
    memory->unfinished += count > 0;
    dataset->synced.decoding++;
    if (status == PL_END) {
        end_epoch(dataset);
    } else if (status != PL_OK) {
        fail(dataset, memory->sequence, memory->samples, &error);
    }
    memory->is_closed = status == PL_END || memory->samples == dataset->options.batch_samples;
    if (memory->is_closed) {
        dataset->synced.filling = NULL;
    }
    pthread_cond_signal(&dataset->work);
    if (count > 0) {
        pthread_mutex_unlock(&dataset->mutex);
        status = decode_chunk(worker, memory, piece, first, count, &row, &error);
        pthread_mutex_lock(&dataset->mutex);
        memory->unfinished--;
        if (status != PL_OK) {
            fail(dataset, memory->sequence, row, &error);
        }
    }
    if (memory->is_closed && memory->unfinished == 0 &&
        !(dataset->synced.failed && memory->sequence >= dataset->synced.failed_sequence)) {
        finish(memory);
    }
    dataset->synced.decoding--;
    pthread_cond_broadcast(&dataset->ready);
}

static void *run(void *argument)
{
    struct pl_worker *worker = argument;
    struct pl_dataset *dataset = worker->dataset;

    pthread_mutex_lock(&dataset->mutex);
    while (!dataset->synced.stop) {
        if (may_read(dataset)) {
            take_turn(worker);
        } else {
            pthread_cond_wait(&dataset->work, &dataset->mutex);
        }
    }
    pthread_mutex_unlock(&dataset->mutex);
    return NULL;
}

void pl_loader_recycle(struct pl_batch_memory *memory)
{
    struct pl_dataset *dataset = memory->dataset;

    memory->step.count = 0;
    memory->next = dataset->synced.spare;
    dataset->synced.spare = memory;
    pthread_cond_signal(&dataset->work);
}

struct pl_batch_memory *pl_loader_take_first(struct pl_dataset *dataset)
{
    struct pl_batch_memory *memory = dataset->synced.first;

    dataset->synced.first = memory->next;
    dataset->synced.made--;
    return memory;
}

void pl_loader_abandon(struct pl_dataset *dataset)
{
    dataset->synced.abandon = true;
    pthread_mutex_unlock(&dataset->mutex);
    pl_stream_cancel(dataset->stream, true);
    pthread_mutex_lock(&dataset->mutex);
    while (dataset->synced.reading || dataset->synced.decoding) {
        pthread_cond_wait(&dataset->ready, &dataset->mutex);
    }
    pl_stream_cancel(dataset->stream, false);
    while (dataset->synced.first) {
        pl_loader_recycle(pl_loader_take_first(dataset));
    }
    dataset->synced.filling = NULL;
    dataset->synced.producing = false;
    dataset->synced.abandon = false;
}

enum pl_status pl_loader_start(struct pl_dataset *dataset, struct pl_error *reterr)
{
    while (dataset->running < dataset->options.decode_threads) {
        struct pl_worker *worker = &dataset->workers[dataset->running];

        PL_TRY(pl_thread_start(&worker->thread, run, worker, "a dataset's thread", reterr));
        dataset->running++;
    }
    return PL_OK;
}
