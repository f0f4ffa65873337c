/* SPDX-License-Identifier: Apache-2.0 */
/** Places in a text, for messages: what is there, and how to mend it. */
#ifndef PL_BASE_JSON_TEXT_PLACE_H
#define PL_BASE_JSON_TEXT_PLACE_H

enum { PL_TEXT_PLACE_FOUND_BYTES = 48 };

/**
 * Describes the character at `place` in a text that ends at `end`: "'x'", "a line break". Writes at most
 * PL_TEXT_PLACE_FOUND_BYTES into `text`.
 */
const char *pl_text_place_found(const char *place, const char *end, char text[PL_TEXT_PLACE_FOUND_BYTES]);

/** Returns ": remove the comma before it" if a list or object ends at `place` after a comma; otherwise "". */
const char *pl_text_place_hint(const char *text, const char *place, const char *end);

#endif
