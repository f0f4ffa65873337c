/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline shell` asks the other host for, as the text that ssh carries: `shell ` and the command's words, none
 * for the user's shell. Each word is quoted, and no shell ever reads the text. A terminal is ssh's affair.
 *
 * Test  tests/unit/programs/shell/test_request.c, tests/fuzz/fuzz_shell_request.c
 */
#ifndef PL_PROGRAMS_SHELL_REQUEST_H
#define PL_PROGRAMS_SHELL_REQUEST_H

#include "base/text.h"
#include "entrypoint/job/strv.h"

enum { PL_SHELL_REQUEST_MAX_BYTES = 64 * 1024 };

/** Append the text to an empty one. Errors: PL_LIMIT where it is longer than PL_SHELL_REQUEST_MAX_BYTES. */
enum pl_status pl_shell_request_print(const struct pl_strv *command, struct pl_text *text,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/** Append its words to `command`, an empty one. PL_INVALID: it is not exactly what pl_shell_request_print() makes. */
enum pl_status pl_shell_request_parse(const char *text, struct pl_strv *command, struct pl_error *reterr) PL_MUST_CHECK;

#endif
