/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The shim: a small process between a supervisor and one program. It starts the program in a process group of its own,
 * forwards signals to it, copies the program's stderr while keeping the last lines, and reports its exit over a link.
 * The shim also copies the stdout of a program that is alone, of ranks, of trials, and of programs that share a host's
 * log. It is the only part of Paceline through which the programs' output passes. It writes whole lines, and of a
 * progress bar a line now and then (bars.h). Lines are written in parts if their end does not arrive in time
 * (copier.h), if they are longer than 4 KiB, or if they go to a terminal. If the reader of the log has stopped, the
 * shim still does everything else.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_SHIM_H
#define PL_ENTRYPOINT_SUPERVISE_SHIM_H

#include "entrypoint/output/bars.h"
#include "entrypoint/ssh/link.h"
#include "entrypoint/supervise/exit_report.h"

/** The stdout that a program gets. */
enum pl_shim_stdout {
    PL_SHIM_STDOUT_OWN, /* the shim's own */
    /* a pipe, from which the shim writes whole lines; or the shim's own stdout if that is a terminal */
    PL_SHIM_STDOUT_LINES,
    /* PL_SHIM_STDOUT_LINES for a program that is alone: see is_alone of entrypoint/output/copier.h */
    PL_SHIM_STDOUT_ALONE,
    /* a terminal, as mpirun's daemon gives it, from which the shim writes whole lines to mpirun */
    PL_SHIM_STDOUT_MPIRUN,
};

/**
 * The states of a stop, named as in docs/internals/supervision.md. Each host is in one of them, and so is each rank's
 * shim. The last state of the table, "over", has no value here: the host's program or the shim has ended then.
 *
 * Test  tests/unit/entrypoint/supervise/test_stop_state.c, tests/models/stop.pml
 */
enum pl_stop_state {
    PL_STOP_RUNNING,  /* no stop was requested */
    PL_STOP_SAVING,   /* a stop was requested: ranks and programs that have a handler for the signal save */
    PL_STOP_HELD,     /* only a host: the failure file is written, while other ranks or programs still save */
    PL_STOP_DEFERRED, /* only a shim: its rank has no handler, and gets the signal last */
    PL_STOP_RELEASED, /* no rank saves: ranks without a handler get the signal, shims need not wait */
};

/** Go to the state `next`. A state that may not follow is a bug of ours. */
void pl_stop_go(enum pl_stop_state *state, enum pl_stop_state next);

struct pl_shim_options {
    enum pl_process_kind kind;
    enum pl_shim_stdout stdout_as; /* used without `read` */
    enum pl_cause_lines searched;  /* lines of stderr that are searched for an exception */
    bool without_blocks;           /* the program is mpirun: see entrypoint/output/copier.h */
    int rank;                      /* -1: the program is not a rank */
    /* a function that gets the bytes that the program prints to STDOUT_FILENO or STDERR_FILENO; both then pass through
     * the shim by whole lines, also to a terminal. NULL: none */
    void (*read)(void *context, int fd, const char *bytes, size_t count);
    void *context;
    /* text that is written before each line of both streams, unless the line has it already or goes to a terminal (with
     * `read` also then); NULL: none */
    const char *tag;
    const char *host;
    int64_t progress_ns;     /* time between two lines of a progress bar: see entrypoint/output/bars.h */
    int local_size;          /* ranks of this launch on this host; 0: unknown */
    int64_t most_stopped_ns; /* a program that SIGSTOP or a similar signal stops for longer is killed; 0: never */
    /* how many of its first words name the program in a report; the words after them may contain secrets */
    size_t program_words;
    struct pl_process_setup setup; /* the shim sets stderr_fd, own_group, signals, and stdout_fd if it copies stdout */
    /* directories to check for a full disk if the program failed; NULL-terminated, may be NULL */
    const char *const *disks;
};

/**
 * Run the program to its end, and send HELLO, BEGUN and ENDED over `link`, whose fd may be -1. A SIGNAL frame, and
 * SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1 and SIGUSR2 that this process gets, are forwarded to the program's
 * processes (entrypoint/proc/delivery.h). The end of the link kills the program. Processes that the program leaves
 * behind are killed; those that read from a pipe have 2 s to write what they have read. The exit report is also stored
 * in `*ret_report`, even if the start failed.
 *
 * The shim of a rank that gets the SIGNAL frame of a stop reports whether a process of the program has a handler for it
 * (CATCHES). A program without a handler gets the signal with the RELEASE frame. The function returns only after that
 * frame, SIGHUP, SIGINT, SIGQUIT, SIGTERM or the end of the link, because mpirun ends all ranks when one leaves.
 */
void pl_shim_run(const struct pl_shim_options *options, const struct pl_signals *signals, struct pl_link *link,
                 struct pl_exit_report *ret_report);

/** Fork a shim. `*ret_fd` is the other end of its link. The child never returns. */
enum pl_status pl_shim_fork(const struct pl_shim_options *options, const struct pl_signals *signals, pid_t *ret_pid,
                            int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Fork a shim for a client: its link is `link_fd`, and its first `fds_count` standard descriptors are `fds`. The caller
 * keeps all of these descriptors.
 */
enum pl_status pl_shim_fork_for(const struct pl_shim_options *options, const struct pl_signals *signals, int link_fd,
                                const int *fds, size_t fds_count, pid_t *ret_pid,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
