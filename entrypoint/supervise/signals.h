/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Signals as events: everything a supervisor may get is blocked once, before the first fork, and read from a
 * descriptor.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_SIGNALS_H
#define PL_ENTRYPOINT_SUPERVISE_SIGNALS_H

#include "base/status.h"

#include <signal.h>

struct pl_signals {
    int fd;               /* readable when a signal waits; close-on-exec */
    sigset_t former_mask; /* to restore in a child before it runs another program */
    struct sigaction former_pipe;
};

#define PL_SIGNALS_NONE ((struct pl_signals){.fd = -1})

/**
 * Block all signals but the ones that report our own faults, ignore SIGPIPE (a broken pipe is a write error here), and
 * open the descriptor, both for the rest of the process: a signal that comes while it exits must not change its exit
 * code.
 *
 * SIGCHLD gets its default disposition for good: where it was ignored when we were started, the kernel would hide the
 * exit codes of children from us, and from mpirun, pip and every program that starts others.
 */
enum pl_status pl_signals_open(struct pl_signals *signals, struct pl_error *reterr) PL_MUST_CHECK;

/** The next waiting signal, or 0 when none waits. */
int pl_signals_next(const struct pl_signals *signals);

/** Restore the mask and SIGPIPE as they were, in a child before it runs a program. */
void pl_signals_restore(const struct pl_signals *signals);

/** "SIGKILL" for 9; "signal 77" style names never fail. Valid until the next call with the same `text`. */
const char *pl_signals_name(int number, char text[static 16]);

#endif
