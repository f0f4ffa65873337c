/* SPDX-License-Identifier: Apache-2.0 */
/* Heap memory with overflow-checked sizes, growing arrays and copies of strings. */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void *pl_memory_new(size_t count, size_t item_bytes, struct pl_error *reterr)
{
    void *memory = calloc(count ? count : 1, item_bytes ? item_bytes : 1);

    if (!memory) {
        pl_error_set(reterr, PL_MEMORY, "no memory for %zu x %zu bytes", count, item_bytes);
    }
    return memory;
}

void *pl_memory_new_aligned(size_t count, size_t item_bytes, size_t align_bytes, struct pl_error *reterr)
{
    size_t bytes;
    void *memory = NULL;

    PL_BUG_IF(align_bytes == 0 || (align_bytes & (align_bytes - 1)) != 0);
    if (align_bytes < sizeof(void *)) {
        align_bytes = sizeof(void *); /* posix_memalign() refuses a smaller alignment */
    }
    if (__builtin_mul_overflow(count, item_bytes, &bytes) ||
        posix_memalign(&memory, align_bytes, bytes ? bytes : 1) != 0) {
        pl_error_set(reterr, PL_MEMORY, "no memory for %zu x %zu bytes aligned to %zu", count, item_bytes, align_bytes);
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

/* `pointer` is the address of a pointer of any type; memcpy() reads and writes it without breaking aliasing rules. */
static void set_pointer(void *pointer, void *value)
{
    memcpy(pointer, &value, sizeof(value));
}

enum pl_status pl_memory_alloc(void *ret_memory, size_t count, size_t item_bytes, struct pl_error *reterr)
{
    void *memory = pl_memory_new(count, item_bytes, reterr);

    set_pointer(ret_memory, memory);
    return memory ? PL_OK : PL_MEMORY;
}

enum pl_status pl_memory_alloc_aligned(void *ret_memory, size_t count, size_t item_bytes, size_t align_bytes,
                                       struct pl_error *reterr)
{
    void *memory = pl_memory_new_aligned(count, item_bytes, align_bytes, reterr);

    set_pointer(ret_memory, memory);
    return memory ? PL_OK : PL_MEMORY;
}

enum pl_status pl_memory_grow(void *items, size_t *capacity_items, size_t want_items, size_t item_bytes,
                              struct pl_error *reterr)
{
    size_t capacity = *capacity_items ? *capacity_items : 8;
    size_t bytes;
    void *old, *grown;

    if (want_items <= *capacity_items) {
        return PL_OK;
    }
    while (capacity < want_items) {
        if (__builtin_mul_overflow(capacity, (size_t)2, &capacity)) {
            capacity = want_items;
        }
    }
    memcpy(&old, items, sizeof(old));
    if (__builtin_mul_overflow(capacity, item_bytes, &bytes) || !(grown = realloc(old, bytes))) {
        return pl_error_set(reterr, PL_MEMORY, "no memory to grow an array to %zu x %zu bytes", capacity, item_bytes);
    }
    set_pointer(items, grown);
    *capacity_items = capacity;
    return PL_OK;
}

char *pl_memory_string(const char *text, struct pl_error *reterr)
{
    return pl_memory_string_n(text, strlen(text), reterr);
}

char *pl_memory_string_n(const char *text, size_t length, struct pl_error *reterr)
{
    char *copy = pl_memory_new(length + 1, 1, reterr);

    if (copy) {
        memcpy(copy, text, length);
    }
    return copy;
}

void pl_memory_free_at(void *pointer_at)
{
    void *memory;

    memcpy(&memory, pointer_at, sizeof(memory));
    free(memory);
}
