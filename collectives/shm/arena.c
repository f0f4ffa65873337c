/* SPDX-License-Identifier: Apache-2.0 */
/** Arena memory: one region per span, so that the memory of a span is freed when the last rank has freed it. */
#include "collectives/shm/layout.h"

#include "base/memory.h"
#include "collectives/world_private.h"

#include <string.h>

static char *own_piece(const struct pl_shm *shm, const struct pl_shm_span *span)
{
    return span->region.base + (size_t)shm->rank * span->region.piece_bytes;
}

enum pl_status pl_shm_arena_alloc(void *state, uint64_t bytes, struct pl_span *ret_span, struct pl_error *reterr)
{
    struct pl_shm *shm = state;
    struct pl_shm_span span = {.number = ++shm->span_number};
    enum pl_status status;

    PL_TRY(pl_shm_region_new(pl_world_bootstrap(shm->world), shm->one_process, bytes, pl_world_deadline_ns(shm->world),
                             &span.region, reterr));
    /* Grown only now, because no other rank waits for this one any more. */
    status = pl_memory_grow(&shm->spans, &shm->span_capacity, shm->span_count + 1, sizeof(*shm->spans), reterr);
    if (status != PL_OK) {
        pl_shm_region_free(&span.region);
        pl_error_context(reterr, "rank %d", pl_world_global_rank(shm->world, shm->rank));
        return status;
    }
    shm->spans[shm->span_count++] = span;
    *ret_span = (struct pl_span){.bytes = bytes, .memory = PL_MEMORY_HOST, .data = own_piece(shm, &span)};
    return PL_OK;
}

void pl_shm_arena_free(void *state, struct pl_span *span)
{
    struct pl_shm *shm = state;

    for (size_t i = 0; i < shm->span_count; i++) {
        if (span->data == own_piece(shm, &shm->spans[i])) {
            pl_shm_region_free(&shm->spans[i].region);
            memmove(&shm->spans[i], &shm->spans[i + 1], (shm->span_count - i - 1) * sizeof(*shm->spans));
            shm->span_count--;
            return;
        }
    }
}

void pl_shm_arena_find(const struct pl_shm *shm, const void *data, size_t bytes, uint32_t *ret_number,
                       uint64_t *ret_offset)
{
    for (size_t i = 0; i < shm->span_count; i++) {
        const struct pl_shm_region *region = &shm->spans[i].region;
        uintptr_t start = (uintptr_t)own_piece(shm, &shm->spans[i]);
        uintptr_t at = (uintptr_t)data;

        if (at >= start && at - start <= region->piece_bytes && bytes <= region->piece_bytes - (at - start)) {
            *ret_number = shm->spans[i].number;
            *ret_offset = at - start;
            return;
        }
    }
}

char *pl_shm_arena_at(const struct pl_shm *shm, uint32_t number, int rank, uint64_t offset)
{
    for (size_t i = 0; i < shm->span_count; i++) {
        if (shm->spans[i].number == number) {
            return shm->spans[i].region.base + (size_t)rank * shm->spans[i].region.piece_bytes + offset;
        }
    }
    return NULL;
}
