/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The request of `paceline shell` to the other host, as the text that ssh carries: `shell ` and the command's
 * arguments, or nothing after it for the user's shell. Each argument is quoted, but no shell ever reads the text. ssh
 * handles the terminal.
 *
 * Test  tests/unit/programs/shell/test_request.c, tests/fuzz/fuzz_shell_request.c
 */
#ifndef PL_PROGRAMS_SHELL_REQUEST_H
#define PL_PROGRAMS_SHELL_REQUEST_H

#include "base/text.h"
#include "entrypoint/job/strv.h"

enum { PL_SHELL_REQUEST_MAX_BYTES = 64 * 1024 };

/** Appends the text to an empty one. Errors: PL_LIMIT if it is longer than PL_SHELL_REQUEST_MAX_BYTES. */
enum pl_status pl_shell_request_print(const struct pl_strv *command, struct pl_text *text,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Appends the arguments to an empty `command`. Errors: PL_INVALID if `text` is not exactly what
 * pl_shell_request_print() makes.
 */
enum pl_status pl_shell_request_parse(const char *text, struct pl_strv *command, struct pl_error *reterr) PL_MUST_CHECK;

#endif
