/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Lets one request of this thread for room in an array or a text fail for lack of memory, and later ones succeed: link
 * with -Wl,--wrap=pl_memory_grow.
 */
#ifndef PL_TESTS_SUPPORT_REFUSE_GROWTH_H
#define PL_TESTS_SUPPORT_REFUSE_GROWTH_H

#include "base/memory.h"

/** Number of requests of this thread before that one; negative: no request fails, or it has failed already. */
static _Thread_local int refuse_growth_after = -1;

enum pl_status __real_pl_memory_grow(void *items, size_t *capacity_items, size_t want_items, size_t item_bytes,
                                     struct pl_error *reterr);
enum pl_status __wrap_pl_memory_grow(void *items, size_t *capacity_items, size_t want_items, size_t item_bytes,
                                     struct pl_error *reterr);

enum pl_status __wrap_pl_memory_grow(void *items, size_t *capacity_items, size_t want_items, size_t item_bytes,
                                     struct pl_error *reterr)
{
    if (refuse_growth_after >= 0 && refuse_growth_after-- == 0) {
        return pl_error_set(reterr, PL_MEMORY, "this request is refused");
    }
    return __real_pl_memory_grow(items, capacity_items, want_items, item_bytes, reterr);
}

#endif
