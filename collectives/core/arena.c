/* SPDX-License-Identifier: Apache-2.0 */
/* Arena memory for the caller: compares what ranks ask for, then allocates shared, pinned, device or private memory. */
#include "collectives/arena.h"

#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"

#include <inttypes.h>
#include <stdlib.h>

enum { ALIGN_BYTES = 4096 };

static const int64_t DROP_ALL_NS = 2 * PL_NS_PER_S;

/* The backend that has shared memory; NULL if no backend has. */
static const struct pl_world_backend *sharing_backend(const struct pl_world *world)
{
    for (int i = 0; i < world->backend_count; i++) {
        if (world->backends[i].on && world->backends[i].backend->arena_alloc) {
            return &world->backends[i];
        }
    }
    return NULL;
}

struct arena_request {
    uint64_t bytes;
    uint64_t memory;
};

static const char *memory_text(uint64_t memory)
{
    return memory == PL_MEMORY_HOST ? "host" : memory == PL_MEMORY_PINNED ? "pinned" : "device";
}

static enum pl_status check_agreed(struct pl_world *world, uint64_t bytes, enum pl_memory memory, int64_t deadline_ns,
                                   struct pl_error *reterr)
{
    PL_AUTO_FREE struct arena_request *all = NULL;
    const struct arena_request own = {.bytes = bytes, .memory = memory};

    PL_TRY(pl_bootstrap_gather(world->bootstrap, &own, sizeof(own), deadline_ns, &all, reterr));
    for (int r = 1; r < world->size; r++) {
        if (all[r].memory != all[0].memory) {
            return pl_error_set(reterr, PL_MISMATCH,
                                "ranks disagree about an arena piece: rank %d asks for %s memory, rank %d for %s",
                                pl_world_global_rank(world, 0), memory_text(all[0].memory),
                                pl_world_global_rank(world, r), memory_text(all[r].memory));
        }
        if (all[r].bytes != all[0].bytes) {
            return pl_error_set(
                reterr, PL_MISMATCH,
                "ranks disagree about an arena piece: rank %d asks for %" PRIu64 " bytes, rank %d for %" PRIu64,
                pl_world_global_rank(world, 0), all[0].bytes, pl_world_global_rank(world, r), all[r].bytes);
        }
    }
    return PL_OK;
}

static enum pl_status alloc_private(struct pl_world *world, uint64_t bytes, struct pl_span *ret_span,
                                    struct pl_error *reterr)
{
    struct pl_arena_block *block = pl_memory_new(1, sizeof(*block), reterr);
    void *data = block ? pl_memory_new_aligned(bytes, 1, ALIGN_BYTES, reterr) : NULL;

    if (!data) {
        free(block);
        return PL_MEMORY;
    }
    *block = (struct pl_arena_block){.next = world->blocks, .memory = PL_MEMORY_HOST, .data = data, .bytes = bytes};
    world->blocks = block;
    *ret_span = (struct pl_span){.bytes = bytes, .memory = PL_MEMORY_HOST, .data = data};
    return PL_OK;
}

/* Releases a block that is no longer in the list. */
static void end_block(struct pl_world *world, struct pl_arena_block *block, int64_t deadline_ns)
{
    if (block->memory == PL_MEMORY_HOST) {
        free(pl_bootstrap_has_leaked(world->bootstrap) ? NULL : block->data);
        free(block);
    } else {
        pl_arena_gpu_end(world, block, deadline_ns);
    }
}

/* Releases the block that starts at `data`, if there is one. */
static void end_block_of(struct pl_world *world, enum pl_memory memory, const void *data)
{
    for (struct pl_arena_block **at = &world->blocks; *at; at = &(*at)->next) {
        if ((*at)->memory == memory && (*at)->data == data) {
            struct pl_arena_block *found = *at;

            *at = found->next;
            end_block(world, found, pl_world_deadline_ns(world));
            return;
        }
    }
}

static void give_back(struct pl_world *world, struct pl_span *span)
{
    const struct pl_world_backend *backend = sharing_backend(world);

    if (!span->data) {
        return;
    }
    if (span->memory != PL_MEMORY_HOST) {
        end_block_of(world, span->memory, span->data);
    }
    if (span->memory != PL_MEMORY_DEVICE && !pl_bootstrap_has_leaked(world->bootstrap)) {
        if (backend) {
            backend->backend->arena_free(backend->state, span);
        } else {
            end_block_of(world, PL_MEMORY_HOST, span->data);
        }
    }
    *span = (struct pl_span){.data = NULL};
}

/* Does this rank's part of alloc_host(). */
static enum pl_status take_host(struct pl_world *world, uint64_t bytes, enum pl_memory memory, struct pl_span *ret_span,
                                struct pl_error *reterr)
{
    const struct pl_world_backend *backend = sharing_backend(world);
    enum pl_status status;

    if (backend) {
        /* the error names the rank that has no memory */
        PL_TRY(backend->backend->arena_alloc(backend->state, bytes, ret_span, reterr));
        status = PL_OK;
    } else {
        status = alloc_private(world, bytes, ret_span, reterr);
    }
    if (status == PL_OK && memory == PL_MEMORY_PINNED) {
        status = pl_arena_gpu_pin(world, ret_span, reterr);
        ret_span->memory = status == PL_OK ? PL_MEMORY_PINNED : PL_MEMORY_HOST;
    }
    if (status != PL_OK) {
        pl_error_context(reterr, "rank %d", pl_world_global_rank(world, world->rank));
    }
    return status;
}

/* Allocates host memory, pinned if the caller asks for that, on every rank; if one rank fails, on no rank. */
static enum pl_status alloc_host(struct pl_world *world, uint64_t bytes, enum pl_memory memory, int64_t deadline_ns,
                                 struct pl_span *ret_span, struct pl_error *reterr)
{
    struct pl_span span = {.data = NULL};
    struct pl_error own = PL_ERROR_NONE;
    struct pl_packed_error vote;
    enum pl_status status;

    own.status = take_host(world, bytes, memory, &span, &own);
    if (pl_bootstrap_is_desynchronised(&own)) {
        *reterr = own;
        return own.status;
    }
    vote = pl_bootstrap_pack_error(&own);
    status = pl_world_vote(world, &vote, deadline_ns, reterr);
    if (status == PL_OK && vote.status == PL_OK) {
        *ret_span = span;
        return PL_OK;
    }
    give_back(world, &span);
    return status == PL_OK ? pl_error_set(reterr, (enum pl_status)vote.status, "%s memory on every rank: %s",
                                          memory_text(memory), vote.text)
                           : status;
}

/* Allocates on every rank; if one rank fails, on no rank. */
static enum pl_status alloc(struct pl_world *world, uint64_t bytes, enum pl_memory memory, struct pl_span *ret_span,
                            struct pl_error *reterr)
{
    int64_t deadline_ns = pl_world_deadline_ns(world);

    PL_TRY(check_agreed(world, bytes, memory, deadline_ns, reterr));
    PL_AUTO_HOLD(world);
    return memory == PL_MEMORY_DEVICE ? pl_arena_gpu_new(world, bytes, ret_span, reterr)
                                      : alloc_host(world, bytes, memory, deadline_ns, ret_span, reterr);
}

enum pl_status pl_arena_alloc(struct pl_world *world, uint64_t bytes, enum pl_memory memory, struct pl_span *ret_span,
                              struct pl_error *reterr)
{
    char reason[PL_BACKEND_REASON_BYTES];
    struct pl_error error = PL_ERROR_NONE;
    enum pl_status status;

    PL_TRY(pl_world_failure(world, reterr));
    if (memory != PL_MEMORY_HOST && !pl_world_has_devices(world, reason)) {
        return pl_error_set(reterr, PL_UNSUPPORTED, "an arena in %s memory is not possible: %s", memory_text(memory),
                            reason);
    }
    if (bytes == 0 || bytes > PTRDIFF_MAX - ALIGN_BYTES) {
        return pl_error_set(reterr, PL_INVALID, "an arena piece cannot have %" PRIu64 " bytes", bytes);
    }
    status = alloc(world, bytes, memory, ret_span, &error);
    if (pl_bootstrap_is_desynchronised(&error)) {
        PL_AUTO_HOLD(world);
        pl_request_revoke_world(world, &error);
    }
    if (status != PL_OK && reterr) {
        *reterr = error;
    }
    return status;
}

void pl_arena_free(struct pl_world *world, struct pl_span *span)
{
    PL_AUTO_HOLD(world);

    give_back(world, span);
}

void pl_arena_drop_all(struct pl_world *world)
{
    while (world->blocks) {
        struct pl_arena_block *block = world->blocks;

        world->blocks = block->next;
        end_block(world, block, pl_deadline_after_ns(DROP_ALL_NS));
    }
}
