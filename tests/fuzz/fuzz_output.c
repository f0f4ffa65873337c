/* SPDX-License-Identifier: Apache-2.0 */
/* What programs write. */
#include "base/clock.h"
#include "base/memory.h"
#include "entrypoint/output/bars.h"
#include "entrypoint/output/tail.h"
#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* Passes `bytes` in pieces of `piece`, and returns what has been written. */
static char *pass(const char *data, size_t bytes, size_t piece, int64_t interval_ns, size_t *ret_bytes)
{
    struct pl_bars *bars = calloc(1, sizeof(*bars));
    char *out = malloc(2 * bytes + 2 * PL_BARS_HELD_BYTES);
    size_t used = 0;

    PL_BUG_IF(!bars || !out);
    bars->interval_ns = interval_ns;
    for (size_t at = 0; at < bytes; at += piece) {
        const size_t count = at + piece < bytes ? piece : bytes - at;

        memcpy(out + used, data + at, count);
        used = pl_bars_pass(bars, out, used, count, 1);
    }
    used += pl_bars_end(bars, out + used);
    free(bars);
    *ret_bytes = used;
    return out;
}

/* The output of a program with progress bars: however it is cut into pieces, the same lines are written, without a
 * carriage return, a backspace or a cursor that goes up; and output without a carriage return is not changed. */
static int fuzz_bars(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    const bool has_return = bytes > 0 && memchr(text, '\r', bytes);
    size_t whole_bytes, pieces_bytes;
    char *whole = pass(text, bytes, bytes, PL_NS_PER_S, &whole_bytes);
    char *pieces = pass(text, bytes, bytes > 0 ? 1 + data[0] % 7 : 1, PL_NS_PER_S, &pieces_bytes);

    PL_BUG_IF(whole_bytes != pieces_bytes || memcmp(whole, pieces, whole_bytes) != 0);
    PL_BUG_IF(whole_bytes > bytes + 1);
    PL_BUG_IF(memchr(whole, '\r', whole_bytes));
    PL_BUG_IF(!has_return && (whole_bytes != bytes || memcmp(whole, text, bytes) != 0));
    free(pieces);
    pieces = pass(text, bytes, 1, 0, &pieces_bytes);
    PL_BUG_IF(memchr(pieces, '\r', pieces_bytes));
    free(pieces);
    free(whole);
    return 0;
}

/* The stderr of a program: however it is cut into pieces, its cause is the same, and is text that can be shown. The
 * command that a last line names is in it. */
static int fuzz_cause(const uint8_t *data, size_t bytes)
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

FUZZ_TARGETS({"bars", fuzz_bars}, {"cause", fuzz_cause})
