/* SPDX-License-Identifier: Apache-2.0 */
/** Heap memory with checked sizes, and the cleanup attributes that release locals. */
#ifndef PL_BASE_MEMORY_H
#define PL_BASE_MEMORY_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct pl_text;

/**
 * Allocates `count` zeroed items of `item_bytes`. Returns NULL, with PL_MEMORY in `reterr`, if memory is out or the
 * product overflows.
 */
void *pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/** Like pl_memory_new(), aligned to `align_bytes` (a power of two). Release it with free(). */
void *pl_memory_new_aligned(size_t count, size_t item_bytes, size_t align_bytes, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Allocate like the two functions above, but return a status. `*ret_memory`, a pointer of any type, is NULL on failure.
 * The functions above are for callers that check several allocations at once, or that release something on failure.
 */
enum pl_status pl_memory_alloc(void *ret_memory, size_t count, size_t item_bytes,
                               struct pl_error *reterr) PL_MUST_CHECK;
enum pl_status pl_memory_alloc_aligned(void *ret_memory, size_t count, size_t item_bytes, size_t align_bytes,
                                       struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Grows the array at `*items`, whose capacity is `*capacity_items`, to at least `want_items`, by doubling. New items
 * are not initialised. On failure the array is unchanged.
 */
enum pl_status pl_memory_grow(void *items, size_t *capacity_items, size_t want_items, size_t item_bytes,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a copy of `text`, or NULL with PL_MEMORY. */
char *pl_memory_string(const char *text, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns a copy of `length` bytes of `text`, NUL-terminated, or NULL with PL_MEMORY. */
char *pl_memory_string_n(const char *text, size_t length, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Returns the number of bytes that can still be used below the container's memory limit and the machine's memory; -1:
 * unknown. Files that the kernel caches count as free. `root` is put before /sys and /proc: "", or a test's directory.
 */
int64_t pl_memory_room(const char *root);

void pl_memory_free_at(void *pointer_at);

/** `PL_AUTO_FREE char *text = NULL;` frees the memory at the end of the scope. */
#define PL_AUTO_FREE __attribute__((cleanup(pl_memory_free_at)))

/** Returns the value of an auto-released pointer and sets the pointer to NULL: `*ret_text = PL_TAKE(text);` */
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
