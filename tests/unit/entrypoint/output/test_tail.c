/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/tail.c, entrypoint/output/cause.c. */
#include "entrypoint/output/tail.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct pl_tail tail;

static void add(const char *text)
{
    pl_tail_add(&tail, text, strlen(text));
}

START_TEST(the_last_lines_are_kept_in_order)
{
    char text[64], line[32];

    for (int i = 0; i < 5000; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        add(line);
    }
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 31), 30);
    ck_assert_str_eq(text, "line 4997\nline 4998\nline 4999\n");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 30), 20);
    ck_assert_str_eq(text, "line 4998\nline 4999\n");
}
END_TEST

START_TEST(a_line_without_an_end_counts)
{
    char text[64];

    add("one\n\n  \ntwo");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "one\ntwo\n");
}
END_TEST

START_TEST(a_progress_bar_keeps_its_last_state)
{
    char text[64];

    add("10%\r20%\r100%\r\ndone\r\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "100%\ndone\n");
}
END_TEST

START_TEST(colours_controls_and_broken_utf8_do_not_reach_the_text)
{
    char text[128];

    add("\033[31mred\033[0m \001x\xff\xc3\xa9\xc3 \xed\xa0\x80!\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "red x?\xc3\xa9? ?"
                           "?"
                           "?!\n");
}
END_TEST

START_TEST(eight_bit_controls_and_what_a_colour_between_two_bytes_makes_do_not_reach_the_text)
{
    char text[128];

    add("\xc2\x9b"
        "31mred\xc2\x9dx \xc2\033[m\x9b"
        "31m \xc2\xa0\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "redx ??31m \xc2\xa0\n");
}
END_TEST

START_TEST(a_long_line_is_cut_visibly)
{
    static char text[4096], line[3000];

    memset(line, 'a', sizeof(line) - 1);
    add(line);
    ck_assert_uint_eq(pl_tail_lines(&tail, text, sizeof(text)), PL_TAIL_LINE_BYTES + 1);
    ck_assert_str_eq(text + PL_TAIL_LINE_BYTES - 3, "...\n");
}
END_TEST

START_TEST(nothing_fits_into_nothing)
{
    char text[4] = "xyz";

    add("a long line\n");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 4), 0);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 0), 0);
}
END_TEST

/* The cause after `text`, which comes in pieces of every size that matters. */
static const char *cause_of(const char *text)
{
    static char cause[PL_TAIL_LINE_BYTES + 1];
    const size_t bytes = strlen(text), pieces[] = {1, 7, bytes};

    for (size_t i = 0; i < 3; i++) {
        char found[PL_TAIL_LINE_BYTES + 1];

        memset(&tail, 0, sizeof(tail));
        for (size_t at = 0; at < bytes; at += pieces[i]) {
            pl_tail_add(&tail, text + at, at + pieces[i] < bytes ? pieces[i] : bytes - at);
        }
        pl_tail_cause(&tail, found);
        ck_assert_msg(i == 0 || strcmp(found, cause) == 0, "'%s' and '%s'", found, cause);
        strcpy(cause, found);
    }
    return cause;
}

START_TEST(the_last_exceptions_own_line_is_kept)
{
    static const char begin[] =
        "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    f()\n    ^^^\n";
    static const char *const cases[][2] = {
        {"ValueError: bad value 3\n", "ValueError: bad value 3"},
        {"ValueError: no end", "ValueError: no end"},
        {"KeyboardInterrupt\r\n", "KeyboardInterrupt"},
        {"AssertionError\nlater chatter: 3\nepoch 5\n", "AssertionError"},
        {"torch.distributed.DistNetworkError: The server\n", "torch.distributed.DistNetworkError: The server"},
        {"struct.error: unpack requires\n", "struct.error: unpack requires"},
        {"__main__.f.<locals>.Odd: x\n", "__main__.f.<locals>.Odd: x"},
        {"queue.Empty\n", "queue.Empty"},
        {"WARNING: of another thread\nloss: 0.5\nOutOfData: none is left\n", "OutOfData: none is left"},
        {"KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent "
         "call last):\n  File\nRuntimeError: second\n",
         "RuntimeError: second"},
        {"KeyError: 1\nException ignored in: <function A.__del__ at 0x7f>\nTraceback (most recent call last):\n  "
         "File\nAttributeError: gone\n",
         "KeyError: 1"},
    };
    char text[1024];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text), "%s%s", begin, cases[i][0]);
        ck_assert_str_eq(cause_of(text), cases[i][1]);
    }
    ck_assert_str_eq(cause_of("  5%|#  |\r 10%|#  |Traceback (most recent call last):\n  File\nOdd: x\n"), "Odd: x");
    ck_assert_str_eq(
        cause_of("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"x\"\n[rank1]:     f()\n"
                 "[rank1]: Odd: of rank 1\n[rank1]:[W1126 14:03:01] destroy_process_group() was not called\n"),
        "Odd: of rank 1");
    ck_assert_str_eq(cause_of("  File \"x.py\", line 1\n    x =\n       ^\nSyntaxError: invalid syntax\n"),
                     "SyntaxError: invalid syntax");
    ck_assert_str_eq(cause_of("ERROR: x\nError: y\nloss: 0.5\nnpm ERR! z\n error: no\nOdd: x\na FileError: z\n"), "");
}
END_TEST

START_TEST(an_exception_is_kept_through_a_long_dump_but_not_for_ever)
{
    static char line[3000];
    char cause[PL_TAIL_LINE_BYTES + 1], wanted[PL_TAIL_LINE_BYTES + 1];

    memset(line, 'a', sizeof(line) - 2);
    line[sizeof(line) - 2] = '\n';
    memcpy(line, "ValueError: ", 12);
    snprintf(wanted, sizeof(wanted), "%.*s...", PL_TAIL_LINE_BYTES - 3, line);
    add(line);
    for (int i = 0; i < 5000; i++) {
        add("       [0.1, 0.2, 0.3],\n");
    }
    pl_tail_cause(&tail, cause);
    ck_assert_str_eq(cause, wanted);
    for (int i = 0; i < 50000; i++) { /* a handled one, hours ago */
        add(" 10%|#  | 1/10 [00:01<00:19]\r");
    }
    pl_tail_cause(&tail, cause);
    ck_assert_str_eq(cause, "");
}
END_TEST

START_TEST(uvs_error_and_its_reasons_are_one_line)
{
    ck_assert_str_eq(
        cause_of("Using Python 3.11.2 environment at: /usr\nerror: No solution found when resolving dependencies\n"
                 "  cause: Because x was not found and you require x==1, we can conclude.\n\nhint: Packages\n"),
        "error: No solution found when resolving dependencies: Because x was not found and you require x==1, we can "
        "conclude.");
    ck_assert_str_eq(cause_of("error: Request failed\n  Caused by: Failed to fetch: http://h/\n  Caused by: refused"),
                     "error: Request failed: Failed to fetch: http://h/: refused");
    ck_assert_str_eq(cause_of("  \u00D7 No solution found:\n  \u2570\u2500\u25B6 Because of x\n"),
                     "\u00D7 No solution found: Because of x");
    ck_assert_str_eq(cause_of("error: x\nother\n  cause: y\n"), "");
}
END_TEST

START_TEST(the_connection_that_pip_does_not_get_comes_before_what_follows_from_it)
{
    char text[2048] = "";

    for (int i = 4; i >= 0; i--) {
        snprintf(
            text + strlen(text), sizeof(text) - strlen(text),
            "WARNING: Retrying (Retry(total=%d, connect=None, read=None, redirect=None, status=None)) after connection "
            "broken by 'NewConnectionError('<HTTPSConnection object at 0x7f>: Failed to establish a new connection: "
            "[Errno -3] Temporary failure in name resolution')': /simple/x/\n",
            i);
        ck_assert_str_eq(cause_of(text),
                         i > 0 ? ""
                               : "connection broken by 'NewConnectionError('<HTTPSConnection object at "
                                 "0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure "
                                 "in name resolution')': /simple/x/");
    }
    strcat(text, "ERROR: Could not find a version that satisfies the requirement x (from versions: none)\n"
                 "ERROR: No matching distribution found for x\n");
    ck_assert_ptr_nonnull(strstr(cause_of(text), "Temporary failure in name resolution"));
}
END_TEST

UNIT_MAIN("entrypoint/tail", the_last_lines_are_kept_in_order, a_line_without_an_end_counts,
          a_progress_bar_keeps_its_last_state, colours_controls_and_broken_utf8_do_not_reach_the_text,
          eight_bit_controls_and_what_a_colour_between_two_bytes_makes_do_not_reach_the_text,
          a_long_line_is_cut_visibly, nothing_fits_into_nothing, the_last_exceptions_own_line_is_kept,
          an_exception_is_kept_through_a_long_dump_but_not_for_ever,
          the_connection_that_pip_does_not_get_comes_before_what_follows_from_it,
          uvs_error_and_its_reasons_are_one_line)
