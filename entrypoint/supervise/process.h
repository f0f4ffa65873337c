/* SPDX-License-Identifier: Apache-2.0 */
/** Takes signals as events, starts programs, kills whole trees of them, and reads the kernel's counters. */
#ifndef PL_ENTRYPOINT_SUPERVISE_PROCESS_H
#define PL_ENTRYPOINT_SUPERVISE_PROCESS_H

#include "base/text.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/**
 * Signals as events: every signal that a supervisor may get is blocked once, before the first fork, and read from a
 * descriptor. The settings that this process changes for that are restored for the programs that it starts.
 */
struct pl_signals {
    int fd;               /* readable when a signal waits; close-on-exec */
    sigset_t former_mask; /* mask to restore in a child before it runs another program */
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

/** Restores the soft limit from before pl_signals_raise_files(), in a child before it runs a program. */
void pl_signals_restore_files(const struct pl_signals *signals);

/** Restore the mask and SIGPIPE in a child before it runs a program. */
void pl_signals_restore(const struct pl_signals *signals);

/**
 * Returns "SIGKILL" for 9; a number without a name gives text like "signal 77". Valid until the next call with the same
 * `text`.
 */
const char *pl_signals_name(int number, char text[static 16]);

/* the kinds of processes that a shim supervises, and their names in messages */
#define PL_PROCESS_KIND_LIST(X)                                                                                        \
    X(PROGRAM, "the program")                                                                                          \
    X(RANK, "rank")                                                                                                    \
    X(LAUNCHER, "mpirun")                                                                                              \
    X(DAEMON, "Open MPI's launch daemon")                                                                              \
    X(SSHD, "sshd")                                                                                                    \
    X(SIDECAR, "the parameter server")                                                                                 \
    X(SYNC, "the upload of intermediate output")                                                                       \
    X(STEP, "the command")                                                                                             \
    X(TORCHRUN, "torchrun")                                                                                            \
    X(STACKS, "the report of where programs stand")                                                                    \
    X(WORKER_SERVER, "the worker's server")                                                                            \
    X(SPLIT, "the division of a channel among ranks")                                                                  \
    X(EXEC, "the program started by ssh")

enum pl_process_kind {
#define PL_PROCESS_KIND_ENUM(name, text) PL_PROCESS_##name,
    PL_PROCESS_KIND_LIST(PL_PROCESS_KIND_ENUM)
#undef PL_PROCESS_KIND_ENUM
};

/** Sets of kinds. */
#define PL_PROCESS_SET(name) (1U << PL_PROCESS_##name)
#define PL_PROCESS_SET_MAIN                                                                                            \
    (PL_PROCESS_SET(PROGRAM) | PL_PROCESS_SET(LAUNCHER) | PL_PROCESS_SET(TORCHRUN)) /* a plan's program */
#define PL_PROCESS_SET_SERVERS                                                                                         \
    (PL_PROCESS_SET(SIDECAR) | PL_PROCESS_SET(WORKER_SERVER) | PL_PROCESS_SET(SPLIT)) /* a plan's sidecars */

static inline bool pl_process_kind_in(enum pl_process_kind kind, unsigned set)
{
    return (1U << kind) & set;
}

struct pl_process_setup {
    const char *const *argv; /* ends with NULL; an argv[0] without '/' is looked up in the PATH of `environment` */
    /* a function to run instead of a program; argv then serves messages only. The child, a copy of this process, which
     * must have one thread, calls it with `context` and ends with its result as exit code. The child keeps this
     * process's signals and descriptors. */
    int (*run)(void *context);
    void *context;
    int namespaces; /* flags of clone(2) for its own namespaces; 0: none */
    char *const *environment;
    const char *cwd;                    /* NULL: the caller's directory */
    const struct pl_signals *signals;   /* the signal handling to restore; NULL: it was not changed */
    int stdin_fd, stdout_fd, stderr_fd; /* -1: the caller's descriptor */
    /* leave signals blocked, so that none can end the program before it unblocks them itself */
    bool keep_blocked;
    bool own_group;  /* make a new process group, led by the program */
    bool foreground; /* make that group the terminal's foreground group, if stdin is a terminal */
    /* 0, or the signal that the program gets when the calling thread ends; a safeguard only */
    int death_signal;
};

enum { PL_PROCESS_ANSWER = -2 }; /* as stdout_fd or stderr_fd of pl_process_run(): the output goes to `answer` */

#define PL_PROCESS_SETUP_NONE ((struct pl_process_setup){.stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1})

/**
 * Start a process that runs a program, or a function of this program (`run`). A program has descriptors 0, 1 and 2
 * only, since all others are close-on-exec everywhere here.
 *
 * Errors  PL_NOT_FOUND: no such program or directory, PL_SYSTEM: everything else (not executable, no memory);
 *         the child's errno is the code. Nothing is left running.
 */
enum pl_status pl_process_spawn(const struct pl_process_setup *setup, pid_t *ret_pid,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * pl_process_spawn(), and waits for the program's end. What it prints to a descriptor that is PL_PROCESS_ANSWER is
 * appended to `answer`, up to 1 MiB. A program that still runs at the deadline is killed, with its group if it has one
 * of its own.
 *
 * Errors  as pl_process_spawn(); PL_TIMEOUT; PL_FAILED: it did not end with 0. `answer` may have something then too.
 */
enum pl_status pl_process_run(const struct pl_process_setup *setup, int64_t deadline_ns, struct pl_text *answer,
                              struct pl_error *reterr) PL_MUST_CHECK;

/** pl_process_spawn() with `run` instead of a program. The process gets SIGKILL when the calling thread ends. */
enum pl_status pl_process_start(int namespaces, int (*run)(void *context), void *context, pid_t *ret_pid,
                                struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Makes this process the parent of orphaned descendants (a subreaper), unless it is process 1, so that none can escape.
 * If the system refuses, as emulators and some sandboxes do, it warns: processes that leave their group may then be
 * left running.
 */
void pl_process_adopt_orphans(void);

/** Which children are not killed. A reader's standard input is a pipe, but not this process's own input. */
enum pl_process_spare {
    PL_PROCESS_SPARE_NOBODY,
    PL_PROCESS_SPARE_READERS,
    PL_PROCESS_SPARE_READERS_AND_SHELLS,
};

/**
 * Kills every direct child but the `keep_count` in `keep` and those that `spare` names. Returns how many were killed.
 */
size_t pl_process_kill_children(const pid_t *keep, size_t keep_count, enum pl_process_spare spare);

/** Closes all descriptors from `first_fd` to `last_fd`; INT_MAX: all from `first_fd` on. */
void pl_process_close_range(int first_fd, int last_fd);

/** Returns the exit code, or the number of the signal if `*ret_signalled`. */
int pl_process_status_code(int wait_status, bool *ret_signalled);

/**
 * Return how many processes of this container's control groups, of version 2 or 1, were killed at the memory limit, and
 * how often the limit of processes and threads refused a new one; 0 if that cannot be known.
 */
int64_t pl_process_memory_kills(void);
int64_t pl_process_refused_forks(void);

/** End this process by the signal `number`, but without a core file. Returns if that signal ends no process. */
void pl_process_end_by_signal(int number);

#endif
