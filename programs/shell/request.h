/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What `paceline shell` asks the other host for, as the text that ssh carries: `shell plain`, or `shell terminal ROWS
 * COLUMNS TERM`, and the command's words. Each word of the user's is quoted, and no shell ever reads the text.
 *
 * Test  tests/unit/programs/shell/test_request.c, tests/fuzz/fuzz_shell_request.c
 */
#ifndef PL_PROGRAMS_SHELL_REQUEST_H
#define PL_PROGRAMS_SHELL_REQUEST_H

#include "entrypoint/job/strv.h"

enum {
    PL_SHELL_REQUEST_MAX_BYTES = 64 * 1024,
    PL_SHELL_REQUEST_TERM_BYTES = 64,
};

struct pl_shell_request {
    bool has_terminal;
    unsigned rows, columns;                 /* of the terminal; 0 where they are not known */
    char term[PL_SHELL_REQUEST_TERM_BYTES]; /* its kind: TERM */
    struct pl_strv command;                 /* empty: the user's shell */
};

#define PL_SHELL_REQUEST_NONE ((struct pl_shell_request){.term = ""})

/** `PL_AUTO_SHELL_REQUEST struct pl_shell_request request = PL_SHELL_REQUEST_NONE;` */
#define PL_AUTO_SHELL_REQUEST __attribute__((cleanup(pl_shell_request_done)))

/** Append the text. Errors: PL_LIMIT where it is longer than PL_SHELL_REQUEST_MAX_BYTES; PL_INVALID as below. */
enum pl_status pl_shell_request_print(const struct pl_shell_request *request, struct pl_text *text,
                                      struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Read it into `request`, an empty one. PL_INVALID: it is not exactly what pl_shell_request_print() makes; numbers are
 * at most 65535, and TERM has letters, digits and -+._ only.
 */
enum pl_status pl_shell_request_parse(const char *text, struct pl_shell_request *request,
                                      struct pl_error *reterr) PL_MUST_CHECK;

void pl_shell_request_done(struct pl_shell_request *request);

#endif
