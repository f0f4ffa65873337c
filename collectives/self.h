/* SPDX-License-Identifier: Apache-2.0 */
/** The backend of a world of one rank. Internal to collectives/. */
#ifndef PL_COLLECTIVES_SELF_H
#define PL_COLLECTIVES_SELF_H

#include "collectives/core/backend.h"

extern const struct pl_backend pl_backend_self;

#endif
