/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The states of a stop, with the names of the table in docs/supervision.md. Each host is in one of them, and so is each
 * rank's shim. The last state of the table, "over", has no value here: the host's program or the shim has ended then.
 *
 * Test  tests/unit/entrypoint/supervise/test_stop_state.c, tests/models/stop.pml
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_STOP_STATE_H
#define PL_ENTRYPOINT_SUPERVISE_STOP_STATE_H

enum pl_stop_state {
    PL_STOP_RUNNING,  /* no stop was requested */
    PL_STOP_SAVING,   /* a stop was requested: ranks and programs that have a handler for the signal save */
    PL_STOP_HELD,     /* host: the failure file is written, and others still save; shim: its rank has no handler, and
                         gets the signal last */
    PL_STOP_RELEASED, /* no rank saves any more: shims need not wait */
};

/** Go to the state `next`. A state that may not follow is a bug of ours. */
void pl_stop_go(enum pl_stop_state *state, enum pl_stop_state next);

#endif
