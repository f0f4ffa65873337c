/* SPDX-License-Identifier: Apache-2.0 */
/** The backend for messages between two ranks. Internal to collectives/. */
#ifndef PL_COLLECTIVES_P2P_BACKEND_H
#define PL_COLLECTIVES_P2P_BACKEND_H

#include "collectives/core/backend.h"

extern const struct pl_backend pl_backend_p2p;

#endif
