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
 * Who reads along what a program prints to stdout and stderr. Both then pass through the shim, also to a terminal, of
 * which the program may not read; `prefix` stands before each line.
 */
struct pl_shim_reader {
    const char *prefix;
    void *context;
    /* in the shim, before its program starts: a descriptor that can be read when there is something to send; -1 with
     * errno */
    int (*open)(void *context);
    /* bytes of one stream have come, STDOUT_FILENO or STDERR_FILENO */
    void (*add)(void *context, int fd, const char *bytes, size_t count);
    /* send over the shim's link what there is to tell, and with `ended`, after the program and all of its output, all:
     * false where there is more */
    bool (*send)(void *context, struct pl_link *link, bool ended);
};

/** What a program gets as its stdout. */
enum pl_shim_stdout {
    PL_SHIM_STDOUT_OWN,    /* the shim's own */
    PL_SHIM_STDOUT_LINES,  /* a pipe, of which the shim writes whole lines; the shim's own where that is a terminal */
    PL_SHIM_STDOUT_MPIRUN, /* as mpirun's daemon gives it: a terminal, of which the shim writes whole lines to mpirun */
};

struct pl_shim_options {
    enum pl_exit_source source;
    enum pl_shim_stdout stdout_as;       /* without a reader */
    int rank;                            /* -1: it is none */
    const struct pl_shim_reader *reader; /* NULL: nobody */
    /* without a reader: before each line of both streams, where they are no terminal and the line has none; NULL: none
     */
    const char *tag;
    const char *host;
    int local_size;          /* ranks of this launch on this host; 0: unknown */
    int64_t most_stopped_ns; /* a program that SIGSTOP or the like stops for longer is killed; 0: it never is */
    /* how many of its first words name the program in a report; those after them may hold secrets */
    size_t program_words;
    struct pl_process_setup
        setup; /* stderr_fd, own_group and signals, with a reader stdin_fd and stdout_fd, are set by the shim */
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

/**
 * Fork a shim for somebody else: its link is `link_fd`, and its first `fds_count` standard descriptors are `fds`, from
 * 0 on. All of them stay the caller's.
 */
enum pl_status pl_shim_fork_for(const struct pl_shim_options *options, const struct pl_signals *signals, int link_fd,
                                const int *fds, size_t fds_count, pid_t *ret_pid,
                                struct pl_error *reterr) PL_MUST_CHECK;

#endif
