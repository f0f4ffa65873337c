/* SPDX-License-Identifier: Apache-2.0 */
/* Covers programs/sweep/journal.c, programs/sweep/archive.c. */
#include "base/checksum.h"
#include "base/file.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "programs/sweep/journal.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/sweep/journal_sweep.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { EVENTS = 40, FILE_BYTES = 1 << 20 };

static const char specification[] =
    "{\"metric\": \"acc\", \"goal\": \"maximize\",\n \"space\": {\"a\": [1, 2, 3, 4, 5]},"
    " \"scheduler\": {\"asha\": {\"factor\": 2}}}";

/* Each line waits for the disk, which other programs may keep busy; files in memory do not wait. */
static struct scratch scratch_in_memory(void)
{
    if (access("/dev/shm", W_OK) == 0) {
        ck_assert_int_eq(setenv("TMPDIR", "/dev/shm", 1), 0);
    }
    return scratch_new();
}

static void sweep_init_as(struct sweep *sweep, const char *text)
{
    *sweep = (struct sweep){.space = NULL};
    ck_assert_ok(pl_sweep_space_parse(text, strlen(text), "S", &sweep->space, &sweep->error), &sweep->error);
    ck_assert_uint_le(sweep->space->trials_count, TRIALS);
    ck_assert_ok(pl_scheduler_new(sweep->space, &sweep->scheduler, &sweep->error), &sweep->error);
}

static void sweep_init(struct sweep *sweep)
{
    sweep_init_as(sweep, specification);
}

static const char same[] = "{\"metric\": {\"name\": \"acc\"}, \"hyperparameters\": {\"epochs\": \"9\"}, "
                           "\"code\": {\"a.py\": \"1\"}}";

/* Opens the sweep of a specification, with its identity. */
static enum pl_status sweep_open_as(struct sweep *sweep, const char *path, const char *text, const char *identity,
                                    const char *fresh)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *document = NULL;
    struct pl_sweep_asked asked = {.fresh = fresh};

    sweep_init_as(sweep, text);
    ck_assert_ok(pl_python_json_parse(identity, strlen(identity), "", &document, &sweep->error), &sweep->error);
    asked.identity = document;
    return pl_sweep_journal_open(path, sweep->space, &asked, sweep->scheduler, sweep->records, &sweep->journal,
                                 &sweep->error);
}

static enum pl_status sweep_open(struct sweep *sweep, const char *path)
{
    return sweep_open_as(sweep, path, specification, same, NULL);
}

/* An event in the form in which the journal and the scheduler get it. */
struct event {
    enum { START, REPORT, END, CLOSED } kind;
    size_t trial;
    int64_t step;
    double value;
    bool is_again; /* the step is the trial's last one */
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
        status = pl_sweep_journal_report(sweep->journal, event->trial, event->step, event->value, event->is_again,
                                         &sweep->error);
        break;
    case END:
        status = pl_sweep_journal_end(sweep->journal, event->trial, event->end, 0.25,
                                      event->end == PL_SWEEP_END_FAILED ? "exit code 3 \xFF\"\n" : NULL, &sweep->error);
        break;
    case CLOSED:
        status = pl_sweep_journal_closed(sweep->journal, 60, &sweep->error);
        break;
    }
    ck_assert_ok(status, &sweep->error);
}

/* Draws a next event that is possible. */
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
            event.is_again = progress->has_step && event.step == progress->step;
            event.value = values[pl_random_next(state) % PL_ARRAY_ITEMS(values)];
            event.end = (enum pl_sweep_end)(pl_random_next(state) % 5);
            return event;
        }
    }
    return pl_scheduler_next(scheduler, &event.trial) ? event : (struct event){.kind = CLOSED};
}

static bool same_number(double a, double b)
{
    return a == b || (!isfinite(a) && !isfinite(b));
}

/* Whether both schedulers have the same state, and give the same trials from there on. */
static bool same_schedulers(struct pl_scheduler *a, struct pl_scheduler *b)
{
    size_t next_a = SIZE_MAX, next_b = SIZE_MAX, best_a = SIZE_MAX, best_b = SIZE_MAX;

    for (size_t i = 0; i < TRIALS; i++) {
        const struct pl_sweep_progress *one = pl_scheduler_progress(a, i), *other = pl_scheduler_progress(b, i);

        if (one->state != other->state || one->runs != other->runs || one->step != other->step ||
            one->best_step != other->best_step || one->has_step != other->has_step ||
            one->has_value != other->has_value || !same_number(one->best, other->best) ||
            !same_number(one->last, other->last)) {
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

/* Makes a scheduler that has seen `count` events and has then lost the trials that ran. */
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
        size_t ends[EVENTS + 1]; /* number of bytes of the file after each number of events */
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

            /* a part of the next line, from nothing to all but its last byte */
            scratch_write(&scratch, "part", text, ends[i] + (line > 0 ? pl_random_next(&state) % line : 0));
            for (int twice = 0; twice < 2; twice++) { /* the journal now has the events that were lost at first */
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
    for (int runs = 1; runs < 4; runs++) { /* a trial that was lost with its job starts again, and is lost again */
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

/* Appends the lines of `text`, which are objects, in the journal's form; `crc` is the checksum of the lines before. */
static void append_lines(struct pl_text *file, const char *text, uint32_t crc)
{
    while (*text != '\0') {
        const size_t bytes = strcspn(text, "\n");
        const size_t kept = bytes > 0 ? bytes - 1 : 0; /* without its closing brace */

        crc = pl_checksum_crc32c(crc, text, kept);
        pl_text_append_n(file, text, kept);
        pl_text_printf(file, ", \"crc\": \"%08x\"}\n", crc);
        text += bytes + (text[bytes] == '\n');
    }
}

/* Returns the checksum in the last line of a journal. */
static uint32_t last_crc(const char *text)
{
    const char *at = strstr(text, "\"crc\": \"");

    for (const char *next = at; next; next = strstr(next + 1, "\"crc\": \"")) {
        at = next;
    }
    ck_assert_ptr_nonnull(at);
    return (uint32_t)strtoul(at + sizeof("\"crc\": \"") - 1, NULL, 16);
}

START_TEST(a_journal_that_cannot_be_is_refused_with_its_line_and_left_alone)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"{\"start\": 0, \"host\": null}\n{\"start\": 0, \"host\": \"a\"}\n",
         ", line 3, column 11: start: expected a trial that waits or pauses at this point, found 0"},
        {"{\"end\": 1, \"how\": \"completed\", \"seconds\": 0, \"reason\": null}\n",
         ", line 2, column 9: end: expected a trial that runs at this point, found 1"},
        {"{\"start\": 5, \"host\": null}\n",
         ", line 2, column 11: start: expected a whole number from 0 to 4, found 5"},
        {"{\"start\": 0, \"host\": null}\n{\"report\": 0, \"step\": 1, \"value\": \"x\"}\n",
         ", line 3, column 35: value: expected a number, found \"x\""},
        {"{\"start\": 0, \"host\": null}\n{\"end\": 0, \"how\": \"well\", \"seconds\": 0, \"reason\": null}\n",
         ", line 3, column 19: how: expected completed, stopped, failed, lost or unseen, found \"well\""},
        {"{\"start\": [0}\n{\"closed\": true}\n", ", line 2, column 13: expected ',' or ']', found '}'"},
        {"{\"closed\": true}\n{\"start\": 0, \"host\": null}\n",
         ", line 3, column 11: start: expected a trial that waits or pauses at this point, found 0"},
        {"{}\n", ", line 2, column 1: expected an object with start, report, end or closed, found an object"},
        {"{\"begin\": 1}\n", ", line 2, column 11: begin is not known here: expected start, report, end or closed"},
        {"\n", ", line 2, column 1: expected a value, found '}'"},
        {"{\"asked\": 1}\n", ", line 2, column 11: asked: expected an object, found 1"},
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

        pl_text_append(&text, head);
        append_lines(&text, wrong[i].text, last_crc(head));
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

START_TEST(a_file_of_another_kind_or_version_is_refused_and_left_alone_until_a_new_one_is_asked_for)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"{\"sweep\": 1, \"specification\": \"{}\"}\n",
         ", line 1, column 11: expected a journal of version 2, found version 1, which an earlier Paceline wrote"},
        {"weights", ", line 1, column 1: expected the journal of a sweep, found something else"},
        {"\n", ", line 1, column 1: expected the journal of a sweep, found something else"},
    };
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX], folder[PATH_MAX], told[2 * PATH_MAX];
    struct sweep sweep;

    scratch_path(&scratch, "journal", path);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(wrong); i++) {
        PL_AUTO_FREE char *after = NULL, *archived = NULL;
        char name[32];

        scratch_write(&scratch, "journal", wrong[i].text, strlen(wrong[i].text));
        ck_assert_int_eq(sweep_open(&sweep, path), PL_INVALID);
        snprintf(told, sizeof(told), "%s%s", path, wrong[i].told);
        ck_assert_str_eq(sweep.error.cause, told);
        snprintf(name, sizeof(name), "sweep-%zu", i + 1);
        scratch_path(&scratch, name, folder);
        snprintf(told, sizeof(told), "paceline_sweep_fresh=1 starts a new sweep, and keeps the present files in '%s'",
                 folder);
        ck_assert_str_eq(sweep.error.context, told);
        sweep_done(&sweep);
        ck_assert_ok(pl_file_read(path, FILE_BYTES, &after, NULL, &sweep.error), &sweep.error);
        ck_assert_str_eq(after, wrong[i].text);
        ck_assert_ok(sweep_open_as(&sweep, path, specification, same, "1"), &sweep.error);
        sweep_done(&sweep);
        snprintf(told, sizeof(told), "%s/journal", folder);
        ck_assert_ok(pl_file_read(told, FILE_BYTES, &archived, NULL, &sweep.error), &sweep.error);
        ck_assert_str_eq(archived, wrong[i].text);
    }
    scratch_write(&scratch, "journal", "{\"swe", 5); /* a first line that is incomplete does not count as a journal */
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    sweep_done(&sweep);
    ck_assert_int_eq(sweep_open(&sweep, scratch.path), PL_SYSTEM); /* a folder */
    sweep_done(&sweep);
    scratch_done(&scratch);
}
END_TEST

/* Returns a small journal with each kind of line; with `other`, one with other events. */
static char *small_journal(const struct scratch *scratch, bool other)
{
    char path[PATH_MAX];
    char *text = NULL;
    struct sweep sweep;

    scratch_path(scratch, "small", path);
    unlink(path);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    record(&sweep, &(struct event){.kind = START, .trial = 0});
    record(&sweep, &(struct event){.kind = REPORT, .trial = 0, .step = 1, .value = other ? 9 : 1});
    record(&sweep, &(struct event){.kind = REPORT, .trial = 0, .step = 2, .value = other ? 1 : 2});
    record(&sweep, &(struct event){.kind = END, .trial = 0, .end = PL_SWEEP_END_COMPLETED});
    record(&sweep, &(struct event){.kind = START, .trial = other ? 2 : 1});
    record(&sweep, &(struct event){.kind = END, .trial = other ? 2 : 1, .end = PL_SWEEP_END_FAILED});
    record(&sweep, &(struct event){.kind = CLOSED});
    sweep_done(&sweep);
    ck_assert_ok(pl_file_read(path, FILE_BYTES, &text, NULL, &sweep.error), &sweep.error);
    return text;
}

/* Checks that the file is refused with its place. */
static void check_refused(const struct scratch *scratch, const void *data, size_t bytes, const char *what, size_t at)
{
    char path[PATH_MAX];
    struct sweep sweep;
    unsigned line, column;

    scratch_path(scratch, "journal", path);
    scratch_write(scratch, "journal", data, bytes);
    if (sweep_open(&sweep, path) != PL_INVALID) {
        ck_abort_msg("%s at byte %zu was not refused", what, at);
    }
    if (strncmp(sweep.error.cause, path, strlen(path)) != 0 ||
        sscanf(sweep.error.cause + strlen(path), ", line %u, column %u: expected ", &line, &column) != 2) {
        ck_abort_msg("%s at byte %zu is told without its place: %s", what, at, sweep.error.cause);
    }
    sweep_done(&sweep);
}

START_TEST(no_byte_and_no_line_of_a_journal_changes_unseen)
{
    struct scratch scratch = scratch_in_memory();
    PL_AUTO_FREE char *text = small_journal(&scratch, false), *other = small_journal(&scratch, true);
    const size_t bytes = strlen(text);
    PL_AUTO_FREE char *copy = strdup(text);

    for (size_t at = 0; at < bytes; at++) {
        for (int first = 0; first < 8; first++) { /* change one bit, or two */
            for (int second = first; second < 8; second++) {
                copy[at] = (char)(text[at] ^ (1 << first) ^ (second > first ? 1 << second : 0));
                check_refused(&scratch, copy, bytes, "a flip", at);
            }
        }
        copy[at] = text[at];
    }
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        const size_t begin = (size_t)(line - text), end = (size_t)(strchr(line, '\n') + 1 - text);
        PL_AUTO_TEXT struct pl_text twice = PL_TEXT_NONE, without = PL_TEXT_NONE;

        pl_text_append_n(&twice, text, end);
        pl_text_append(&twice, line);
        check_refused(&scratch, twice.data, twice.length, "a line twice", begin);
        pl_text_append_n(&without, text, begin);
        pl_text_append(&without, text + end);
        if (end < bytes) {
            check_refused(&scratch, without.data, without.length, "a line that is missing", begin);
        }
    }
    /* from this line on, take the lines of the other journal */
    for (const char *from = other; *from != '\0'; from = strchr(from, '\n') + 1) {
        for (const char *to = text; *to != '\0'; to = strchr(to, '\n') + 1) {
            PL_AUTO_TEXT struct pl_text mixed = PL_TEXT_NONE;
            const size_t begin = (size_t)(strchr(to, '\n') + 1 - text);

            pl_text_append_n(&mixed, text, begin);
            pl_text_append(&mixed, from);
            if (strncmp(mixed.data, other, begin) != 0 || strcmp(pl_text_string(&mixed), other) != 0) {
                check_refused(&scratch, mixed.data, mixed.length, "a mixture", begin);
            }
        }
    }
    scratch_done(&scratch);
}
END_TEST

START_TEST(a_cut_at_any_byte_goes_on_with_the_whole_lines)
{
    struct scratch scratch = scratch_in_memory();
    PL_AUTO_FREE char *text = small_journal(&scratch, false);
    char path[PATH_MAX];

    scratch_path(&scratch, "journal", path);
    for (size_t bytes = 0; bytes <= strlen(text); bytes++) {
        PL_AUTO_FREE char *after = NULL;
        size_t whole = bytes;
        struct sweep sweep;

        scratch_write(&scratch, "journal", text, bytes);
        ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
        sweep_done(&sweep);
        ck_assert_ok(pl_file_read(path, FILE_BYTES, &after, NULL, &sweep.error), &sweep.error);
        while (whole > 0 && text[whole - 1] != '\n') {
            whole--;
        }
        ck_assert_int_eq(strncmp(after, text, whole), 0);
        ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
        sweep_done(&sweep);
    }
    scratch_done(&scratch);
}
END_TEST

static const char reported[] = "{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1, 2]}}";

START_TEST(a_difference_is_refused_by_name_and_what_changes_no_trial_goes_on)
{
    static const struct {
        const char *text, *identity, *told; /* told NULL: the sweep continues */
        bool after_report;
    } cases[] = {
        {reported, same, NULL, true},
        {reported,
         "{\"metric\": {\"name\": \"acc\"}, \"hyperparameters\": {\"epochs\": \"90\"}, \"code\": {\"a.py\": \"1\"}}",
         "hyperparameters.epochs was 9 and is 90", false},
        {reported, "{\"metric\": {\"name\": \"acc\"}, \"hyperparameters\": {}, \"code\": {\"a.py\": \"1\"}}",
         "hyperparameters.epochs was 9 and is nothing", false},
        {reported,
         "{\"metric\": {\"name\": \"acc\"}, \"hyperparameters\": {\"epochs\": \"9\", \"lr\": \"1\"}, \"code\": "
         "{\"a.py\": \"1\"}}",
         "hyperparameters.lr was nothing and is 1", false},
        {reported,
         "{\"metric\": {\"name\": \"acc\"}, \"hyperparameters\": {\"epochs\": \"9\"}, \"code\": {\"a.py\": \"2\"}}",
         "code.a.py was 1 and is 2", false},
        {reported, /* a file that is new */
         "{\"metric\": {\"name\": \"acc\"}, \"hyperparameters\": {\"epochs\": \"9\"}, \"code\": {\"a.py\": \"1\", "
         "\"log\": "
         "\"1\"}}",
         NULL, true},
        {reported,
         "{\"metric\": {\"name\": \"val\"}, \"hyperparameters\": {\"epochs\": \"9\"}, \"code\": {\"a.py\": \"1\"}}",
         "metric.name was acc and is val", true},
        {reported,
         "{\"metric\": {\"name\": \"val\"}, \"hyperparameters\": {\"epochs\": \"9\"}, \"code\": {\"a.py\": \"1\"}}",
         NULL, false},
        {"{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1, 2, 3]}, \"slots\": 3}", same, NULL,
         true},
        {"{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1, 3]}}", same,
         "its first trials have changed (it had 2 trials, and has 2)", false},
        {"{\"metric\": \"acc\", \"goal\": \"maximize\", \"space\": {\"a\": [1]}}", same,
         "its first trials have changed (it had 2 trials, and has 1)", false},
    };
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX], told[2 * PATH_MAX];

    scratch_path(&scratch, "journal", path);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        struct sweep sweep;

        unlink(path);
        ck_assert_ok(sweep_open_as(&sweep, path, reported, same, NULL), &sweep.error);
        record(&sweep, &(struct event){.kind = START, .trial = 1});
        if (cases[i].after_report) {
            record(&sweep, &(struct event){.kind = REPORT, .trial = 1, .step = 1, .value = 0.5});
        }
        sweep_done(&sweep);
        if (cases[i].told) {
            ck_assert_int_eq(sweep_open_as(&sweep, path, cases[i].text, cases[i].identity, NULL), PL_INVALID);
            snprintf(told, sizeof(told), "'%s' belongs to another sweep: %s", path, cases[i].told);
            ck_assert_str_eq(sweep.error.cause, told);
            ck_assert_ptr_nonnull(strstr(sweep.error.context, "paceline_sweep_fresh=1 starts a new sweep, and keeps "));
            sweep_done(&sweep);
            continue;
        }
        ck_assert_ok(sweep_open_as(&sweep, path, cases[i].text, cases[i].identity, NULL), &sweep.error);
        ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 1)->runs, 1);
        record(&sweep, &(struct event){.kind = START, .trial = sweep.space->trials_count - 1});
        record(&sweep,
               &(struct event){.kind = REPORT, .trial = sweep.space->trials_count - 1, .step = 2, .value = 0.5});
        sweep_done(&sweep);
        ck_assert_ok(sweep_open_as(&sweep, path, cases[i].text, cases[i].identity, NULL), &sweep.error);
        sweep_done(&sweep);
        /* and the old specification is not accepted any more */
        if (strcmp(cases[i].text, reported) != 0 || strstr(cases[i].identity, "val")) {
            ck_assert_int_eq(sweep_open_as(&sweep, path, reported, same, NULL), PL_INVALID);
            sweep_done(&sweep);
        }
    }
    scratch_done(&scratch);
}
END_TEST

static void make_file(const struct scratch *scratch, const char *folder, const char *name)
{
    char path[2 * PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s/%s", scratch->path, folder, name);
    ck_assert_ok(pl_file_make_parents(path, 0755, NULL), NULL);
    ck_assert_ok(pl_file_write_atomic(path, "x", 1, 0644, NULL), NULL);
}

static bool is_there(const struct scratch *scratch, const char *name)
{
    char path[PATH_MAX];

    return access(scratch_path(scratch, name, path), F_OK) == 0;
}

static void rename_in(const struct scratch *scratch, const char *from, const char *to)
{
    char from_path[PATH_MAX], to_path[PATH_MAX];

    ck_assert_int_eq(rename(scratch_path(scratch, from, from_path), scratch_path(scratch, to, to_path)), 0);
}

START_TEST(a_new_sweep_that_was_asked_for_begins_once_and_keeps_the_old_one_whenever_it_was_killed)
{
    enum { STEPS = 6 };

    for (int killed = 0; killed <= STEPS; killed++) {
        for (int asked_again = 0; asked_again < 2; asked_again++) {
            struct scratch scratch = scratch_in_memory();
            char path[PATH_MAX];
            struct sweep sweep;

            scratch_path(&scratch, "journal", path);
            ck_assert_ok(sweep_open_as(&sweep, path, specification, "{\"hyperparameters\": {}}", NULL), &sweep.error);
            record(&sweep, &(struct event){.kind = START, .trial = 0});
            sweep_done(&sweep);
            make_file(&scratch, "trial-0000", "weights");
            make_file(&scratch, "trial-0000.model", "m");
            make_file(&scratch, "trial-0012", "weights");
            make_file(&scratch, "mine", "file");
            /* the steps that a killed start has done */
            if (killed > 0) {
                make_file(&scratch, "sweep.moving", "file");
                unlink(scratch_path(&scratch, "sweep.moving/file", path));
            }
            if (killed > 1) {
                rename_in(&scratch, "journal", "sweep.moving/journal");
            }
            if (killed > 2) {
                scratch_write(&scratch, "journal", "", 0);
            }
            if (killed > 3) {
                rename_in(&scratch, "trial-0012", "sweep.moving/trial-0012");
            }
            if (killed > 4) {
                rename_in(&scratch, "trial-0000", "sweep.moving/trial-0000");
                rename_in(&scratch, "trial-0000.model", "sweep.moving/trial-0000.model");
            }
            if (killed > 5) {
                rename_in(&scratch, "sweep.moving", "sweep-1");
            }
            scratch_path(&scratch, "journal", path);
            /* before the old journal was moved, nothing has changed, and without the request the old sweep is
             * refused */
            if (asked_again == 0 && killed < 2) {
                ck_assert_int_eq(sweep_open(&sweep, path), PL_INVALID);
                sweep_done(&sweep);
            }
            ck_assert_ok(sweep_open_as(&sweep, path, specification, same, asked_again || killed < 2 ? "1 job" : NULL),
                         &sweep.error);
            ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 0)->runs, 0);
            ck_assert(is_there(&scratch, "sweep-1/journal") && is_there(&scratch, "sweep-1/trial-0000/weights"));
            ck_assert(is_there(&scratch, "sweep-1/trial-0000.model/m") && is_there(&scratch, "sweep-1/trial-0012"));
            ck_assert(!is_there(&scratch, "trial-0000") && !is_there(&scratch, "trial-0012"));
            ck_assert(!is_there(&scratch, "sweep.moving") && is_there(&scratch, "mine/file"));
            record(&sweep, &(struct event){.kind = START, .trial = 1});
            sweep_done(&sweep);
            make_file(&scratch, "trial-0001", "weights");
            /* the platform starts the same job again: it continues; a later job without the request also continues */
            for (int i = 0; i < 2 && (asked_again || killed < 2); i++) {
                ck_assert_ok(sweep_open_as(&sweep, path, specification, same, i == 0 ? "1 job" : NULL), &sweep.error);
                ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 1)->runs, 1);
                ck_assert(sweep.records[1].has_begun && !sweep.records[0].has_begun);
                sweep_done(&sweep);
                ck_assert(is_there(&scratch, "trial-0001/weights") && !is_there(&scratch, "sweep-2"));
            }
            /* another job with the request starts a new sweep */
            ck_assert_ok(sweep_open_as(&sweep, path, specification, same, "1 other"), &sweep.error);
            ck_assert(is_there(&scratch, "sweep-2/trial-0001/weights") && !is_there(&scratch, "trial-0001"));
            sweep_done(&sweep);
            scratch_done(&scratch);
        }
    }
}
END_TEST

START_TEST(a_trial_whose_metric_was_not_seen_begins_again)
{
    struct scratch scratch = scratch_in_memory();
    char path[PATH_MAX];
    struct sweep sweep;

    scratch_path(&scratch, "journal", path);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    record(&sweep, &(struct event){.kind = START, .trial = 2});
    record(&sweep, &(struct event){.kind = END, .trial = 2, .end = PL_SWEEP_END_UNSEEN});
    sweep_done(&sweep);
    ck_assert_ok(sweep_open(&sweep, path), &sweep.error);
    ck_assert_int_eq(pl_scheduler_progress(sweep.scheduler, 2)->state, PL_SWEEP_WAITING);
    ck_assert(!sweep.records[2].has_begun);
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
    limit.rlim_cur = (rlim_t)info.st_size + 10; /* only a part of the line can be written */
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
          a_file_of_another_kind_or_version_is_refused_and_left_alone_until_a_new_one_is_asked_for,
          no_byte_and_no_line_of_a_journal_changes_unseen, a_cut_at_any_byte_goes_on_with_the_whole_lines,
          a_difference_is_refused_by_name_and_what_changes_no_trial_goes_on,
          a_new_sweep_that_was_asked_for_begins_once_and_keeps_the_old_one_whenever_it_was_killed,
          a_trial_whose_metric_was_not_seen_begins_again, two_sweeps_never_share_a_journal,
          a_line_that_the_disk_has_no_room_for_is_not_there_and_the_next_may_be)
