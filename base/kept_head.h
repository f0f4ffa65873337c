/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The head of the memory file in which a program stores its state for the job's next attempt. runtime/kept.h writes it.
 * Process 1, which owns the file, reads the step of the newest copy.
 *
 * Test  tests/unit/runtime/test_kept.c
 */
#ifndef PL_BASE_KEPT_HEAD_H
#define PL_BASE_KEPT_HEAD_H

#include "base/hash.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/** The variable that gives rank 0 the file's path. */
#define PL_KEPT_VARIABLE "PACELINE_KEPT"

/** Version of the file's form. It changes the mark, so that a copy of another version counts as none. */
#define PL_KEPT_FORM 1U

/** The head of a copy. The file begins with two heads. The copy is complete if pl_kept_head_is_marked(). */
struct pl_kept_head {
    uint64_t sequence;            /* number of the copy, from 1 */
    uint64_t step, offset, bytes; /* `offset`: offset of the data in the file */
    uint32_t data_crc32c;
    _Atomic uint32_t mark; /* computed from a hash of the fields above; written last */
};

/** The beginning of the file. */
struct pl_kept_page {
    struct pl_kept_head heads[2];
    _Atomic uint64_t reached; /* last step that the program has finished; 0: it has not said so */
};

static inline uint32_t pl_kept_head_mark(const struct pl_kept_head *head)
{
    uint64_t hash = pl_hash(PL_KEPT_FORM, head, offsetof(struct pl_kept_head, mark));

    return (uint32_t)(hash ^ hash >> 32);
}

static inline bool pl_kept_head_is_marked(const struct pl_kept_head *head)
{
    return atomic_load_explicit(&head->mark, memory_order_acquire) == pl_kept_head_mark(head) && head->sequence != 0;
}

/**
 * Reads the step of the newest copy in the file, and the last step that was finished; false: there is no copy. No
 * process may write to the file meanwhile.
 */
static inline bool pl_kept_head_read(int fd, uint64_t *ret_step, uint64_t *ret_reached)
{
    struct pl_kept_page page;
    uint64_t newest = 0;

    if (pread(fd, &page, sizeof(page), 0) != sizeof(page)) {
        return false;
    }
    for (size_t i = 0; i < 2; i++) {
        if (pl_kept_head_is_marked(&page.heads[i]) && page.heads[i].sequence > newest) {
            newest = page.heads[i].sequence;
            *ret_step = page.heads[i].step;
        }
    }
    *ret_reached = atomic_load_explicit(&page.reached, memory_order_relaxed);
    return newest > 0;
}

#endif
