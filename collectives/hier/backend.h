/* SPDX-License-Identifier: Apache-2.0 */
/** The backend for several hosts of which at least one has several ranks. Internal to collectives/. */
#ifndef PL_COLLECTIVES_HIER_BACKEND_H
#define PL_COLLECTIVES_HIER_BACKEND_H

#include "collectives/core/backend.h"

extern const struct pl_backend pl_backend_hier;

#endif
