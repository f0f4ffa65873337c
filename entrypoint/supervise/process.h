/* SPDX-License-Identifier: Apache-2.0 */
/** Starts programs, kills whole trees of them, and reads what the kernel counts of them. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PROCESS_H
#define PL_ENTRYPOINT_SUPERVISE_PROCESS_H

#include "base/text.h"
#include "entrypoint/supervise/signals.h"

#include <stddef.h>
#include <sys/types.h>

struct pl_process_setup {
    const char *const *argv; /* ends with NULL; an argv[0] without '/' is looked up in the PATH of `environment` */
    /* in place of the program, whose name is for messages alone: the child, a copy of this process, calls it with
     * `context`, and ends with its result as exit code. Its signals and descriptors are those of this process. */
    int (*run)(void *context);
    void *context;
    char *const *environment;
    const char *cwd;                    /* NULL: the caller's directory */
    const struct pl_signals *signals;   /* the signal handling to restore; NULL: it was not changed */
    int stdin_fd, stdout_fd, stderr_fd; /* -1: that of the caller */
    /* leave signals blocked: the program unblocks them itself, and no signal can end it before */
    bool keep_blocked;
    bool own_group;  /* make a new process group, led by the program */
    bool foreground; /* make that group the terminal's foreground group, if stdin is a terminal */
    /* 0, or the signal that the program gets when the calling thread ends; nothing depends on it */
    int death_signal;
};

enum { PL_PROCESS_ANSWER = -2 }; /* as stdout_fd or stderr_fd of pl_process_run() */

#define PL_PROCESS_SETUP_NONE ((struct pl_process_setup){.stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1})

/**
 * Start a program. All descriptors but 0, 1 and 2 are closed in it, because they are close-on-exec everywhere in this
 * program.
 *
 * Errors  PL_NOT_FOUND: no such program or directory, PL_SYSTEM: everything else (not executable, no memory);
 *         the child's errno is the code. Nothing is left running.
 */
enum pl_status pl_process_spawn(const struct pl_process_setup *setup, pid_t *ret_pid,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * The same, and waits for its end. What it prints to a descriptor that is PL_PROCESS_ANSWER is appended to `answer`, up
 * to 1 MiB. A program that runs at the deadline is killed, with its group if that is its own.
 *
 * Errors  as pl_process_spawn(); PL_TIMEOUT; PL_FAILED: it did not end with 0. `answer` may have something then too.
 */
enum pl_status pl_process_run(const struct pl_process_setup *setup, int64_t deadline_ns, struct pl_text *answer,
                              struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Starts a process of this program, which calls `run` and ends with code 0 unless `run` ends it otherwise. It gets
 * SIGKILL when the calling thread ends, and has namespaces of its own, as clone(2) has them; 0: none.
 */
enum pl_status pl_process_start(int namespaces, void (*run)(void *context), void *context, pid_t *ret_pid,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes this process the parent of orphaned descendants (a subreaper), unless it is process 1, so that none can escape.
 * If the system refuses, as emulators and some sandboxes do, it warns: processes that leave their group may then be
 * left running.
 */
void pl_process_adopt_orphans(void);

/** Sends `signal` to every direct child but the `keep_count` in `keep`. Returns how many children got it. */
size_t pl_process_signal_children(int signal, const pid_t *keep, size_t keep_count);

/** Which children are not killed; a reader has as standard input a pipe, other than this process's own input. */
enum pl_process_spare {
    PL_PROCESS_SPARE_NOBODY,
    PL_PROCESS_SPARE_READERS,
    PL_PROCESS_SPARE_READERS_AND_SHELLS,
};

/** Kills every direct child, but not those that `spare` names. */
void pl_process_kill_children_but(enum pl_process_spare spare);

/** Closes all descriptors from `first_fd` to `last_fd`; INT_MAX: all from `first_fd` on. */
void pl_process_close_range(int first_fd, int last_fd);

/** Returns the exit code, or the number of the signal if `*ret_signalled`. */
int pl_process_status_code(int wait_status, bool *ret_signalled);

/**
 * How many processes of this container's control groups, of version 2 or 1, were killed because the memory limit was
 * reached, and how often the limit of processes and threads refused one; 0 if it cannot be known.
 */
int64_t pl_process_memory_kills(void);
int64_t pl_process_refused_forks(void);

#endif
