/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the last line of a program's stderr says of its end, where it is an error message. Only these forms count, since
 * a log line or a metric may be last, too:
 *
 *     train.py: error: argument --epochs: invalid int value: 'three'     argparse, and many programs in C
 *     ./train.sh: line 3: foo: command not found                         bash; dash: "./train.sh: 3: foo: not found"
 *     ./train: error while loading shared libraries: libx.so.1: ...      the dynamic loader
 *     env: 'foo': No such file or directory                              with the exit codes 126 and 127
 *
 * Test  tests/unit/entrypoint/output/test_last_word.c
 */
#ifndef PL_ENTRYPOINT_OUTPUT_LAST_WORD_H
#define PL_ENTRYPOINT_OUTPUT_LAST_WORD_H

#include <stdbool.h>

enum { PL_LAST_WORD_COMMAND_BYTES = 128 };

struct pl_last_word {
    bool is_error;
    bool is_loader; /* the dynamic loader's: the code 127 is its own, not that of a shell */
    /* with the codes 126 and 127 the command that could not be executed or was not found; "": the line names none */
    char command[PL_LAST_WORD_COMMAND_BYTES];
};

/** Reads the line of a program that exited with `code`. */
struct pl_last_word pl_last_word_read(const char *line, int code);

#endif
