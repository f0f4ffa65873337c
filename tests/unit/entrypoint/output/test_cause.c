/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/cause.c, entrypoint/output/tail.c. */
/* In tests/data/causes.txt `text` is a program's stderr, `found` is its cause, `placed` has its place too. */
#include "entrypoint/output/tail.h"

#include "tests/support/cases.h"

#include <stdio.h>
#include <string.h>

static struct pl_tail tail;
static char of_case[4096];

static void add(const char *text)
{
    pl_tail_add(&tail, text, strlen(text));
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

/* Returns the same without the place. */
static const char *cause_of(const char *text)
{
    static char cause[PL_TAIL_LINE_BYTES + PL_TAIL_PLACE_BYTES + 4];
    const char *found = placed(text);

    snprintf(cause, sizeof(cause), "%.*s", (int)(strrchr(found, '{') - found - 1), found);
    return cause;
}

static void set_text(char *rest)
{
    snprintf(of_case, sizeof(of_case), "%s", cases_unescape(rest));
}

static const char *find(const char *name, struct pl_text *text, bool *ret_known)
{
    *ret_known = strcmp(name, "found") == 0 || strcmp(name, "placed") == 0;
    return name[0] == 'f' ? cause_of(of_case) : placed(of_case);
}

static struct cases cases = {.verbs = (const struct cases_verb[]){{"text", set_text}, {NULL, NULL}},
                             .actions = (const struct cases_action[]){{NULL, NULL}},
                             .find = find};

#define TRACEBACK "Traceback (most recent call last):\n"
#define MAIN "  File \"/opt/ml/code/train.py\", line 31, in <module>\n    main()\n    ^^^^^^\n"

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

TEST(of_more_writers_than_are_kept_each_exception_counts_and_none_has_a_wrong_place)
{
    char text[4096] = "";

    for (int i = 0; i < 20; i++) {
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

CASES_MAIN("entrypoint/output/cause")
