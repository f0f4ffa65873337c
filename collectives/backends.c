/* SPDX-License-Identifier: Apache-2.0 */
/* The table of backends, the worlds that run on it, and the backend of a world of one rank: every collective is a copy,
 * scaled if the caller asks for it. */
#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/core/backend.h"
#include "collectives/core/types.h"
#include "collectives/reduce/kernel.h"
#include "collectives/world_private.h"

#include <string.h>

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    strcpy(reason, "there is more than one rank");
    return pl_world_size(world) == 1;
}

static enum pl_status init(struct pl_world *world, void **ret_state, struct pl_error *reterr)
{
    (void)world;
    (void)reterr;
    *ret_state = NULL;
    return PL_OK;
}

static bool serves(void *state, const struct pl_collective *collective)
{
    (void)state;
    return collective->memory != PL_MEMORY_DEVICE;
}

static enum pl_status post(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    const struct pl_collective *c = &request->collective;
    uint64_t count = pl_counts_get(c->counts, c->count, 0);

    (void)state;
    (void)reterr;
    *ret_done = true;
    if (!count || !c->send) {
        return PL_OK; /* nothing to move, or a broadcast, whose data is in place already */
    }
    if (pl_kind_reduces(c->kind)) {
        const struct pl_reduction reduction = {.dtype = c->dtype,
                                               .op = c->op,
                                               .divisor = c->divisor,
                                               .prescale = c->prescale,
                                               .postscale = c->postscale,
                                               .store = PL_KERNEL_STORE_CACHED};
        const void *source = c->send;
        void *dest = c->recv;
        /* in place, only a bool needs work then: it becomes 0 or 1 */
        bool unscaled = c->prescale == 1 && c->postscale == 1 && c->divisor == 1;

        if (source == dest && unscaled && c->dtype != PL_BOOL) {
            return PL_OK;
        }
        pl_kernel_reduce(pl_kernel_best(), &reduction, &dest, 1, &source, 1, count);
    } else if (c->send != c->recv) {
        memcpy(c->recv, c->send, count * pl_dtype_bytes(c->dtype));
    }
    return PL_OK;
}

static enum pl_status progress(void *state, struct pl_request *request, bool *ret_done, struct pl_error *reterr)
{
    (void)state;
    (void)request;
    (void)reterr;
    *ret_done = true;
    return PL_OK;
}

static void cancel(void *state, struct pl_request *request)
{
    (void)state;
    (void)request;
}

static void free_nothing(void *state)
{
    (void)state;
}

static const struct pl_backend self = {.name = "self",
                                       .always_on = true,
                                       .probe = probe,
                                       .init = init,
                                       .serves = serves,
                                       .post = post,
                                       .progress = progress,
                                       .cancel = cancel,
                                       .free = free_nothing};

const struct pl_backend *const pl_backends[] = {
    &self,           &pl_backend_nccl, &pl_backend_self_gpu, &pl_backend_host_staged,
    &pl_backend_shm, &pl_backend_hier, &pl_backend_p2p,      NULL,
};

_Static_assert(PL_ARRAY_ITEMS(pl_backends) - 1 <= PL_WORLD_MAX_BACKENDS, "the world has room for every backend");

enum pl_status pl_world_new(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                            struct pl_world **ret_world, struct pl_error *reterr)
{
    return pl_world_new_with_table(bootstrap, options, pl_backends, NULL, ret_world, reterr);
}
