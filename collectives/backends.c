/* SPDX-License-Identifier: Apache-2.0 */
/* The table of backends, and the worlds that run on it. */
#include "collectives/gpu/backends.h"
#include "collectives/backends.h"

#include "base/memory.h"
#include "collectives/bootstrap.h"
#include "collectives/core/types.h"
#include "collectives/hier/backend.h"
#include "collectives/p2p/backend.h"
#include "collectives/self.h"
#include "collectives/shm/backend.h"
#include "collectives/world_private.h"

const struct pl_backend *const pl_backends[] = {
    &pl_backend_self, &pl_backend_nccl, &pl_backend_self_gpu, &pl_backend_host_staged,
    &pl_backend_shm,  &pl_backend_hier, &pl_backend_p2p,      NULL,
};

_Static_assert(PL_ARRAY_ITEMS(pl_backends) - 1 <= PL_WORLD_MAX_BACKENDS, "the world has room for every backend");

enum pl_status pl_world_new(struct pl_bootstrap *bootstrap, const struct pl_world_options *options,
                            struct pl_world **ret_world, struct pl_error *reterr)
{
    return pl_world_new_with_table(bootstrap, options, pl_backends, NULL, ret_world, reterr);
}
