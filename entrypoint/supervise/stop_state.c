/* SPDX-License-Identifier: Apache-2.0 */
/* Says which state of a stop may follow which state. */
#include "entrypoint/supervise/stop_state.h"

#include "base/status.h"

#include <stdbool.h>

void pl_stop_go(enum pl_stop_state *state, enum pl_stop_state next)
{
    static const bool may_follow[][PL_STOP_RELEASED + 1] = {
        [PL_STOP_RUNNING] = {[PL_STOP_SAVING] = true, [PL_STOP_HELD] = true},
        [PL_STOP_SAVING] = {[PL_STOP_SAVING] = true, [PL_STOP_HELD] = true, [PL_STOP_RELEASED] = true},
        [PL_STOP_HELD] = {[PL_STOP_SAVING] = true, [PL_STOP_RELEASED] = true},
        /* a host that connects is asked too, and the master may decide again what was decided here */
        [PL_STOP_RELEASED] = {[PL_STOP_SAVING] = true, [PL_STOP_RELEASED] = true},
    };

    PL_BUG_IF(!may_follow[*state][next]);
    *state = next;
}
