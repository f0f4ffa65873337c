/* SPDX-License-Identifier: Apache-2.0 */
/** The backend for ranks of one host: shared memory. Internal to collectives/. */
#ifndef PL_COLLECTIVES_SHM_BACKEND_H
#define PL_COLLECTIVES_SHM_BACKEND_H

#include "collectives/core/backend.h"

extern const struct pl_backend pl_backend_shm;

#endif
