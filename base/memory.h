/* SPDX-License-Identifier: Apache-2.0 */
/** Heap memory with checked sizes, and the cleanup attributes that release locals. */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_text;

/**
 * Allocates `count` zeroed items of `item_bytes`; NULL with PL_MEMORY in `reterr` if there is no memory or the product
 * overflows.
 */
void *pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/** The same as pl_memory_new(), aligned to `align_bytes` (a power of two). Release with free(). */
void *pl_memory_new_aligned(size_t count, size_t item_bytes, size_t align_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Allocate as these two do, and return a status: `*ret_memory`, a pointer of any type, is NULL on failure. The forms
 * above are for those that look at several allocations at once, or release something if one fails.
 */
enum pl_status pl_memory_alloc(void *ret_memory, size_t count, size_t item_bytes,
                               struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_memory_alloc_aligned(void *ret_memory, size_t count, size_t item_bytes, size_t align_bytes,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes room for at least `want_items` in the array at `*items`, whose capacity is `*capacity_items`; the capacity
 * doubles. New items are not initialised. On failure the array is unchanged.
 */
enum pl_status pl_memory_grow(void *items, size_t *capacity_items, size_t want_items, size_t item_bytes,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a copy of `text`; NULL with PL_MEMORY. */
char *pl_memory_string(const char *text, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a copy of `length` bytes of `text` with a NUL after it; NULL with PL_MEMORY. */
char *pl_memory_string_n(const char *text, size_t length, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns how many bytes more may be used before the container's memory limit, or the machine's memory, is reached.
 * Files that the kernel holds in memory count as free. -1: unknown. `root` stands before /sys and /proc: "", or a
 * test's directory.
 */
int64_t pl_memory_room(const char *root);

void pl_memory_free_at(void *pointer_at);

/** `PL_AUTO_FREE char *text = NULL;` frees the memory at the end of the scope. */
#define PL_AUTO_FREE __attribute__((cleanup(pl_memory_free_at)))

/** Takes the value out of an auto-released pointer, which becomes NULL: `*ret_text = PL_TAKE(text);` */
#define PL_TAKE(pointer)                                                                                               \
    __extension__({                                                                                                    \
        __typeof__(pointer) pl_taken_ = (pointer);                                                                     \
        (pointer) = NULL;                                                                                              \
        pl_taken_;                                                                                                     \
    })

#define PL_ARRAY_ITEMS(array) (sizeof(array) / sizeof((array)[0]))

/** Returns the struct of `type` whose `member` is at `pointer`. */
#define PL_CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
