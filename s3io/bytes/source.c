/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all byte sources, and the source over memory. */
#include "s3io/source.h"

#include "base/memory.h"
#include "base/number.h"

#include <stdlib.h>
#include <string.h>

enum pl_status pl_source_init(struct pl_source *source, const struct pl_source_ops *ops, const char *name,
                              struct pl_error *reterr)
{
    source->ops = ops;
    source->cancelled = false;
    source->name = pl_memory_string(name, reterr);
    return source->name ? PL_OK : PL_MEMORY;
}

enum pl_status pl_source_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                              size_t *ret_bytes, struct pl_error *reterr)
{
    size_t got = 0;

    PL_BUG_IF(bytes == 0);
    if (__atomic_load_n(&source->cancelled, __ATOMIC_ACQUIRE)) {
        return pl_error_set(reterr, PL_CANCELLED, "reading '%s' was cancelled", source->name);
    }
    if (!source->ended) {
        PL_TRY(source->ops->read(source, data, bytes, deadline_ns, &got, reterr));
        source->offset_bytes += got;
        source->ended = got == 0;
    }
    *ret_bytes = got;
    return PL_OK;
}

void pl_source_cancel(struct pl_source *source)
{
    __atomic_store_n(&source->cancelled, true, __ATOMIC_RELEASE);
    if (source->ops->cancel) {
        source->ops->cancel(source);
    }
}

void pl_source_close(struct pl_source *source)
{
    if (source) {
        free(source->name);
        source->ops->close(source);
    }
}

void pl_source_close_at(struct pl_source **source_at)
{
    pl_source_close(*source_at);
}

struct memory_source {
    struct pl_source head;
    const unsigned char *next;
    size_t left;
};

static enum pl_status memory_read(struct pl_source *source, void *data, size_t bytes, int64_t deadline_ns,
                                  size_t *ret_bytes, struct pl_error *reterr)
{
    struct memory_source *memory = (struct memory_source *)source;
    size_t got = pl_number_min(bytes, memory->left);

    (void)deadline_ns;
    (void)reterr;
    if (got) {
        memcpy(data, memory->next, got);
        memory->next += got;
        memory->left -= got;
    }
    *ret_bytes = got;
    return PL_OK;
}

static size_t memory_view(struct pl_source *source, const unsigned char **ret_data)
{
    struct memory_source *memory = (struct memory_source *)source;
    size_t left = memory->left;

    *ret_data = memory->next;
    memory->left = 0;
    source->offset_bytes += left;
    source->ended = true;
    return left;
}

static void memory_close(struct pl_source *source)
{
    free(source);
}

static const struct pl_source_ops memory_ops = {.read = memory_read, .view = memory_view, .close = memory_close};

enum pl_status pl_source_open_memory(const char *name, const void *data, size_t bytes, struct pl_source **ret_source,
                                     struct pl_error *reterr)
{
    struct memory_source *memory = pl_memory_new(1, sizeof(*memory), reterr);

    if (!memory) {
        return PL_MEMORY;
    }
    memory->next = data;
    memory->left = bytes;
    if (pl_source_init(&memory->head, &memory_ops, name, reterr) != PL_OK) {
        free(memory);
        return PL_MEMORY;
    }
    *ret_source = &memory->head;
    return PL_OK;
}
