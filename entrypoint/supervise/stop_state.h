/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The states of a stop, by the names of the table in docs/supervision.md: of a host, and of a rank's shim on it. The
 * last one of the table, "over", is no state but the end of the host's program, or of the shim.
 *
 * Test  tests/models/stop.pml
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_STOP_STATE_H
#define PL_ENTRYPOINT_SUPERVISE_STOP_STATE_H

enum pl_stop_state {
    PL_STOP_RUNNING,  /* nobody has asked for a stop */
    PL_STOP_SAVING,   /* it was asked for: ranks and programs that have a handler for the signal save */
    PL_STOP_HELD,     /* of a host: the failure file is written, and others still save; of a shim: its rank has no
                         handler, and gets the signal last */
    PL_STOP_RELEASED, /* no rank saves: shims need not wait any more */
};

/** Go to the state `next`. That it cannot follow is a bug of ours. */
void pl_stop_go(enum pl_stop_state *state, enum pl_stop_state next);

#endif
