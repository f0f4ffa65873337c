/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/cause.c, entrypoint/output/tail.c. */
#include "entrypoint/output/tail.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct pl_tail tail;

static void add(const char *text)
{
    pl_tail_add(&tail, text, strlen(text));
}

/* Returns the cause after `text`, which arrives in pieces of every size that matters. */
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

TEST(the_last_exceptions_own_line_is_kept)
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

TEST(an_exception_is_kept_through_a_long_dump_but_not_for_ever)
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
    for (int i = 0; i < 50000; i++) { /* a handled exception, hours ago */
        add(" 10%|#  | 1/10 [00:01<00:19]\r");
    }
    pl_tail_cause(&tail, cause);
    ck_assert_str_eq(cause, "");
}

TEST(the_connection_that_pip_does_not_get_comes_before_what_follows_from_it)
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
    ck_has(cause_of(text), "Temporary failure in name resolution");
}

TEST(uvs_error_and_its_reasons_are_one_line)
{
    ck_assert_str_eq(
        cause_of("Using Python 3.11.2 environment at: /usr\nerror: No solution found when resolving dependencies\n"
                 "  cause: Because x was not found and you require x==1, we can conclude.\n\nhint: Packages\n"),
        "No solution found when resolving dependencies: Because x was not found and you require x==1, we can "
        "conclude.");
    ck_assert_str_eq(cause_of("error: Request failed\n  Caused by: Failed to fetch: http://h/\n  Caused by: refused"),
                     "Request failed: Failed to fetch: http://h/: refused");
    ck_assert_str_eq(cause_of("  \u00D7 No solution found:\n  \u2570\u2500\u25B6 Because of x\n"),
                     "No solution found: Because of x");
    ck_assert_str_eq(cause_of("error: x\nother\n  cause: y\n"), "");
}

/* Returns the cause after `text`, with its place in braces, for a program whose files are in /opt/ml/code. */
static const char *placed(const char *text)
{
    static char placed[PL_TAIL_LINE_BYTES + PL_TAIL_PLACE_BYTES + 4];
    const size_t bytes = strlen(text), pieces[] = {1, 7, bytes};

    for (size_t i = 0; i < 3; i++) {
        char cause[PL_TAIL_LINE_BYTES + 1], place[PL_TAIL_PLACE_BYTES], both[sizeof(placed)];

        memset(&tail, 0, sizeof(tail));
        tail.cause.folders[0] = "/opt/ml/code";
        tail.cause.folders[1] = "/data/code/";
        for (size_t at = 0; at < bytes; at += pieces[i]) {
            pl_tail_add(&tail, text + at, at + pieces[i] < bytes ? pieces[i] : bytes - at);
        }
        pl_tail_cause(&tail, cause);
        pl_tail_place(&tail, true, place);
        snprintf(both, sizeof(both), "%s {%s}", cause, place);
        ck_assert_msg(i == 0 || strcmp(both, placed) == 0, "'%s' and '%s'", both, placed);
        strcpy(placed, both);
    }
    return placed;
}

#define TRACEBACK "Traceback (most recent call last):\n"
#define MAIN "  File \"/opt/ml/code/train.py\", line 31, in <module>\n    main()\n    ^^^^^^\n"
#define LIBRARY                                                                                                        \
    "  File \"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py\", line 114, in forward\n    return x\n"

TEST(the_place_is_the_innermost_line_of_the_nearest_code)
{
    static const char *const cases[][2] = {
        {TRACEBACK MAIN "ValueError: bad\n", "ValueError: bad {train.py:31}"},
        {TRACEBACK MAIN "  File \"/data/code/lib/a b.py\", line 7, in f\n    g()\n" LIBRARY "ValueError: bad",
         "ValueError: bad {lib/a b.py:7}"},
        {TRACEBACK "  File \"train.py\", line 2, in <module>\nValueError: bad\n", "ValueError: bad {train.py:2}"},
        {TRACEBACK "  File \"/usr/lib/python3.11/runpy.py\", line 8, in run\n" LIBRARY "ValueError: bad\n",
         "ValueError: bad {torch/nn/modules/linear.py:114}"},
        {TRACEBACK "  File \"/app/train.py\", line 8, in <module>\n" LIBRARY "ValueError: bad\n",
         "ValueError: bad {/app/train.py:8}"},
        {TRACEBACK MAIN "  File \"/app/train.py\", line 8, in f\nValueError: bad\n", "ValueError: bad {train.py:31}"},
        {TRACEBACK "  File \"/opt/ml/code/venv/lib/python3.12/site-packages/x/y.py\", line 5, in f\nOdd: x\n",
         "Odd: x {x/y.py:5}"},
        {TRACEBACK "  File \"<string>\", line 1, in <module>\nZeroDivisionError: division by zero\n",
         "ZeroDivisionError: division by zero {<string>:1}"},
        {TRACEBACK MAIN "  File \"<string>\", line 1, in <module>\nValueError: x\n", "ValueError: x {train.py:31}"},
        {TRACEBACK "  File \"/opt/ml/code2/x.py\", line 3, in f\nValueError: x\n",
         "ValueError: x {/opt/ml/code2/x.py:3}"},
        {TRACEBACK "  File \"/opt/ml/code/x.py\", line 0, in f\nValueError: x\n", "ValueError: x {}"},
        {TRACEBACK "  File \"/opt/ml/code/x.py\", line 99999999999, in f\nValueError: x\n", "ValueError: x {}"},
        {TRACEBACK "  File \"/opt/ml/code/x.py, line 3, in f\nValueError: x\n", "ValueError: x {}"},
        {TRACEBACK MAIN "  [Previous line repeated 990 more times]\nRecursionError: deep\n",
         "RecursionError: deep {train.py:31}"},
        {MAIN "ValueError: without its beginning\n", "ValueError: without its beginning {}"},
        {"Stack (most recent call last):\n" MAIN "ValueError: of a log\n", "ValueError: of a log {}"},
        {TRACEBACK MAIN "WARNING: of a thread\n  more\nValueError: x\n", "ValueError: x {train.py:31}"},
        {"Traceback (most recent call last):\n  File \033[35m\"/opt/ml/code/x.py\"\033[0m, line \033[35m3\033[0m, in "
         "\033[35mf\033[0m\n\033[1;35mValueError\033[0m: \033[35mbad\033[0m\n",
         "ValueError: bad {x.py:3}"},
        {TRACEBACK MAIN "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal " TRACEBACK
                        "  File \"/opt/ml/code/data.py\", line 9, in __getitem__\n    raise\nValueError: bad\n",
         "ValueError: bad {data.py:9}"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_str_eq(placed(cases[i][0]), cases[i][1]);
    }
}

TEST(of_chained_exceptions_the_last_one_counts_with_its_own_place)
{
    ck_assert_str_eq(placed(TRACEBACK
                            "  File \"/opt/ml/code/data.py\", line 4, in f\nKeyError: 1\n\nDuring handling of "
                            "the above exception, another exception occurred:\n\n" TRACEBACK MAIN
                            "RuntimeError: second\n"),
                     "RuntimeError: second {train.py:31}");
    ck_assert_str_eq(placed(TRACEBACK MAIN "KeyError: 1\n\nThe above exception was the direct cause of the following "
                                           "exception:\n\n" TRACEBACK LIBRARY "RuntimeError: second\n"),
                     "RuntimeError: second {torch/nn/modules/linear.py:114}");
    ck_assert_str_eq(placed(TRACEBACK MAIN "KeyError: 1\nException ignored in: <function A.__del__>\n" TRACEBACK
                                           "  File \"/opt/ml/code/a.py\", line 4, in f\nAttributeError: gone\n"),
                     "KeyError: 1 {train.py:31}");
}

TEST(of_an_exception_group_the_first_exception_counts)
{
    static const char begin[] = "  + Exception Group Traceback (most recent call last):\n"
                                "  |   File \"/opt/ml/code/train.py\", line 31, in <module>\n"
                                "  |     main()\n"
                                "  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)\n"
                                "  +-+---------------- 1 ----------------\n",
                      end[] = "    +---------------- 2 ----------------\n"
                              "    | Traceback (most recent call last):\n"
                              "    |   File \"/opt/ml/code/other.py\", line 2, in f\n"
                              "    | TypeError: second\n"
                              "    +------------------------------------\n",
                      inner[] = "    | Traceback (most recent call last):\n"
                                "    |   File \"/opt/ml/code/data.py\", line 5, in f\n"
                                "    | KeyError: 'x'\n",
                      chain[] =
                          "    | \n    | During handling of the above exception, another exception occurred:\n    | \n"
                          "    | Traceback (most recent call last):\n"
                          "    |   File \"/opt/ml/code/data.py\", line 7, in f\n"
                          "    | ValueError: bad\n",
                      nested[] = "    | Exception Group Traceback (most recent call last):\n"
                                 "    |   File \"/opt/ml/code/data.py\", line 6, in f\n"
                                 "    | mine.Group: nested (1 sub-exception)\n"
                                 "    +-+---------------- 1 ----------------\n"
                                 "      | Odd: deep\n"
                                 "      +------------------------------------\n";
    char text[4096];

    snprintf(text, sizeof(text), "%s%s%s", begin, inner, end);
    ck_assert_str_eq(placed(text), "KeyError: 'x' {data.py:5}");
    snprintf(text, sizeof(text), "%s%s%s%s", begin, inner, chain, end);
    ck_assert_str_eq(placed(text), "ValueError: bad {data.py:7}");
    snprintf(text, sizeof(text), "%s    | TypeError: bare\n%s", begin, end);
    ck_assert_str_eq(placed(text), "TypeError: bare {train.py:31}");
    snprintf(text, sizeof(text), "%s%s%s", begin, nested, end);
    ck_assert_str_eq(placed(text), "Odd: deep {data.py:6}");
    ck_assert_str_eq(placed(begin), "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions) {train.py:31}");
    snprintf(text, sizeof(text), "%s%s%s\n%s%sRuntimeError: later\n", begin, inner, end, TRACEBACK, MAIN);
    ck_assert_str_eq(placed(text), "RuntimeError: later {train.py:31}");
}

TEST(a_syntax_error_names_its_own_line)
{
    ck_assert_str_eq(
        placed("  File \"/opt/ml/code/train.py\", line 3\n    x =\n       ^\nSyntaxError: invalid syntax\n"),
        "SyntaxError: invalid syntax {train.py:3}");
    ck_assert_str_eq(placed(TRACEBACK MAIN "  File \"/opt/ml/code/data.py\", line 12\n    x =\n       ^\n"
                                           "IndentationError: unexpected indent\n"),
                     "IndentationError: unexpected indent {data.py:12}");
    ck_assert_str_eq(
        placed("  File \"/opt/ml/code/train.py\", line 3\n    x =\nchatter\nSyntaxError: invalid syntax\n"),
        "SyntaxError: invalid syntax {}");
}

TEST(mixed_tracebacks_are_told_apart_by_their_tags_or_have_no_place)
{
    static const char mixed[] =
        "[rank1]: " TRACEBACK "[rank0]: " TRACEBACK "[rank1]:   File \"/opt/ml/code/train.py\", line 31, in <module>\n"
        "[rank0]:   File \"/opt/ml/code/train.py\", line 40, in <module>\n"
        "[rank1]:     main()\n[rank1]: ValueError: bad\n"
        "[rank0]: RuntimeError: Connection closed by peer\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
                      of_mpirun[] = "[1,1]<stderr>:" TRACEBACK "[1,0]<stderr>:" TRACEBACK
                                    "[1,1]<stderr>:  File \"/opt/ml/code/a.py\", line 1, in <module>\n"
                                    "[1,0]<stderr>:  File \"/opt/ml/code/b.py\", line 2, in <module>\n"
                                    "[1,1]<stderr>:ValueError: one\n[1,0]<stderr>:ValueError: two\n",
                      of_torchrun[] = "[default0]:[rank4]: " TRACEBACK
                                      "[default0]:[rank4]:   File \"/opt/ml/code/a.py\", line 1, in <module>\n"
                                      "[default1]:loss: 3\n[default0]:[rank4]: ValueError: one\n",
                      of_paceline[] = "[rank 1] " TRACEBACK "[rank 0] " TRACEBACK
                                      "[rank 1]   File \"/opt/ml/code/a.py\", line 1, in <module>\n"
                                      "[rank 0]   File \"/opt/ml/code/b.py\", line 2, in <module>\n"
                                      "[rank 0] ValueError: two\n",
                      untagged[] = TRACEBACK MAIN TRACEBACK "  File \"/opt/ml/code/b.py\", line 2, in <module>\n"
                                                            "ValueError: one\nKeyError: two\n",
                      untold[] = TRACEBACK MAIN "what follows is of no class\n" TRACEBACK
                                                "  File \"/opt/ml/code/b.py\", line 2, in <module>\nValueError: one\n";
    char text[4096] = "";

    ck_assert_str_eq(placed(mixed), "ValueError: bad {train.py:31, rank 1}");
    ck_assert_str_eq(placed(of_mpirun), "ValueError: two {b.py:2}");
    ck_assert_str_eq(placed(of_torchrun), "ValueError: one {a.py:1, rank 4}");
    ck_assert_str_eq(placed(of_paceline), "ValueError: two {b.py:2, rank 0}");
    ck_assert_str_eq(placed(untagged), "KeyError: two {}");
    ck_assert_str_eq(placed(untold), "ValueError: one {b.py:2}");
    for (int i = 0; i < 20; i++) { /* more writers than are kept: each exception counts, and none has a wrong place */
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "[default%d]:%s", i, TRACEBACK);
    }
    strcat(text, "[default0]:  File \"/opt/ml/code/a.py\", line 1, in f\n[default0]:ValueError: late\n");
    ck_assert_str_eq(placed(text), "ValueError: late {}");
}

/* Of torchrun, whose ranks have shims of their own, and of mpirun, which prints no exception itself. */
TEST(lines_that_another_shim_has_searched_are_not_searched)
{
    static const char text[] =
        "OSError: of torchrun\n[rank1]: Traceback (most recent call last):\n[rank1]: Odd: of rank 1\n";
    static const char *const causes[] = {"Odd: of rank 1", "OSError: of torchrun", ""};
    char cause[PL_TAIL_LINE_BYTES + 1];

    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        tail = (struct pl_tail){.cause.lines = (enum pl_cause_lines)i};
        add(text);
        pl_tail_cause(&tail, cause);
        ck_assert_str_eq(cause, causes[i]);
    }
}

TEST(long_lines_and_long_paths_keep_what_is_needed)
{
    static char text[8192], path[300], wanted[PL_TAIL_LINE_BYTES + 200];

    memset(path, 'd', sizeof(path) - 1);
    snprintf(text, sizeof(text), "%s  File \"/opt/ml/code/%s/x.py\", line 12, in f\nValueError: x\n", TRACEBACK, path);
    ck_has(placed(text), "ValueError: x {...ddd");
    ck_has(placed(text), "d/x.py:12}");
    memset(text, 'a', PL_CAUSE_LINE_BYTES * 3);
    memcpy(text, TRACEBACK MAIN "ValueError: ", strlen(TRACEBACK MAIN "ValueError: "));
    text[PL_CAUSE_LINE_BYTES * 3] = '\0';
    snprintf(wanted, sizeof(wanted), "%.*s... {train.py:31}", PL_TAIL_LINE_BYTES - 3, text + strlen(TRACEBACK MAIN));
    ck_assert_str_eq(placed(text), wanted);
}

UNIT_MAIN("entrypoint/cause")
