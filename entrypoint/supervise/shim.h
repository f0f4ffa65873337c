/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The shim: a small process between a supervisor and one program. It starts the program in a process group of its
 * own, forwards signals to the group, copies the program's stderr unchanged while keeping the last lines, and reports
 * its exit over a link. The stdout of ranks, of trials, and of programs that share a host's log passes through it too.
 * It is the only place where the programs' output passes through Paceline. It writes whole lines; one whose end does
 * not come within 100 ms, one that is longer than 4 KiB, and what comes on a terminal go out as they are. A reader of
 * the log that has stopped keeps it from nothing else.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_SHIM_H
#define PL_ENTRYPOINT_SUPERVISE_SHIM_H

#include "entrypoint/ssh/link.h"
#include "entrypoint/supervise/exit_report.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/signals.h"

/**
 * A trial of a sweep: its stdout passes through the shim too, each line of both begins with "[trial N] ", and a line in
 * which `metric_regex` finds a number is reported (REPORT). Both are extended regular expressions whose first group is
 * the number. The step is the last that `step_regex` has found, in that line or before; without one, reports are
 * counted from `last_step` on.
 */
struct pl_shim_trial {
    int number;
    const char *metric_regex;
    const char *step_regex; /* NULL: none */
    int64_t last_step;
};

/** What a program gets as its stdout. */
enum pl_shim_stdout {
    PL_SHIM_STDOUT_OWN,    /* the shim's own */
    PL_SHIM_STDOUT_LINES,  /* a pipe, of which the shim writes whole lines; the shim's own where that is a terminal */
    PL_SHIM_STDOUT_MPIRUN, /* as mpirun's daemon gives it: a terminal, of which the shim writes whole lines to mpirun */
};

struct pl_shim_options {
    enum pl_exit_source source;
    enum pl_shim_stdout stdout_as;     /* not of a trial, which has PL_SHIM_STDOUT_LINES on a terminal too */
    int rank;                          /* of a trial its number; -1 when it is neither */
    const struct pl_shim_trial *trial; /* NULL: it is none. Its texts must live until the fork */
    const char *host;
    int local_size;          /* ranks of this launch on this host; 0: unknown */
    int64_t most_stopped_ns; /* a program that SIGSTOP or the like stops for longer is killed; 0: it never is */
    /* how many of its first words name the program in a report; those after them may hold secrets */
    size_t program_words;
    struct pl_process_setup
        setup; /* stderr_fd, own_group and signals, of a trial stdin_fd and stdout_fd, are set by the shim */
    /* places to look for a full disk when the program failed; NULL-terminated, may be NULL */
    const char *const *disks;
};

/**
 * Run the program to its end and report over `link` (whose fd may be -1): HELLO, BEGUN, ENDED. A STOP frame and every
 * signal that this process gets go to the program's group; the end of the link kills it. Processes that the program
 * leaves when it ends are killed. The exit report, a failed start included, is stored in `*ret_report` too.
 *
 * The shim of a rank that got a STOP frame says whether the program has a handler for its signal (CATCHES): one without
 * gets the signal with the RELEASE frame. It returns only after that, SIGTERM or the end of the link: mpirun ends all
 * ranks when one leaves.
 */
void pl_shim_run(const struct pl_shim_options *options, const struct pl_signals *signals, struct pl_link *link,
                 struct pl_exit_report *ret_report);

/** Fork a shim; the other end of its link is `*ret_fd`. The child never returns. */
enum pl_status pl_shim_fork(const struct pl_shim_options *options, const struct pl_signals *signals, pid_t *ret_pid,
                            int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

#endif
