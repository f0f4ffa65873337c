/* SPDX-License-Identifier: Apache-2.0 */
/** The backends for device memory. Internal to collectives/. */
#ifndef PL_COLLECTIVES_GPU_BACKENDS_H
#define PL_COLLECTIVES_GPU_BACKENDS_H

#include "collectives/core/backend.h"

/** For one rank. */
extern const struct pl_backend pl_backend_self_gpu;

/** For one device per rank, by NCCL; always off in a build without it. */
extern const struct pl_backend pl_backend_nccl;

/** For any devices, through host memory. */
extern const struct pl_backend pl_backend_host_staged;

#endif
