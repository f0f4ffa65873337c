/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetches batches on a thread, with a shuffle buffer, and gives them to the program. */
#include "s3io/loader.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TIMEOUT_NS (300 * PL_NS_PER_S)

enum { DEFAULT_PREFETCH = 4 };

struct slot {
    size_t samples;
    uint64_t bytes;
    unsigned char *fields[PL_LOADER_MAX_FIELDS];
};

/* Samples of which the next one is chosen at random. Used only by the loader's thread. */
struct shuffle {
    unsigned char *fields[PL_LOADER_MAX_FIELDS];
    uint64_t *bytes;
    size_t count;
    bool filled; /* the first fill of the epoch is done */
    uint64_t random;
};

struct pl_loader {
    struct pl_loader_options options;
    struct pl_loader_input input;
    size_t slot_count; /* one more than is prefetched, because the consumer holds one */
    struct slot *slots;
    struct shuffle shuffle;
    pthread_t thread;
    bool thread_started;
    bool holding;     /* the consumer has a batch */
    int64_t start_ns; /* 0 before the first epoch */
    struct pl_loader_progress progress;
    bool over; /* the consumer has received PL_END for the epoch */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct {
        bool stop;       /* asks the thread to end */
        bool running;    /* the thread produces an epoch */
        bool abandon;    /* asks the thread to leave the epoch */
        uint64_t epoch;  /* the epoch to produce, or the last one that was produced */
        uint64_t filled; /* number of batches made in the epoch */
        uint64_t freed;  /* number of batches that the consumer gave back */
        bool done;       /* production has ended; `status` tells how */
        enum pl_status status;
        struct pl_error error;
    } synced; /* guarded by `mutex` */
};

/* Makes `fields` point to row `row` of the arrays at `base`. */
static void row_at(const struct pl_loader *loader, unsigned char *const *base, size_t row, void **fields)
{
    for (unsigned field = 0; field < loader->options.fields; field++) {
        fields[field] = base[field] + row * loader->options.sample_bytes[field];
    }
}

static enum pl_status read_sample(struct pl_loader *loader, unsigned char *const *base, size_t row, uint64_t *ret_bytes,
                                  struct pl_error *reterr)
{
    void *fields[PL_LOADER_MAX_FIELDS] = {NULL};

    row_at(loader, base, row, fields);
    *ret_bytes = 0;
    return loader->input.next(loader->input.context, fields, pl_deadline_after_ns(loader->options.timeout_ns),
                              ret_bytes, reterr);
}

static void copy_sample(const struct pl_loader *loader, unsigned char *const *from, size_t from_row,
                        unsigned char *const *to, size_t to_row)
{
    for (unsigned field = 0; field < loader->options.fields; field++) {
        size_t bytes = loader->options.sample_bytes[field];

        memcpy(to[field] + to_row * bytes, from[field] + from_row * bytes, bytes);
    }
}

/* Takes a random sample out of the shuffle buffer, and reads the next one of the input into its place. */
static enum pl_status shuffled_sample(struct pl_loader *loader, struct slot *slot, size_t row, uint64_t *ret_bytes,
                                      struct pl_error *reterr)
{
    struct shuffle *shuffle = &loader->shuffle;
    enum pl_status status = PL_OK;
    size_t pick;

    while (!shuffle->filled) {
        status = read_sample(loader, shuffle->fields, shuffle->count, &shuffle->bytes[shuffle->count], reterr);
        if (status != PL_OK && status != PL_END) {
            return status;
        }
        shuffle->count += status == PL_OK;
        shuffle->filled = status == PL_END || shuffle->count == loader->options.shuffle_samples;
    }
    if (shuffle->count == 0) {
        return PL_END;
    }
    pick = (size_t)(pl_random_next(&shuffle->random) % shuffle->count);
    copy_sample(loader, shuffle->fields, pick, slot->fields, row);
    *ret_bytes = shuffle->bytes[pick];
    /* The buffer shrinks only after the end of the input: while it is full, there may be more to read. */
    if (shuffle->count == loader->options.shuffle_samples) {
        status = read_sample(loader, shuffle->fields, pick, &shuffle->bytes[pick], reterr);
        if (status == PL_OK) {
            return PL_OK;
        }
        if (status != PL_END) {
            return status;
        }
    }
    shuffle->count--;
    if (pick != shuffle->count) {
        copy_sample(loader, shuffle->fields, shuffle->count, shuffle->fields, pick);
        shuffle->bytes[pick] = shuffle->bytes[shuffle->count];
    }
    return PL_OK;
}

static enum pl_status fill_slot(struct pl_loader *loader, struct slot *slot, struct pl_error *reterr)
{
    slot->samples = 0;
    slot->bytes = 0;
    while (slot->samples < loader->options.batch_samples) {
        uint64_t bytes;

        PL_TRY(loader->options.shuffle_samples ? shuffled_sample(loader, slot, slot->samples, &bytes, reterr)
                                               : read_sample(loader, slot->fields, slot->samples, &bytes, reterr));
        slot->samples++;
        slot->bytes += bytes;
    }
    return PL_OK;
}

/* Waits for a free slot. Returns false if the thread must leave the epoch. */
static bool wait_for_slot(struct pl_loader *loader, uint64_t *ret_number)
{
    bool go_on;

    pthread_mutex_lock(&loader->mutex);
    while (!loader->synced.abandon && loader->synced.filled - loader->synced.freed == loader->slot_count) {
        pthread_cond_wait(&loader->changed, &loader->mutex);
    }
    go_on = !loader->synced.abandon;
    *ret_number = loader->synced.filled;
    pthread_mutex_unlock(&loader->mutex);
    return go_on;
}

static enum pl_status produce_epoch(struct pl_loader *loader, uint64_t epoch, struct pl_error *reterr)
{
    enum pl_status status =
        loader->input.start(loader->input.context, epoch, pl_deadline_after_ns(loader->options.timeout_ns), reterr);
    uint64_t number;

    loader->shuffle.count = 0;
    loader->shuffle.filled = false;
    loader->shuffle.random = loader->options.shuffle_seed ^ (epoch * UINT64_C(0xd1342543de82ef95));
    while (status == PL_OK && wait_for_slot(loader, &number)) {
        struct slot *slot = &loader->slots[number % loader->slot_count];

        status = fill_slot(loader, slot, reterr);
        if (status == PL_OK || (status == PL_END && slot->samples > 0 && !loader->options.drop_last)) {
            pthread_mutex_lock(&loader->mutex);
            loader->synced.filled++;
            pthread_cond_broadcast(&loader->changed);
            pthread_mutex_unlock(&loader->mutex);
        }
    }
    return status;
}

static void *run(void *argument)
{
    struct pl_loader *loader = argument;

    pthread_mutex_lock(&loader->mutex);
    for (;;) {
        struct pl_error error = PL_ERROR_NONE;
        enum pl_status status;
        uint64_t epoch;

        while (!loader->synced.running && !loader->synced.stop) {
            pthread_cond_wait(&loader->changed, &loader->mutex);
        }
        if (loader->synced.stop) {
            break;
        }
        epoch = loader->synced.epoch;
        pthread_mutex_unlock(&loader->mutex);
        status = produce_epoch(loader, epoch, &error);
        pthread_mutex_lock(&loader->mutex);
        loader->synced.running = false;
        loader->synced.done = true;
        loader->synced.status = status;
        loader->synced.error = error;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* Asks the thread to leave a running epoch, and waits until it has. */
static void abandon(struct pl_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    if (loader->synced.running) {
        loader->synced.abandon = true;
        pthread_cond_broadcast(&loader->changed);
        if (loader->input.cancel) {
            pthread_mutex_unlock(&loader->mutex);
            loader->input.cancel(loader->input.context, true);
            pthread_mutex_lock(&loader->mutex);
        }
        while (loader->synced.running) {
            pthread_cond_wait(&loader->changed, &loader->mutex);
        }
        if (loader->input.cancel) {
            loader->input.cancel(loader->input.context, false);
        }
        loader->synced.abandon = false;
    }
    pthread_mutex_unlock(&loader->mutex);
}

static enum pl_status allocate_rows(const struct pl_loader *loader, size_t rows, bool batch, unsigned char **fields,
                                    struct pl_error *reterr)
{
    for (unsigned field = 0; field < loader->options.fields; field++) {
        size_t bytes;

        if (__builtin_mul_overflow(rows, loader->options.sample_bytes[field], &bytes)) {
            return pl_error_set(reterr, PL_LIMIT, "%zu samples of %zu bytes are too large", rows,
                                loader->options.sample_bytes[field]);
        }
        if (batch && loader->options.allocate) {
            fields[field] = loader->options.allocate(loader->options.allocator, bytes);
        } else {
            fields[field] = pl_memory_new_aligned(bytes, 1, 64, reterr);
        }
        if (!fields[field]) {
            return pl_error_set(reterr, PL_MEMORY, "out of memory for %zu samples of %zu bytes", rows,
                                loader->options.sample_bytes[field]);
        }
    }
    return PL_OK;
}

static enum pl_status set_up(struct pl_loader *loader, struct pl_error *reterr)
{
    const struct pl_loader_options *options = &loader->options;

    PL_TRY(pl_memory_alloc(&loader->slots, loader->slot_count, sizeof(*loader->slots), reterr));
    for (size_t i = 0; i < loader->slot_count; i++) {
        PL_TRY(allocate_rows(loader, options->batch_samples, true, loader->slots[i].fields, reterr));
    }
    if (options->shuffle_samples) {
        PL_TRY(allocate_rows(loader, options->shuffle_samples, false, loader->shuffle.fields, reterr));
        PL_TRY(
            pl_memory_alloc(&loader->shuffle.bytes, options->shuffle_samples, sizeof(*loader->shuffle.bytes), reterr));
    }
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, NULL);
    if (pl_thread_start(&loader->thread, run, loader, "the loader's thread", reterr) != PL_OK) {
        pthread_cond_destroy(&loader->changed);
        pthread_mutex_destroy(&loader->mutex);
        return PL_SYSTEM;
    }
    loader->thread_started = true;
    return PL_OK;
}

enum pl_status pl_loader_new(const struct pl_loader_options *options, const struct pl_loader_input *input,
                             struct pl_loader **ret_loader, struct pl_error *reterr)
{
    struct pl_loader *loader;
    enum pl_status status;

    if (options->fields == 0 || options->fields > PL_LOADER_MAX_FIELDS || options->batch_samples == 0) {
        return pl_error_set(reterr, PL_INVALID, "a loader needs 1 to %d fields and batches of at least one sample",
                            (int)PL_LOADER_MAX_FIELDS);
    }
    if (!options->allocate != !options->release) {
        return pl_error_set(reterr, PL_INVALID, "a loader's memory needs both allocate and release");
    }
    PL_TRY(pl_memory_alloc(&loader, 1, sizeof(*loader), reterr));
    loader->options = *options;
    loader->input = *input;
    if (loader->options.timeout_ns == 0) {
        loader->options.timeout_ns = DEFAULT_TIMEOUT_NS;
    }
    loader->slot_count = (options->prefetch_batches ? options->prefetch_batches : DEFAULT_PREFETCH) + 1;
    loader->over = true;
    status = set_up(loader, reterr);
    if (status != PL_OK) {
        pl_loader_free(loader);
        return status;
    }
    *ret_loader = loader;
    return PL_OK;
}

enum pl_status pl_loader_start(struct pl_loader *loader, uint64_t epoch, struct pl_error *reterr)
{
    (void)reterr;
    abandon(loader);
    loader->holding = false;
    loader->over = false;
    loader->start_ns = pl_clock_now_ns();
    loader->progress = (struct pl_loader_progress){.epoch = epoch};
    pthread_mutex_lock(&loader->mutex);
    loader->synced.epoch = epoch;
    loader->synced.filled = 0;
    loader->synced.freed = 0;
    loader->synced.done = false;
    loader->synced.running = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    return PL_OK;
}

static enum pl_status wait_for_batch(struct pl_loader *loader, int64_t deadline_ns, struct pl_error *reterr)
{
    while (loader->synced.filled == loader->synced.freed && !loader->synced.done) {
        if (pl_deadline_passed(deadline_ns)) {
            return pl_error_set(reterr, PL_TIMEOUT, "no batch was ready before the deadline");
        }
        pl_deadline_wait(deadline_ns, &loader->changed, &loader->mutex);
    }
    return PL_OK;
}

enum pl_status pl_loader_next(struct pl_loader *loader, int64_t deadline_ns, struct pl_batch *ret_batch,
                              struct pl_error *reterr)
{
    int64_t begin_ns = pl_clock_now_ns();
    enum pl_status status;
    const struct slot *slot;

    if (loader->over) {
        return loader->start_ns ? PL_END
                                : pl_error_set(reterr, PL_INVALID, "pl_loader_start() comes first: no epoch has begun");
    }
    pthread_mutex_lock(&loader->mutex);
    if (loader->holding) {
        loader->synced.freed++;
        loader->holding = false;
        pthread_cond_broadcast(&loader->changed);
    }
    status = wait_for_batch(loader, deadline_ns, reterr);
    if (status == PL_OK && loader->synced.filled == loader->synced.freed) {
        status = loader->synced.status;
        loader->over = status == PL_END;
        if (status != PL_END && reterr) {
            *reterr = loader->synced.error;
        }
    } else if (status == PL_OK) {
        slot = &loader->slots[loader->synced.freed % loader->slot_count];
        *ret_batch = (struct pl_batch){.index = loader->synced.freed, .samples = slot->samples};
        for (unsigned field = 0; field < loader->options.fields; field++) {
            ret_batch->fields[field] = slot->fields[field];
        }
        loader->holding = true;
        loader->progress.samples += slot->samples;
        loader->progress.bytes += slot->bytes;
    }
    pthread_mutex_unlock(&loader->mutex);
    loader->progress.waited_ns += pl_clock_now_ns() - begin_ns;
    loader->progress.elapsed_ns = pl_clock_now_ns() - loader->start_ns;
    return status;
}

struct pl_loader_progress pl_loader_progress(const struct pl_loader *loader)
{
    struct pl_loader_progress progress = loader->progress;

    if (!loader->over) {
        progress.elapsed_ns = pl_clock_now_ns() - loader->start_ns;
    }
    return progress;
}

void pl_loader_free(struct pl_loader *loader)
{
    if (!loader) {
        return;
    }
    if (loader->thread_started) {
        abandon(loader);
        pthread_mutex_lock(&loader->mutex);
        loader->synced.stop = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
        pthread_join(loader->thread, NULL);
        pthread_cond_destroy(&loader->changed);
        pthread_mutex_destroy(&loader->mutex);
    }
    for (unsigned field = 0; field < loader->options.fields; field++) {
        for (size_t i = 0; loader->slots && i < loader->slot_count; i++) {
            if (loader->options.release && loader->slots[i].fields[field]) {
                loader->options.release(loader->options.allocator, loader->slots[i].fields[field],
                                        loader->options.batch_samples * loader->options.sample_bytes[field]);
            } else if (!loader->options.release) {
                free(loader->slots[i].fields[field]);
            }
        }
        free(loader->shuffle.fields[field]);
    }
    free(loader->slots);
    free(loader->shuffle.bytes);
    free(loader);
}
