/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises the blocks of Open MPI 4 and 5 by the line of dashes and the beginning of the line after it. */
#include "entrypoint/output/abort_blocks.h"

#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

/* More lines than the longest block has: what has no end is not left out for ever. */
enum { BLOCK_LINES_MOST = 12, DASHES_LEAST = 60 };

static bool is_dashes(const char *line, size_t bytes)
{
    return bytes > DASHES_LEAST && strspn(line, "-") == bytes - 1;
}

static bool begins_with(const char *text, size_t bytes, const char *beginning)
{
    return bytes >= strlen(beginning) && memcmp(text, beginning, strlen(beginning)) == 0;
}

/* "mpirun noticed that ...": the first word is the name by which it was started. */
static bool begins_block(const char *line, size_t bytes)
{
    static const char *const beginnings[] = {"Primary job  terminated normally, but ",
                                             "MPI_ABORT was invoked on rank "};
    static const char *const after_name[] = {" noticed that process rank ",
                                             " detected that one or more processes exited with non-zero status"};
    const size_t name = strcspn(line, " \n");

    for (size_t i = 0; i < PL_ARRAY_ITEMS(after_name); i++) {
        if (begins_with(line + name, bytes - name, after_name[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < PL_ARRAY_ITEMS(beginnings); i++) {
        if (begins_with(line, bytes, beginnings[i])) {
            return true;
        }
    }
    return false;
}

static bool has_tag(const char *line)
{
    return line[0] == '[';
}

size_t pl_abort_blocks_remove(struct pl_abort_blocks *blocks, char *lines, size_t count, size_t *ret_held_bytes)
{
    size_t kept = 0, dashes = 0; /* bytes of a line of dashes at the end of what is kept */

    for (size_t at = 0, bytes; at < count; at += bytes) {
        const char *newline = memchr(lines + at, '\n', count - at);

        bytes = newline ? (size_t)(newline - lines) + 1 - at : count - at;
        if (blocks->lines_left > 0 && !has_tag(lines + at)) {
            blocks->lines_left = is_dashes(lines + at, bytes) ? 0 : blocks->lines_left - 1;
            continue;
        }
        if (dashes > 0 && begins_block(lines + at, bytes)) {
            kept -= dashes;
            dashes = 0;
            blocks->lines_left = BLOCK_LINES_MOST;
            continue;
        }
        dashes = is_dashes(lines + at, bytes) ? bytes : 0;
        memmove(lines + kept, lines + at, bytes);
        kept += bytes;
    }
    *ret_held_bytes = dashes;
    return kept;
}
