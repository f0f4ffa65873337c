/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The watch for hangs. Every host looks every now and then whether its programs have done anything: written or read a
 * byte, finished a collective, read a record, or moved a MiB over the network. Where none of the job's hosts has seen
 * anything for PACELINE_HANG_S, the master has `paceline stacks` print to the log where each rank stands, and then
 * waits on, or with PACELINE_HANG_ACTION=end ends the job. Use of CPU or GPU does not count: who waits in MPI or NCCL
 * spins.
 *
 * Hosts without a link each watch for themselves.
 */
#ifndef PL_ENTRYPOINT_SUPERVISE_WATCH_H
#define PL_ENTRYPOINT_SUPERVISE_WATCH_H

#include "base/activity.h"
#include "base/environment.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_job;
struct pl_rundir;
struct pl_supervisor;

enum { PL_WATCH_PLACE_BYTES = 400 };

struct pl_watch {
    int64_t hang_ns; /* 0: no watch */
    bool ends;       /* the job, when it hangs */
    struct pl_activity activity;
    uint64_t seen, network_bytes; /* when something happened last */
    int64_t active_ns, next_look_ns;
    bool begun, quiet, told; /* told: the master was told that this host is quiet */
    bool rebase;             /* what stacks have cost the programs in bytes is nothing that they did */
    bool reported;
    char place[PL_WATCH_PLACE_BYTES]; /* where the first program stands, as the report says */
};

/** Read the settings. */
void pl_watch_init(struct pl_watch *watch, const struct pl_job *job);

/**
 * Make what the programs need to be seen, in the run directory, and name it in `environment`; with `python` they are
 * not below `paceline rank`, which puts Python's hook on PYTHONPATH otherwise. Nothing happens without a watch.
 */
enum pl_status pl_watch_prepare(struct pl_watch *watch, const struct pl_job *job, const struct pl_rundir *rundir,
                                bool python, struct pl_environment *environment, struct pl_error *reterr) PL_MUST_CHECK;

/** Put the directory of Python's hook, seen from the binary at `self_path`, in front of PYTHONPATH. */
enum pl_status pl_watch_hook_python(struct pl_environment *environment, const char *self_path,
                                    struct pl_error *reterr) PL_MUST_CHECK;

/** Look when it is time, and note it; `*next_ns` becomes the time of the next look where that is earlier. */
void pl_watch_look(struct pl_supervisor *supervisor, int64_t *next_ns);

/** The job hangs: `others_quiet` says that of all other hosts. Reports it once, and ends the job where it is to. */
void pl_watch_judge(struct pl_supervisor *supervisor, bool others_quiet);

/** The report, which runs as a program of its own, has ended. */
void pl_watch_note_end(struct pl_supervisor *supervisor);

/** What the report found. */
void pl_watch_note_place(struct pl_supervisor *supervisor, const char *text);

/** Start `paceline stacks` with `count` options. Errors: PL_NOT_FOUND: it is not installed. */
enum pl_status pl_watch_start_stacks(struct pl_supervisor *supervisor, const char *const *options, size_t count,
                                     struct pl_error *reterr) PL_MUST_CHECK;

void pl_watch_done(struct pl_watch *watch);

#endif
