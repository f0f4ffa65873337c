/* SPDX-License-Identifier: Apache-2.0 */
/** Starting programs and killing whole trees of them. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PROCESS_H
#define PL_ENTRYPOINT_SUPERVISE_PROCESS_H

#include "base/status.h"
#include "entrypoint/supervise/signals.h"

#include <stddef.h>
#include <sys/types.h>

struct pl_process_setup {
    const char *const *argv; /* ends with NULL; argv[0] without '/' is looked up in the PATH of `environment` */
    char *const *environment;
    const char *cwd;                    /* NULL: the caller's */
    const struct pl_signals *signals;   /* what to restore; NULL: nothing was changed */
    int stdin_fd, stdout_fd, stderr_fd; /* -1: the caller's */
    /* leave signals blocked: the program takes them itself, and none can end it before it does */
    bool keep_blocked;
    bool own_group;  /* a process group of its own, led by the program */
    bool foreground; /* make that group the terminal's foreground, when stdin is one */
    /* 0, or the signal that the program gets when the calling thread ends (an extra: nothing depends on it) */
    int death_signal;
};

#define PL_PROCESS_SETUP_NONE ((struct pl_process_setup){.stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1})

/**
 * Start a program. All descriptors but 0, 1 and 2 are closed in it, as they are close-on-exec throughout this program.
 *
 * Errors  PL_NOT_FOUND: no such program or directory, PL_SYSTEM: everything else (not executable, no memory); the
 *         child's errno is the code. Nothing is left running.
 */
enum pl_status pl_process_spawn(const struct pl_process_setup *setup, pid_t *ret_pid,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Become the parent of orphaned descendants (a subreaper), when not process 1 already, so that none escapes. Where the
 * system refuses (emulators and some sandboxes do), a warning: those that leave their group may then be left running.
 */
void pl_process_adopt_orphans(void);

/** Send `signal` to every direct child but the `keep_count` in `keep`; returns how many there were. */
size_t pl_process_signal_children(int signal, const pid_t *keep, size_t keep_count);

/** Close the descriptors from `first_fd` to `last_fd`, where there are any; INT_MAX for all after the first. */
void pl_process_close_range(int first_fd, int last_fd);

/** The exit code, or the signal's number when `*ret_signalled`. */
int pl_process_status_code(int wait_status, bool *ret_signalled);

#endif
