/* SPDX-License-Identifier: Apache-2.0 */
/** The exact grammar of base/json/json.h, checked before json.c or python_json_parse.c builds a tree. */
#ifndef PL_BASE_JSON_JSON_CHECK_H
#define PL_BASE_JSON_JSON_CHECK_H

#include "base/status.h"

#include <stddef.h>

/**
 * Refuses all that pl_json_parse() refuses, except duplicate names. It takes one pass and allocates no memory.
 *
 * Errors  PL_INVALID, PL_LIMIT; "SOURCE:LINE:COLUMN: expected ..., found ...".
 */
enum pl_status pl_json_check(const char *text, size_t bytes, const char *source, struct pl_error *reterr) PL_MUST_CHECK;

#endif
