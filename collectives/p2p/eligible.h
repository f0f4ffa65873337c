/* SPDX-License-Identifier: Apache-2.0 */
/** How a collective may be sent between ranks, by its own fields. Internal to collectives/. */
#ifndef PL_COLLECTIVES_P2P_ELIGIBLE_H
#define PL_COLLECTIVES_P2P_ELIGIBLE_H

#include "collectives/collective.h"

/** Whether blocks must be reduced once, from all inputs, in rank order. */
bool pl_p2p_needs_direct(const struct pl_collective *collective);

/** Whether the collective asks for compression, and is of a kind that can be compressed. */
bool pl_p2p_is_compressed(const struct pl_collective *collective);

#endif
