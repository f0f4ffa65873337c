/* SPDX-License-Identifier: Apache-2.0 */
/* A collective from its post to its end in one call. */
#include "collectives/collective.h"

#include "collectives/core/types.h"

enum pl_status pl_collective_run(struct pl_world *world, const struct pl_collective *collective,
                                 struct pl_error *reterr)
{
    PL_AUTO_HOLD(world);
    struct pl_request *request = NULL;

    PL_TRY(pl_request_post(world, collective, world->topology.oversubscribed ? 0 : PL_POLLS_BEFORE_CLOCK, &request,
                           reterr));
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
