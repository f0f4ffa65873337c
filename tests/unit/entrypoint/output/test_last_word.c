/* SPDX-License-Identifier: Apache-2.0 */
/* Covers entrypoint/output/last_word.c. */
#include "entrypoint/output/last_word.h"

#include "tests/support/unit.h"

START_TEST(an_error_message_is_known_by_its_form)
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
END_TEST

START_TEST(a_log_line_or_a_metric_is_none)
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
END_TEST

START_TEST(the_command_that_a_shell_did_not_start_is_named)
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
END_TEST

UNIT_MAIN("entrypoint/last_word", an_error_message_is_known_by_its_form, a_log_line_or_a_metric_is_none,
          the_command_that_a_shell_did_not_start_is_named)
