/* SPDX-License-Identifier: Apache-2.0 */
/* For unicode_against_python.py: the Unicode version of our tables, then one line a code point: upper case, printable.
 * */
#include "base/json/python_json.h"
#include "entrypoint/job/unicode.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAST_CODE = 0x10FFFF };

int main(void)
{
    PL_AUTO_TEXT struct pl_text line = PL_TEXT_NONE;

    (void)puts(pl_unicode_version());
    for (uint32_t code = 1; code <= LAST_CODE; code++) {
        PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;

        pl_text_clear(&line);
        pl_python_json_encode(&text, code);
        pl_unicode_append_upper(pl_text_string(&text), &line);
        for (size_t i = 0; i < line.length; i++) {
            (void)printf("%02x", (unsigned char)line.data[i]);
        }
        (void)printf(" %d\n", pl_unicode_is_printable(code));
    }
    return EXIT_SUCCESS;
}
