/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of blocks that are freed together: a tool that checks bounds sees each block. */
#include "entrypoint/job/pool.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct pl_pool_block {
    struct pl_pool_block *next;
    max_align_t data[];
};

void *pl_pool_new(struct pl_pool *pool, size_t count, size_t item_bytes)
{
    struct pl_pool_block *block = NULL;
    size_t bytes;

    if (!__builtin_mul_overflow(count, item_bytes, &bytes) && !__builtin_add_overflow(bytes, sizeof(*block), &bytes)) {
        block = pl_memory_new(1, bytes, NULL);
    }
    if (!block) {
        pool->failed = true;
        return NULL;
    }
    block->next = pool->blocks;
    pool->blocks = block;
    return block->data;
}

char *pl_pool_string_n(struct pl_pool *pool, const char *text, size_t length)
{
    static char empty[] = "";
    char *copy = pl_pool_new(pool, length + 1, 1);

    return copy ? memcpy(copy, text, length) : empty;
}

char *pl_pool_string(struct pl_pool *pool, const char *text)
{
    return pl_pool_string_n(pool, text, strlen(text));
}

char *pl_pool_printf(struct pl_pool *pool, const char *format, ...)
{
    PL_AUTO_TEXT struct pl_text text = PL_TEXT_NONE;
    va_list args;

    va_start(args, format);
    pl_text_vprintf(&text, format, args);
    va_end(args);
    return pl_pool_text(pool, &text);
}

char *pl_pool_text(struct pl_pool *pool, const struct pl_text *text)
{
    pool->failed = pool->failed || text->failed;
    return pl_pool_string_n(pool, pl_text_string(text), text->length);
}

enum pl_status pl_pool_check(const struct pl_pool *pool, struct pl_error *reterr)
{
    return pool->failed ? pl_error_set(reterr, PL_MEMORY, "out of memory") : PL_OK;
}

void pl_pool_done(struct pl_pool *pool)
{
    while (pool->blocks) {
        struct pl_pool_block *next = pool->blocks->next;

        free(pool->blocks);
        pool->blocks = next;
    }
    pool->failed = false;
}
