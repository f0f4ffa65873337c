/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The watch for hangs: every host checks regularly whether its programs have done anything: written or read a byte,
 * finished a collective, read a record, or moved a MiB over the network. Use of CPU or GPU does not count, because a
 * program that waits in MPI or NCCL spins. If nothing has happened on any host for PACELINE_HANG_S, the job hangs: the
 * master has `paceline stacks` print to the log what each rank is doing. Then the job is left running, or, with
 * PACELINE_HANG_ACTION=end, it is ended. A worker tells the master whether it is quiet; hosts without a link decide for
 * themselves.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_WATCH_H
#define PL_ENTRYPOINT_SUPERVISE_WATCH_H

#include "base/activity.h"
#include "base/environment.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * The variable that names a directory. Python's hook writes the stacks of each process to a file there, which has the
 * process's number as its name.
 */
#define PL_WATCH_PYTHON_VARIABLE "PACELINE_PYTHON_STACKS"

struct pl_job;
struct pl_rundir;

/** The program that reports where other programs stand, and makes Python write its stacks. */
#define PL_WATCH_REPORTER "paceline-stacks"

struct pl_watch {
    int64_t hang_ns; /* 0: the watch is off */
    struct pl_activity activity;
    uint64_t seen, network_bytes; /* the numbers of activity and of network bytes at the last change */
    int64_t active_ns, next_look_ns;
    bool begun, quiet;
    bool ends;        /* a hang ends the job */
    bool told;        /* the master was sent that this host is quiet */
    bool reported;    /* this hang was reported */
    bool is_trial;    /* other trials run on this host, so its network counters say nothing about this job */
    pid_t answer_pid; /* the shim of this host's last answer to another host's report; 0 after its end */
    bool rebase;      /* the bytes that a report has cost the programs must not count as activity */
};

/**
 * Make the files in the run directory by which the watch sees the programs, and name them in `environment`. With
 * `python` the programs are not below `paceline rank`, which otherwise puts Python's hook on PYTHONPATH. Does nothing
 * if the watch is off.
 */
enum pl_status pl_watch_prepare(struct pl_watch *watch, const struct pl_job *job, const struct pl_rundir *rundir,
                                bool python, struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Puts the directory of Python's hook, relative to the binary at `self_path`, in front of PYTHONPATH. */
enum pl_status pl_watch_hook_python(struct pl_environment *environment, const char *self_path,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Looks if it is time, and records the result. `*next_ns` is lowered to the time of the next look. `paused`: another
 * process looks at the programs now, and this must not count as activity: `rebase` is set, and the end of that process
 * is the time of the next look.
 */
void pl_watch_look(struct pl_watch *watch, bool paused, int64_t *next_ns);

/**
 * Call when the shim `pid` runs `path` for another host. If that is PL_WATCH_REPORTER, the watch pauses until the shim
 * has ended; pl_watch_note_child_end() returns true for its end.
 */
void pl_watch_note_exec(struct pl_watch *watch, const char *path, pid_t pid);
bool pl_watch_note_child_end(struct pl_watch *watch, pid_t pid);

void pl_watch_done(struct pl_watch *watch);

#endif
