/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Signals as events: everything a supervisor may get is blocked once, before the first fork, and read from a
 * descriptor. What a process changes of itself here, programs get back as it was.
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
    sigset_t former_mask; /* to restore in a child before it runs another program */
    struct sigaction former_pipe;
    struct rlimit former_files; /* 0: it is as it was */
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

/**
 * Raise this process's soft limit of open descriptors to `count`, where it is lower; the programs that it starts get
 * the former one. False where the hard limit is lower: then that is what it gets.
 */
bool pl_signals_raise_files(struct pl_signals *signals, size_t count);

/** Restore that limit, in a child before it runs a program. */
void pl_signals_restore_files(const struct pl_signals *signals);

/** Restore the mask and SIGPIPE as they were, in a child before it runs a program. */
void pl_signals_restore(const struct pl_signals *signals);

/** "SIGKILL" for 9; "signal 77" style names never fail. Valid until the next call with the same `text`. */
const char *pl_signals_name(int number, char text[static 16]);

#endif
