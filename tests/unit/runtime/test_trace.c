/* SPDX-License-Identifier: Apache-2.0 */
/* Covers runtime/trace.c. */
/* O1, O4, O7, O8 of the inventory: what ranks did, and which ranks they waited for. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json/python_json.h"
#include "base/memory.h"
#include "collectives/world_private.h"
#include "runtime/trace.h"
#include "runtime/trace_ring.h"
#include "tests/support/expect.h"
#include "tests/support/scratch.h"
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The spans of a merged trace, counted by name; metadata left out. */
static int spans_called(const char *text, const char *name, double *ret_last_start_us)
{
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    int count = 0;

    ck_ok(pl_python_json_parse, text, strlen(text), "trace", &root);
    for (const struct pl_python_json *event = pl_python_json_first(pl_python_json_member(root, "traceEvents")); event;
         event = pl_python_json_next(event)) {
        if (strcmp(pl_python_json_text(pl_python_json_member(event, "ph")), "X") == 0 &&
            strcmp(pl_python_json_text(pl_python_json_member(event, "name")), name) == 0) {
            count++;
            *ret_last_start_us = pl_python_json_double(pl_python_json_member(event, "ts"));
        }
    }
    return count;
}

TEST(a_full_ring_keeps_the_latest)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char path[PATH_MAX];
    const char *paths[] = {path};
    struct pl_trace *trace = NULL;
    double start_us = 0;

    scratch_path(&scratch, "ring", path);
    ck_ok(pl_trace_new, &(struct pl_trace_options){.path = path, .records = 10, .rank = 3, .size = 4, .host = 1},
          &trace);
    for (int i = 0; i < 25; i++) {
        pl_trace_add(trace,
                     i == 16  ? "the first that is safe"
                     : i < 24 ? "step"
                              : "a name with \"quotes\" that is too long",
                     i * 1000, i * 1000 + 500);
    }
    pl_trace_free(trace); /* the file stays, as after a crash */
    ck_ok(pl_trace_merge, paths, 1, &text);
    /* 10 less the one that a writer may be in, less the first and the last */
    ck_assert_int_eq(spans_called(text.data, "step", &start_us), 7);
    ck_assert_int_eq(spans_called(text.data, "the first that is safe", &start_us), 1);
    ck_assert_int_eq(spans_called(text.data, "a name with \"quotes\" tha", &start_us), 1);
    ck_has(text.data, "rank 3 on host 1");
}

TEST(collectives_of_sub_worlds_have_lines_of_their_own)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    char path[PATH_MAX];
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    const char *paths[] = {path};
    struct pl_trace *trace = NULL;
    double start_us = 0;

    scratch_path(&scratch, "ring", path);
    ck_ok(pl_trace_new, &(struct pl_trace_options){.path = path, .rank = 3, .size = 4, .host_name = "algo-2"}, &trace);
    for (unsigned part = 0; part < 600; part += 300) {
        pl_trace_add_event(trace,
                           &(struct pl_event){.kind = PL_ALLREDUCE, .name = "w", .part = part, .waited_for = -1});
        pl_trace_add_event(
            trace, &(struct pl_event){
                       .kind = PL_ALLREDUCE, .name = "w", .part = part + 2, .waited_for = -1, .status = PL_TIMEOUT});
    }
    pl_trace_free(trace);
    ck_ok(pl_trace_merge, paths, 1, &text);
    ck_assert_int_eq(spans_called(text.data, "allreduce w", &start_us), 4);
    ck_assert_msg(strstr(text.data, "\"allreduce w\",\"pid\":3,\"tid\":1,") &&
                      strstr(text.data, "\"allreduce w\",\"pid\":3,\"tid\":3,") &&
                      strstr(text.data, "\"allreduce w\",\"pid\":3,\"tid\":256,"),
                  "%s", text.data);
    ck_assert_msg(strstr(text.data, "\"tid\":3,\"args\":{\"name\":\"collectives of sub-world 2\"}") &&
                      strstr(text.data, "\"tid\":256,\"args\":{\"name\":\"collectives of sub-world 255\"}") &&
                      !strstr(text.data, "sub-world 1\""),
                  "%s", text.data);
    ck_has(text.data, pl_status_name(PL_TIMEOUT));
    ck_has(text.data, "rank 3 on algo-2");
}

/* The nanoseconds of a number of microseconds that is printed with three digits after the point. */
static long long printed_ns(const struct pl_python_json *number)
{
    const char *text = pl_python_json_text(number);
    long long us, ns;
    int used = 0;

    ck_assert_msg(sscanf(text, "%lld.%3lld%n", &us, &ns, &used) == 2 && text[used] == '\0', "%s", text);
    return us * 1000 + ns;
}

TEST(spans_one_after_the_other_do_not_overlap_by_rounding)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    int64_t now_ns = pl_clock_now_ns();
    struct pl_trace *trace = NULL;
    long long last_end_ns = 0;
    char path[PATH_MAX];
    const char *paths[] = {path};
    int spans = 0;

    scratch_path(&scratch, "ring", path);
    ck_ok(pl_trace_new, &(struct pl_trace_options){.path = path, .size = 1}, &trace);
    for (int i = 0; i < 500; i++) { /* of 333 ns each */
        pl_trace_add(trace, "step", now_ns + i * 333, now_ns + (i + 1) * 333);
    }
    pl_trace_free(trace);
    ck_ok(pl_trace_merge, paths, 1, &text);
    ck_ok(pl_python_json_parse, text.data, text.length, "trace", &root);
    for (const struct pl_python_json *event = pl_python_json_first(pl_python_json_member(root, "traceEvents")); event;
         event = pl_python_json_next(event)) {
        const struct pl_python_json *start = pl_python_json_member(event, "ts");
        long long start_ns;

        if (!start) {
            continue;
        }
        start_ns = printed_ns(start);
        ck_assert_msg(spans == 0 || start_ns == last_end_ns, "span %d begins at %lld, the one before ends at %lld",
                      spans, start_ns, last_end_ns);
        last_end_ns = start_ns + printed_ns(pl_python_json_member(event, "dur"));
        /* A reader that has it as a double, which most have, finds the same nanosecond. */
        ck_assert_int_eq((long long)(pl_python_json_double(start) * 1000 + 0.5), start_ns);
        spans++;
    }
    ck_assert_int_eq(spans, 500);
}

TEST(times_are_of_the_day_that_the_trace_names)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;
    struct pl_trace *traces[2] = {NULL};
    char path[2][PATH_MAX];
    const char *paths[] = {path[0], path[1]}, *day;
    struct timespec now;
    double start_us = -1;
    long long seconds;
    struct tm parts = {.tm_year = 0};

    ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &now), 0);
    for (int i = 0; i < 2; i++) { /* the second ring has the first span, a second before the other */
        scratch_path(&scratch, i ? "second" : "first", path[i]);
        ck_ok(pl_trace_new, &(struct pl_trace_options){.path = path[i], .rank = i, .size = 2}, &traces[i]);
        pl_trace_add(traces[i], i ? "first" : "second", pl_clock_now_ns() - i * PL_NS_PER_S, pl_clock_now_ns());
        pl_trace_free(traces[i]);
    }
    ck_ok(pl_trace_merge, paths, 2, &text);
    ck_ok(pl_python_json_parse, text.data, text.length, "trace", &root);
    day = pl_python_json_text(pl_python_json_member(pl_python_json_member(root, "otherData"), "ts_0"));
    ck_assert_int_eq(sscanf(day, "%d-%d-%dT00:00:00Z", &parts.tm_year, &parts.tm_mon, &parts.tm_mday), 3);
    parts.tm_year -= 1900;
    parts.tm_mon--;
    seconds = (long long)timegm(&parts);
    ck_assert_int_eq(spans_called(text.data, "first", &start_us), 1);
    ck_assert_msg(start_us >= 0 && start_us < 86400e6, "%f", start_us);
    /* A minute is for a halted test. */
    ck_assert_msg((double)(now.tv_sec - seconds) - start_us / 1e6 < 60 &&
                      start_us / 1e6 - (double)(now.tv_sec - seconds) < 60,
                  "%s and %f us, now %lld", day, start_us, (long long)now.tv_sec);
}

TEST(names_are_cut_between_characters)
{
    static const struct {
        const char *name, *printed;
    } cases[] = {
        {"12345678901234567890123\u00e4", "12345678901234567890123"},
        {"1234567890123456789012\u00e4", "1234567890123456789012\u00e4"},
        {"1234567890123456789012\u20acx", "1234567890123456789012"},
        {"123456789012345678901\U0001f600", "123456789012345678901"},
        {"12345678901234567890\U0001f600\u00e4", "12345678901234567890\U0001f600"},
        {"broken \xff\xc3 name", "broken \?\? name"},
    };
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    struct pl_trace *trace = NULL;
    double start_us;
    char path[PATH_MAX];
    const char *paths[] = {path};

    scratch_path(&scratch, "ring", path);
    ck_ok(pl_trace_new, &(struct pl_trace_options){.path = path, .size = 1}, &trace);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        pl_trace_add(trace, cases[i].name, 1, 2);
    }
    pl_trace_free(trace);
    ck_ok(pl_trace_merge, paths, 1, &text);
    for (size_t i = 0; i < PL_ARRAY_ITEMS(cases); i++) {
        ck_assert_msg(spans_called(text.data, cases[i].printed, &start_us) == 1, "'%s' in %s", cases[i].printed,
                      text.data);
    }
    ck_lacks(text.data, "\\udc"); /* no lone surrogate */
}

struct writer {
    struct pl_trace *trace;
    atomic_bool stop;
};

/* Every span says in its name how long it is, in its start too. */
static void *write_spans(void *argument)
{
    struct writer *writer = argument;
    char name[PL_TRACE_NAME_BYTES];

    for (int64_t i = 0; !atomic_load(&writer->stop); i++) {
        int64_t us = i % 90000 + 10000;

        snprintf(name, sizeof(name), "%lld and %lld", (long long)us, (long long)us);
        pl_trace_add(writer->trace, name, us * 1000000, us * 1001000);
    }
    return NULL;
}

TEST(spans_of_a_ring_that_is_being_written_are_whole)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    struct writer writer = {.stop = false};
    pthread_t thread;
    char path[PATH_MAX], name[64];
    const char *paths[] = {path};
    size_t spans = 0;

    scratch_path(&scratch, "ring", path);
    ck_ok(pl_trace_new, &(struct pl_trace_options){.path = path, .records = 512, .size = 1}, &writer.trace);
    ck_assert_int_eq(pthread_create(&thread, NULL, write_spans, &writer), 0);
    for (int merge = 0; merge < 300 || spans == 0; merge++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
        PL_AUTO_PYTHON_JSON struct pl_python_json *root = NULL;

        ck_ok(pl_trace_merge, paths, 1, &text);
        ck_ok(pl_python_json_parse, text.data, text.length, "trace", &root);
        for (const struct pl_python_json *event = pl_python_json_first(pl_python_json_member(root, "traceEvents"));
             event; event = pl_python_json_next(event)) {
            const struct pl_python_json *duration = pl_python_json_member(event, "dur");

            if (duration) {
                snprintf(name, sizeof(name), "%.0f and %.0f", pl_python_json_double(duration),
                         pl_python_json_double(duration));
                ck_assert_str_eq(pl_python_json_text(pl_python_json_member(event, "name")), name);
                spans++;
            }
        }
    }
    atomic_store(&writer.stop, true);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pl_trace_free(writer.trace);
}

TEST(a_ring_too_small_or_too_large_is_refused_by_its_number)
{
    struct pl_trace *trace = NULL;

    ck_fails(PL_INVALID, "", pl_trace_new, &(struct pl_trace_options){.records = 2}, &trace);
    ck_fails_as(PL_INVALID, "a trace keeps 3 to 16777216 records, not 4294967299", pl_trace_new,
                &(struct pl_trace_options){.records = (UINT64_C(1) << 32) + 3}, &trace);
}

TEST(what_is_no_ring_is_refused_by_name)
{
    AUTO_SCRATCH struct scratch scratch = scratch_new();
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    char path[PATH_MAX], junk[500];
    const char *paths[] = {path};

    memset(junk, 'x', sizeof(junk));
    scratch_path(&scratch, "ring", path);
    ck_fails(PL_NOT_FOUND, "", pl_trace_merge, paths, 1, &text);
    ck_ok(pl_file_write_atomic, path, junk, sizeof(junk), 0600);
    ck_fails(PL_CORRUPT, path, pl_trace_merge, paths, 1, &text);
    memcpy(junk, "PLTRACE1", 8);
    ck_ok(pl_file_write_atomic, path, junk, sizeof(junk), 0600);
    ck_fails(PL_CORRUPT, "", pl_trace_merge, paths, 1, &text);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_fails(PL_INVALID, "is a pipe", pl_trace_merge, paths, 1, &text);
}

UNIT_MAIN("runtime/trace")
