/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that a program calls: a collective is one request, or adasum's chain of them. */
#include "collectives/collective.h"

#include "collectives/calls/adasum.h"
#include "collectives/core/types.h"
#include "collectives/world_private.h"
#include "device/device_private.h"

static bool is_adasum(const struct pl_collective *collective)
{
    return collective->op == PL_ADASUM && pl_kind_reduces(collective->kind);
}

enum pl_status pl_collective_check(const struct pl_world *world, const struct pl_collective *collective,
                                   struct pl_error *reterr)
{
    return is_adasum(collective) ? pl_adasum_check(world, collective, reterr)
                                 : pl_request_check(world, collective, reterr);
}

/* Refuses a captured stream: the event that is recorded in it would draw our streams into the capture. */
static enum pl_status refuse_captured(const struct pl_world *world, const struct pl_collective *collective,
                                      struct pl_error *reterr)
{
    return collective->memory == PL_MEMORY_DEVICE && world->device && !collective->ready
               ? pl_device_refuse_captured(world->device, collective->stream, reterr)
               : PL_OK;
}

enum pl_status pl_collective_post(struct pl_world *world, const struct pl_collective *collective,
                                  struct pl_request **ret_request, struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);

    PL_TRY(refuse_captured(world, collective, reterr));
    PL_TRY(is_adasum(collective) ? pl_adasum_enqueue(world, collective, ret_request, reterr)
                                 : pl_request_enqueue(world, collective, 0, ret_request, reterr));
    if (world->first) {
        pl_core_wake_progress(world->progress);
    }
    return PL_OK;
}

enum pl_status pl_collective_run(struct pl_world *world, const struct pl_collective *collective,
                                 struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);
    unsigned poll_budget = world->topology.oversubscribed ? 0 : PL_POLLS_BEFORE_CLOCK;
    struct pl_request *request = NULL;

    PL_TRY(refuse_captured(world, collective, reterr));
    PL_TRY(is_adasum(collective) ? pl_adasum_enqueue(world, collective, &request, reterr)
                                 : pl_request_enqueue(world, collective, poll_budget, &request, reterr));
    return pl_request_wait_for(request, reterr);
}

enum pl_status pl_allreduce(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                            enum pl_op op, struct pl_error *reterr)
{
    return pl_collective_run(
        world,
        &(struct pl_collective){
            .kind = PL_ALLREDUCE, .dtype = dtype, .op = op, .count = count, .send = send, .recv = recv},
        reterr);
}

enum pl_status pl_broadcast(struct pl_world *world, void *data, uint64_t count, enum pl_dtype dtype, int root,
                            struct pl_error *reterr)
{
    return pl_collective_run(
        world,
        &(struct pl_collective){.kind = PL_BROADCAST, .dtype = dtype, .root = root, .count = count, .recv = data},
        reterr);
}

enum pl_status pl_reduce(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                         enum pl_op op, int root, struct pl_error *reterr)
{
    return pl_collective_run(
        world,
        &(struct pl_collective){
            .kind = PL_REDUCE, .dtype = dtype, .op = op, .root = root, .count = count, .send = send, .recv = recv},
        reterr);
}

enum pl_status pl_allgather(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                            struct pl_error *reterr)
{
    return pl_collective_run(
        world,
        &(struct pl_collective){.kind = PL_ALLGATHER, .dtype = dtype, .count = count, .send = send, .recv = recv},
        reterr);
}

enum pl_status pl_reduce_scatter(struct pl_world *world, const void *send, void *recv, uint64_t count,
                                 enum pl_dtype dtype, enum pl_op op, struct pl_error *reterr)
{
    return pl_collective_run(
        world,
        &(struct pl_collective){
            .kind = PL_REDUCE_SCATTER, .dtype = dtype, .op = op, .count = count, .send = send, .recv = recv},
        reterr);
}

enum pl_status pl_alltoall(struct pl_world *world, const void *send, void *recv, uint64_t count, enum pl_dtype dtype,
                           struct pl_error *reterr)
{
    return pl_collective_run(
        world, &(struct pl_collective){.kind = PL_ALLTOALL, .dtype = dtype, .count = count, .send = send, .recv = recv},
        reterr);
}

enum pl_status pl_barrier(struct pl_world *world, struct pl_error *reterr)
{
    return pl_collective_run(world, &(struct pl_collective){.kind = PL_BARRIER}, reterr);
}
