/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/horovod/timeline.c. */
/* Horovod's timeline: the content of the file while it is written and afterwards, when it is started and stopped in the
 * middle of a program. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "runtime/horovod/state.h"
#include "tests/unit/runtime/named/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 16 };

static char path[64];

static void make_path(void)
{
    snprintf(path, sizeof(path), "/tmp/paceline-timeline-%d.json", (int)getpid());
}

/* Returns the present content of the file. */
static const char *read_file(void)
{
    static char text[FILE_BYTES];
    FILE *file = fopen(path, "r");
    size_t length = 0;

    if (file) {
        length = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[length] = '\0';
    return text;
}

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static void check_whole(const char *text)
{
    struct pl_json *json = NULL;
    struct pl_error error = PL_ERROR_NONE;

    ck_assert_msg(pl_json_parse(text, strlen(text), path, &json, &error) == PL_OK, "%s in %s", error.cause, text);
    pl_json_free(json);
}

/* The file has only rank 0's events, as in a program with one process per rank. */
static void sum_body(struct rank *self)
{
    const struct pl_named_options options = {.observer = self->rank == 0 ? pl_timeline_observer() : NULL};
    float values[3] = {1, 2, 3};

    ENGINE(&options);
    for (int i = 0; i < 5; i++) {
        struct pl_named_op sum = sum_of("a \"sum\"", values, 3);
        struct pl_named_op gather = {.name = "rows", .kind = PL_ALLGATHER, .dims = 2, .shape = {2, 1}, .send = values};
        struct pl_named_op barrier = {.name = "all", .kind = PL_BARRIER};

        if (self->rank == 0 && i == 1) {
            expect_ok(pl_timeline_start(path, true, &error));
        }
        if (self->rank == 0 && i == 4) {
            pl_timeline_stop();
        }
        expect_ok(engine_run(named, &sum, NULL, &error));
        expect_ok(engine_run(named, &gather, NULL, &error));
        expect_ok(engine_run(named, &barrier, NULL, &error));
    }
    expect_ok(engine_shutdown(named, &error));
    engine_free(named);
}

TEST(phases_of_operations_between_start_and_stop_are_in_a_whole_file)
{
    const char *text;

    make_path();
    ck_assert_bodies(3, sum_body, NULL);
    text = read_file();
    check_whole(text);
    ck_assert_uint_eq(count_of(text, "start_time_since_epoch_in_micros\",\"pid"), 1);
    ck_assert_uint_eq(count_of(text, "\"name\":\"a \\\"sum\\\"\""), 1); /* a line for the tensor */
    ck_assert_uint_eq(count_of(text, "\"NEGOTIATE_ALLREDUCE\""), 3);
    ck_assert_uint_eq(count_of(text, "\"ALLREDUCE\""), 3);
    ck_assert_uint_eq(count_of(text, "\"dtype\":\"float32\",\"shape\":\"3\""), 3);
    ck_assert_uint_eq(count_of(text, "\"NEGOTIATE_ALLGATHER\""), 3);
    ck_assert_uint_eq(count_of(text, "\"ALLGATHER\""), 3);
    ck_assert_uint_eq(count_of(text, "\"NEGOTIATE_BARRIER\""), 3);
    ck_assert_uint_eq(count_of(text, "\"BARRIER\""), 0); /* a barrier consists only of the agreement */
    for (int rank = 0; rank < 3; rank++) {
        char tick[32];

        snprintf(tick, sizeof(tick), "\"ph\":\"X\",\"name\":\"%d\"", rank);
        ck_assert_uint_eq(count_of(text, tick), 9);
    }
    ck_assert_uint_eq(count_of(text, "\"ph\":\"B\""), count_of(text, "\"ph\":\"E\""));
    ck_assert_uint_ge(count_of(text, "\"CYCLE_START\""), 9);
    unlink(path);
}

static void emit(enum pl_named_phase phase, const char *name, bool first)
{
    const struct pl_named_observer *observer = pl_timeline_observer();

    observer->happened(observer->context, &(struct pl_named_event){.phase = phase, .name = name, .first = first});
}

TEST(the_file_is_written_while_it_grows)
{
    make_path();
    ck_assert_int_eq(pl_timeline_start(path, false, NULL), PL_OK);
    emit(PL_NAMED_ANNOUNCED, "early", true);
    while (!strstr(read_file(), "\"NEGOTIATE_ALLREDUCE\"")) {
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    ck_assert_ptr_null(strchr(read_file(), ']'));
    emit(PL_NAMED_ROUND, NULL, false);
    pl_timeline_stop();
    check_whole(read_file());
    ck_assert_ptr_null(strstr(read_file(), "CYCLE_START"));
    emit(PL_NAMED_ANNOUNCED, "late", true);
    ck_assert_ptr_null(strstr(read_file(), "late"));
    pl_timeline_stop();
    unlink(path);
}

TEST(a_second_start_ends_the_first_file)
{
    char first[sizeof(path)];

    make_path();
    memcpy(first, path, sizeof(first));
    ck_assert_int_eq(pl_timeline_start(path, false, NULL), PL_OK);
    emit(PL_NAMED_ANNOUNCED, "one", true);
    strcat(path, ".2");
    ck_assert_int_eq(pl_timeline_start(path, false, NULL), PL_OK);
    emit(PL_NAMED_ANNOUNCED, "two", true);
    pl_timeline_stop();
    check_whole(read_file());
    ck_assert_ptr_nonnull(strstr(read_file(), "two"));
    ck_assert_ptr_null(strstr(read_file(), "one"));
    unlink(path);
    memcpy(path, first, sizeof(path));
    check_whole(read_file());
    ck_assert_ptr_nonnull(strstr(read_file(), "one"));
    unlink(path);
}

TEST(a_file_that_cannot_be_made_is_named)
{
    ck_fails(PL_SYSTEM, "/proc/none/timeline", pl_timeline_start, "/proc/none/timeline", false);
    ck_assert(!pl_timeline_observer()->active);
    pl_timeline_stop();
}

/* The disk is full: the program continues. */
TEST(a_failed_write_ends_the_timeline_and_is_logged_once)
{
    ck_assert_int_eq(pl_timeline_start("/dev/full", false, NULL), PL_OK);
    while (__atomic_load_n(&pl_timeline_observer()->active, __ATOMIC_RELAXED)) {
        emit(PL_NAMED_ANNOUNCED, "lost", true);
        pl_clock_nap(PL_NS_PER_MS, PL_DEADLINE_NEVER);
    }
    pl_timeline_stop();
}

UNIT_MAIN("runtime/horovod/timeline")
