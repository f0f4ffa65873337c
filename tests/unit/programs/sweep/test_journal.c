/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/journal.c. */
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "programs/sweep/journal.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { EVENTS = 40, TRIALS = 5, FILE_BYTES = 1 << 20 };

static const char specification[] =
    "{\"metric\": \"acc\", \"goal\": \"maximize\",\n \"space\": {\"a\": [1, 2, 3, 4, 5]},"
    " \"scheduler\": {\"asha\": {\"factor\": 2}}}";

/* Each line waits for the disk, which other programs may keep busy: files in memory do not. */
static struct scratch scratch_in_memory(void)
{
    if (access("/dev/shm", W_OK) == 0) {
        ck_assert_int_eq(setenv("TMPDIR", "/dev/shm", 1), 0);
    }
    return scratch_new();
}

/* A scheduler, its records, and a journal where one is open. */
struct sweep {
    struct pl_sweep_space *space;
    struct pl_scheduler *scheduler;
    struct pl_sweep_record records[TRIALS];
    struct pl_sweep_journal *journal;
    struct pl_error error;
};

static void sweep_init(struct sweep *sweep)
{
    *sweep = (struct sweep){.space = NULL};
    ck_assert_ok(pl_sweep_space_parse(specification, sizeof(specification) - 1, "S", &sweep->space, &sweep->error),
                 &sweep->error);
    ck_assert_uint_eq(sweep->space->trials_count, TRIALS);
    ck_assert_ok(pl_scheduler_new(sweep->space, &sweep->scheduler, &sweep->error), &sweep->error);
}

static void sweep_done(struct sweep *sweep)
{
    pl_sweep_journal_close(sweep->journal);
    for (size_t i = 0; i < TRIALS; i++) {
        free(sweep->records[i].host);
        free(sweep->records[i].reason);
    }
    pl_scheduler_free(sweep->scheduler);
    pl_sweep_space_free(sweep->space);
}

static enum pl_status sweep_open(struct sweep *sweep, const char *path)
{
    sweep_init(sweep);
    return pl_sweep_journal_open(path, sweep->space, sweep->scheduler, sweep->records, &sweep->journal, &sweep->error);
}

/* An event as the journal and the scheduler get it. */
struct event {
    enum { START, REPORT, END, CLOSED } kind;
    size_t trial;
    int64_t step;
    double value;
    enum pl_sweep_end end;
};

static void note(struct pl_scheduler *scheduler, const struct event *event)
{
    switch (event->kind) {
    case START:
        pl_scheduler_note_start(scheduler, event->trial);
        break;
    case REPORT:
        pl_scheduler_note_report(scheduler, event->trial, event->step, event->value);
        break;
    case END:
        pl_scheduler_note_end(scheduler, event->trial, event->end);
        break;
    case CLOSED:
        pl_scheduler_close(scheduler);
        break;
    }
}

static void record(struct sweep *sweep, const struct event *event)
{
    enum pl_status status = PL_OK;

    switch (event->kind) {
    case START:
        status = pl_sweep_journal_start(sweep->journal, event->trial, "algo-1", &sweep->error);
        break;
    case REPORT:
        status = pl_sweep_journal_report(sweep->journal, event->trial, event->step, event->value, &sweep->error);
        break;
    case END:
        status = pl_sweep_journal_end(sweep->journal, event->trial, event->end, 0.25,
                                      event->end == PL_SWEEP_END_FAILED ? "exit code 3 \xFF\"\n" : NULL, &sweep->error);
        break;
    case CLOSED:
        status = pl_sweep_journal_closed(sweep->journal, &sweep->error);
        break;
    }
    ck_assert_ok(status, &sweep->error);
}

/* The next event that is possible. */
static struct event draw(const struct pl_scheduler *scheduler, uint64_t *state)
{
    static const double values[] = {1, 2, 0.1, -3e-5, (double)NAN, (double)INFINITY};
    struct event event = {.kind = START};
    size_t first = pl_random_next(state) % TRIALS;

    if (pl_random_next(state) % 60 == 0) {
        return (struct event){.kind = CLOSED};
    }
    if (pl_random_next(state) % 3 == 0 && pl_scheduler_next(scheduler, &event.trial)) {
        return event;
    }
    for (size_t i = 0; i < TRIALS; i++) {
        const struct pl_sweep_progress *progress = pl_scheduler_progress(scheduler, (first + i) % TRIALS);

        event.trial = (first + i) % TRIALS;
        if (progress->state == PL_SWEEP_RUNNING) {
            event.kind = pl_random_next(state) % 5 == 0 ? END : REPORT;
            event.step = progress->step + (int64_t)(pl_random_next(state) % 3);
            event.value = values[pl_random_next(state) % PL_ARRAY_ITEMS(values)];
            event.end = (enum pl_sweep_end)(pl_random_next(state) % 4);
            return event;
        }
    }
    return pl_scheduler_next(scheduler, &event.trial) ? event : (struct event){.kind = CLOSED};
}

static bool same_number(double a, double b)
{
    return a == b || (!isfinite(a) && !isfinite(b));
}

/* Both have the same state, and give the same trials out from there on. */
static bool same_schedulers(struct pl_scheduler *a, struct pl_scheduler *b)
{
    size_t next_a = SIZE_MAX, next_b = SIZE_MAX, best_a = SIZE_MAX, best_b = SIZE_MAX;

    for (size_t i = 0; i < TRIALS; i++) {
        const struct pl_sweep_progress *one = pl_scheduler_progress(a, i), *other = pl_scheduler_progress(b, i);

        if (one->state != other->state || one->runs != other->runs || one->step != other->step ||
            one->best_step != other->best_step || one->has_value != other->has_value ||
            !same_number(one->best, other->best) || !same_number(one->last, other->last)) {
            return false;
        }
    }
    while (pl_scheduler_next(a, &next_a)) {
        if (!pl_scheduler_next(b, &next_b) || next_a != next_b) {
            return false;
        }
        pl_scheduler_note_start(a, next_a);
        pl_scheduler_note_start(b, next_b);
    }
    return !pl_scheduler_next(b, &next_b) && pl_scheduler_best(a, &best_a) == pl_scheduler_best(b, &best_b) &&
           best_a == best_b && pl_scheduler_has_failed(a) == pl_scheduler_has_failed(b);
}

/* A scheduler that has seen `count` events, and then lost what ran. */
static void sweep_of_events(struct sweep *sweep, const struct event *events, size_t count)
{
    sweep_init(sweep);
    for (size_t i = 0; i < count; i++) {
        note(sweep->scheduler, &events[i]);
    }
    for (size_t i = 0; i < TRIALS; i++) {
        if (pl_scheduler_progress(sweep->scheduler, i)->state == PL_SWEEP_RUNNING) {
            pl_scheduler_note_end(sweep->scheduler, i, PL_SWEEP_END_LOST);
        }
    }
}

START_TEST(after_every_prefix_a_journal_brings_back_the_state_that_the_events_had_made)
{
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX], part_path[PATH_MAX];

    scratch_path(&scratch, "journal", path);
    scratch_path(&scratch, "part", part_path);
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct event events[EVENTS];
        size_t ends[EVENTS + 1]; /* bytes of the file after so many events */
        PL_AUTO_FREE char *text = NULL;
        struct sweep live;
        uint64_t state = seed;

        unlink(path);
        ck_assert_ok(sweep_open(&live, path), &live.error);
        for (size_t i = 0; i <= EVENTS; i++) {
            struct stat info;

            ck_assert_int_eq(stat(path, &info), 0);
            ends[i] = (size_t)info.st_size;
            if (i < EVENTS) {
                events[i] = draw(live.scheduler, &state);
                note(live.scheduler, &events[i]);
                record(&live, &events[i]);
            }
        }
        sweep_done(&live);
        ck_assert_ok(pl_file_read(path, FILE_BYTES, &text, NULL, &live.error), &live.error);
        for (size_t i = 0; i < EVENTS; i++) {
            struct sweep expected, replayed;
            size_t line = ends[i + 1] - ends[i];

            /* a part of the next line, from none of it to all but its end */
            scratch_write(&scratch, "part", text, ends[i] + (line > 0 ? pl_random_next(&state) % line : 0));
            for (int twice = 0; twice < 2; twice++) { /* what was lost at the first time is in the journal then */
                sweep_of_events(&expected, events, i);
                ck_assert_ok(sweep_open(&replayed, part_path), &replayed.error);
                if (!same_schedulers(expected.scheduler, replayed.scheduler)) {
                    ck_abort_msg("seed %llu: after %zu events the state differs", (unsigned long long)seed, i);
                }
                sweep_done(&replayed);
                sweep_done(&expected);
            }
        }
    }
    scratch_done(&scratch);
}
END_TEST

START_TEST(what_is_kept_beside_the_state_comes_back_too)
{
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX];
    struct sweep sweep;

    scratch_path(&scratch, "journal", path);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    record(&sweep, &(struct event){.kind = START, .trial = 2});
    record(&sweep, &(struct event){.kind = END, .trial = 2, .end = PL_SWEEP_END_LOST});
    record(&sweep, &(struct event){.kind = START, .trial = 2});
    record(&sweep, &(struct event){.kind = END, .trial = 2, .end = PL_SWEEP_END_FAILED});
    sweep_done(&sweep);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    ck_assert_double_eq(sweep.records[2].seconds, 0.5);
    ck_assert_str_eq(sweep.records[2].host, "algo-1");
    ck_assert_str_eq(sweep.records[2].reason, "exit code 3 ?\"\n");
    ck_assert_ptr_null(sweep.records[1].host);
    for (int runs = 1; runs < 4; runs++) { /* one that was lost with its job starts again, and is lost again */
        record(&sweep, &(struct event){.kind = START, .trial = 0});
        sweep_done(&sweep);
        ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
        ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 0)->runs, runs);
        ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 0)->state, PL_SWEEP_WAITING);
    }
    sweep_done(&sweep);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_journal_that_cannot_be_is_refused_with_its_line_and_left_alone)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"{\"start\": 0, \"host\": null}\n{\"start\": 0, \"host\": \"a\"}\n",
         ":3:11: start: expected a trial that waits or pauses then, found 0"},
        {"{\"end\": 1, \"how\": \"completed\", \"seconds\": 0, \"reason\": null}\n",
         ":2:9: end: expected a trial that runs then, found 1"},
        {"{\"start\": 5, \"host\": null}\n", ":2:11: start: expected a whole number from 0 to 4, found 5"},
        {"{\"start\": 0, \"host\": null}\n{\"report\": 0, \"step\": 1, \"value\": \"x\"}\n",
         ":3:35: value: expected a number, found \"x\""},
        {"{\"start\": 0, \"host\": null}\n{\"end\": 0, \"how\": \"well\", \"seconds\": 0, \"reason\": null}\n",
         ":3:19: how: expected completed, stopped, failed or lost, found \"well\""},
        {"{\"start\": 0\n{\"closed\": true}\n", ":2:12: expected ',' or '}', found the end of the text"},
        {"{\"closed\": true}\n{\"start\": 0, \"host\": null}\n",
         ":3:11: start: expected a trial that waits or pauses then, found 0"},
        {"{}\n", ":2:1: expected an object with start, report, end or closed, found an object"},
        {"{\"begin\": 1}\n", ":2:11: begin is not known here: expected start, report, end or closed"},
        {"\n", ":2:1: expected a value, found the end of the text"},
    };
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX], told[2 * PATH_MAX];
    PL_AUTO_FREE char *head = NULL;
    struct sweep sweep;

    scratch_path(&scratch, "journal", path);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    sweep_done(&sweep);
    ck_assert_ok(pl_file_read(path, FILE_BYTES, &head, NULL, &sweep.error), &sweep.error);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        PL_AUTO_FREE char *after = NULL;

        pl_text_printf(&text, "%s%s", head, wrong[i].text);
        scratch_write(&scratch, "journal", text.data, text.length);
        snprintf(told, sizeof(told), "%s%s", path, wrong[i].told);
        ck_assert_int_eq(sweep_open(&sweep, path), PL_INVALID);
        ck_assert_str_eq(sweep.error.cause, told);
        sweep_done(&sweep);
        ck_assert_ok(pl_file_read(path, FILE_BYTES, &after, NULL, &sweep.error), &sweep.error);
        ck_assert_str_eq(after, pl_text_string(&text));
    }
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_file_of_another_sweep_or_of_something_else_is_refused_and_left_alone)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"{\"sweep\": 1, \"specification\": \"{}\"}\n",
         "'%s' is of another sweep, with another specification; remove it to begin again"},
        {"weights", "%s:1: expected the journal of a sweep, found something else"},
        {"\n", "%s:1: expected the journal of a sweep, found something else"},
    };
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX], told[2 * PATH_MAX];
    struct sweep sweep;

    scratch_path(&scratch, "journal", path);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        PL_AUTO_FREE char *after = NULL;
        const char *place = strstr(wrong[i].told, "%s");

        scratch_write(&scratch, "journal", wrong[i].text, strlen(wrong[i].text));
        snprintf(told, sizeof(told), "%.*s%s%s", (int)(place - wrong[i].told), wrong[i].told, path, place + 2);
        ck_assert_int_eq(sweep_open(&sweep, path), PL_INVALID);
        ck_assert_str_eq(sweep.error.cause, told);
        sweep_done(&sweep);
        ck_assert_ok(pl_file_read(path, FILE_BYTES, &after, NULL, &sweep.error), &sweep.error);
        ck_assert_str_eq(after, wrong[i].text);
    }
    scratch_write(&scratch, "journal", "{\"swe", 5); /* of a first line that was cut, it is none yet */
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    sweep_done(&sweep);
    ck_assert_int_eq(sweep_open(&sweep, scratch.path), PL_SYSTEM); /* a folder */
    sweep_done(&sweep);
    scratch_done(&scratch);
}
END_TEST

START_TEST(two_sweeps_never_share_a_journal)
{
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX];
    struct sweep first, second;

    scratch_path(&scratch, "journal", path);
    ck_assert_ok(sweep_open(&first, path), &first.error);
    ck_assert_int_eq(sweep_open(&second, path), PL_INVALID);
    ck_assert_ptr_nonnull(strstr(second.error.cause, "is in use by another sweep"));
    sweep_done(&second);
    sweep_done(&first);
    ck_assert_ok(sweep_open(&second, path), &second.error);
    sweep_done(&second);
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_line_that_the_disk_has_no_room_for_is_not_there_and_the_next_may_be)
{
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX];
    struct rlimit before, limit;
    struct stat info;
    struct sweep sweep;

    scratch_path(&scratch, "journal", path);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    limit = before;
    limit.rlim_cur = (rlim_t)info.st_size + 10; /* a part of the line is written */
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(pl_sweep_journal_start(sweep.journal, 0, "algo-1", &sweep.error), PL_SYSTEM);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    record(&sweep, &(struct event){.kind = START, .trial = 1});
    sweep_done(&sweep);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 0)->runs, 0);
    ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 1)->runs, 1);
    sweep_done(&sweep);
    scratch_done(&scratch);
}
END_TEST

UNIT_MAIN("programs/sweep/journal", after_every_prefix_a_journal_brings_back_the_state_that_the_events_had_made,
          what_is_kept_beside_the_state_comes_back_too,
          a_journal_that_cannot_be_is_refused_with_its_line_and_left_alone,
          a_file_of_another_sweep_or_of_something_else_is_refused_and_left_alone, two_sweeps_never_share_a_journal,
          a_line_that_the_disk_has_no_room_for_is_not_there_and_the_next_may_be)
