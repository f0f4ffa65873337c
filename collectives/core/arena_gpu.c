/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena memory on devices: each rank allocates on its own device. If all ranks are on one host, they open each other's
 * blocks, so that a kernel of one rank can read and write all of them. Also keeps the list of pinned memory.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "collectives/bootstrap/bootstrap_private.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "device/device.h"
#include "device/device_private.h"
#include "device/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Record that a rank sends to the others about its block. */
struct export_record {
    int32_t made;     /* whether there is a block */
    int32_t exported; /* whether `handle` opens it */
    uint64_t address;
    struct pl_device_handle handle;
    struct pl_packed_error failure; /* why the block was not made or not exported */
};

static void release_block(struct pl_world *world, struct pl_arena_block *block)
{
    if (block->memory == PL_MEMORY_PINNED) {
        pl_device_unpin(world->device, block->data);
    } else if (block->data) {
        pl_device_release(world->device, block->data);
    }
    free(block->mappings);
    free(block);
}

static void unmap_blocks(struct pl_world *world, struct pl_arena_block *block)
{
    for (int r = 0; block->mappings && r < world->size; r++) {
        if (block->mappings[r].imported) {
            pl_device_unimport(world->device, block->mappings[r].data);
        }
    }
}

/* Whether ranks could map each other's device memory if the driver allows it; all ranks get the same answer. */
static bool can_share(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    const struct pl_topology *topology = &world->topology;

    if (topology->hosts > 1) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "ranks on %d hosts", topology->hosts);
        return false;
    }
    if (world->size > PL_DEVICE_MAX_SOURCES) {
        snprintf(reason, PL_BACKEND_REASON_BYTES, "more than %d ranks", (int)PL_DEVICE_MAX_SOURCES);
        return false;
    }
    for (int r = 0; r < world->size; r++) {
        for (int other = 0; other < r; other++) {
            if (topology->pid_of[r] == topology->pid_of[other] &&
                strcmp(topology->localities[r].device, topology->localities[other].device) != 0) {
                snprintf(reason, PL_BACKEND_REASON_BYTES, "ranks %d and %d are threads of one process on two devices",
                         other, r);
                return false;
            }
        }
    }
    return true;
}

bool pl_world_shares_device_memory(const struct pl_world *world)
{
    char reason[PL_BACKEND_REASON_BYTES];
    bool has_streamed = false;

    for (int i = 0; i < world->backend_count; i++) {
        has_streamed = has_streamed || (world->backends[i].on && world->backends[i].backend->streamed);
    }
    return world->size > 1 && !has_streamed && !world->gpu_not_mapped[0] && pl_world_has_devices(world, reason) &&
           can_share(world, reason);
}

static enum pl_status map_blocks(struct pl_world *world, struct pl_arena_block *block,
                                 const struct export_record *export_records, struct pl_error *reterr)
{
    const struct pl_topology *topology = &world->topology;

    PL_TRY(pl_memory_alloc(&block->mappings, (size_t)world->size, sizeof(*block->mappings), reterr));
    for (int r = 0; r < world->size; r++) {
        struct pl_arena_gpu_mapping *mapping = &block->mappings[r];
        void *data;

        if (topology->pid_of[r] == topology->pid_of[world->rank]) {
            mapping->data = (char *)(uintptr_t)export_records[r].address;
            continue;
        }
        if (!export_records[r].exported) {
            return pl_error_set(reterr, PL_UNSUPPORTED, "rank %d: %s", pl_world_global_rank(world, r),
                                export_records[r].failure.text);
        }
        PL_TRY(pl_device_import(world->device, &export_records[r].handle, &data, reterr));
        *mapping = (struct pl_arena_gpu_mapping){.data = data, .imported = true};
    }
    return PL_OK;
}

/* Maps the blocks of all ranks, on every rank or, if one fails, on none: world->gpu_not_mapped has the reason. */
static enum pl_status share(struct pl_world *world, struct pl_arena_block *block,
                            const struct export_record *export_records, int64_t deadline_ns, struct pl_error *reterr)
{
    struct pl_error own = PL_ERROR_NONE;
    struct pl_packed_error vote;

    if (!can_share(world, world->gpu_not_mapped)) {
        return PL_OK;
    }
    own.status = map_blocks(world, block, export_records, &own);
    vote = pl_bootstrap_pack_error(&own);
    PL_TRY(pl_world_vote(world, &vote, deadline_ns, reterr));
    if (vote.status != PL_OK) {
        unmap_blocks(world, block);
        free(block->mappings);
        block->mappings = NULL;
        memcpy(world->gpu_not_mapped, vote.text, sizeof(vote.text));
    }
    return PL_OK;
}

static enum pl_status build_block(struct pl_world *world, struct pl_arena_block *block, uint64_t bytes,
                                  struct pl_error *reterr)
{
    PL_AUTO_FREE struct export_record *export_records =
        pl_memory_new((size_t)world->size, sizeof(*export_records), reterr);
    int64_t deadline_ns = pl_deadline_after_ns(world->timeout_ns);
    struct pl_error own = PL_ERROR_NONE;
    struct export_record export_record;
    void *data = NULL;

    if (!export_records) {
        return pl_bootstrap_abort_collective(world->bootstrap, PL_MEMORY, reterr, deadline_ns);
    }
    memset(&export_record, 0, sizeof(export_record));
    export_record.made = pl_device_alloc(world->device, bytes, &data, &own) == PL_OK;
    block->data = data;
    block->bytes = bytes;
    export_record.address = (uint64_t)(uintptr_t)data;
    export_record.exported =
        export_record.made && pl_device_export(world->device, data, &export_record.handle, &own) == PL_OK;
    export_record.failure = pl_bootstrap_pack_error(&own);
    PL_TRY(pl_bootstrap_allgather(world->bootstrap, &export_record, export_records, sizeof(export_record), deadline_ns,
                                  reterr));
    for (int r = 0; r < world->size; r++) {
        if (!export_records[r].made) {
            char name[PL_RANK_NAME_BYTES];

            return pl_error_set(reterr, PL_MEMORY, "device memory on %s, device %d, %s: %s",
                                pl_world_rank_name(world, r, name), world->topology.localities[r].ordinal,
                                world->topology.localities[r].device, export_records[r].failure.text);
        }
    }
    return world->size > 1 ? share(world, block, export_records, deadline_ns, reterr) : PL_OK;
}

enum pl_status pl_arena_gpu_new(struct pl_world *world, uint64_t bytes, struct pl_span *ret_span,
                                struct pl_error *reterr)
{
    struct pl_arena_block *block = pl_memory_new(1, sizeof(*block), reterr);
    enum pl_status status;

    if (!block) {
        return pl_bootstrap_abort_collective(world->bootstrap, PL_MEMORY, reterr, pl_world_deadline_ns(world));
    }
    status = build_block(world, block, bytes, reterr);
    if (status != PL_OK) {
        unmap_blocks(world, block);
        release_block(world, block);
        return status;
    }
    block->memory = PL_MEMORY_DEVICE;
    block->number = ++world->gpu_block_number;
    block->next = world->blocks;
    world->blocks = block;
    *ret_span = (struct pl_span){.bytes = bytes, .memory = PL_MEMORY_DEVICE, .data = block->data};
    return PL_OK;
}

void pl_arena_gpu_end(struct pl_world *world, struct pl_arena_block *block, int64_t deadline_ns)
{
    bool elsewhere = false;
    struct pl_error error;

    unmap_blocks(world, block);
    for (int r = 0; block->mappings && r < world->size; r++) {
        elsewhere = elsewhere || block->mappings[r].imported;
    }
    /* Releasing memory that another process maps is undefined, so wait for all; a rank that is gone maps nothing. */
    if (elsewhere && world->failure.status == PL_OK &&
        pl_bootstrap_vote(world->bootstrap, PL_OK, deadline_ns, &error) != PL_OK) {
        world->failure = error;
    }
    release_block(world, block);
}

enum pl_status pl_arena_gpu_pin(struct pl_world *world, const struct pl_span *host, struct pl_error *reterr)
{
    struct pl_arena_block *block;
    enum pl_status status;

    PL_TRY(pl_memory_alloc(&block, 1, sizeof(*block), reterr));
    status = pl_device_pin(world->device, host->data, host->bytes, reterr);
    if (status != PL_OK) {
        free(block);
        return status;
    }
    *block = (struct pl_arena_block){
        .next = world->blocks, .memory = PL_MEMORY_PINNED, .data = host->data, .bytes = host->bytes};
    world->blocks = block;
    return PL_OK;
}

const struct pl_arena_block *pl_arena_gpu_find(const struct pl_world *world, const void *data, uint64_t bytes,
                                               uint64_t *ret_offset)
{
    for (const struct pl_arena_block *block = world->blocks; block; block = block->next) {
        uintptr_t at = (uintptr_t)data;
        uintptr_t start = (uintptr_t)block->data;

        if (block->mappings && at >= start && at - start <= block->bytes && bytes <= block->bytes - (at - start)) {
            *ret_offset = at - start;
            return block;
        }
    }
    return NULL;
}

const struct pl_arena_block *pl_arena_gpu_numbered(const struct pl_world *world, uint32_t number)
{
    const struct pl_arena_block *block = world->blocks;

    while (block && block->number != number) {
        block = block->next;
    }
    return block;
}
