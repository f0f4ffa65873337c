/* SPDX-License-Identifier: Apache-2.0 */
/* Places in a text, for messages. */
#include "base/json/text_place.h"

#include <stdio.h>

const char *pl_text_place_found(const char *place, const char *end, char text[PL_TEXT_PLACE_FOUND_BYTES])
{
    unsigned char byte;
    int length = 1;

    if (place >= end) {
        return "the end of the text";
    }
    byte = (unsigned char)*place;
    if (byte == '\n' || byte == '\r') {
        return "a line break";
    }
    if (byte == '\t') {
        return "a tab";
    }
    if (byte < 0x20 || byte == 0x7F) {
        snprintf(text, PL_TEXT_PLACE_FOUND_BYTES, "the control character 0x%02x", byte);
        return text;
    }
    while (length < 4 && place + length < end && (place[length] & 0xC0) == 0x80) {
        length++;
    }
    snprintf(text, PL_TEXT_PLACE_FOUND_BYTES, "'%.*s'", length, place);
    return text;
}

const char *pl_text_place_hint(const char *text, const char *place, const char *end)
{
    const char *before = place;

    if (place >= end || (*place != '}' && *place != ']')) {
        return "";
    }
    while (before > text && (before[-1] == ' ' || before[-1] == '\t' || before[-1] == '\n' || before[-1] == '\r')) {
        before--;
    }
    return before > text && before[-1] == ',' ? ": remove the comma before it" : "";
}
