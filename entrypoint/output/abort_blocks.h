/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Leaves out of what mpirun writes to stderr the blocks between two lines of dashes that only say that a rank has ended
 * badly: Paceline's own last line names the rank, its host and the cause. All other blocks stay, and so do lines of
 * ranks, which have a tag.
 *
 * Test  tests/unit/entrypoint/output/test_abort_blocks.c
 */
#ifndef PL_ENTRYPOINT_OUTPUT_ABORT_BLOCKS_H
#define PL_ENTRYPOINT_OUTPUT_ABORT_BLOCKS_H

#include <stddef.h>

/** Zero-initialise; holds no resources. */
struct pl_abort_blocks {
    unsigned lines_left; /* of a block whose end has not come; 0: there is none */
};

/**
 * Takes `count` bytes, which are whole lines, removes the blocks in place, and returns how many bytes stay. Of these
 * the last `*ret_held_bytes` are a line of dashes that may begin a block: give it again, before the next lines.
 */
size_t pl_abort_blocks_remove(struct pl_abort_blocks *blocks, char *lines, size_t count, size_t *ret_held_bytes);

#endif
