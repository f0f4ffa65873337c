/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/supervise/exit_report.c. */
/* A case of tests/data/exit-reports.txt begins with rank 1 of algo-2 that has exited with 3. Its lines set the report's
 * fields; `of` is its kind, `long_tail` repeats a line, `stopped` is the signal that has stopped the job. `next` is
 * the line with what to do next. */
#include "entrypoint/supervise/exit_report.h"
#include "entrypoint/supervise/failure.h"

#include "tests/support/cases.h"

static struct pl_exit_report report;
static int stopped_by;

#define SET_TEXT(field)                                                                                                \
    static void set_##field(char *rest)                                                                                \
    {                                                                                                                  \
        snprintf(report.field, sizeof(report.field), "%s", cases_unescape(rest));                                      \
    }

SET_TEXT(host)
SET_TEXT(program)
SET_TEXT(note)
SET_TEXT(tail)
SET_TEXT(cause)
SET_TEXT(place)

static void set_source(char *rest)
{
    static const struct {
        const char *name;
        enum pl_process_kind kind;
    } kinds[] = {{"program", PL_PROCESS_PROGRAM}, {"launcher", PL_PROCESS_LAUNCHER}, {"step", PL_PROCESS_STEP}};
    size_t at = 0;

    while (strcmp(kinds[at].name, rest) != 0) {
        at++;
        ck_assert_uint_lt(at, PL_ARRAY_ITEMS(kinds));
    }
    report.kind = kinds[at].kind;
    report.rank = -1;
}

static void set_end(bool signalled, const char *number)
{
    report.signalled = signalled;
    report.code = atoi(number);
}

static void set_code(char *rest)
{
    set_end(false, rest);
}

static void set_signal(char *rest)
{
    set_end(true, rest);
}

static void set_out_of_memory(char *rest)
{
    report.out_of_memory = strcmp(rest, "yes") == 0;
}

static void set_long_tail(char *rest)
{
    const char *line = cases_unescape(rest);

    for (int i = 0; i < 60; i++) {
        strcat(report.tail, line);
    }
}

static void set_stopped(char *rest)
{
    stopped_by = atoi(rest);
}

static const struct cases_verb verbs[] = {{"host", set_host},
                                          {"program", set_program},
                                          {"note", set_note},
                                          {"tail", set_tail},
                                          {"cause", set_cause},
                                          {"place", set_place},
                                          {"of", set_source},
                                          {"code", set_code},
                                          {"signal", set_signal},
                                          {"oom", set_out_of_memory},
                                          {"long_tail", set_long_tail},
                                          {"stopped", set_stopped},
                                          {NULL, NULL}};

static const char *find(const char *name, struct pl_text *text, bool *ret_known)
{
    const char *next;

    if (strcmp(name, "sentence") == 0) {
        pl_exit_report_sentence(&report, text);
        return pl_text_string(text);
    }
    if (strcmp(name, "step") == 0) {
        pl_exit_report_print_step(&report, "bringing the code into place", PL_FAILURE_SHOWN_BYTES, text);
        return pl_text_string(text);
    }
    *ret_known = strcmp(name, "printed") == 0 || strcmp(name, "next") == 0;
    pl_exit_report_print(&report, stopped_by, PL_FAILURE_SHOWN_BYTES, text);
    ck_assert_uint_le(text->length, PL_FAILURE_SHOWN_BYTES);
    next = strstr(pl_text_string(text), "\nNext: ");
    return name[0] == 'p' ? pl_text_string(text) : next ? next + 1 : NULL;
}

static void begin(void)
{
    report = PL_EXIT_REPORT_NONE;
    report.kind = PL_PROCESS_RANK;
    report.rank = 1;
    report.code = 3;
    strcpy(report.host, "algo-2");
    strcpy(report.program, "/opt/ml/code/train");
    stopped_by = 0;
}

static struct cases cases = {
    .verbs = verbs, .actions = (const struct cases_action[]){{NULL, NULL}}, .find = find, .begin = begin};

TEST(the_report_fits_and_ends_with_the_newest_lines)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

    begin();
    for (int i = 0; i < 90; i++) {
        snprintf(report.tail + strlen(report.tail), sizeof(report.tail) - strlen(report.tail), "stderr line %d\n", i);
    }
    pl_exit_report_print(&report, 0, PL_FAILURE_SHOWN_BYTES, &text);
    ck_assert_uint_le(text.length, PL_FAILURE_SHOWN_BYTES);
    ck_assert_uint_gt(text.length, PL_FAILURE_SHOWN_BYTES - 40);
    ck_assert_ptr_eq(strstr(text.data, "rank 1 on host algo-2 exited with code 3\nProgram: /opt/ml/code/train\n"),
                     text.data);
    ck_assert_str_eq(text.data + text.length - strlen("stderr line 89\n"), "stderr line 89\n");
}

TEST(an_exit_report_travels_unchanged)
{
    struct pl_exit_report back;
    struct pl_frame frame = {.type = PL_FRAME_ENDED,
                             .count = 7,
                             .fields = {"9 1 0 1 1 1", "algo-2", "prog", "note", "tail\n", "cause", "x.py:3"}};

    ck_ok(pl_exit_report_receive, &frame, &back);
    ck_assert(back.signalled && back.out_of_memory && !back.not_started);
    ck_assert_int_eq(back.code, 9);
    ck_assert_str_eq(back.note, "note");
    ck_assert_str_eq(back.tail, "tail\n");
    ck_assert_str_eq(back.cause, "cause");
    ck_assert_str_eq(back.place, "x.py:3");
    frame.fields[0] = "900 1 0 1 1 1";
    ck_fails(PL_CORRUPT, "", pl_exit_report_receive, &frame, &back);
    frame.fields[0] = "9 1 0 1 1 1x";
    ck_fails(PL_CORRUPT, "", pl_exit_report_receive, &frame, &back);
    frame.count = 6;
    ck_fails(PL_CORRUPT, "", pl_exit_report_receive, &frame, &back);
}

CASES_MAIN("entrypoint/supervise/exit_report")
