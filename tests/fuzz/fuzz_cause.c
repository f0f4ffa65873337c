/* SPDX-License-Identifier: Apache-2.0 */
/* The stderr of a program: however it is cut into pieces, its cause is the same, and is text that can be shown. The
 * command that a last line names is in it. */
#include "base/memory.h"
#include "entrypoint/output/tail.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    struct pl_tail *whole = calloc(1, sizeof(*whole)), *pieces = calloc(1, sizeof(*pieces));
    char cause[PL_TAIL_LINE_BYTES + 1], other[PL_TAIL_LINE_BYTES + 1], lines[256];
    char place[PL_TAIL_PLACE_BYTES], other_place[PL_TAIL_PLACE_BYTES];
    struct pl_last_word word;
    size_t piece = bytes > 0 ? 1 + data[0] % 7 : 1;

    if (whole && pieces) {
        whole->cause.folders[0] = pieces->cause.folders[0] = "/opt/ml/code";
        pl_tail_add(whole, text, bytes);
        for (size_t at = 0; at < bytes; at += piece) {
            pl_tail_add(pieces, text + at, at + piece < bytes ? piece : bytes - at);
        }
        pl_tail_cause(whole, cause);
        pl_tail_cause(pieces, other);
        pl_tail_place(whole, true, place);
        pl_tail_place(pieces, true, other_place);
        PL_BUG_IF(strcmp(cause, other) != 0 || strpbrk(cause, "\r\n\033"));
        PL_BUG_IF(strcmp(place, other_place) != 0 || strpbrk(place, "\r\n\033"));
        PL_BUG_IF(cause[0] == '\0' && place[0] != '\0');
        PL_BUG_IF(pl_tail_lines(whole, lines, sizeof(lines)) != strlen(lines));
        lines[strcspn(lines, "\n")] = '\0';
        word = pl_last_word_read(lines, 126 + (int)(piece % 2));
        PL_BUG_IF(word.command[0] != '\0' && (!word.is_error || !strstr(lines, word.command)));
    }
    free(whole);
    free(pieces);
    return 0;
}
