/* SPDX-License-Identifier: Apache-2.0 */
/** The table of backends. Internal to collectives/. */
#ifndef PL_COLLECTIVES_BACKENDS_H
#define PL_COLLECTIVES_BACKENDS_H

#include "collectives/core/backend.h"

/** In order of preference: the first backend that runs and serves a collective gets it. NULL ends the table. */
extern const struct pl_backend *const pl_backends[];

#endif
