/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the world of an engine's operations in device memory, and the memory that its ranks share. */
#include "runtime/named/device.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "runtime/compare_lines.h"

#include <stdatomic.h>
#include <stdlib.h>

#define WHAT "operations in device memory" /* for messages */

/* Longest wait for other ranks, which all make the world soon: their services do so without the program. */
static const int64_t MEET_NS = 60 * PL_NS_PER_S;

struct pl_named_maker {
    struct pl_world *parent;
    struct pl_device *device;
    uint64_t arena_bytes; /* bytes of the arena to make; 0: the world is made, and no arena */
    bool has_thread;
    pthread_t thread;
    atomic_bool done; /* set by the thread when the members below have their values */
    struct pl_world *world;
    struct pl_span arena;
    enum pl_status status;
    struct pl_error error;
};

static void make_world(struct pl_named_maker *maker)
{
    struct pl_error own = PL_ERROR_NONE;

    maker->status =
        pl_world_new_twin(maker->parent, maker->device, pl_deadline_after_ns(MEET_NS), &maker->world, &maker->error);
    if (maker->status == PL_OK) {
        if (!maker->device) {
            pl_error_set(&own, PL_UNSUPPORTED, "this rank has no device");
        }
        maker->status = pl_compare_lines(maker->world, WHAT, &own, NULL, 0, &maker->error);
    }
    if (maker->status != PL_OK) {
        pl_world_free(maker->world);
        maker->world = NULL;
    }
}

static void make_arena(struct pl_named_maker *maker)
{
    if (maker->arena.data) {
        pl_arena_free(maker->world, &maker->arena);
    }
    maker->status = pl_arena_alloc(maker->world, maker->arena_bytes, PL_MEMORY_DEVICE, &maker->arena, &maker->error);
}

static void *make(void *maker_at)
{
    struct pl_named_maker *maker = maker_at;
    int heeded = maker->device ? pl_device_pass_captures(maker->device) : 0; /* the thread may belong to the program */

    if (maker->arena_bytes) {
        make_arena(maker);
    } else {
        make_world(maker);
    }
    if (maker->device) {
        pl_device_heed_captures(maker->device, heeded);
    }
    atomic_store(&maker->done, true);
    return NULL;
}

static enum pl_status begin(struct pl_named *named, uint64_t arena_bytes, struct pl_error *reterr)
{
    struct pl_named_maker *maker;

    PL_TRY(pl_memory_alloc(&maker, 1, sizeof(*maker), reterr));
    maker->parent = named->world;
    maker->device = named->device.device;
    maker->arena_bytes = arena_bytes;
    maker->world = named->device.world;
    maker->arena = named->device.arena;
    named->device.maker = maker;
    if (pl_world_any_thread(named->world)) {
        maker->has_thread =
            pl_thread_start(&maker->thread, make, maker, "the thread that makes a world of devices", NULL) == PL_OK;
    }
    if (!maker->has_thread) {
        make(maker);
    }
    return PL_OK;
}

/* Takes over the world or the arena that the thread has made. */
static enum pl_status end(struct pl_named_device *device, struct pl_error *reterr)
{
    struct pl_named_maker *maker = PL_TAKE(device->maker);
    enum pl_status status;

    if (maker->has_thread) {
        pthread_join(maker->thread, NULL);
    }
    device->world = maker->world;
    device->arena = maker->arena;
    status = maker->status;
    if (status != PL_OK && reterr) {
        *reterr = maker->error;
    }
    free(maker);
    return status;
}

enum pl_status pl_named_device_world(struct pl_named *named, bool *ret_there, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    if (!device->world && !device->maker) {
        PL_TRY(begin(named, 0, reterr));
    }
    if (device->maker && !device->world && atomic_load(&device->maker->done)) {
        PL_TRY(end(device, reterr));
    }
    *ret_there = device->world;
    return PL_OK;
}

enum pl_status pl_named_device_arena(struct pl_named *named, uint64_t bytes, bool *ret_there, struct pl_error *reterr)
{
    struct pl_named_device *device = &named->device;

    if (device->arena.bytes < bytes && !device->maker) {
        PL_TRY(begin(named, bytes, reterr));
    }
    if (device->maker && atomic_load(&device->maker->done)) {
        PL_TRY(end(device, reterr));
    }
    *ret_there = !device->maker;
    return PL_OK;
}

void pl_named_device_world_done(struct pl_named_device *device)
{
    if (device->maker) {
        (void)!end(device, NULL);
    }
    pl_world_free(device->world);
    device->world = NULL;
}
