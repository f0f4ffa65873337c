/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The watch for hangs: every host looks every now and then whether its programs have done anything, which is to write
 * or read a byte, to finish a collective, to read a record, or to move a MiB over the network. Use of CPU or GPU does
 * not count: who waits in MPI or NCCL spins. What follows from it is in hang.h.
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
 * The variable that names the directory with one file per process, called by its number, to which Python's hook writes
 * the stacks.
 */
#define PL_WATCH_PYTHON_VARIABLE "PACELINE_PYTHON_STACKS"

struct pl_job;
struct pl_rundir;

/** The program that looks at the others, and has Python write its stacks. */
#define PL_WATCH_REPORTER "paceline-stacks"

struct pl_watch {
    int64_t hang_ns; /* 0: there is no watch */
    struct pl_activity activity;
    uint64_t seen, network_bytes; /* time at which something happened last, and the network's counter */
    int64_t active_ns, next_look_ns;
    bool begun, quiet;
    bool is_trial;    /* other trials run on this host, so that its network counters say nothing of this job */
    pid_t answer_pid; /* the shim of this host's last answer to another host's report; 0: it has ended */
    bool rebase;      /* the bytes that a report has cost the programs must not count as activity */
};

/**
 * Make what the programs need to be seen, in the run directory, and name it in `environment`; with `python` they are
 * not below `paceline rank`, which puts Python's hook on PYTHONPATH otherwise. Nothing happens without a watch.
 */
enum pl_status pl_watch_prepare(struct pl_watch *watch, const struct pl_job *job, const struct pl_rundir *rundir,
                                bool python, struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Puts the directory of Python's hook, relative to the binary at `self_path`, in front of PYTHONPATH. */
enum pl_status pl_watch_hook_python(struct pl_environment *environment, const char *self_path,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Looks when it is time, and records the result. `*next_ns` is lowered to the time of the next look. With `paused`
 * another process looks at the programs, which must not count as activity.
 */
void pl_watch_look(struct pl_watch *watch, bool paused, int64_t *next_ns);

/**
 * Call when the shim `pid` runs `path` for another host: PL_WATCH_REPORTER pauses the watch until the child has ended.
 */
void pl_watch_note_exec(struct pl_watch *watch, const char *path, pid_t pid);
void pl_watch_note_child_end(struct pl_watch *watch, pid_t pid);

void pl_watch_done(struct pl_watch *watch);

#endif
