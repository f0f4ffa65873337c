/* SPDX-License-Identifier: Apache-2.0 */
/** What a collective's own fields say about how it may travel between ranks. Internal to collectives/. */
#ifndef PL_COLLECTIVES_P2P_ELIGIBLE_H
#define PL_COLLECTIVES_P2P_ELIGIBLE_H

#include "collectives/collective.h"

/** True where blocks must be added up once, from all inputs, in rank order. */
bool pl_p2p_needs_direct(const struct pl_collective *collective);

/** Whether the collective asks for compression, and is of a kind that can have it. */
bool pl_p2p_is_compressed(const struct pl_collective *collective);

#endif
