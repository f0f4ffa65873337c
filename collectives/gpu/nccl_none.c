/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for nccl_nccl.c in a build without nccl.h: the backend is off. */
#include "collectives/core/backend.h"

#include <string.h>

static bool probe(const struct pl_world *world, char reason[PL_BACKEND_REASON_BYTES])
{
    (void)world;
    strcpy(reason, "built without NCCL");
    return false;
}

const struct pl_backend pl_backend_nccl = {.name = "nccl", .on_device = true, .streamed = true, .probe = probe};
