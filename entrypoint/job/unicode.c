/* SPDX-License-Identifier: Apache-2.0 */
/* Python's str.upper() and str.isprintable() from a generated table. */
#include "entrypoint/job/unicode.h"

#include "base/json/python_json.h"
#include "base/memory.h"
#include "entrypoint/job/unicode_table.h"

#include <string.h>

/* One character's upper case: a special mapping, else the offset of its range (binary search), else itself. */
static void append_upper(uint32_t code, const char *bytes, unsigned bytes_count, struct pl_text *text)
{
    size_t low = 0;
    size_t high = PL_ARRAY_ITEMS(upper_runs);

    for (size_t i = 0; i < PL_ARRAY_ITEMS(upper_special); i++) {
        if (upper_special[i].code == code) {
            pl_text_append(text, upper_special[i].upper);
            return;
        }
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (code > upper_runs[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < PL_ARRAY_ITEMS(upper_runs) && code >= upper_runs[low].first &&
        (code - upper_runs[low].first) % upper_runs[low].step == 0) {
        pl_python_json_encode(text, (uint32_t)((int32_t)code + upper_runs[low].delta));
    } else {
        pl_text_append_n(text, bytes, bytes_count);
    }
}

void pl_unicode_append_upper(const char *string, struct pl_text *text)
{
    while (*string != '\0') {
        unsigned bytes;
        uint32_t code = pl_python_json_decode(string, &bytes);

        if (code < 0x80 && bytes == 1) {
            pl_text_append_char(text, code >= 'a' && code <= 'z' ? (char)(code - 32) : (char)code);
        } else {
            append_upper(code, string, bytes, text);
        }
        string += bytes;
    }
}

bool pl_unicode_is_printable(uint32_t code)
{
    size_t low = 0;
    size_t high = PL_ARRAY_ITEMS(unprintable);

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (code > unprintable[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == PL_ARRAY_ITEMS(unprintable) || code < unprintable[low].first;
}

const char *pl_unicode_version(void)
{
    return PL_UNICODE_VERSION;
}
