/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Memory that is freed as a whole: what is made for one description, such as a job, lives as long as it. A call cannot
 * fail at its place: that memory is out is remembered, and reported once by pl_pool_check().
 */
#ifndef PL_ENTRYPOINT_JOB_POOL_H
#define PL_ENTRYPOINT_JOB_POOL_H

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

struct pl_pool {
    struct pl_pool_block *blocks; /* the newest first */
    bool failed;
};

/** `PL_AUTO_POOL struct pl_pool pool = {.blocks = NULL};` frees the memory at the end of the scope. */
#define PL_AUTO_POOL __attribute__((cleanup(pl_pool_done)))

/** Returns `count` zeroed items of `item_bytes`; NULL if memory is out. */
void *pl_pool_new(struct pl_pool *pool, size_t count, size_t item_bytes) PL_MUST_CHECK;

/** Return a copy of `text`, of its first `length` bytes, or a formatted text; "" if memory is out. */
char *pl_pool_string(struct pl_pool *pool, const char *text);
char *pl_pool_string_n(struct pl_pool *pool, const char *text, size_t length);
char *pl_pool_text(struct pl_pool *pool, const struct pl_text *text);
char *pl_pool_printf(struct pl_pool *pool, const char *format, ...) PL_PRINTF(2, 3);

/** Returns PL_MEMORY if memory has run out. */
enum pl_status pl_pool_check(const struct pl_pool *pool, struct pl_error *reterr) PL_MUST_CHECK;

void pl_pool_done(struct pl_pool *pool);

#endif
