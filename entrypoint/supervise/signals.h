/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Signals as events: every signal that a supervisor may get is blocked once, before the first fork, and read from a
 * descriptor. What a process changes of its own settings here is restored for the programs that it starts.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_SIGNALS_H
#define PL_ENTRYPOINT_SUPERVISE_SIGNALS_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

struct pl_signals {
    int fd;               /* readable when a signal waits; close-on-exec */
    sigset_t former_mask; /* to be restored in a child before it runs another program */
    struct sigaction former_pipe;
    struct rlimit former_files; /* 0: not changed */
};

#define PL_SIGNALS_NONE ((struct pl_signals){.fd = -1})

/**
 * Block all signals but those that report our own faults, ignore SIGPIPE (a broken pipe is a write error here), and
 * open the descriptor. All of this holds for the rest of the process: a signal that arrives while it exits must not
 * change its exit code.
 *
 * SIGCHLD gets its default disposition, and keeps it. If it was ignored when this process was started, the kernel would
 * hide the exit codes of children from us, and from mpirun, pip and every program that starts others.
 */
enum pl_status pl_signals_open(struct pl_signals *signals, struct pl_error *reterr) PL_MUST_CHECK;

/** Returns the next waiting signal, or 0 if there is none. */
int pl_signals_next(const struct pl_signals *signals);

/**
 * Raise this process's soft limit of open descriptors to `count`, if it is lower; the programs that it starts get the
 * earlier limit. Returns false if the hard limit is lower than `count`: then the soft limit becomes the hard limit.
 */
bool pl_signals_raise_files(struct pl_signals *signals, size_t count);

/** Restore that limit in a child before it runs a program. */
void pl_signals_restore_files(const struct pl_signals *signals);

/** Restore the mask and SIGPIPE in a child before it runs a program. */
void pl_signals_restore(const struct pl_signals *signals);

/**
 * Returns "SIGKILL" for 9; a number without a name gives text like "signal 77". Valid until the next call with the same
 * `text`.
 */
const char *pl_signals_name(int number, char text[static 16]);

#endif
