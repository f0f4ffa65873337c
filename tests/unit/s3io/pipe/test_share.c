/* SPDX-License-Identifier: Apache-2.0 */
/* Covers s3io/pipe/share.c, s3io/pipe/share_distributor.c, s3io/pipe/share_link.c, s3io/pipe/share_ring.c. */
#include "base/clock.h"
#include "s3io/share.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { MOST_RANKS = 6, MOST_RECORDS = 600 };

/* Generated records: record i of epoch e has `bytes` bytes, and each byte depends on i and e. */
struct feed {
    uint64_t epoch;
    uint64_t next;
    uint64_t count;
    size_t most_bytes;
    uint64_t fail_at; /* the record that is damaged; UINT64_MAX: none */
    uint64_t hang_at;
    unsigned char *record;
};

static size_t record_bytes(const struct feed *feed, uint64_t epoch, uint64_t number)
{
    return (size_t)((number * 2654435761U + epoch * 97) % (feed->most_bytes + 1));
}

static unsigned char record_byte(uint64_t epoch, uint64_t number, size_t at)
{
    return (unsigned char)(number * 7 + epoch * 31 + at);
}

static enum pl_status feed_start(void *context, uint64_t epoch, int64_t deadline_ns, struct pl_error *reterr)
{
    struct feed *feed = context;

    feed->epoch = epoch;
    feed->next = 0;
    return PL_OK;
}

static enum pl_status feed_next(void *context, const bool *shard_mask, int64_t deadline_ns,
                                struct pl_record *ret_record, struct pl_error *reterr)
{
    struct feed *feed = context;
    unsigned size = (unsigned)feed->record[0]; /* the test stores the deal's size in it */

    while (feed->next < feed->count && !shard_mask[feed->next % size]) {
        feed->next++;
    }
    if (feed->next == feed->fail_at) {
        return pl_error_set(reterr, PL_CORRUPT, "record %llu is damaged", (unsigned long long)feed->next);
    }
    if (feed->next == feed->hang_at) {
        pl_clock_nap(deadline_ns - pl_clock_now_ns(), deadline_ns);
        return pl_error_set(reterr, PL_TIMEOUT, "the FIFO brings nothing");
    }
    if (feed->next >= feed->count) {
        return PL_END;
    }
    *ret_record = (struct pl_record){.data = feed->record + 1,
                                     .bytes = record_bytes(feed, feed->epoch, feed->next),
                                     .index = feed->next,
                                     .offset_bytes = feed->next * 10};
    for (size_t i = 0; i < ret_record->bytes; i++) {
        feed->record[1 + i] = record_byte(feed->epoch, feed->next, i);
    }
    feed->next++;
    return PL_OK;
}

struct job {
    char path[PATH_MAX];
    struct feed feed;
    uint32_t ranks; /* the number of ranks on the host */
    uint32_t world; /* deal.size; local rank i is world rank i * world / ranks */
    uint64_t epochs;
    uint64_t leave_after; /* local rank 1 leaves epoch 0 after this many records; UINT64_MAX: it does not leave */
    size_t ring_bytes;
    int64_t timeout_ns;
    pthread_mutex_t mutex;
    unsigned seen[4][MOST_RECORDS];
};

struct rank {
    struct job *job;
    uint32_t local_rank;
    enum pl_status status; /* the status of the last call */
    struct pl_error error;
    pthread_t thread;
};

static uint32_t world_rank(const struct job *job, uint32_t local_rank)
{
    return local_rank * job->world / job->ranks;
}

static enum pl_status open_share(struct job *job, uint32_t local_rank, struct pl_share **ret_share,
                                 struct pl_error *error)
{
    struct pl_share_feed feed = {.context = &job->feed, .start = feed_start, .next = feed_next};
    struct pl_share_options options = {
        .socket_path = job->path,
        .local_rank = local_rank,
        .local_size = job->ranks,
        .deal = {.rank = world_rank(job, local_rank), .size = job->world},
        .ring_bytes = job->ring_bytes,
        .timeout_ns = job->timeout_ns,
    };

    return pl_share_open(&options, &feed, ret_share, error);
}

static enum pl_status read_epoch(struct rank *rank, struct pl_share *share, uint64_t epoch)
{
    struct job *job = rank->job;
    uint64_t last = 0, count = 0, wrong = 0;

    pl_share_start(share, epoch);
    for (;;) {
        struct pl_record record;

        if (rank->local_rank == 1 && epoch == 0 && count == job->leave_after) {
            return PL_END;
        }
        rank->status = pl_share_next(share, pl_deadline_after_ns(100 * PL_NS_PER_S), &record, &rank->error);
        if (rank->status != PL_OK) {
            return rank->status;
        }
        ck_assert_uint_eq(record.index % job->world, world_rank(job, rank->local_rank));
        ck_assert(count == 0 || record.index > last);
        ck_assert_uint_eq(record.bytes, record_bytes(&job->feed, epoch, record.index));
        ck_assert_uint_eq(record.offset_bytes, record.index * 10);
        for (size_t i = 0; i < record.bytes; i++) {
            wrong += record.data[i] != record_byte(epoch, record.index, i);
        }
        ck_assert_uint_eq(wrong, 0);
        last = record.index;
        count++;
        pthread_mutex_lock(&job->mutex);
        job->seen[epoch][record.index]++;
        pthread_mutex_unlock(&job->mutex);
    }
}

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    struct pl_share *share = NULL;

    rank->status = open_share(rank->job, rank->local_rank, &share, &rank->error);
    for (uint64_t epoch = 0; rank->status == PL_OK && epoch < rank->job->epochs; epoch++) {
        if (read_epoch(rank, share, epoch) != PL_END) {
            break;
        }
        rank->status = PL_OK;
    }
    pl_share_close(share);
    return NULL;
}

static struct job make_job(const struct scratch *scratch, uint32_t ranks, uint32_t world, uint64_t count,
                           size_t most_bytes)
{
    struct job job = {.feed = {.count = count, .most_bytes = most_bytes, .fail_at = UINT64_MAX, .hang_at = UINT64_MAX},
                      .ranks = ranks,
                      .world = world,
                      .epochs = 3,
                      .leave_after = UINT64_MAX,
                      .ring_bytes = 4096};

    scratch_path(scratch, "socket", job.path);
    job.feed.record = calloc(1, most_bytes + 1);
    job.feed.record[0] = (unsigned char)world;
    pthread_mutex_init(&job.mutex, NULL);
    return job;
}

static void run_job(struct job *job, struct rank *ranks)
{
    for (uint32_t i = 0; i < job->ranks; i++) {
        ranks[i] = (struct rank){.job = job, .local_rank = i};
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < job->ranks; i++) {
        ck_assert_int_eq(pthread_join(ranks[i].thread, NULL), 0);
    }
    free(job->feed.record);
}

TEST(every_record_reaches_its_rank_exactly_once_in_every_epoch)
{
    static const struct {
        uint32_t ranks, world;
        uint64_t count;
        size_t most_bytes;
    } cases[] = {{1, 1, 50, 100}, {2, 2, 501, 300}, {3, 3, 100, 5000}, {2, 4, 300, 700},
                 {5, 5, 3, 10},   {4, 7, 600, 64},  {2, 2, 0, 1},      {6, 6, 37, 20000}};

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        AUTO_SCRATCH struct scratch scratch = scratch_new();
        static struct job job;
        struct rank ranks[MOST_RANKS];

        job = make_job(&scratch, cases[c].ranks, cases[c].world, cases[c].count, cases[c].most_bytes);
        run_job(&job, ranks);
        for (uint32_t i = 0; i < job.ranks; i++) {
            ck_assert_ok(ranks[i].status, &ranks[i].error);
        }
        for (uint64_t epoch = 0; epoch < job.epochs; epoch++) {
            for (uint64_t number = 0; number < MOST_RECORDS; number++) {
                bool here = false;

                for (uint32_t i = 0; i < job.ranks; i++) {
                    here = here || number % job.world == world_rank(&job, i);
                }
                ck_assert_uint_eq(job.seen[epoch][number], number < job.feed.count && here);
            }
        }
    }
}

TEST(rank_that_leaves_an_epoch_early_does_not_hold_the_others_up)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct rank ranks[MOST_RANKS];

    job = make_job(&scratch, 3, 3, 500, 500);
    job.leave_after = 5;
    run_job(&job, ranks);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_ok(ranks[i].status, &ranks[i].error);
    }
    for (uint64_t number = 0; number < 500; number++) {
        ck_assert_uint_eq(job.seen[0][number], number % 3 != 1 || number < 15);
        ck_assert_uint_eq(job.seen[1][number], 1);
    }
}

TEST(damaged_input_is_an_error_on_every_rank)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct rank ranks[MOST_RANKS];

    job = make_job(&scratch, 3, 3, 500, 500);
    job.feed.fail_at = 200;
    run_job(&job, ranks);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(ranks[i].status, PL_CORRUPT);
        ck_assert_str_eq(ranks[i].error.cause, "record 200 is damaged");
    }
}

TEST(fifo_that_stops_is_a_timeout_on_every_rank)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct rank ranks[MOST_RANKS];

    job = make_job(&scratch, 2, 2, 500, 500);
    job.feed.hang_at = 20;
    job.timeout_ns = 5 * PL_NS_PER_S; /* long enough for the two to connect, which is not tested here */
    run_job(&job, ranks);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(ranks[i].status, PL_TIMEOUT);
        ck_assert_str_eq(ranks[i].error.cause, "the FIFO brings nothing");
    }
}

TEST(rank_that_does_not_come_is_a_timeout_that_counts)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct pl_error error = PL_ERROR_NONE;
    struct pl_share *share;
    char text[1200];

    job = make_job(&scratch, 2, 2, 5, 5);
    job.timeout_ns = 2 * PL_NS_PER_S; /* rank 0 itself comes within this time */
    ck_assert_int_eq(open_share(&job, 0, &share, &error), PL_TIMEOUT);
    ck_has(pl_error_text(&error, text, sizeof(text)), "1 of 2 ranks");
    job.timeout_ns = 50 * PL_NS_PER_MS;
    ck_fails(PL_TIMEOUT, "see whether local rank 0 runs", open_share, &job, 1, &share);
    free(job.feed.record);
}

TEST(two_ranks_with_one_number_are_refused)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct rank ranks[2];

    job = make_job(&scratch, 2, 2, 5, 5);
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = (struct rank){.job = &job, .local_rank = 0};
    }
    ranks[1].local_rank = 1;
    job.world = 1; /* both are world rank 0 */
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_join(ranks[i].thread, NULL), 0);
    }
    ck_assert_int_eq(ranks[0].status, PL_INVALID);
    ck_assert_int_eq(ranks[1].status, PL_PEER);
    free(job.feed.record);
}

/* Kills the process of local rank `victim` in the middle of an epoch; the other rank must report it. */
static void kill_one(uint32_t victim)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct rank survivor;
    int status, ready[2];
    pid_t child;
    char byte;

    job = make_job(&scratch, 2, 2, 600, 500);
    ck_assert_int_eq(pipe(ready), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct pl_error error = PL_ERROR_NONE;
        struct pl_record record;
        struct pl_share *share;

        if (open_share(&job, victim, &share, &error) != PL_OK) {
            _exit(1);
        }
        pl_share_start(share, 0);
        for (int i = 0; i < 10; i++) {
            if (pl_share_next(share, pl_deadline_after_ns(100 * PL_NS_PER_S), &record, &error) != PL_OK) {
                _exit(2);
            }
        }
        (void)!write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    survivor = (struct rank){.job = &job, .local_rank = !victim};
    ck_assert_int_eq(pthread_create(&survivor.thread, NULL, run_rank, &survivor), 0);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(pthread_join(survivor.thread, NULL), 0);
    ck_assert_int_eq(survivor.status, PL_PEER);
    ck_has(survivor.error.cause, victim ? "local rank 1" : "local rank 0");
    close(ready[0]);
    close(ready[1]);
    free(job.feed.record);
}

TEST(a_killed_rank_and_a_killed_distributor_are_reported)
{
    kill_one(1);
    kill_one(0);
}

/* Starts `act` as local rank `local_rank` in a separate process, which exits with its result. */
static pid_t start_process(struct job *job, uint32_t local_rank, int (*act)(struct pl_share *share))
{
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct pl_share *share;

        _exit(open_share(job, local_rank, &share, NULL) == PL_OK ? act(share) : 100);
    }
    return child;
}

static void expect_exit(pid_t child, int code)
{
    int status;

    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), code);
}

/* Reads until the end or an error, and returns it. Waits that time out are repeated. */
static enum pl_status read_on(struct pl_share *share, unsigned *ret_records, struct pl_error *error)
{
    struct pl_record record;
    enum pl_status status;

    for (*ret_records = 0;; ++*ret_records) {
        status = pl_share_next(share, pl_deadline_after_ns(100 * PL_NS_PER_S), &record, error);
        if (status != PL_OK) {
            return status;
        }
    }
}

static int read_epoch_0(struct pl_share *share)
{
    unsigned records;

    pl_share_start(share, 0);
    return (int)read_on(share, &records, NULL);
}

/* Waits with short deadlines until the error names the reason of the wait. */
static enum pl_status time_out_until(struct pl_share *share, const char *words, struct pl_error *error)
{
    int64_t deadline_ns = pl_deadline_after_ns(100 * PL_NS_PER_S);
    struct pl_record record;
    enum pl_status status;

    do {
        status = pl_share_next(share, pl_deadline_after_ns(20 * PL_NS_PER_MS), &record, error);
    } while (status == PL_OK ||
             (status == PL_TIMEOUT && !strstr(error->cause, words) && !pl_deadline_passed(deadline_ns)));
    return status;
}

static int read_epoch_0_until_nothing_comes(struct pl_share *share)
{
    struct pl_error error = PL_ERROR_NONE;

    pl_share_start(share, 0);
    return time_out_until(share, "the FIFO brings nothing", &error) == PL_TIMEOUT &&
                   strcmp(error.cause, "the FIFO brings nothing") == 0
               ? 7
               : 8;
}

/* The frames of records of up to ten bytes are 64 bytes: 64 fill a ring of 4096. */
TEST(error_reaches_a_rank_whose_ring_is_full_after_the_process_that_reads_the_fifo_has_ended)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct pl_error error = PL_ERROR_NONE;
    static struct job job;
    struct pl_share *share;
    unsigned records;
    pid_t child;

    job = make_job(&scratch, 2, 2, 600, 10);
    job.feed.fail_at = 128;
    child = start_process(&job, 0, read_epoch_0);
    ck_ok(open_share, &job, 1, &share);
    pl_share_start(share, 0);
    expect_exit(child, PL_CORRUPT);
    ck_assert_int_eq(read_on(share, &records, &error), PL_CORRUPT);
    ck_assert_uint_eq(records, 64);
    ck_assert_str_eq(error.cause, "record 128 is damaged");
    ck_fails(PL_CORRUPT, "", read_on, share, &records); /* and again */
    ck_assert_uint_eq(records, 0);
    pl_share_start(share, 1);
    ck_assert_int_eq(read_on(share, &records, &error), PL_CORRUPT); /* the reason why there is no other epoch */
    ck_assert_str_eq(error.cause, "record 128 is damaged");
    pl_share_close(share);
    free(job.feed.record);
}

TEST(rank_whose_deadline_passes_first_says_what_the_fifo_does_and_so_do_the_others_when_it_ends)
{
    for (uint32_t first = 0; first < 2; first++) {
        AUTO_SCRATCH struct scratch scratch = scratch_new();
        struct pl_error error = PL_ERROR_NONE;
        static struct job job;
        struct pl_share *share;
        unsigned records;
        pid_t child;

        job = make_job(&scratch, 2, 2, 600, 10);
        job.feed.hang_at = 20;
        child = start_process(&job, first, read_epoch_0_until_nothing_comes);
        ck_ok(open_share, &job, !first, &share);
        pl_share_start(share, 0);
        ck_assert_int_eq(read_on(share, &records, &error), PL_TIMEOUT);
        ck_assert_uint_eq(records, 10);
        ck_assert_str_eq(error.cause, "the FIFO brings nothing");
        expect_exit(child, 7);
        pl_share_close(share);
        free(job.feed.record);
    }
}

TEST(rank_that_ends_between_two_epochs_is_named)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct pl_share *share;
    unsigned records;
    pid_t child;

    job = make_job(&scratch, 2, 2, 100, 10);
    child = start_process(&job, 1, read_epoch_0);
    ck_ok(open_share, &job, 0, &share);
    pl_share_start(share, 0);
    ck_fails(PL_END, "", read_on, share, &records);
    ck_assert_uint_eq(records, 50);
    expect_exit(child, PL_END);
    pl_share_start(share, 1);
    ck_fails_as(PL_PEER, "the process of local rank 1, which shares this channel, has ended", read_on, share, &records);
    pl_share_close(share);
    free(job.feed.record);
}

static void *open_second(void *argument)
{
    struct rank *rank = argument;
    struct pl_share *share = NULL;

    rank->status = open_share(rank->job, rank->local_rank, &share, &rank->error);
    return share;
}

TEST(wait_for_a_slow_rank_is_not_blamed_on_the_fifo)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct pl_share *share;
    struct rank slow;
    unsigned records;
    void *slow_share;

    job = make_job(&scratch, 2, 2, 600, 10);
    slow = (struct rank){.job = &job, .local_rank = 1};
    ck_assert_int_eq(pthread_create(&slow.thread, NULL, open_second, &slow), 0);
    ck_ok(open_share, &job, 0, &share);
    ck_assert_int_eq(pthread_join(slow.thread, &slow_share), 0);
    ck_assert_ok(slow.status, &slow.error);
    pl_share_start(share, 0);
    ck_fails_as(PL_TIMEOUT, "the shared channel waits for local rank 1, which has not asked for the next epoch",
                time_out_until, share, "not asked");
    pl_share_start(slow_share, 0);
    ck_fails_as(PL_TIMEOUT, "the shared channel waits for local rank 1, which has not read its earlier records",
                time_out_until, share, "not read");
    pl_share_start(slow_share, 1); /* it leaves, and a slow rank must not prevent the end */
    ck_fails(PL_END, "", read_on, share, &records);
    pl_share_start(share, 0);
    ck_fails_as(PL_INVALID, "expected an epoch that was not read before, found epoch 0, which has ended", read_on,
                share, &records);
    pl_share_close(slow_share);
    pl_share_close(share);
    free(job.feed.record);
}

static void *cancel_soon(void *argument)
{
    pl_clock_nap(50 * PL_NS_PER_MS, PL_DEADLINE_NEVER);
    pl_share_cancel(argument, true);
    return NULL;
}

TEST(cancel_wakes_a_rank_and_can_be_taken_back)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    static struct job job;
    struct pl_record record;
    struct pl_share *share;
    pthread_t thread;

    job = make_job(&scratch, 1, 1, 100, 50);
    job.feed.hang_at = 3;
    ck_ok(open_share, &job, 0, &share);
    pl_share_start(share, 0);
    for (int i = 0; i < 3; i++) {
        ck_ok(pl_share_next, share, PL_DEADLINE_NEVER, &record);
    }
    ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, share), 0);
    ck_fails(PL_CANCELLED, "", pl_share_next, share, PL_DEADLINE_NEVER, &record);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pl_share_cancel(share, false);
    pl_share_start(share, 1);
    ck_ok(pl_share_next, share, pl_deadline_after_ns(100 * PL_NS_PER_S), &record);
    ck_assert_uint_eq(record.index, 0);
    pl_share_close(share);
    free(job.feed.record);
}

UNIT_MAIN("s3io/share")
