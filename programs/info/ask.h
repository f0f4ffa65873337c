/* SPDX-License-Identifier: Apache-2.0 */
/** The answer of a program, which has a deadline. */
#ifndef PL_PROGRAMS_INFO_ASK_H
#define PL_PROGRAMS_INFO_ASK_H

#include "base/text.h"

/**
 * Run argv[0], a path, with the arguments up to NULL and this process's environment, and append what it prints to
 * standard output and standard error to `answer`. With its deadline it is killed, and so is what it has started.
 *
 * Errors  PL_TIMEOUT; PL_FAILED where it does not end with 0, whose words are its last line.
 * Test    tests/integration/info.py
 */
enum pl_status pl_info_ask(const char *const *argv, int64_t deadline_ns, struct pl_text *answer,
                           struct pl_error *reterr) PL_MUST_CHECK;

#endif
