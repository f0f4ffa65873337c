/* SPDX-License-Identifier: Apache-2.0 */
/* paceline-bench in device memory. It reduces as a gradient plan reduces its buckets: arena memory, on a stream,
 * with calls that are known to agree. */
#include "base/memory.h"
#include "collectives/arena.h"
#include "collectives/bootstrap.h"
#include "collectives/collective.h"
#include "collectives/world_private.h"
#include "device/device_private.h"
#include "programs/bench/bench.h"

enum { UNDER_WAY = 8 }; /* number of requests that are posted before the first is waited for */

enum pl_status pl_bench_device_open(struct pl_bench *bench, struct pl_bootstrap *bootstrap, uint64_t room,
                                    struct pl_error *reterr)
{
    struct pl_span span;

    PL_TRY(pl_world_new_on_device(bootstrap, NULL, NULL, &bench->device, &bench->world, reterr));
    if (!bench->device) {
        int count;

        PL_TRY(pl_device_count(&count, reterr)); /* if it fails, its error says why there is no device */
        return pl_error_set(reterr, PL_UNSUPPORTED, "no GPU is used, as the setting device demands");
    }
    PL_TRY(pl_device_stream_new(bench->device, &bench->stream, reterr));
    PL_TRY(pl_arena_alloc(bench->world, room, PL_MEMORY_DEVICE, &span, reterr));
    bench->ours = span.data;
    return PL_OK;
}

void pl_bench_device_close(struct pl_bench *bench)
{
    pl_device_stream_free(bench->device, bench->stream);
    pl_world_free(bench->world); /* frees its arenas too */
    pl_device_close(bench->device);
}

static enum pl_status finish(struct pl_bench *bench, struct pl_error *reterr)
{
    return pl_device_stream_finish(bench->device, bench->stream, pl_world_deadline_ns(bench->world), reterr);
}

enum pl_status pl_bench_device_loop(struct pl_bench *bench, int64_t iterations, struct pl_error *reterr)
{
    const struct pl_collective c = {
        .kind = PL_ALLREDUCE,
        .dtype = bench->options->dtype,
        .count = bench->count,
        .flags = bench->options->flags | PL_AGREED,
        .send = bench->ours,
        .recv = bench->ours,
        .memory = PL_MEMORY_DEVICE,
        .stream = bench->stream,
    };
    struct pl_request *requests[UNDER_WAY] = {NULL};

    for (int64_t i = 0; i < iterations + UNDER_WAY; i++) {
        struct pl_request **request = &requests[i % UNDER_WAY];

        if (*request) {
            PL_TRY(pl_request_wait(PL_TAKE(*request), reterr));
        }
        if (i < iterations) {
            PL_TRY(pl_collective_post(bench->world, &c, request, reterr));
            PL_TRY(pl_request_stream_wait(*request, bench->stream, reterr));
        }
    }
    return finish(bench, reterr);
}

enum pl_status pl_bench_device_copy(struct pl_bench *bench, void *to, const void *from, uint64_t bytes,
                                    struct pl_error *reterr)
{
    PL_TRY(pl_device_copy(bench->device, to, from, bytes, bench->stream, reterr));
    return finish(bench, reterr);
}
