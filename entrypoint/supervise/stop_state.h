/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The states of a stop, by the names of the table in docs/supervision.md. Each host is in one of them, and each rank's
 * shim. The table's last one, "over", is not a value: the host's program, or the shim, has ended then.
 *
 * Test  tests/unit/entrypoint/supervise/test_stop_state.c, tests/models/stop.pml
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_STOP_STATE_H
#define PL_ENTRYPOINT_SUPERVISE_STOP_STATE_H

enum pl_stop_state {
    PL_STOP_RUNNING,  /* nobody has asked for a stop */
    PL_STOP_SAVING,   /* it was asked for: ranks and programs that have a handler for the signal save */
    PL_STOP_HELD,     /* host: the failure file is written, and others still save; shim: its rank has no handler, and
                         gets the signal last */
    PL_STOP_RELEASED, /* no rank saves: shims need not wait any more */
};

/** Go to the state `next`. That it cannot follow is a bug of ours. */
void pl_stop_go(enum pl_stop_state *state, enum pl_stop_state next);

#endif
