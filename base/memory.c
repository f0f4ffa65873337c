/* SPDX-License-Identifier: Apache-2.0 */
/* Heap memory with overflow-checked sizes, growing arrays and copies of strings. */
#include "base/memory.h"

#include "base/file.h"
#include "base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 1024 * 1024 };

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

/* Sets the pointer of any type at address `pointer`. memcpy() does not break aliasing rules. */
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

static char *read_below(const char *root, const char *name)
{
    char path[PATH_MAX], *text = NULL;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    return pl_file_read(path, TEXT_BYTES, &text, NULL, NULL) == PL_OK ? text : NULL;
}

/* Returns the number at the beginning of a file, or after `name` at the beginning of one of its lines; -1 if there is
 * none. */
static int64_t number_below(const char *root, const char *file, const char *name)
{
    PL_AUTO_FREE char *text = read_below(root, file);
    const char *at = text;
    char *end;
    int64_t number;

    while (at && strncmp(at, name, strlen(name)) != 0) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at) {
        return -1;
    }
    number = strtoll(at + strlen(name), &end, 10);
    return end == at + strlen(name) ? -1 : number;
}

int64_t pl_memory_room(const char *root)
{
    static const struct {
        const char *limit, *used, *stat, *files[2];
    } versions[] = {
        {"sys/fs/cgroup/memory.max",
         "sys/fs/cgroup/memory.current",
         "sys/fs/cgroup/memory.stat",
         {"inactive_file ", "active_file "}},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes",
         "sys/fs/cgroup/memory/memory.usage_in_bytes",
         "sys/fs/cgroup/memory/memory.stat",
         {"total_inactive_file ", "total_active_file "}},
    };
    const int64_t kib = number_below(root, "proc/meminfo", "MemAvailable:");
    int64_t room = kib < 0 ? -1 : kib * 1024;

    for (size_t i = 0; i < PL_ARRAY_ITEMS(versions); i++) {
        const int64_t limit = number_below(root, versions[i].limit, "");
        const int64_t used = number_below(root, versions[i].used, "");
        int64_t left = limit - used;

        for (size_t f = 0; f < 2; f++) {
            const int64_t files = number_below(root, versions[i].stat, versions[i].files[f]);

            left += files > 0 ? files : 0;
        }
        if (limit >= 0 && limit < INT64_MAX / 2 && used >= 0 && (room < 0 || left < room)) {
            room = left > 0 ? left : 0;
        }
    }
    return room;
}
