/* SPDX-License-Identifier: Apache-2.0 */
/** The backends for device memory. Internal to collectives/. */
#ifndef PL_COLLECTIVES_GPU_BACKENDS_H
#define PL_COLLECTIVES_GPU_BACKENDS_H

#include "collectives/core/backend.h"

/** One rank. */
extern const struct pl_backend pl_backend_self_gpu;

/** A device a rank, by NCCL; always off in a build without it. */
extern const struct pl_backend pl_backend_nccl;

/** Any devices, with the hosts' help. */
extern const struct pl_backend pl_backend_host_staged;

#endif
