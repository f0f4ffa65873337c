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

/** Names the directory with one file a process, called by its number: there Python's hook writes the stacks. */
#define PL_WATCH_PYTHON_VARIABLE "PACELINE_PYTHON_STACKS"

struct pl_job;
struct pl_rundir;

/** The program that looks at the others, and has Python in them write its stacks. */
#define PL_WATCH_REPORTER "paceline-stacks"

struct pl_watch {
    int64_t hang_ns; /* 0: no watch */
    struct pl_activity activity;
    uint64_t seen, network_bytes; /* when something happened last */
    int64_t active_ns, next_look_ns;
    bool begun, quiet;
    bool is_trial;    /* beside others on its host, whose network says nothing of this job */
    pid_t answer_pid; /* the shim of this host's last answer to another one's report; 0: it has ended */
    bool rebase;      /* what stacks have cost the programs in bytes is nothing that they did */
};

/**
 * Make what the programs need to be seen, in the run directory, and name it in `environment`; with `python` they are
 * not below `paceline rank`, which puts Python's hook on PYTHONPATH otherwise. Nothing happens without a watch.
 */
enum pl_status pl_watch_prepare(struct pl_watch *watch, const struct pl_job *job, const struct pl_rundir *rundir,
                                bool python, struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Put the directory of Python's hook, seen from the binary at `self_path`, in front of PYTHONPATH. */
enum pl_status pl_watch_hook_python(struct pl_environment *environment, const char *self_path,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/**
 * Look when it is time, and note it; `*next_ns` becomes the time of the next look where that is earlier. With `paused`
 * the programs are being looked at by somebody else, which is nothing that they do.
 */
void pl_watch_look(struct pl_watch *watch, bool paused, int64_t *next_ns);

/** The shim `pid` runs `path` for another host: PL_WATCH_REPORTER pauses the watch too, until the child has ended. */
void pl_watch_note_exec(struct pl_watch *watch, const char *path, pid_t pid);
void pl_watch_note_child_end(struct pl_watch *watch, pid_t pid);

void pl_watch_done(struct pl_watch *watch);

#endif
