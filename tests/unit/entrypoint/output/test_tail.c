/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/tail.c. */
#include "entrypoint/output/tail.h"

#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static struct pl_tail tail;

static void add(const char *text)
{
    pl_tail_add(&tail, text, strlen(text));
}

TEST(the_last_lines_are_kept_in_order)
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

TEST(a_line_without_an_end_counts)
{
    char text[64];

    add("one\n\n  \ntwo");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "one\ntwo\n");
}

TEST(a_progress_bar_keeps_its_last_state)
{
    char text[64];

    add("10%\r20%\r100%\r\ndone\r\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "100%\ndone\n");
}

TEST(colours_controls_and_broken_utf8_do_not_reach_the_text)
{
    char text[128];

    add("\033[31mred\033[0m \001x\xff\xc3\xa9\xc3 \xed\xa0\x80!\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "red x?\xc3\xa9? ?"
                           "?"
                           "?!\n");
}

TEST(eight_bit_controls_and_what_a_colour_between_two_bytes_makes_do_not_reach_the_text)
{
    char text[128];

    add("\xc2\x9b"
        "31mred\xc2\x9dx \xc2\033[m\x9b"
        "31m \xc2\xa0\n");
    pl_tail_lines(&tail, text, sizeof(text));
    ck_assert_str_eq(text, "redx ??31m \xc2\xa0\n");
}

TEST(a_long_line_is_cut_visibly)
{
    static char text[4096], line[3000];

    memset(line, 'a', sizeof(line) - 1);
    add(line);
    ck_assert_uint_eq(pl_tail_lines(&tail, text, sizeof(text)), PL_TAIL_LINE_BYTES + 1);
    ck_assert_str_eq(text + PL_TAIL_LINE_BYTES - 3, "...\n");
}

TEST(of_pips_long_list_of_versions_the_newest_stay)
{
    char text[PL_TAIL_LINE_BYTES + 2], version[32];

    add("ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: ");
    for (int i = 0; i < 200; i++) {
        snprintf(version, sizeof(version), "%s1.%d.0", i == 0 ? "" : ", ", i);
        add(version);
    }
    add(")\n");
    ck_assert_uint_le(pl_tail_lines(&tail, text, sizeof(text)), PL_TAIL_LINE_BYTES + 1);
    ck_assert_msg(
        strncmp(text,
                "ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: ..., 1.",
                94) == 0,
        "%s", text);
    ck_has(text, ", 1.198.0, 1.199.0)\n");
}

TEST(nothing_fits_into_nothing)
{
    char text[4] = "xyz";

    add("a long line\n");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 4), 0);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(pl_tail_lines(&tail, text, 0), 0);
}

TEST(an_error_message_is_known_by_its_form)
{
    static const char *const lines[] = {
        "train.py: error: argument --epochs: invalid int value: 'three'",
        "train.py fit: error: unrecognized arguments: --x",
        "tool fit: error: the following arguments are required: --x",
        "python3 -m package.train: error: ambiguous option: --e",
        "train: error: no such file: data.bin",
        "./bin/train: error: infinite loop",
        "./train.sh: line 3: foo: command not found",
        "bash: line 1: DATA: unbound variable",
        "/opt/ml/code/train: 3: foo: not found",
        "sh: 0: cannot open x.sh: No such file",
        "train.sh: 2: DATA: parameter not set",
        "./train: error while loading shared libraries: libx.so.1: cannot open shared object file: No such file or "
        "directory",
        "/usr/bin/train: symbol lookup error: /lib/libx.so: undefined symbol: f",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        ck_assert_msg(pl_last_word_read(lines[i], 2).is_error, "%s", lines[i]);
        ck_assert_str_eq(pl_last_word_read(lines[i], 2).command, "");
        ck_assert(pl_last_word_read(lines[i], 2).is_loader == (i >= 11));
    }
}

TEST(a_log_line_or_a_metric_is_none)
{
    static const char *const lines[] = {
        "",
        "epoch 3: loss 0.5",
        "epoch: 3: loss: 0.5",
        "data.csv: line 3: 5 fields",
        "step 1/10: 3: loss: 0.5",
        "1/10: 3: loss: 0.5",
        "epoch 3: error: none",
        "validation: error: 0.25",
        "validation: error: -1e-3, loss 2",
        "validation: error: nan",
        "validation: error: ",
        " 10%|#    | 1/10 [00:01<00:09]",
        "2026-11-29 08:00:00 trainer: error: no connection",
        "[rank 1] train: error: no",
        "INFO: the worker says: error: none",
        "error: something",
        "ERROR:root:bad data",
        "./train.sh: line 3 is long",
        "train: could not read: No such file or directory",
        "the program: symbol lookup error: no",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        ck_assert_msg(!pl_last_word_read(lines[i], 1).is_error, "%s", lines[i]);
    }
}

TEST(the_command_that_a_shell_did_not_start_is_named)
{
    static const struct {
        int code;
        const char *line, *command;
    } cases[] = {
        {127, "./train.sh: line 3: foo: command not found", "foo"},
        {127, "./train.sh: line 3: ./a b: No such file or directory", "./a b"},
        {127, "./train.sh: line 3: exec: foo: not found", "foo"},
        {127, "./train.sh: line 3: ./x: cannot execute: required file not found", "./x"},
        {127, "sh: 1: foo: not found", "foo"},
        {127, "env: \u2018foo\u2019: No such file or directory", "foo"},
        {127, "/usr/bin/env: 'foo': No such file or directory", "foo"},
        {127, "timeout: failed to run command 'foo': No such file or directory", "foo"},
        {126, "./train.sh: 3: ./x: Permission denied", "./x"},
        {126, "bash: line 1: /opt/ml/code: Is a directory", "/opt/ml/code"},
        {126, "./train.sh: line 2: ./x: cannot execute binary file: Exec format error", "./x"},
        {126, "nohup: failed to run command './x': Permission denied", "./x"},
        {127, "cat: /no/such: No such file or directory", ""},
        {127, "./train: error while loading shared libraries: x: cannot open: No such file or directory", ""},
        {1, "./train.sh: line 3: foo: command not found", ""},
        {126, "./train.sh: line 3: foo: command not found", ""},
        {127, "./train.sh: line 3: : command not found", ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_str_eq(pl_last_word_read(cases[i].line, cases[i].code).command, cases[i].command);
    }
    ck_assert(pl_last_word_read(cases[5].line, 127).is_error);
    ck_assert(!pl_last_word_read(cases[5].line, 1).is_error);
    ck_assert(!pl_last_word_read("cat: /no/such: No such file or directory", 127).is_error);
}

UNIT_MAIN("entrypoint/tail")
