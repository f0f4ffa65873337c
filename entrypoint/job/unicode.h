/* SPDX-License-Identifier: Apache-2.0 */
/** Python's view of characters, for names and texts that must come out as the Python toolkit makes them. */
#ifndef PL_ENTRYPOINT_JOB_UNICODE_H
#define PL_ENTRYPOINT_JOB_UNICODE_H

#include "base/text.h"

/**
 * Append str.upper() of `string` (the inner form of base/json/python_json.h): full mapping, so that "ß" becomes "SS".
 */
void pl_unicode_append_upper(const char *string, struct pl_text *text);

/** str.isprintable() of one code point. */
bool pl_unicode_is_printable(uint32_t code);

/** The version of the Unicode tables, "14.0.0". */
const char *pl_unicode_version(void);

#endif
