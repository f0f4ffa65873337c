/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/dataset/loader.c. */
#include "base/clock.h"
#include "s3io/loader.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { COUNT = 103, BATCH = 8 };

struct fixture {
    uint32_t numbers[COUNT];
    unsigned char bytes[COUNT];
    struct pl_sampler sampler;
    struct pl_loader_input input;
    struct pl_loader_options options;
    struct pl_loader *loader;
    struct pl_error error;
};

static enum pl_status start_samples(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr)
{
    pl_sampler_start(&((struct fixture *)context)->sampler, epoch);
    return PL_OK;
}

static enum pl_status next_sample(void *context, void *const *fields, int64_t deadline_ns, uint64_t *ret_bytes,
                                  struct pl_error *reterr)
{
    struct fixture *fixture = context;
    uint64_t index;

    if (!pl_sampler_next(&fixture->sampler, &index)) {
        return PL_END;
    }
    memcpy(fields[0], &fixture->numbers[index], sizeof(uint32_t));
    memcpy(fields[1], &fixture->bytes[index], 1);
    *ret_bytes += sizeof(uint32_t) + 1;
    return PL_OK;
}

static void set_up(struct fixture *fixture)
{
    memset(fixture, 0, sizeof(*fixture));
    for (uint32_t i = 0; i < COUNT; i++) {
        fixture->numbers[i] = i * 1000;
        fixture->bytes[i] = (unsigned char)i;
    }
    ck_ok(pl_sampler_init, &fixture->sampler, COUNT, 3, true, PL_SAMPLER_JOIN, (struct pl_shard){.rank = 0, .size = 1});
    fixture->input = (struct pl_loader_input){.context = fixture, .start = start_samples, .next = next_sample};
    fixture->options =
        (struct pl_loader_options){.fields = 2, .sample_bytes = {sizeof(uint32_t), 1}, .batch_samples = BATCH};
}

static void start(struct fixture *fixture)
{
    ck_ok(pl_loader_new, &fixture->options, &fixture->input, &fixture->loader);
}

/* Runs an epoch. Returns the number of samples, and their order in `order`. */
static size_t run_epoch(struct fixture *fixture, uint64_t epoch, unsigned char *order)
{
    struct pl_batch batch;
    enum pl_status status;
    size_t total = 0;
    uint64_t number = 0;

    ck_ok(pl_loader_start, fixture->loader, epoch);
    while ((status = pl_loader_next(fixture->loader, PL_DEADLINE_NEVER, &batch, &fixture->error)) == PL_OK) {
        ck_assert_uint_eq(batch.index, number++);
        for (size_t i = 0; i < batch.samples; i++) {
            order[total] = ((unsigned char *)batch.fields[1])[i];
            ck_assert_uint_eq(((uint32_t *)batch.fields[0])[i], order[total] * 1000U);
            total++;
        }
    }
    ck_assert_int_eq(status, PL_END);
    ck_assert_int_eq(pl_loader_next(fixture->loader, PL_DEADLINE_NEVER, &batch, &fixture->error), PL_END);
    return total;
}

static void check_each_once(const unsigned char *order)
{
    bool seen[COUNT] = {false};

    for (size_t i = 0; i < COUNT; i++) {
        ck_assert(!seen[order[i]]);
        seen[order[i]] = true;
    }
}

TEST(batches_hold_every_sample_once_in_the_samplers_order)
{
    struct fixture fixture;
    unsigned char first[COUNT], again[COUNT], next[COUNT];
    struct pl_loader_progress progress;

    set_up(&fixture);
    start(&fixture);
    ck_assert_uint_eq(run_epoch(&fixture, 0, first), COUNT);
    check_each_once(first);
    ck_assert_uint_eq(run_epoch(&fixture, 1, next), COUNT);
    check_each_once(next);
    ck_assert_mem_ne(first, next, COUNT);
    ck_assert_uint_eq(run_epoch(&fixture, 0, again), COUNT);
    ck_assert_mem_eq(first, again, COUNT);
    progress = pl_loader_progress(fixture.loader);
    ck_assert_uint_eq(progress.samples, COUNT);
    ck_assert_uint_eq(progress.bytes, COUNT * 5);
    ck_assert_int_ge(progress.elapsed_ns, progress.waited_ns);
    pl_loader_free(fixture.loader);
}

/* A program that forgets the start would otherwise train on no data and succeed. */
TEST(batch_before_the_first_start_is_refused_and_not_the_end)
{
    struct fixture f;
    struct pl_batch batch;
    unsigned char order[COUNT];

    set_up(&f);
    start(&f);
    ck_fails(PL_INVALID, "pl_loader_start() comes first", pl_loader_next, f.loader, PL_DEADLINE_NEVER, &batch);
    ck_assert_uint_eq(run_epoch(&f, 0, order), COUNT);
    pl_loader_free(f.loader);
}

TEST(short_last_batch_can_be_left_out)
{
    struct fixture fixture;
    unsigned char order[COUNT];

    set_up(&fixture);
    fixture.options.drop_last = true;
    start(&fixture);
    ck_assert_uint_eq(run_epoch(&fixture, 0, order), COUNT / BATCH * BATCH);
    pl_loader_free(fixture.loader);
}

TEST(shuffle_buffer_keeps_every_sample_and_repeats_its_order)
{
    static const size_t buffers[] = {1, 2, 10, COUNT - 1, COUNT, COUNT + 1, 1000};
    struct fixture fixture;
    unsigned char order[COUNT], again[COUNT];

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        set_up(&fixture);
        fixture.sampler.shuffle = false;
        fixture.options.shuffle_samples = buffers[i];
        start(&fixture);
        ck_assert_uint_eq(run_epoch(&fixture, 4, order), COUNT);
        check_each_once(order);
        ck_assert_uint_eq(run_epoch(&fixture, 4, again), COUNT);
        ck_assert_mem_eq(order, again, COUNT);
        ck_assert_uint_eq(run_epoch(&fixture, 5, again), COUNT);
        check_each_once(again);
        if (buffers[i] > 2) {
            ck_assert_mem_ne(order, again, COUNT);
        }
        pl_loader_free(fixture.loader);
    }
}

TEST(epoch_can_be_left_at_any_batch)
{
    struct fixture fixture;
    unsigned char order[COUNT];
    struct pl_batch batch;

    set_up(&fixture);
    fixture.options.prefetch_batches = 1;
    start(&fixture);
    for (int batches = 0; batches < 6; batches++) {
        ck_ok(pl_loader_start, fixture.loader, 1);
        for (int i = 0; i < batches; i++) {
            ck_ok(pl_loader_next, fixture.loader, PL_DEADLINE_NEVER, &batch);
        }
        ck_assert_uint_eq(run_epoch(&fixture, 0, order), COUNT);
        check_each_once(order);
    }
    ck_ok(pl_loader_start, fixture.loader, 1);
    pl_loader_free(fixture.loader);
}

/* An input that fails or hangs at a given sample. */
struct trouble {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool cancelled;
    bool hang;
    unsigned at;
    unsigned given;
};

static enum pl_status trouble_start(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr)
{
    ((struct trouble *)context)->given = 0;
    return PL_OK;
}

static enum pl_status trouble_next(void *context, void *const *fields, int64_t deadline_ns, uint64_t *ret_bytes,
                                   struct pl_error *reterr)
{
    struct trouble *trouble = context;

    if (trouble->given == trouble->at && trouble->hang) {
        pthread_mutex_lock(&trouble->mutex);
        while (!trouble->cancelled) {
            pthread_cond_wait(&trouble->changed, &trouble->mutex);
        }
        pthread_mutex_unlock(&trouble->mutex);
        return pl_error_set(reterr, PL_CANCELLED, "cancelled");
    }
    if (trouble->given == trouble->at) {
        return pl_error_set(reterr, PL_CORRUPT, "record %u is damaged", trouble->given);
    }
    memcpy(fields[0], &trouble->given, sizeof(trouble->given));
    trouble->given++;
    *ret_bytes = 4;
    return PL_OK;
}

static void trouble_cancel(void *context, bool cancelled)
{
    struct trouble *trouble = context;

    pthread_mutex_lock(&trouble->mutex);
    trouble->cancelled = cancelled;
    pthread_cond_broadcast(&trouble->changed);
    pthread_mutex_unlock(&trouble->mutex);
}

static void set_up_trouble(struct fixture *fixture, struct trouble *trouble, bool hang)
{
    *trouble = (struct trouble){.hang = hang, .at = 2 * BATCH + 1};
    pthread_mutex_init(&trouble->mutex, NULL);
    pthread_cond_init(&trouble->changed, NULL);
    set_up(fixture);
    fixture->input = (struct pl_loader_input){
        .context = trouble, .start = trouble_start, .next = trouble_next, .cancel = trouble_cancel};
    fixture->options = (struct pl_loader_options){.fields = 1, .sample_bytes = {4}, .batch_samples = BATCH};
    start(fixture);
}

TEST(error_comes_after_the_whole_batches_before_it)
{
    struct fixture fixture;
    struct trouble trouble;
    struct pl_batch batch;

    set_up_trouble(&fixture, &trouble, false);
    ck_ok(pl_loader_start, fixture.loader, 0);
    for (int i = 0; i < 2; i++) {
        ck_ok(pl_loader_next, fixture.loader, PL_DEADLINE_NEVER, &batch);
        ck_assert_uint_eq(batch.samples, BATCH);
    }
    for (int i = 0; i < 2; i++) {
        ck_fails_as(PL_CORRUPT, "record 17 is damaged", pl_loader_next, fixture.loader, PL_DEADLINE_NEVER, &batch);
    }
    pl_loader_free(fixture.loader);
}

TEST(input_that_hangs_is_a_timeout_and_can_be_left)
{
    struct fixture fixture;
    struct trouble trouble;
    struct pl_batch batch;

    set_up_trouble(&fixture, &trouble, true);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        ck_ok(pl_loader_start, fixture.loader, epoch);
        for (int i = 0; i < 2; i++) {
            ck_ok(pl_loader_next, fixture.loader, PL_DEADLINE_NEVER, &batch);
        }
        ck_assert_int_eq(
            pl_loader_next(fixture.loader, pl_deadline_after_ns(200 * PL_NS_PER_MS), &batch, &fixture.error),
            PL_TIMEOUT);
        ck_assert_int_ge(pl_loader_progress(fixture.loader).waited_ns, 15 * PL_NS_PER_MS);
    }
    pl_loader_free(fixture.loader);
}

static size_t allocated;

static void *allocate(void *allocator, size_t bytes)
{
    allocated += bytes;
    ck_assert_ptr_eq(allocator, &allocated);
    return malloc(bytes);
}

static void release(void *allocator, void *memory, size_t bytes)
{
    allocated -= bytes;
    free(memory);
}

TEST(batches_lie_in_the_callers_memory)
{
    struct fixture fixture;
    unsigned char order[COUNT];

    set_up(&fixture);
    fixture.options.allocate = allocate;
    fixture.options.release = release;
    fixture.options.allocator = &allocated;
    fixture.options.prefetch_batches = 2;
    start(&fixture);
    ck_assert_uint_eq(allocated, 3 * BATCH * 5);
    ck_assert_uint_eq(run_epoch(&fixture, 0, order), COUNT);
    pl_loader_free(fixture.loader);
    ck_assert_uint_eq(allocated, 0);
}

static sigset_t input_mask;

static enum pl_status look_at_mask(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr)
{
    pthread_sigmask(SIG_SETMASK, NULL, &input_mask);
    return trouble_start(context, epoch, deadline_ns, reterr);
}

TEST(signals_of_the_process_never_interrupt_the_loaders_thread)
{
    struct fixture fixture;
    struct trouble trouble = {.at = BATCH};
    struct pl_batch batch;

    set_up(&fixture);
    fixture.input = (struct pl_loader_input){.context = &trouble, .start = look_at_mask, .next = trouble_next};
    fixture.options = (struct pl_loader_options){.fields = 1, .sample_bytes = {4}, .batch_samples = BATCH};
    start(&fixture);
    ck_ok(pl_loader_start, fixture.loader, 0);
    ck_ok(pl_loader_next, fixture.loader, PL_DEADLINE_NEVER, &batch);
    for (int signal = 1; signal <= SIGSYS; signal++) {
        if (signal != SIGKILL && signal != SIGSTOP) {
            ck_assert_msg(sigismember(&input_mask, signal) == 1, "signal %d is not blocked", signal);
        }
    }
    pl_loader_free(fixture.loader);
}

UNIT_MAIN("s3io/loader")
