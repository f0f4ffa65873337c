/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The watcher: a small process between a supervisor and one program. It starts the program in a process group of its
 * own, passes signals on to the group, copies the program's stderr unchanged while keeping the last lines, and reports
 * the ending over a link. It is the only place where the programs' output passes through us.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_WATCH_H
#define PL_ENTRYPOINT_SUPERVISE_WATCH_H

#include "entrypoint/ssh/link.h"
#include "entrypoint/supervise/ending.h"
#include "entrypoint/supervise/process.h"
#include "entrypoint/supervise/signals.h"

struct pl_watch {
    enum pl_ending_of of;
    int rank; /* -1 when it is no rank */
    const char *host;
    /* how many of its first words name the program in a report; those behind them may hold secrets */
    size_t program_words;
    struct pl_process_setup setup; /* stderr_fd, own_group and signals are the watcher's to set */
    /* places to look for a full disk when the program failed; NULL-terminated, may be NULL */
    const char *const *disks;
};

/**
 * Run the program to its end and report over `link` (whose fd may be -1): HELLO, BEGUN, ENDED. A STOP frame and every
 * signal that this process gets go to the program's group; the end of the link kills it. What the program leaves behind
 * when it ends is killed. The ending, a failed start included, is left in `*ret_ending` too.
 */
void pl_watch_run(const struct pl_watch *watch, const struct pl_signals *signals, struct pl_link *link,
                  struct pl_ending *ret_ending);

/** Fork a watcher whose link's other end is `*ret_fd`. The child never returns. */
enum pl_status pl_watch_fork(const struct pl_watch *watch, const struct pl_signals *signals, pid_t *ret_pid,
                             int *ret_fd, struct pl_error *reterr) PL_MUST_CHECK;

#endif
